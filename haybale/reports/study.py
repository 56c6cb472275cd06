"""What a report is about: a collection's split, the runs on it, their measures, and two rankers query by query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from haybale.collections import Collection
from haybale.errors import InputError, UnknownNameError
from haybale.evaluation import Results, averages, evaluate, results
from haybale.reports.sources import Source, named_runs
from haybale.retrieval import Run

MEASURE = "nDCG@10"  # by which rankers are ordered and queries compared
TOP = 3  # documents of a ranking whose texts are shown


@dataclass(frozen=True)
class Study:
    """Runs on one split, measured; ``ranker`` is the one shown against the baseline, None if there is no other."""

    collection: Collection
    split: str
    qrels: pd.DataFrame
    runs: dict[str, Run]
    results: Results
    ranker: str | None
    sources: Sequence[Source]

    @property
    def baseline(self) -> str:
        return self.results.baseline

    @property
    def query_ids(self) -> list[str]:
        """Those that are measured: with a relevant document."""
        return list(self.results.values[self.baseline].index)

    @cached_property
    def relevant(self) -> dict[str, list[str]]:
        """The relevant documents of each measured query, in the order of the judgements."""
        found: dict[str, list[str]] = {query: [] for query in self.query_ids}
        for query, document in zip(self.qrels["query_id"], self.qrels["doc_id"], strict=True):
            found[query].append(document)
        return found

    @cached_property
    def differences(self) -> dict[str, float]:
        """By query, the ranker's nDCG@10 minus the baseline's; the largest first, equal ones by id."""
        if self.ranker is None:
            return {}
        ours, theirs = (self.results.values[name][MEASURE] for name in (self.ranker, self.baseline))
        values = {str(query): float(ours[query] - theirs[query]) for query in self.query_ids}
        return dict(sorted(values.items(), key=lambda each: (-each[1], each[0])))

    @property
    def counts(self) -> tuple[int, int, int]:
        """Wins, ties and losses of the ranker."""
        values = self.differences.values()
        wins, losses = sum(value > 0 for value in values), sum(value < 0 for value in values)
        return wins, len(values) - wins - losses, losses

    def wins(self, n: int) -> list[str]:
        """The n largest, largest first."""
        return [query for query, value in self.differences.items() if value > 0][:n]

    def losses(self, n: int) -> list[str]:
        """The n largest, largest first."""
        return [query for value, query in sorted((v, q) for q, v in self.differences.items() if v < 0)[:n]]

    @cached_property
    def answered(self) -> dict[str, set[str]]:
        """By run, the queries that it ranks at least one document for."""
        return {name: set(run.to_frame()["query_id"]) for name, run in self.runs.items()}

    def ranking(self, name: str, query: str) -> list[str]:
        """Documents of a query in a run, best first; none where the run has nothing for it."""
        return [document for document, _ in self.runs[name][query]] if query in self.answered[name] else []

    def ranks(self, query: str) -> list[tuple[str, dict[str, int | None]]]:
        """The query's relevant documents with their ranks by the two runs, those that the ranker has first in front."""
        places = {
            name: {document: rank for rank, document in enumerate(self.ranking(name, query), 1)}
            for name in (self.ranker or self.baseline, self.baseline)
        }
        first = next(iter(places.values()))
        documents = sorted(self.relevant[query], key=lambda document: (first.get(document, 10**9), document))
        return [(document, {name: at.get(document) for name, at in places.items()}) for document in documents]

    def query_text(self, query: str) -> str:
        return self.collection.queries.texts(self.collection.query_numbers([query]))[0]

    def document_text(self, document: str, most: int) -> str:
        """The beginning of a document: its passages, joined by newlines, until ``most`` characters are there."""
        number = self._numbers[document]
        start, end = self.collection.passages.doc_offsets[number : number + 2]
        parts: list[str] = []
        while start < end and sum(map(len, parts)) < most:
            parts.append(self.collection.passages.texts[int(start)].as_py())
            start += 1
        return "\n".join(parts)

    def document_title(self, document: str) -> str:
        title = str(self.collection.doc_titles[self._numbers[document]].as_py() or "")
        return "" if title == document else title

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """Of the documents that a report shows: looked up at once, since there may be millions."""
        shown = dict.fromkeys(self.qrels["doc_id"])
        for name in (self.baseline, self.ranker):
            if name is not None:
                shown |= dict.fromkeys(self.runs[name].top(TOP).to_frame()["doc_id"])
        return dict(zip(shown, self.collection.document_numbers(list(shown)).tolist(), strict=True))


def study(
    sources: Sequence[Source], collection: Collection, split: str, baseline: str | None, ranker: str | None
) -> Study:
    """Measure all runs. Errors: unknown names; runs about other queries or documents; nothing to measure."""
    runs = named_runs(sources)
    for name, kind in ((baseline, "baseline"), (ranker, "ranker")):
        if name is not None and name not in runs:
            raise UnknownNameError(kind, name, runs)
    _check_ids(runs, collection, split)
    baseline = baseline or _default_baseline(sources, runs)
    if ranker == baseline:
        raise InputError(f"the ranker {ranker!r} is the baseline; there is nothing to compare")
    judged = collection.qrels_frame(split)
    table = results({name: evaluate(run, judged) for name, run in runs.items()}, baseline)
    qrels = judged[judged["relevance"] > 0].drop_duplicates(["query_id", "doc_id"])
    others = [name for name in runs if name != baseline]
    best = max(others, key=lambda name: averages(table.values[name])[MEASURE], default=None)
    return Study(collection, split, qrels, runs, table, ranker or best, sources)


def _default_baseline(sources: Sequence[Source], runs: Mapping[str, Run]) -> str:
    """The baseline of the settings, bm25, or the first run."""
    wanted = [source.settings["baseline"] for source in sources if "baseline" in source.settings]
    found = (known for name in (*wanted, "bm25") for known in runs if known == name or known.endswith(f"/{name}"))
    return next(found, next(iter(runs)))


def _check_ids(runs: Mapping[str, Run], collection: Collection, split: str) -> None:
    queries = set(collection.queries.ids.take(pa.array(collection.split(split).queries)).to_pylist())
    for name, run in runs.items():
        unknown = next((query for query in run.query_ids if query not in queries), None)
        if unknown is not None:
            raise InputError(f"run {name!r}: query {unknown!r} is not in the split {split!r} of {collection.name}")
        documents = pa.array(run.to_frame()["doc_id"].unique().tolist(), type=pa.large_string())
        missing = documents.filter(pc.invert(pc.is_in(documents, value_set=collection.doc_ids.combine_chunks())))
        if len(missing):
            raise InputError(f"run {name!r}: document {missing[0].as_py()!r} is not in {collection.name}")


def reading(about: Study) -> str:
    """The table in a sentence or two."""
    table, baseline = about.results, about.baseline
    means = {name: averages(values)[MEASURE] for name, values in table.values.items()}
    if not table.comparisons:
        return f"{baseline} has {MEASURE} {means[baseline]:.3f} over {table.n_queries:,} queries."
    best = max(table.comparisons, key=lambda name: means[name])
    compared = table.comparisons[best][MEASURE]
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
