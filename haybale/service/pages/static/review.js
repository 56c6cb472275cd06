"use strict";
// A judgement shows the next document at once: it is already there. The judgement is sent meanwhile, one after the
// other; until the server says that it is on disk, the page says that it is not.
(() => {
  const root = document.getElementById("review");
  const form = document.getElementById("judge");
  const place = document.getElementById("card");
  const status = document.getElementById("status");
  const note = document.getElementById("note");
  const reasons = form ? [...form.querySelectorAll("[name=reason]")] : [];
  const isText = (field) => field.type === "text";
  let cards = [...place.querySelectorAll("article[data-doc]")];
  let shownAt = performance.now();
  const gone = new Set();  // judged here, or put off, and not proposed again
  let sending = Promise.resolve();
  let waiting = 0;
  let version = 0;

  const say = (text, wrong = false) => {
    status.textContent = text;
    status.classList.toggle("wrong", wrong);
  };
  const parsed = (text) => new DOMParser().parseFromString(text, "text/html");
  const fetched = async (address) => {
    const answer = await fetch(address, { credentials: "same-origin", cache: "no-store" });
    if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
    return parsed(await answer.text());
  };
  const show = () => {
    place.replaceChildren(...cards);
    cards.forEach((card, number) => { card.hidden = number > 0; });
    if (cards.length) {
      form.elements.doc_id.value = cards[0].dataset.doc;
      shownAt = performance.now();
    } else {
      place.innerHTML = '<div class="card"><p class="soft">The next document is on its way …</p></div>';
    }
  };
  // Fetch the next documents. The one that is shown stays, so that nothing changes under the reader's eyes.
  const refill = async () => {
    const mine = ++version;
    const page = await fetched(root.dataset.cards);
    if (mine !== version) return;
    const shown = cards[0];
    const fresh = [...page.querySelectorAll("article[data-doc]")]
      .filter((card) => !gone.has(card.dataset.doc) && (!shown || card.dataset.doc !== shown.dataset.doc))
      .map((card) => document.importNode(card, true));
    cards = shown ? [shown, ...fresh] : fresh;
    if (!shown && !cards.length && waiting === 0) { location.reload(); return; }
    if (!shown) show();
    else { cards.slice(1).forEach((card) => { card.hidden = true; }); place.replaceChildren(...cards); }
  };
  const progress = async () => {
    const page = await fetched(root.dataset.progress);
    const old = document.getElementById("progress");
    const open = new Set([...old.querySelectorAll("details[open] .name")].map((each) => each.textContent));
    old.replaceChildren(...[...page.body.childNodes].map((each) => document.importNode(each, true)));
    for (const each of old.querySelectorAll("details")) each.open = open.has(each.querySelector(".name")?.textContent);
  };
  const send = async (named) => {
    const fields = Object.entries(named);
    const answer = await fetch(form.action, {
      method: "POST", body: new URLSearchParams(fields.flatMap(([name, value]) => [value].flat().map((each) => [name, each]))), credentials: "same-origin", headers: { Accept: "application/json" },
    });
    if (!answer.ok) {
      const problem = await answer.json().catch(() => ({}));
      throw new Error(problem.detail || `${answer.status} ${answer.statusText}`);
    }
    return answer.json();
  };
  const words = { 1: "relevant", 0: "not relevant", skip: "put off", "not-retrieved": "not retrieved" };
  const chosen = () => reasons.filter((field) => (isText(field) ? field.value.trim() : field.checked)).map((field) => field.value);
  const choose = (values) => {
    const listed = reasons.filter((field) => !isText(field));
    for (const field of listed) field.checked = values.includes(field.value);
    for (const field of reasons.filter(isText)) field.value = values.find((value) => !listed.some((other) => other.value === value)) || "";
  };

  const judge = (grade) => {
    if (!cards.length) return;
    const card = cards.shift();
    const fields = {
      csrf_token: form.elements.csrf_token.value, doc_id: card.dataset.doc, grade,
      seconds: ((performance.now() - shownAt) / 1000).toFixed(1), note: note.value,
      reason: grade === "0" ? chosen() : [],
    };
    gone.add(card.dataset.doc);
    note.value = "";
    choose([]);
    show();
    waiting += 1;
    const what = `${card.dataset.title}: ${words[grade]}`;
    say(`Saving … ${what}`);
    sending = sending.then(async () => {
      try {
        const { contradicts } = await send(fields);
        const others = Object.keys(contradicts || {}).map((name) => name || "an earlier judgement");
        const differs = others.length ? ` ${others.join(", ")}: the opposite; both are kept.` : "";
        waiting -= 1;
        if (grade === "skip") gone.delete(card.dataset.doc);
        if (!waiting) say(`Saved. ${what}.${differs}${cards.length ? ` Next: ${cards[0].dataset.title}` : ""}`);
        await refill();
        if (!waiting) await progress();
      } catch (error) {
        waiting = Math.max(0, waiting - 1);
        gone.delete(card.dataset.doc);
        cards = [card, ...cards.filter((each) => each !== card)];
        note.value = fields.note;
        choose(fields.reason);
        show();
        say(`Not saved: ${error.message}. Judge the document again.`, true);
      }
    });
  };
  const undo = () => {
    sending = sending.then(async () => {
      try {
        const { doc_id: id } = await send({ csrf_token: form.elements.csrf_token.value, grade: "undo" });
        gone.delete(id);
        version += 1;
        const page = await fetched(`${root.dataset.cards}&doc=${encodeURIComponent(id)}`);
        cards = [...page.querySelectorAll("article[data-doc]")].map((card) => document.importNode(card, true));
        show();
        say(`Taken back. ${cards.length ? cards[0].dataset.title : ""}`);
        await progress();
      } catch (error) { say(`Nothing was taken back: ${error.message}`, true); }
    });
  };

  if (!form) return;  // nobody judges a closed topic
  form.addEventListener("submit", (event) => {
    const grade = event.submitter && event.submitter.value;
    if (!grade || (!form.elements.doc_id)) return;  // without a document, only undo is left, and the page loads again
    event.preventDefault();
    if (grade === "undo") undo(); else judge(grade);
  });
  if (form.elements.doc_id) {
    Object.assign(window.haybaleKeys, {
      y: () => judge("1"), n: () => judge("0"), s: () => judge("skip"), u: undo,
      e: () => note.focus(),
      r: () => { const field = reasons.find(isText); field.closest("details").open = true; field.focus(); },
      o: () => { const link = place.querySelector("article:not([hidden]) a.read"); if (link) location.href = link.href; },
    });
    const missing = form.querySelector("button[value=not-retrieved]");
    if (missing) window.haybaleKeys.m = () => judge("not-retrieved");
    reasons.filter((field) => !isText(field)).slice(0, 9).forEach((field, number) => {
      window.haybaleKeys[number + 1] = () => { field.closest("details").open = true; field.checked = !field.checked; };
    });
    refill().catch(() => {});
  } else window.haybaleKeys.u = () => form.querySelector("button").click();
  window.addEventListener("beforeunload", (event) => { if (waiting) event.preventDefault(); });
})();
