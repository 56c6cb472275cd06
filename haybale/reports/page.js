"use strict";
(() => {
  // Sort tables: the first click on a column sorts values in descending order, names and p-values in ascending order.
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    const key = (row, column) => {
      const value = row.cells[column].dataset.value;
      return value === undefined || value === "" ? null : Number(value);
    };
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const first = column === 0 || head.textContent.startsWith("p ") ? "ascending" : "descending";
      const other = first === "ascending" ? "descending" : "ascending";
      const order = head.getAttribute("aria-sort") === first ? other : first;
      heads.forEach((each) => each.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const rows = [...body.rows].sort((a, b) => {
        if (column === 0) return sign * a.cells[0].textContent.localeCompare(b.cells[0].textContent);
        const [x, y] = [key(a, column), key(b, column)];
        if (x === null || y === null) return (x === null) - (y === null);  // rows without a value come last
        return sign * (x - y);
      });
      body.append(...rows);
    }));
  }

  // Hide or show a curve of the recall chart by a click on its name in the legend, or by Enter.
  for (const name of document.querySelectorAll("[data-switch]")) {
    const toggle = () => {
      const off = document.querySelector(`[data-series="${name.dataset.switch}"]`).classList.toggle("off");
      name.classList.toggle("off", off);
      name.setAttribute("aria-pressed", String(!off));
    };
    for (const [key, value] of [["role", "button"], ["tabindex", "0"], ["aria-pressed", "true"]]) name.setAttribute(key, value);
    name.addEventListener("click", toggle);
    name.addEventListener("keydown", (event) => { if (event.key === "Enter") toggle(); });
  }

  // Open the query that a link leads to; open everything for printing.
  const unfold = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (target && target.tagName === "DETAILS") { target.open = true; target.scrollIntoView(); }
  };
  window.addEventListener("hashchange", unfold);
  unfold();
  let folded = [];
  window.addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    folded.forEach((each) => { each.open = true; });
  });
  window.addEventListener("afterprint", () => folded.forEach((each) => { each.open = false; }));
})();
