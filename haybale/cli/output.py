"""What the commands print: stages on stderr as they end, results on stdout; and where they may write."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haybale.errors import InputError
from haybale.folders import check_output

if TYPE_CHECKING:
    from rich.console import Console

_HIDDEN = ("Cc", "Cs", "Zl", "Zp")  # control characters, halves of characters, separators of lines
_TURNING = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # text may run backwards


def given(**options: Any) -> dict[str, Any]:
    """The options that were given: the others are left to the defaults of what they are for."""
    return {name: value for name, value in options.items() if value is not None}


def visible(text: str) -> str:
    """A text that a terminal shows as it stands: control characters escaped, so that none of them is obeyed.

    >>> visible("\\x1b[2Jstatute\\u202e")
    '\\\\x1b[2Jstatute\\\\u202e'
    """

    def obeyed(character: str) -> bool:
        return unicodedata.category(character) in _HIDDEN or character in _TURNING

    return "".join(each.encode("unicode_escape").decode() if obeyed(each) else each for each in text)


def say(text: str) -> None:
    """A line on stderr: what is done, not what was asked for."""
    print(visible(text), file=sys.stderr, flush=True)


def reporter() -> Callable[[str, float], None]:
    """Writes a line a stage that ended, on stderr: visible in a log as well as on a terminal.

    A stage that ends again and again is named again when it has taken another second.
    """
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


def check_file(path: Path | None) -> None:
    """Refuse a file that cannot be written, before the work; one that is there will be replaced."""
    if path is not None:
        if path.is_dir():
            raise InputError(f"{path} is a folder; expected the name of a file")
        check_parent(path)


def check_folder(path: Path | None) -> None:
    """Refuse a folder that is not new or empty, or cannot be made, before the work."""
    if path is not None:
        check_output(path)
        check_parent(path)


def check_parent(path: Path) -> None:
    """The nearest folder above that is there must take new files."""
    parent = next(folder for folder in path.absolute().parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"{path}: nothing can be written to {parent}")


def size_on_disk(folder: Path) -> str:
    """Of all files in a folder, in words."""
    from rich.filesize import decimal

    return decimal(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))
