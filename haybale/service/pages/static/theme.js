"use strict";
// Before anything is drawn: the theme that the reader chose in this browser, else that of the system.
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const stored = (value) => {
    try {
      if (value) localStorage.setItem("haybale-theme", value);
      return localStorage.getItem("haybale-theme");
    } catch { return null; }
  };
  const chosen = stored();
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
