"""``haybale index`` and ``haybale train``: an engine in a folder, and rankers fitted on its judged queries."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd

from haybale.cli.arguments import checked, chunking_of, opened, ranker_of
from haybale.cli.output import check_folder, check_parent, given, reporter, resumable, size_on_disk, visible
from haybale.cluster import on_cluster
from haybale.collections import open_collection
from haybale.collections.qrels import read_qrels
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.rankers import Ranker
from haybale.stages import listening, stage


def run_index(
    collection: str,
    out: Path,
    layout: str | None = None,
    pieces: int | None = None,
    stride: int | None = None,
    **settings: Any,
) -> None:
    """Build, or go on; then say in one line what there is. ``settings`` are those of :class:`~haybale.Engine`."""
    start = time.perf_counter()
    settings = checked(settings) | given(chunking=chunking_of(pieces, stride))
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is no folder")
    check_parent(out)
    with resumable(), listening(reporter()):
        with stage("read collection"):
            read = open_collection(collection, layout)
        engine = Engine.build(read, out, **settings).prepare()
    print(visible(f"{engine!r}; {time.perf_counter() - start:.1f} s, {size_on_disk(out)} on disk"))


def run_train(
    engine: Path,
    ranker: str,
    out: Path,
    split: str | None = None,
    queries: Path | None = None,
    qrels: Path | None = None,
    set_values: list[str] | None = None,
    device: str | None = None,
    dask: str | None = None,
) -> None:
    """Fit, save, and say what was learned. ``dask``: the scheduler of a cluster whose workers train the bags."""
    start = time.perf_counter()
    chosen = ranker_of(ranker, set_values or [])
    if queries is not None and qrels is None:
        raise InputError("--queries needs their judgements: give --qrels")
    if split is not None and qrels is not None:
        raise InputError("--split has judgements of its own: leave out --qrels")
    check_folder(out)
    judged = None
    if qrels is not None:
        rows = [judgement[1:] for judgement in read_qrels(qrels)]
        if not rows:
            raise InputError(f"{qrels}: no judgement")
        judged = pd.DataFrame(rows, columns=["query_id", "doc_id", "relevance"])
    fitted_on = opened(engine, device)
    with nullcontext() if dask is None else on_cluster(dask), listening(reporter()):
        chosen.fit(fitted_on, split if queries is None else queries, judged)
        chosen.save(out)
    print(visible(f"{chosen}: {time.perf_counter() - start:.1f} s, {size_on_disk(out)} in {out}"))
    for line in what_was_learned(chosen):
        print(visible(line))


def what_was_learned(ranker: Ranker, indent: str = "  ") -> list[str]:
    """Lines of the facts of a ranker and of those within."""
    width = max(map(len, ranker.facts), default=0)
    lines = [f"{indent}{name:<{width}}  {_shown(value)}" for name, value in ranker.facts.items()]
    for inner in ranker.rankers_:
        below = what_was_learned(inner, indent + "  ")
        lines += [f"{indent}{inner}", *below] if below else []
    return lines


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value))
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
