"""Report the progress of long work: bars on a terminal and in notebooks, and a line a minute to ``logging`` elsewhere.

The lines are reported at the level INFO by the logger ``haybale.progress``.
"""

from __future__ import annotations

import io
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")

SECONDS = 60.0  # time between two lines of the log
_SECONDS_PER_PICTURE = 0.5  # time between two pictures of the bars in a notebook
_LOGGER = logging.getLogger("haybale.progress")

_drawn: list[Progress] = []  # the display on the screen, if any; nested work adds its bar to it
_hidden: list[bool] = []  # not empty within hidden_bars()


def track(
    items: Iterable[T], description: str, total: int | None = None, status: Callable[[], str] | None = None
) -> Iterator[T]:
    """Yield ``items``, and draw a progress bar on stderr if it is a terminal, or below the cell of a notebook.

    Elsewhere, a line is logged every minute. ``total`` is needed only if ``items`` has no length. ``status()`` is
    called after each item and returns the text next to the bar. The bars of nested work are drawn below each other. A
    bar disappears when its work is done.

    >>> list(track([1, 2, 3], "counting"))
    [1, 2, 3]
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    if _hidden:
        yield from items
    elif _is_terminal() or _in_notebook():
        yield from _drawn_items(items, description, total, status)
    elif _LOGGER.isEnabledFor(logging.INFO):
        yield from _logged_items(items, description, total, status)
    else:
        yield from items


@contextmanager
def hidden_bars() -> Iterator[None]:
    """Draw no bars, and log no lines, in the block."""
    _hidden.append(True)
    try:
        yield
    finally:
        _hidden.pop()


def _drawn_items(
    items: Iterable[T], description: str, total: int | None, status: Callable[[], str] | None
) -> Iterator[T]:
    with _screen() as progress:
        task = progress.add_task(description, total=total, status="")
        try:
            for item in items:
                yield item
                progress.update(task, advance=1, status=status() if status else "")
        finally:
            progress.remove_task(task)


def _logged_items(
    items: Iterable[T], description: str, total: int | None, status: Callable[[], str] | None
) -> Iterator[T]:
    last = time.monotonic()
    for number, item in enumerate(items, 1):
        yield item
        if time.monotonic() >= last + SECONDS:
            last = time.monotonic()
            done = f"{number:,}" if total is None else f"{number:,} of {total:,}"
            _LOGGER.info("%s: %s%s", description, done, f", {status()}" if status else "")


def _is_terminal() -> bool:
    """Return whether stderr is a terminal; it may be missing or closed."""
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:
        return False


def _in_notebook() -> bool:
    """Return whether the code runs in the kernel of a notebook, such as Jupyter's or Colab's."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


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
    on_terminal = partial(rich.Progress, console=Console(stderr=True), transient=True)
    with on_terminal(*columns) if _is_terminal() else _pictures(*columns) as progress:
        _drawn.append(progress)
        try:
            yield progress
        finally:
            _drawn.clear()


def _pictures(*columns: Any) -> Progress:
    """Return a display of bars as text below the cell of a notebook, which needs no widgets."""
    from IPython.display import display
    from rich.console import Console
    from rich.progress import Progress

    handle = display({"text/plain": ""}, raw=True, display_id=True)

    class Pictures(Progress):
        drawn = 0.0

        def update(self, *args: Any, **values: Any) -> None:
            super().update(*args, **values)
            if time.monotonic() >= self.drawn + _SECONDS_PER_PICTURE:
                self.drawn, file = time.monotonic(), io.StringIO()
                Console(file=file, width=100).print(self.get_renderable())
                handle.update({"text/plain": file.getvalue()}, raw=True)

        def stop(self) -> None:
            super().stop()
            handle.update({"text/plain": ""}, raw=True)

    return Pictures(*columns, console=Console(file=io.StringIO()), disable=True)
