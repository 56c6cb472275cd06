"""One progress bar for all long work: drawn on a terminal, silent anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

T = TypeVar("T")

_drawn: list[Progress] = []  # a bar is on the screen; work inside that work draws none of its own


def track(
    items: Iterable[T], description: str, total: int | None = None, status: Callable[[], str] | None = None
) -> Iterator[T]:
    """Yield ``items``, with a bar on stderr if that is a terminal and has none yet.

    ``total`` is needed only where ``items`` has no length; ``status()`` is asked after each item what to show
    beside the bar. The bar disappears when the work is done, so that what stays on the screen is the result.

    >>> list(track([1, 2, 3], "counting"))
    [1, 2, 3]
    """
    if _drawn or not sys.stderr.isatty():
        yield from items
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[status]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    _drawn.append(progress)
    try:
        with progress:
            if total is None and isinstance(items, Sized):
                total = len(items)
            task = progress.add_task(description, total=total, status="")
            for item in items:
                yield item
                progress.update(task, advance=1, status=status() if status else "")
    finally:
        _drawn.remove(progress)
