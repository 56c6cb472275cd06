"""One progress bar for all long work: drawn on a terminal, silent anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
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

_drawn: list[Progress] = []  # what is on the screen; work inside that work adds its bar there


def track(
    items: Iterable[T], description: str, total: int | None = None, status: Callable[[], str] | None = None
) -> Iterator[T]:
    """Yield ``items``, with a bar on stderr if that is a terminal.

    ``total`` is needed only where ``items`` has no length; ``status()`` is asked after each item what to show
    beside the bar. Work within work has its bar below. A bar disappears when its work is done, so that what stays on
    the screen is the result.

    >>> list(track([1, 2, 3], "counting"))
    [1, 2, 3]
    """
    if not sys.stderr.isatty():
        yield from items
        return
    if total is None and isinstance(items, Sized):
        total = len(items)
    with _screen() as progress:
        task = progress.add_task(description, total=total, status="")
        try:
            for item in items:
                yield item
                progress.update(task, advance=1, status=status() if status else "")
        finally:
            progress.remove_task(task)


@contextmanager
def _screen() -> Iterator[Progress]:
    """The bars that are drawn, or new ones: a terminal holds one live display."""
    if _drawn:
        yield _drawn[0]
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
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        _drawn.append(progress)
        try:
            yield progress
        finally:
            _drawn.clear()
