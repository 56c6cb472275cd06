"""``haybale train``: a ranker fitted on an engine's judged queries, in a folder."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd

from haybale.cli.arguments import opened, ranker_of
from haybale.cli.output import check_folder, reporter, size_on_disk, visible
from haybale.cluster import on_cluster
from haybale.collections.qrels import read_qrels
from haybale.errors import InputError
from haybale.rankers import Ranker
from haybale.stages import listening


def run_train(
    folder: Path,
    name: str,
    out: Path,
    *,
    split: str | None,
    queries: Path | None,
    qrels: Path | None,
    values: list[str] | None,
    device: str | None,
    dask: str | None,
) -> None:
    """Fit, save, and say what was learned. ``dask``: the scheduler of a cluster whose workers train the bags."""
    start = time.perf_counter()
    ranker = ranker_of(name, values)
    if queries is not None and qrels is None:
        raise InputError("--queries needs their judgements: give --qrels")
    if split is not None and qrels is not None:
        raise InputError("--split has judgements of its own: leave out --qrels")
    check_folder(out)
    judged = None if qrels is None else judgements_of(qrels)
    engine = opened(folder, device)
    with nullcontext() if dask is None else on_cluster(dask), listening(reporter()):
        ranker.fit(engine, split if queries is None else queries, judged)
        ranker.save(out)
    seconds = time.perf_counter() - start
    print(visible(f"{ranker}: {seconds:.1f} s, {size_on_disk(out)} in {out}"))
    for line in what_was_learned(ranker):
        print(visible(line))


def judgements_of(path: Path) -> pd.DataFrame:
    """The judgements of a qrels file, as rankers take them."""
    rows = [(query, document, grade) for _, query, document, grade in read_qrels(path)]
    if not rows:
        raise InputError(f"{path}: no judgement")
    return pd.DataFrame(rows, columns=["query_id", "doc_id", "relevance"])


def what_was_learned(ranker: Ranker, indent: str = "  ") -> list[str]:
    """Lines of the facts of a ranker and of those within."""
    facts = ranker.facts
    width = max(map(len, facts), default=0)
    lines = [f"{indent}{name:<{width}}  {_shown(value)}" for name, value in facts.items()]
    for inner in ranker.fitted_within():
        below = what_was_learned(inner, indent + "  ")
        lines += [f"{indent}{inner}", *below] if below else []
    return lines


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value))
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
