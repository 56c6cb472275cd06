"""``haybale train``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import haybale
from haybale.cli import options
from haybale.cli.application import ENGINES, command
from haybale.cli.options import RANKING, RESULTS, option
from haybale.cli.terminal import reporter, show, size_on_disk
from haybale.cli.values import parse_ranker

if TYPE_CHECKING:
    from haybale import Ranker


@command(ENGINES)
def train(
    engine: options.EngineFolder,
    ranker: Annotated[
        str,
        option("Name of the ranker, such as learned, svr or learned(bm25,knn,svr), or a YAML or JSON file.", RANKING),
    ],
    out: Annotated[Path, option("Folder for the model: new or empty.", RESULTS)],
    split: options.Split = None,
    set_values: options.SetValues = None,
    device: options.Device = None,
    dask: options.Dask = None,
) -> None:
    """Train a ranker on an engine's judged queries, and save it for rank and compare."""
    from haybale.folders import check_output, write_or_rescue
    from haybale.timing import record_timings

    start = time.perf_counter()
    chosen = parse_ranker(ranker, set_values)
    check_output(out)
    opened = haybale.Engine.open(engine, device=device)
    with nullcontext() if dask is None else haybale.on_cluster(dask), record_timings(reporter()):
        chosen.fit(opened, split)
        write_or_rescue(chosen.save, out)
    show(f"{chosen}: {time.perf_counter() - start:.1f} s, {size_on_disk(out)} in {out}")
    for line in _what_was_learned(chosen):
        show(line)


def _what_was_learned(ranker: Ranker, indent: str = "  ") -> Iterator[str]:
    """Yield lines of what fitting found, also by the rankers within; of weights, the three largest."""
    for name, value in ranker.fit_report_.items():
        if isinstance(value, dict):
            largest = sorted(value.items(), key=lambda item: -abs(item[1]))[:3]
            yield f"{indent}largest {name}: {', '.join(f'{key} {each:.3g}' for key, each in largest)}"
        else:
            yield f"{indent}{name}: {value:,.4g}" if isinstance(value, float) else f"{indent}{name}: {value}"
    for inner in ranker.rankers_:
        below = list(_what_was_learned(inner, f"{indent}  "))
        yield from [f"{indent}{inner}", *below] if below else []
