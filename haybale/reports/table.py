"""The results table, with significance and effect size; and what it says, in one sentence."""

from __future__ import annotations

from haybale.evaluation import averages
from haybale.evaluation.significance import Comparison
from haybale.evaluation.table import columns_of, detail, legend, marks, measure_of
from haybale.reports.effects import effects_figure
from haybale.reports.markup import Html, element, joined
from haybale.reports.section import Section
from haybale.reports.study import MEASURE, Study


def table_section(study: Study) -> Section:
    """A ranker a line, a measure a column; then p and d of the measures that have them."""
    results = study.results
    columns = columns_of(results) if results.comparisons else results.measures
    means = {name: averages(values) for name, values in results.values.items()}
    head = [element("th", element("button", "ranker", type="button"), scope="col", aria_sort="none")]
    for column in columns:
        kind = "n" if column in results.measures else "n detail"
        head.append(element("th", element("button", column, type="button"), scope="col", aria_sort="none", class_=kind))
    rows = []
    for name in results.values:
        compared = results.comparisons.get(name, {})
        cells = [_cell(column, name, means, compared) for column in columns]
        note = element("small", "baseline") if name == results.baseline else ""
        rows.append(element("tr", element("th", name, " ", note, scope="row"), *cells))
    table = element(
        "table",
        element("caption", f"{study.collection.name}, {study.split}: means over {results.n_queries:,} queries"),
        element("thead", element("tr", *head)),
        element("tbody", *rows),
        class_="results sortable",
    )
    box = element("div", table, class_="scroll", tabindex=0, role="region", aria_label="Results, scrolls sideways")
    explained = legend(results) if results.comparisons else f"{results.n_queries} queries."
    best = "The best of a column is bold. A click on the head of a column sorts by it."
    note = element("p", " ".join([explained, best, *_gaps(study)]), class_="note")
    return Section("results", "Results", joined([box, note, effects_figure(study)]))


def _gaps(study: Study) -> list[str]:
    """A sentence for each run that has nothing for some of the queries."""
    sentences = []
    for name, run in study.runs.items():
        ranked = set(run.to_frame()["query_id"])
        n = sum(query not in ranked for query in study.query_ids)
        if n:
            queries = "1 query, which counts" if n == 1 else f"{n:,} queries, which count"
            sentences.append(f"{name} has no ranking for {queries} 0.")
    return sentences


def _cell(column: str, name: str, means: dict[str, dict[str, float]], compared: dict[str, Comparison]) -> Html:
    measure = measure_of(column)
    if column != measure:
        if measure not in compared:
            return element("td", "", class_="n")
        shown = compared[measure]
        value = shown.p_t if column.startswith("p") else shown.effect_size
        return element("td", detail(shown, column), class_="n detail", data_value="" if value is None else repr(value))
    value = means[name][measure]
    best = max(other[measure] for other in means.values())
    shown_value = element("strong", f"{value:.4f}") if value == best else f"{value:.4f}"
    mark = marks(compared.get(measure))
    return element("td", shown_value, element("sup", mark) if mark else "", class_="n", data_value=repr(value))


def reading(study: Study) -> str:
    """The table in a sentence or two."""
    results, baseline = study.results, study.baseline
    means = {name: averages(values)[MEASURE] for name, values in results.values.items()}
    if not results.comparisons:
        return f"{baseline} has {MEASURE} {means[baseline]:.3f} over {results.n_queries:,} queries."
    best = max((name for name in means if name != baseline), key=lambda name: means[name])
    compared = results.comparisons[best][MEASURE]
    p = max(compared.p_t, compared.p_randomization)
    p_text = "p < 0.0001" if p < 0.0001 else f"p = {p:.2g}"
    chance = "more than chance explains" if p < 0.05 else "which may be chance"
    size = "" if compared.effect_size is None else f", d = {compared.effect_size:.2f}"
    if compared.difference <= 0:
        return (
            f"No ranker is above the baseline {baseline}, whose {MEASURE} is {means[baseline]:.3f}. "
            f"The next is {best} with {means[best]:.3f} ({p_text}{size})."
        )
    gain = f", {100 * compared.difference / means[baseline]:.0f} % more" if means[baseline] else ""
    return (
        f"{best} is best: its {MEASURE} is {means[best]:.3f}, where the baseline {baseline} has {means[baseline]:.3f}"
        f"{gain} ({p_text}{size}: {chance})."
    )
