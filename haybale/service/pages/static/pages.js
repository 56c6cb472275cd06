"use strict";
(() => {
  // Keys of one letter can be switched off, on the page of help.
  const keysOn = () => {
    try { return localStorage.getItem("haybale-keys") !== "off"; } catch { return true; }
  };
  const inField = (target) => target.closest("input:not([type=checkbox]):not([type=radio]), textarea, select");
  const actions = {
    "/": () => {
      const box = document.getElementById("q") || document.getElementById("aside-q");
      if (box) { box.focus(); box.select(); } else location.href = document.querySelector(".bar .name").href;
    },
    "?": () => { location.href = document.querySelector('.bar nav a[href$="/help"]').href + "#keys"; },
  };
  window.haybaleKeys = actions;  // pages add theirs
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || !keysOn()) return;
    if (inField(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.key === "/" && event.target.closest("input")) return;  // also a box or a button of a form is a field
    const action = actions[event.key];
    if (action && !event.repeat) { event.preventDefault(); action(); }
  });
  const keysSwitch = document.getElementById("keys-switch");
  if (keysSwitch) {
    const box = document.getElementById("keys-on");
    keysSwitch.hidden = false;
    box.checked = keysOn();
    box.addEventListener("change", () => localStorage.setItem("haybale-keys", box.checked ? "on" : "off"));
  }

  for (const form of document.querySelectorAll("form[method=get]:not(#facets), form:not([method])")) {
    // Empty fields stay out of the address. They come back for those who return to the page.
    form.addEventListener("submit", () => {
      const empty = [...form.elements].filter((each) => each.name && each.value === "" && !each.disabled);
      empty.forEach((each) => { each.disabled = true; });
      setTimeout(() => empty.forEach((each) => { each.disabled = false; }));
    });
  }

  // Progress of a training: the part of the page is fetched again until it says that it has ended.
  const running = document.getElementById("training");
  if (running && running.dataset.running) {
    const again = async () => {
      try {
        const answer = await fetch(location.href, { credentials: "same-origin" });
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const part = page.getElementById("training");
        if (!part.dataset.running) { location.reload(); return; }
        for (const id of ["training-progress", "training-stage"]) {
          const [old, fresh] = [document.getElementById(id), page.getElementById(id)];
          if (old && fresh && old.outerHTML !== fresh.outerHTML) {
            if (id === "training-stage") old.textContent = fresh.textContent;
            else if (fresh.hasAttribute("value")) old.value = fresh.value;
          }
        }
      } catch { /* the service is busy or restarts: ask again */ }
      setTimeout(again, 1000);
    };
    setTimeout(again, 500);
  }

  window.addEventListener("beforeprint", () => {
    for (const each of document.querySelectorAll("details:not([open]):not(.page-view)")) each.open = true;
  });
})();
