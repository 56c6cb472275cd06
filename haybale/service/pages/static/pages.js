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

  // The search box: Enter searches, and Shift with Enter begins a line. A long text is sent, not put in the address.
  const search = document.getElementById("search-form");
  if (search) {
    const box = document.getElementById("q");
    box.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); search.requestSubmit(); }
    });
    search.addEventListener("submit", (event) => {
      if (search.method === "post" || new TextEncoder().encode(box.value).length <= 2000) return;
      event.preventDefault();
      const form = document.getElementById("upload");
      document.getElementById("file").remove();
      for (const each of [box, search.elements.ranker, search.elements.where]) {
        if (!each || !each.value) continue;
        for (const same of form.querySelectorAll(`input[name="${each.name}"]`)) same.remove();
        const field = document.createElement("textarea");
        field.hidden = true;
        [field.name, field.value] = [each.name, each.value];
        form.append(field);
      }
      form.submit();
    });
  }

  // A filter that is chosen applies at once; on small screens filters are folded.
  const facets = document.getElementById("facets");
  if (facets) {
    const folded = facets.querySelector("details");
    if (matchMedia("(min-width: 901px)").matches) folded.open = true;
    facets.addEventListener("change", () => facets.requestSubmit());
  }
  for (const form of document.querySelectorAll("form[method=get], form:not([method])")) {
    // Empty fields stay out of the address. They come back for those who return to the page.
    form.addEventListener("submit", () => {
      const empty = [...form.elements].filter((each) => each.name && each.value === "" && !each.disabled);
      empty.forEach((each) => { each.disabled = true; });
      setTimeout(() => empty.forEach((each) => { each.disabled = false; }));
    });
  }

  // A page that cannot be drawn: the link says why.
  for (const picture of document.querySelectorAll(".page-view img")) {
    picture.addEventListener("error", () => picture.replaceWith("This page cannot be shown. Why?"));
  }

  // Why: the explanation opens below the hit.
  const hits = [...document.querySelectorAll(".hit")];
  const toggle = async (hit) => {
    const link = hit.querySelector(".open-why");
    const body = hit.querySelector(".why-body");
    if (!link || !body) return;
    if (!body.hasChildNodes()) {
      body.textContent = "…";
      try {
        const answer = await fetch(link.href + "&part=1", { credentials: "same-origin" });
        if (!answer.ok) throw new Error(answer.statusText);
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        body.replaceChildren(...page.body.childNodes);
      } catch { location.href = link.href; return; }
    }
    body.hidden = !body.hidden;
    link.setAttribute("aria-expanded", String(!body.hidden));
  };
  for (const hit of hits) {
    const link = hit.querySelector(".open-why");
    if (!link) continue;
    link.setAttribute("role", "button");
    link.setAttribute("aria-expanded", "false");
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      toggle(hit);
    });
    link.addEventListener("keydown", (event) => { if (event.key === " ") { event.preventDefault(); toggle(hit); } });
  }
  if (hits.length) {
    const current = () => hits.findIndex((hit) => hit.contains(document.activeElement));
    const go = (step) => {
      const at = Math.min(Math.max(current() + step, 0), hits.length - 1);
      hits[at].querySelector("h3 a").focus();
      hits[at].scrollIntoView({ block: "nearest" });
    };
    actions.j = () => go(1);
    actions.k = () => go(-1);
    actions.w = () => { if (current() >= 0) toggle(hits[current()]); };
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
