"""Progress bars of long work: drawn on a terminal, silent anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")

_drawn: list[Progress] = []  # the display that is on the screen: nested work adds its bar there


def track(
    items: Iterable[T], description: str, total: int | None = None, status: Callable[[], str] | None = None
) -> Iterator[T]:
    """Yield ``items``, and draw a bar on stderr if that is a terminal.

    ``total`` is needed only if ``items`` has no length. ``status()`` returns the text beside the bar, after each item.
    Nested work has its bar below. A bar disappears when its work is done, so that only results stay on the screen.

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
    """Yield the display that is on the screen, or a new one: a terminal holds one live display."""
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
