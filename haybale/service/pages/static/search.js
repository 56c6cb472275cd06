"use strict";
(() => {
  const results = () => document.getElementById("results");
  const say = (text) => { document.getElementById("status").textContent = text; };

  // The search box: Enter searches, and Shift with Enter begins a line. A long text is sent, not put in the address.
  const search = document.getElementById("search-form");
  const box = document.getElementById("q");
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); search.requestSubmit(); }
  });
  search.addEventListener("submit", (event) => {
    if (search.method === "post" || new TextEncoder().encode(box.value).length <= 2000) return;
    event.preventDefault();
    const form = document.getElementById("upload");
    document.getElementById("file").remove();
    for (const name of ["q", "ranker", "where", "together", "topic", "learned"]) {
      const value = new FormData(search).get(name);
      if (!value) continue;
      for (const same of form.querySelectorAll(`input[name="${name}"]`)) same.remove();
      const field = document.createElement("textarea");
      field.hidden = true;
      [field.name, field.value] = [name, value];
      form.append(field);
    }
    form.submit();
  });

  // Pictures of pages that cannot be drawn: the link says why.
  document.addEventListener("error", (event) => {
    if (event.target.matches?.(".page-view img")) event.target.replaceWith("This page cannot be shown. Why?");
  }, true);

  // Hits: why they are there, and judgements.
  const hits = () => [...document.querySelectorAll(".hit")];
  const current = () => document.activeElement.closest(".hit");
  const prepare = () => {
    for (const link of document.querySelectorAll(".open-why")) {
      link.setAttribute("role", "button");
      link.setAttribute("aria-expanded", "false");
    }
  };
  const explain = async (hit) => {
    const [link, body] = [hit.querySelector(".open-why"), hit.querySelector(".why-body")];
    if (!link) return;
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
  const judge = async (form, button) => {
    const fields = new FormData(form, button);
    const hit = form.closest(".hit");
    say("Saving …");
    try {
      const answer = await fetch(form.action, {
        method: "POST", body: new URLSearchParams(fields), headers: { accept: "application/json" }, credentials: "same-origin",
      });
      if (!answer.ok) throw new Error(answer.statusText);
      const others = Object.keys((await answer.json()).contradicts).length;
      const badge = document.createElement("span");
      const relevant = fields.get("grade") !== "0";
      badge.className = relevant ? "badge yes" : "badge no";
      badge.textContent = (relevant ? "relevant" : "not relevant") + (others ? ", others say the opposite" : "");
      hit.querySelector(".judged").replaceChildren(badge);
      say(`Saved: ${badge.textContent}`);
    } catch {
      // The page of the service says why.
      const grade = document.createElement("input");
      grade.type = "hidden";
      [grade.name, grade.value] = ["grade", fields.get("grade")];
      form.append(grade);
      form.submit();
    }
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest(".open-why");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    explain(link.closest(".hit"));
  });
  document.addEventListener("keydown", (event) => {
    const link = event.target.closest(".open-why");
    if (link && event.key === " ") { event.preventDefault(); explain(link.closest(".hit")); }
  });
  document.addEventListener("submit", (event) => {
    if (!event.target.matches(".judging")) return;
    event.preventDefault();
    judge(event.target, event.submitter);
  });
  const go = (step) => {
    const all = hits();
    if (!all.length) return;
    const hit = all[Math.min(Math.max(all.indexOf(current()) + step, 0), all.length - 1)];
    hit.querySelector("h3 a").focus();
    hit.scrollIntoView({ block: "nearest" });
  };
  const judgeCurrent = (grade) => current()?.querySelector(`.judging [value="${grade}"]`)?.click();
  Object.assign(window.haybaleKeys, {
    j: () => go(1),
    k: () => go(-1),
    w: () => { if (current()) explain(current()); },
    y: () => judgeCurrent(1),
    n: () => judgeCurrent(0),
  });
  prepare();

  // Filters: a box and the order apply at once; what is typed applies with Enter, when the field is left, or with the
  // button. The parts of the page that change are replaced, so that focus and place stay.
  const facets = document.getElementById("facets");
  if (!facets) return;
  // On small screens filters are folded.
  if (matchMedia("(min-width: 901px)").matches) facets.querySelector("details").open = true;
  const isTyped = (field) => field.matches("input:not([type=checkbox]):not([type=hidden])");
  // The numbers beside the values of a column. Values stay where they are; one that no document has any more gets a 0.
  const recount = (set, fresh) => {
    const counted = new Map([...fresh.querySelectorAll("label")].map((label) => [label.querySelector("input").value, label]));
    const more = set.querySelector("details");
    for (const label of set.querySelectorAll("label")) {
      const { value } = label.querySelector("input");
      const same = counted.get(value);
      counted.delete(value);
      label.querySelector("small").textContent = same ? same.querySelector("small").textContent : "0";
    }
    if (counted.size) set.querySelector(".none")?.remove();
    for (const label of counted.values()) (more || set).append(label);
    if (more) more.querySelector("summary").textContent = `${more.querySelectorAll("label").length} more`;
  };
  const replaced = (page) => {
    const focused = document.activeElement;
    const top = focused.getBoundingClientRect().top;
    results().replaceWith(page.getElementById("results"));
    const kept = [...page.querySelectorAll(".kept")];
    document.querySelectorAll(".kept").forEach((fields, n) => fields.replaceWith(kept[n]));
    for (const set of facets.querySelectorAll("[data-facet]")) {
      const fresh = page.querySelector(`#facets [data-facet="${CSS.escape(set.dataset.facet)}"]`);
      if (!fresh) continue;
      if (!set.querySelector(".between")) recount(set, fresh);
      else fresh.querySelectorAll("input").forEach((field, n) => { set.querySelectorAll("input")[n].defaultValue = field.defaultValue; });
    }
    for (const id of ["n-chosen", "clear"]) document.getElementById(id).replaceWith(page.getElementById(id));
    document.title = page.title;
    if (facets.contains(focused)) scrollBy(0, focused.getBoundingClientRect().top - top);
    prepare();
    say(document.getElementById("found")?.textContent.trim().replace(/\s+/g, " ") || "");
  };
  let asked = null;  // the request that is under way
  let shown = location.search;
  const apply = async () => {
    const fields = [...new FormData(facets)].filter(([, value]) => value !== "");
    const address = `${facets.action}?${new URLSearchParams(fields)}`;
    asked?.abort();
    const request = asked = new AbortController();
    results().setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(address, { credentials: "same-origin", headers: { accept: "text/html" }, signal: request.signal });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (request !== asked) return;
      if (!page.getElementById("results") || !page.getElementById("facets")) { location.href = address; return; }
      history[address === location.href ? "replaceState" : "pushState"](null, "", address);
      shown = location.search;
      replaced(page);
    } catch (error) {
      if (error.name !== "AbortError") location.href = address;
    }
  };
  addEventListener("popstate", () => { if (location.search !== shown) location.reload(); });
  facets.addEventListener("submit", (event) => { event.preventDefault(); apply(); });
  facets.addEventListener("change", (event) => { if (!isTyped(event.target)) apply(); });
  facets.addEventListener("focusout", ({ target }) => {
    if (isTyped(target) && target.value !== target.defaultValue && target.validity.valid) {
      target.defaultValue = target.value;
      apply();
    }
  });
})();
