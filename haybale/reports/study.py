"""What a report is about: a collection's split, the runs on it, their measures, and which two are looked at closely."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from haybale.collections import Collection, open_collection
from haybale.collections.open import source_of
from haybale.engine import Engine
from haybale.errors import InputError, UnknownNameError
from haybale.evaluation import Results, averages, evaluate, results
from haybale.reports.load import Source, named_runs
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

    def ranking(self, name: str, query: str) -> list[str]:
        """Documents of a query in a run, best first; none where the run has nothing for it."""
        return [document for document, _ in self.runs[name][query]] if query in self.queries_of[name] else []

    @cached_property
    def queries_of(self) -> dict[str, set[str]]:
        return {name: set(run.query_ids) for name, run in self.runs.items()}

    def query_text(self, query: str) -> str:
        return self.collection.queries.texts(self.collection.query_numbers([query]))[0]

    def document_text(self, document: str, most: int = 100_000) -> str:
        """The beginning of a document: its passages, joined by newlines, until ``most`` characters are there."""
        number = self._numbers[document]
        start, end = self.collection.passages.doc_offsets[number : number + 2]
        parts: list[str] = []
        while start < end and sum(map(len, parts)) < most:
            parts.append(self.collection.passages.texts[int(start)].as_py())
            start += 1
        return "\n".join(parts)

    def document_title(self, document: str) -> str:
        return str(self.collection.doc_titles[self._numbers[document]].as_py() or "")

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """Of the documents that a report shows: looked up at once, since there may be millions."""
        shown = dict.fromkeys(self.qrels["doc_id"])
        for name in (self.baseline, self.ranker):
            if name is not None:
                shown |= dict.fromkeys(self.runs[name].top(TOP).to_frame()["doc_id"])
        return dict(zip(shown, self.collection.document_numbers(list(shown)).tolist(), strict=True))


def open_for(
    sources: Sequence[Source], collection: Collection | Engine | str | Path | None, layout: str | None
) -> Collection | Engine:
    """The collection or engine that is given, or the one the sources name."""
    if isinstance(collection, Collection | Engine):
        return collection
    if collection is not None:
        return _opened(collection, layout)
    named = {}
    for source in sources:
        about = source.results.get("collection", {})
        name = about.get("source") or ("pydocs" if about.get("name") == "pydocs" else None)
        if name is not None:
            named[source_of(name)] = about.get("layout")
    if not named:
        raise InputError("the runs do not say what collection they are of; give --collection (and --split)")
    if len(named) > 1:
        raise InputError(f"the runs are of different collections: {', '.join(named)}; a report is about one")
    ((name, recorded),) = named.items()
    return _opened(name, layout or recorded)


def _opened(name: str | Path, layout: str | None) -> Collection | Engine:
    is_engine = (Path(name) / "engine.json").is_file()
    return Engine.open(name) if is_engine else open_collection(name, layout)


def find_split(sources: Sequence[Source], collection: Collection, split: str | None) -> str:
    """The split that is given, the one the sources name, or the only one there is."""
    if split is None:
        named = list(dict.fromkeys(source.settings["split"] for source in sources if "split" in source.settings))
        if len(named) > 1:
            raise InputError(f"the runs are of different splits: {', '.join(named)}; a report is about one")
        if not named and len(collection.splits) != 1:
            raise InputError(
                f"the runs do not say what split they are of; give --split: {', '.join(collection.splits)}"
            )
        split = named[0] if named else next(iter(collection.splits))
    collection.split(split)
    return split


def study(
    sources: Sequence[Source], collection: Collection, split: str, baseline: str | None, ranker: str | None
) -> Study:
    """Measure all runs. Errors: unknown names; runs about other queries or documents; nothing to measure."""
    runs = named_runs(sources)
    for name, kind in ((baseline, "baseline"), (ranker, "ranker")):
        if name is not None and name not in runs:
            raise UnknownNameError(kind, name, runs)
    part = collection.split(split)
    _check_ids(runs, collection, set(collection.queries.ids.take(pa.array(part.queries)).to_pylist()), split)
    baseline = baseline or default_baseline(sources, runs)
    if ranker == baseline:
        raise InputError(f"the ranker {ranker!r} is the baseline; there is nothing to compare")
    judged = collection.qrels_frame(split)
    values = {name: evaluate(run, judged) for name, run in runs.items()}
    table = results({name: values[name] for name in runs}, baseline)
    qrels = judged[judged["relevance"] > 0].drop_duplicates(["query_id", "doc_id"])
    return Study(collection, split, qrels, runs, table, ranker or best_other(table), sources)


def default_baseline(sources: Sequence[Source], runs: Mapping[str, Run]) -> str:
    """The baseline of the settings, bm25, or the first run."""
    wanted = [source.settings["baseline"] for source in sources if "baseline" in source.settings]
    for name in (*wanted, "bm25"):
        for known in runs:
            if known == name or known.endswith(f"/{name}"):
                return known
    return next(iter(runs))


def best_other(table: Results) -> str | None:
    """The best ranker by nDCG@10 that is not the baseline; the first of equal ones."""
    others = [name for name in table.values if name != table.baseline]
    return max(others, key=lambda name: averages(table.values[name])[MEASURE], default=None)


def _check_ids(runs: Mapping[str, Run], collection: Collection, queries: set[Any], split: str) -> None:
    for name, run in runs.items():
        unknown = next((query for query in run.query_ids if query not in queries), None)
        if unknown is not None:
            raise InputError(f"run {name!r}: query {unknown!r} is not in the split {split!r} of {collection.name}")
        documents = pa.array(run.to_frame()["doc_id"].unique().tolist(), type=pa.large_string())
        known = pc.is_in(documents, value_set=collection.doc_ids.combine_chunks())
        if not pc.all(known).as_py() and len(documents):
            missing = documents.filter(pc.invert(known))[0].as_py()
            raise InputError(f"run {name!r}: document {missing!r} is not in {collection.name}")
