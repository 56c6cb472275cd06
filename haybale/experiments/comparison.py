"""Compare rankers on one split of a collection: runs, one table, seconds a stage; and write it all to a folder."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from haybale.collections import Collection
from haybale.errors import InputError
from haybale.evaluation import Results, evaluate, markdown, results
from haybale.experiments.rankers import learns, parts_of, run_of
from haybale.experiments.settings import Settings
from haybale.experiments.training import check_training
from haybale.experiments.workbench import Workbench
from haybale.folders import whole_folder, write_json
from haybale.retrieval import Run


@dataclass(frozen=True)
class Outcome:
    """What a comparison found.

    ``source`` and ``layout``: how the collection was asked for, if that is known; with them it can be opened again.
    """

    collection: Collection
    settings: Settings
    runs: dict[str, Run]
    results: Results
    seconds: dict[str, float]
    facts: dict[str, Any]
    source: str | None = None
    layout: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Everything but the runs, for JSON."""
        return {
            "collection": {
                "name": self.collection.name,
                "source": self.source,
                "layout": self.layout,
                "documents": self.collection.n_documents,
                "passages": self.collection.n_passages,
                "queries": {name: len(part.queries) for name, part in self.collection.splits.items()},
            },
            "settings": self.settings.to_dict(),
            "queries measured": self.results.n_queries,
            "rankers": self.results.to_dict(),
            "seconds": self.seconds,
            "facts": self.facts,
            "environment": environment(),
        }


def compare(
    collection: Collection,
    settings: Settings | None = None,
    report: Callable[[str, float], None] = lambda stage, seconds: None,
) -> Outcome:
    """Rank the split's queries with every ranker of ``settings`` and compare each with the baseline.

    ``report(stage, seconds)`` is called whenever a stage is done. No label of the split is seen before the
    rankings are made. The baseline is ranked even if ``settings.rankers`` leaves it out.
    """
    settings = settings or Settings()
    if settings.protocol != "end-to-end":
        raise InputError("rankings are compared end to end; the injected protocol classifies: see classify_injected")
    names = list(dict.fromkeys([settings.baseline, *settings.rankers]))
    for name in names:
        parts_of(name)  # unknown names are refused before any work
    collection.split(settings.split)
    bench = Workbench(collection, settings, report)
    for name in filter(learns, names):
        check_training(bench, name)
    runs = {name: run_of(bench, name, settings.split) for name in names}
    qrels = collection.qrels_frame(settings.split)
    with bench.stage("evaluate"):
        values = {name: evaluate(run, qrels) for name, run in runs.items()}
        table = results(values, settings.baseline)
    return Outcome(collection, settings, runs, table, bench.seconds, bench.facts)


def write(outcome: Outcome, folder: Path | str) -> None:
    """Write ``runs/<ranker>.trec``, ``table.md``, ``results.json`` and ``settings.json``: all of it, or nothing.

    ``results.json`` also gets the date, in UTC.
    """
    with whole_folder(Path(folder)) as aside:
        (aside / "runs").mkdir()
        for name, run in outcome.runs.items():
            run.to_trec(aside / "runs" / f"{file_name(name)}.trec", tag=name)
        (aside / "table.md").write_text(markdown(outcome.results) + "\n", encoding="utf-8")
        write_json(aside / "results.json", {"date": f"{datetime.now(UTC):%Y-%m-%d}", **outcome.to_dict()})
        write_json(aside / "settings.json", outcome.settings.to_dict())


def file_name(ranker: str) -> str:
    """A ranker's name as a file name.

    >>> file_name("rrf(bm25,svr)")
    'rrf-bm25-svr'
    """
    return ranker.replace("(", "-").replace(",", "-").replace(")", "")


def environment() -> dict[str, str]:
    """The versions and the machine the numbers depend on."""
    packages = ("haybale", "numpy", "scipy", "scikit-learn", "pandas", "bm25s", "faiss-cpu", "ir_measures")
    return {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        **{package: version(package) for package in packages},
    }
