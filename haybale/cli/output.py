"""What the commands print: stages on stderr as they finish, tables on stdout."""

from __future__ import annotations

import time

from rich.console import Console

from haybale.collections import Collection, open_collection
from haybale.evaluation import print_table
from haybale.experiments import Outcome


def report(stage: str, seconds: float) -> None:
    """One line a finished stage, on stderr: visible in a log as well as on a terminal."""
    console = Console(stderr=True, highlight=False)
    console.print(f"  [green]✓[/] {stage} [dim]{seconds:.1f} s[/]", soft_wrap=True)


def read(name: str, layout: str | None = None) -> Collection:
    """Open a collection and say what it holds."""
    start = time.perf_counter()
    collection = open_collection(name, layout)
    report(f"read {collection!r}", time.perf_counter() - start)
    return collection


def console_for_tables() -> Console:
    """stdout; wide enough for the whole table where the output is no terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=160, highlight=False)


def show(outcome: Outcome, title: str) -> None:
    """The table and the seconds of each stage."""
    console = console_for_tables()
    console.print()
    print_table(console, outcome.results, title)
    stages = " · ".join(f"{stage} {seconds:.1f}" for stage, seconds in outcome.seconds.items())
    console.print(f"\nseconds: {stages}", soft_wrap=True)
