"""Print the results of commands on stdout, and their progress on stderr."""

from __future__ import annotations

import logging
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from haybale.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from haybale.collections.unread import UnreadPart
    from haybale.evaluation import Outcome

_MAX_UNREAD_SHOWN = 20  # parts of files that could not be read
# Control characters, characters that reverse the direction of text, halves of surrogate pairs, line separators.
_ESCAPED_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")


def visible(text: str) -> str:
    """Return a text with its control characters escaped, so that it cannot control the terminal.

    >>> visible("\\x1b[2Jstatute\\u202e")
    '\\\\x1b[2Jstatute\\\\u202e'
    """
    return "".join(
        sign.encode("unicode_escape").decode() if unicodedata.category(sign) in _ESCAPED_CATEGORIES else sign
        for sign in text
    )


def show(line: str) -> None:
    """Print a line of the result on stdout."""
    print(visible(line), flush=True)


def say(line: str) -> None:
    """Print a line about the progress, or an error, on stderr."""
    print(visible(line), file=sys.stderr, flush=True)


class _Verbosity:
    """How much the running command prints beside its results, its warnings and its errors."""

    quiet = False
    verbose = False


verbosity = _Verbosity()


@contextmanager
def printing(quiet: bool, verbose: bool) -> Iterator[None]:
    """Print less or more in the block, as the options --quiet and --verbose demand.

    By default finished stages are printed, with progress bars on a terminal and a line a minute elsewhere.
    """
    if quiet and verbose:
        raise InputError("--quiet cannot be combined with --verbose; omit one of them")
    from haybale.progress import hidden_bars

    handler = logging.StreamHandler(_Stderr())
    handler.setFormatter(logging.Formatter("  %(message)s"))
    logger = logging.getLogger("haybale" if verbose else "haybale.progress")
    before = logger.level
    verbosity.quiet, verbosity.verbose = quiet, verbose
    with ExitStack() as block:
        if quiet:
            block.enter_context(hidden_bars())
        else:
            logger.addHandler(handler)
            logger.setLevel(logging.DEBUG if verbose else logging.INFO)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(before)
            verbosity.quiet = verbosity.verbose = False


class _Stderr:
    """The stream on which log lines are printed like all others."""

    def write(self, text: str) -> None:
        sys.stderr.write("".join(visible(line) + "\n" for line in text.splitlines()))

    def flush(self) -> None:
        sys.stderr.flush()


def note(line: str) -> None:
    """Print a line beside the result on stderr, unless the command is quiet."""
    if not verbosity.quiet:
        say(line)


def note_unread(unread: Sequence[UnreadPart]) -> None:
    """Print the first files, and parts of files, that could not be read, with the reasons."""
    from haybale.collections.unread import counted

    for part in unread[:_MAX_UNREAD_SHOWN]:
        note(f"skipped {part}")
    if len(unread) > _MAX_UNREAD_SHOWN:
        note(f"skipped {counted(unread[_MAX_UNREAD_SHOWN:])} more")


def reporter() -> Callable[[str, float], None]:
    """Return a function that prints a finished stage with its seconds on stderr.

    A stage that runs several times is printed again whenever it has taken another second. Nothing is printed by a quiet
    command, nor by a verbose one, which prints the log.
    """
    from rich.console import Console

    printed: dict[str, float] = {}
    console = Console(stderr=True, highlight=False)

    def report(stage: str, seconds: float) -> None:
        failed = sys.exc_info()[0] is not None  # the command prints the error that ended the stage
        if verbosity.quiet or verbosity.verbose or failed or (stage in printed and seconds < printed[stage] + 1):
            return
        printed[stage] = seconds
        console.print("  [green]✓[/] ", end="")
        console.print(f"{visible(stage)} {seconds:.1f} s", markup=False, soft_wrap=True)

    return report


def console_for_tables() -> Console:
    """Return a console on stdout; if stdout is not a terminal, it is wide enough for a whole table."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=160, highlight=False)


def size_on_disk(folder: Path) -> str:
    """Return the size of all files in a folder, such as ``"1.2 MB"``."""
    from rich.filesize import decimal

    return decimal(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))


def print_outcome(outcome: Outcome, title: str) -> None:
    """Print the table of a comparison, and the eight stages that took the longest."""
    from haybale.evaluation import print_table

    console = console_for_tables()
    console.print()
    print_table(console, outcome.results, title)
    longest = sorted(outcome.seconds.items(), key=lambda item: -item[1])[:8]
    stages = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in longest)
    console.print(f"\nLongest stages: {visible(stages)}", soft_wrap=True, markup=False)
