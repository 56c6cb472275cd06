"use strict";
// The theme of a page: the address (#dark, #light), else what the reader chose in this browser, else that of the system.
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const stored = (value) => {
    try {
      if (value) localStorage.setItem("haybale-theme", value);
      return localStorage.getItem("haybale-theme");
    } catch { return null; }  // pages opened from a file may have no storage
  };
  const asked = /^#(dark|light)$/.exec(location.hash);
  const chosen = asked ? asked[1] : stored();
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    button.hidden = false;
    button.addEventListener("click", () => {
      const dark = (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
      root.dataset.theme = stored(dark ? "light" : "dark") || (dark ? "light" : "dark");
    });
  });
})();
