"""Draw progress bars of long work on a terminal, and nothing anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")

_drawn: list[Progress] = []  # the display on the screen, if any; nested work adds its bar to it


def track(
    items: Iterable[T], description: str, total: int | None = None, status: Callable[[], str] | None = None
) -> Iterator[T]:
    """Yield ``items``, and draw a progress bar on stderr if it is a terminal.

    ``total`` is needed only if ``items`` has no length. ``status()`` is called after each item and returns the text
    next to the bar. The bars of nested work are drawn below each other. A bar disappears when its work is done.

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
    """Yield the display on the screen, or a new one; a terminal can have only one live display."""
    if _drawn:
        yield _drawn[0]
        return
    from rich import progress as rich
    from rich.console import Console

    columns = (
        rich.SpinnerColumn(),
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TextColumn("{task.fields[status]}"),
        rich.TimeElapsedColumn(),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        _drawn.append(progress)
        try:
            yield progress
        finally:
            _drawn.clear()
