"""What the commands print: stages on stderr as they end, results on stdout."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from haybale.evaluation import Outcome

# Control characters, those that turn text round, halves of characters, separators of lines.
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")


def visible(text: str) -> str:
    """A text that a terminal shows as it stands: control characters escaped, so that none of them is obeyed.

    >>> visible("\\x1b[2Jstatute\\u202e")
    '\\\\x1b[2Jstatute\\\\u202e'
    """
    return "".join(
        each.encode("unicode_escape").decode() if unicodedata.category(each) in _HIDDEN else each for each in text
    )


def show(line: str) -> None:
    """A line on stdout: what was asked for."""
    print(visible(line), flush=True)


def say(line: str) -> None:
    """A line on stderr: what is done."""
    print(visible(line), file=sys.stderr, flush=True)


def reporter() -> Callable[[str, float], None]:
    """Writes a line a stage that ended, on stderr; one that ends again, when it has taken another second."""
    from rich.console import Console

    said: dict[str, float] = {}
    console = Console(stderr=True, highlight=False)

    def report(stage: str, seconds: float) -> None:
        failed = sys.exc_info()[0] is not None  # what a stage ended with, which is said elsewhere
        if failed or (stage in said and seconds < said[stage] + 1):
            return
        said[stage] = seconds
        console.print("  [green]✓[/] ", end="")
        console.print(f"{visible(stage)} {seconds:.1f} s", markup=False, soft_wrap=True)

    return report


def console_for_tables() -> Console:
    """stdout; wide enough for the whole table where the output is no terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=160, highlight=False)


@contextmanager
def resumable() -> Iterator[None]:
    """Work that goes on where it was when the same command is given again."""
    try:
        yield
    except KeyboardInterrupt:
        say("interrupted; what is written is kept, the same command goes on from there")
        raise SystemExit(130) from None


def size_on_disk(folder: Path) -> str:
    """Of all files in a folder, in words."""
    from rich.filesize import decimal

    return decimal(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))


def print_outcome(outcome: Outcome, title: str) -> None:
    """Print the table of a comparison, and the eight stages that took longest."""
    from haybale.evaluation import print_table

    console = console_for_tables()
    console.print()
    print_table(console, outcome.results, title)
    longest = sorted(outcome.seconds.items(), key=lambda item: -item[1])[:8]
    stages = " · ".join(f"{stage} {seconds:.1f}" for stage, seconds in longest)
    console.print(f"\nseconds: {visible(stages)}", soft_wrap=True, markup=False)
