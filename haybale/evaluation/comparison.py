"""Rankers compared on one split: runs, one table, seconds a stage; and all of it written to a folder."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from haybale.collections import Collection
from haybale.collections.collection import take_strings
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.evaluation.measures import MEASURES, all_parsed, evaluate
from haybale.evaluation.significance import Results, results
from haybale.evaluation.table import markdown
from haybale.folders import whole_folder, write_json
from haybale.parameters import SEQUENCE, Constraints, check_parameters
from haybale.rankers import BM25, KNN, PARM, SVR, Learned, QueryBatch, Ranker, Training, from_spec, parse_all
from haybale.rankers.ranker import warn_of_empty
from haybale.retrieval import Run
from haybale.retrieval.run import DEPTH
from haybale.timing import record_timings, timed

Rankers = str | Sequence[Ranker | str] | Mapping[str, Ranker | str]


def default_rankers() -> list[Ranker]:
    """What is compared unless asked otherwise."""
    return [BM25(), BM25("document"), KNN(), KNN("document"), PARM(), SVR(), Learned()]


@dataclass(frozen=True)
class Outcome:
    """What a comparison found."""

    collection: Collection
    split: str
    rankers: dict[str, Ranker]  # as they were fitted, by the names they have in the table
    runs: dict[str, Run]
    results: Results
    seconds: dict[str, float]  # by stage; stages count for themselves only
    facts: dict[str, Any]  # what was found on the way and belongs into the results
    settings: dict[str, Any]  # of the engine
    source: str | None = None  # how the collection was asked for, if that is known: it can be opened again
    layout: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Everything but the runs, for JSON, with today's date in UTC."""
        return {
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "collection": {
                "name": self.collection.name,
                "source": self.source,
                "layout": self.layout,
                "documents": self.collection.n_documents,
                "passages": self.collection.n_passages,
                "queries": {name: len(part.queries) for name, part in self.collection.splits.items()},
            },
            "settings": self.settings_dict(),
            "queries measured": self.results.n_queries,
            "rankers": self.results.to_dict(),
            "seconds": self.seconds,
            "facts": self.facts,
            "environment": environment(),
        }

    def settings_dict(self) -> dict[str, Any]:
        """What decides the outcome: split, baseline, the engine's settings, and every ranker with its parameters."""
        rankers = {name: ranker.to_dict() for name, ranker in self.rankers.items()}
        return {"split": self.split, "baseline": self.results.baseline, **self.settings, "rankers": rankers}

    def write(self, folder: Path | str) -> None:
        """Write ``runs/<ranker>.trec``, ``table.md``, ``results.json`` and ``settings.json``: all of it, or nothing."""
        with whole_folder(Path(folder)) as aside:
            (aside / "runs").mkdir()
            for name, run in self.runs.items():
                run.to_trec(aside / "runs" / f"{file_name(name)}.trec", tag="".join(name.split()) or "haybale")
            (aside / "table.md").write_text(markdown(self.results) + "\n", encoding="utf-8")
            write_json(aside / "results.json", self.to_dict())
            write_json(aside / "settings.json", self.settings_dict())


_RANGES: dict[str, Constraints] = {
    "rankers": [str, *SEQUENCE, None],  # a mapping too
    "split": [str],
    "train": [str],
    "baseline": [str, Ranker],
    "report": [callable, None],
}


def compare(
    engine: Engine | Collection | str,
    rankers: Rankers | None = None,
    *,
    split: str = "dev",
    train: str = "train",
    baseline: Ranker | str = "bm25",
    measures: Sequence[str] = MEASURES,
    report: Callable[[str, float], None] | None = None,
) -> Outcome:
    """Rank a split's queries with several rankers, and compare each with the baseline.

    No judgement of the split is seen before the rankings are made. Rankers share what they ask of the engine, and
    those that are equal are fitted once.

    Parameters
    ----------
    engine : Engine, Collection or str
        An engine; or a collection (or what :func:`~haybale.open_collection` takes), of which one is made in memory.
    rankers : sequence or mapping of Ranker or str, optional
        Names of the grammar, rankers to be fitted, or fitted ones; a mapping gives them names. Default:
        :func:`default_rankers`.
    split : str, default "dev"
        Whose queries are ranked.
    train : str, default "train"
        What rankers learn from.
    baseline : Ranker or str, default "bm25"
        Ranked even if ``rankers`` leave it out.
    measures : sequence of str
        See :func:`~haybale.evaluate`.
    report : callable, optional
        Called with ``(stage, seconds)`` whenever a stage is done.

    Raises
    ------
    InputError
        Unknown names; a ranker that would be, or was, trained on the split it is measured with, or that has nothing
        to learn from: before any work.
    """
    check_parameters("compare", locals(), _RANGES)
    named = _named(default_rankers() if rankers is None else rankers)
    first = str(baseline)
    named = {first: named[first] if first in named else from_spec(baseline), **named}
    all_parsed(measures)
    files: dict[str, str] = {}
    for name in named:
        if (other := files.setdefault(file_name(name).casefold(), name)) != name:
            raise InputError(f"rankers {other!r} and {name!r} would be written to one file; give them other names")
    with record_timings(report) as stages:
        engine = engine if isinstance(engine, Engine) else Engine(engine)
        part = engine.collection.split(split)
        _check_training(engine, named, split, train)
        qrels = engine.collection.qrels_frame(split)
        evaluate(Run.joined([]), qrels, measures)  # refuses, before the work, what cannot be measured
        training = Training.of(engine, train) if train in engine.collection.splits else Training.of(engine)
        batch = QueryBatch(engine, engine.collection.queries.take(part.queries))
        fitted = {
            name: ranker if _is_fitted_on(ranker, engine) else ranker.fitted(training) for name, ranker in named.items()
        }
        runs = {name: ranker.run(batch, DEPTH) for name, ranker in fitted.items()}
        for name, run in runs.items():
            warn_of_empty(run, name)
        with timed("evaluate"):
            table = results({name: evaluate(run, qrels, measures) for name, run in runs.items()}, first)
    facts: dict[str, Any] = {"vectors": list(engine.passages.vectors.shape)} if "passages" in engine.made else {}
    facts |= {name: ranker.fit_report_ for name, ranker in _all_of(fitted).items() if ranker.fit_report_}
    return Outcome(engine.collection, split, fitted, runs, table, stages.seconds, facts, engine.settings)


def _named(rankers: Rankers) -> dict[str, Ranker]:
    if isinstance(rankers, Mapping):
        return {name: from_spec(ranker) for name, ranker in rankers.items()}
    given = parse_all(rankers) if isinstance(rankers, str) else rankers
    return {each if isinstance(each, str) else str(from_spec(each)): from_spec(each) for each in given}


def _is_fitted_on(ranker: Ranker, engine: Engine) -> bool:
    return getattr(ranker, "engine_", None) is engine


def _check_training(engine: Engine, rankers: Mapping[str, Ranker], split: str, train: str) -> None:
    asked = set(take_strings(engine.collection.queries.ids, engine.collection.split(split).queries))
    for name, ranker in rankers.items():
        ranker.check_params()
        if _is_fitted_on(ranker, engine):
            seen = asked & ranker.learned_from()
            if seen:
                raise InputError(f"{name} was trained on {len(seen)} queries of {split!r}, where it would be evaluated")
        elif ranker.needs_training and train == split:
            raise InputError(f"{name} would be trained and evaluated on the same split, {split!r}")
        elif ranker.needs_training and train not in engine.collection.splits:
            raise InputError(
                f"{name} needs a split to learn from: {engine.collection.name} has no split {train!r}, only "
                f"{', '.join(engine.collection.splits)}; leave {name} out"
            )


def _all_of(rankers: Mapping[str, Ranker]) -> dict[str, Ranker]:
    """The rankers and those within them, by name."""
    found: dict[str, Ranker] = {}
    for name, ranker in rankers.items():
        found |= _all_of({str(inner): inner for inner in ranker.rankers_}) | {name: ranker}
    return found


def file_name(ranker: str) -> str:
    """A ranker's name as a file name: of any name one, and of a long one its beginning and a digest.

    >>> file_name("rrf(bm25,svr)"), file_name("cross-encoder(bm25,model='a/model')")
    ('rrf-bm25-svr', 'cross-encoder-bm25-model-a-model')
    """
    name = "-".join(re.findall(r"[\w.]+", ranker)) or "ranker"
    return name if len(name) <= 120 else f"{name[:120]}-{hashlib.sha256(ranker.encode()).hexdigest()[:8]}"


def environment() -> dict[str, str]:
    """The versions and the machine the numbers depend on."""
    packages = ("haybale", "numpy", "scipy", "scikit-learn", "pandas", "bm25s", "faiss-cpu", "ir_measures")
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return {"python": platform.python_version(), "machine": machine, **{each: version(each) for each in packages}}
