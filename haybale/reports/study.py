"""The data of a report: the runs on a split, their measures, and two rankers compared query by query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from haybale.cached import cached_property
from haybale.collections import Collection
from haybale.collections.collection import take_strings
from haybale.errors import InputError, UnknownNameError
from haybale.evaluation import Results, averages, evaluate, results
from haybale.evaluation.dated_split import DatedSplit
from haybale.evaluation.measures import main_measure
from haybale.reports.sources import Source, named_runs, recorded_measures
from haybale.retrieval import Run


@dataclass(frozen=True)
class Study:
    """Runs on one split with their measures.

    ``ranker`` is compared with the baseline query by query; it is None if there is only one run.
    """

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
    def measure(self) -> str:
        """The measure that orders rankers and compares queries: nDCG@10, or else the first."""
        return main_measure(self.results.measures)

    @cached_property
    def relevant(self) -> dict[str, list[str]]:
        """The relevant documents of each measured query, in the order of the judgements."""
        return {str(query): list(documents) for query, documents in self.qrels.groupby("query_id")["doc_id"]}

    @cached_property
    def differences(self) -> pd.Series:
        """The ranker's :attr:`measure` minus the baseline's by query, in descending order and then by id."""
        names = (self.ranker or self.baseline, self.baseline)
        ours, theirs = (self.results.values[name][self.measure].sort_index() for name in names)
        return (ours - theirs).sort_values(ascending=False, kind="stable")

    @property
    def counts(self) -> tuple[int, int, int]:
        """The numbers of queries on which the ranker wins, ties and loses."""
        d = self.differences
        return int((d > 0).sum()), int((d == 0).sum()), int((d < 0).sum())

    def wins(self, n: int) -> list[str]:
        """Return the queries with the n largest wins, largest first."""
        return list(self.differences[self.differences > 0].index[:n])

    def losses(self, n: int) -> list[str]:
        """Return the queries with the n largest losses, largest first."""
        losses = self.differences[self.differences < 0].sort_index()
        return list(losses.sort_values(kind="stable").index[:n])

    @cached_property
    def answered(self) -> dict[str, set[str]]:
        """The queries with at least one ranked document, by run."""
        return {name: set(run.to_frame()["query_id"]) for name, run in self.runs.items()}

    def ranking(self, name: str, query: str) -> list[str]:
        """Return the documents of a query in a run, best first."""
        return [document for document, _ in self.runs[name][query]] if query in self.answered[name] else []

    def ranks(self, query: str) -> list[tuple[str, dict[str, int | None]]]:
        """Return the relevant documents of a query with their ranks in both runs, sorted by the rank of the ranker."""
        names = (self.ranker or self.baseline, self.baseline)
        ranks = {name: {ranked: rank for rank, ranked in enumerate(self.ranking(name, query), 1)} for name in names}
        first = ranks[names[0]]
        documents = sorted(self.relevant[query], key=lambda document: (first.get(document, 10**9), document))
        return [(document, {name: rank_of.get(document) for name, rank_of in ranks.items()}) for document in documents]

    def query_text(self, query: str) -> str:
        return self.collection.queries.texts(self.collection.query_numbers([query]))[0]

    def document(self, document: str) -> tuple[str, str]:
        """Return the title (empty if it equals the id) and the beginning of the text."""
        number = int(self.collection.document_numbers([document])[0])
        start, end = self.collection.passages.doc_offsets[number : number + 2]
        title = str(self.collection.doc_titles[number].as_py() or "")
        first = take_strings(self.collection.passages.texts, np.arange(start, min(end, start + 9)))
        return "" if title == document else title, "\n".join(first)


def study(
    sources: Sequence[Source],
    collection: Collection,
    split: str,
    baseline: str | None,
    ranker: str | None,
    before: str | None = None,
) -> Study:
    """Measure all runs on a split; with ``before``, the column of dates, on the judgements of earlier documents.

    Raises
    ------
    InputError
        For an unknown split, baseline or ranker, runs with other queries or documents, and a split without a relevant
        document.
    """
    runs = named_runs(sources)
    for name, kind in ((baseline, "baseline"), (ranker, "ranker")):
        if name is not None and name not in runs:
            raise UnknownNameError(kind, name, runs)
    queries = set(take_strings(collection.queries.ids, collection.split(split).queries))
    documents = set(collection.doc_ids.to_pylist())
    for name, run in runs.items():
        for query in run.query_ids:
            if query not in queries:
                raise InputError(
                    f"run {name!r}: query {query!r} is not in the split {split!r} of {collection.name}; give --split"
                )
        for document in run.to_frame()["doc_id"].unique():
            if document not in documents:
                raise InputError(
                    f"run {name!r}: document {document!r} is not in {collection.name}, as far as --where selects it; "
                    "give another --collection, or the --where of the ranking"
                )
    if baseline is None:  # the recorded baseline, bm25, or the first run
        wanted = [*(source.settings.get("baseline") for source in sources), "bm25"]
        preferred = [full for name in wanted for full in runs if name and (full == name or full.endswith(f"/{name}"))]
        baseline = [*preferred, *runs][0]
    if ranker == baseline:
        raise InputError(f"the ranker must differ from the baseline, found {ranker!r} for both")
    judged = collection.qrels_frame(split) if before is None else DatedSplit.of(collection, split, before).qrels
    measures = recorded_measures(sources)
    table = results({name: evaluate(run, judged, measures) for name, run in runs.items()}, baseline)
    qrels = judged[judged["relevance"] > 0].drop_duplicates(["query_id", "doc_id"])
    others = [name for name in runs if name != baseline]
    best = max(others, key=lambda name: averages(table.values[name])[main_measure(measures)], default=None)
    return Study(collection, split, qrels, runs, table, ranker or best, sources)


def summarise(about: Study) -> str:
    """Summarise the results in one or two sentences."""
    table, baseline, measure = about.results, about.baseline, about.measure
    means = {name: averages(values)[measure] for name, values in table.values.items()}
    theirs = f"{means[baseline]:.3f}"
    if not table.comparisons:
        return f"The {measure} of {baseline} is {theirs}, the mean over {table.n_queries:,} queries."
    best = max(table.comparisons, key=lambda name: means[name])
    compared = table.comparisons[best][measure]
    tests = {"t-test": compared.p_t, "randomisation test": compared.p_randomization}
    p = max(tests.values())
    sure = " and ".join(f"p {'< 0.0001' if p < 0.0001 else f'= {p:.2g}'} by the {test}" for test, p in tests.items())
    sure += "" if compared.effect_size is None else f", d = {compared.effect_size:.2f}"
    ours = f"{means[best]:.3f}"
    if compared.difference <= 0:
        return (
            f"No ranker is better than the baseline {baseline}, whose {measure} is {theirs}. "
            f"The next best is {best} with {ours} ({sure})."
        )
    gain = f", an increase of {100 * compared.difference / means[baseline]:.0f} %" if means[baseline] else ""
    why = "significant" if p < 0.05 else "not significant"
    both = f"Its {measure} is {ours}, that of the baseline {baseline} is {theirs}{gain}"
    return f"The best ranker is {best}. {both} ({sure}: {why})."
