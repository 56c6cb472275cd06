"""Let a command that was interrupted continue when it is run again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from haybale.cli.terminal import note, say


@contextmanager
def explain_interrupt() -> Iterator[None]:
    """Print how to continue if the user interrupts the block, which keeps its finished work itself."""
    try:
        yield
    except KeyboardInterrupt:
        say("haybale: interrupted; run the same command again to continue from here")
        raise SystemExit(130) from None


@contextmanager
def resuming(out: Path | None, work: str) -> Iterator[None]:
    """Keep the results of finished tasks in the folder ``OUT.work`` until the block ends without an error.

    Without ``out``, nothing is kept.
    """
    from haybale.kept_results import resumable

    if out is None:
        yield
        return
    folder = out.with_name(f"{out.name}.{work}")
    if folder.is_dir():
        note(f"Continuing with the finished tasks of an interrupted run, in {folder}.")
    try:
        with resumable(folder):
            yield
    except BaseException:
        if folder.is_dir():
            note(f"Finished tasks are kept in {folder}; run the same command again to continue.")
        raise
