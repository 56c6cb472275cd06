"""Let a command that is interrupted go on when it is run again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from haybale.cli.terminal import note


@contextmanager
def resuming(out: Path | None, work: str) -> Iterator[None]:
    """Keep finished tasks in ``OUT.work`` within the block, until it ends without an error; not without ``out``."""
    from haybale.kept_results import resumable

    if out is None:
        yield
        return
    folder = out.with_name(f"{out.name}.{work}")
    if folder.is_dir():
        note(f"Going on from {folder}, where an interrupted run left what it had finished.")
    try:
        with resumable(folder):
            yield
    except BaseException:
        if folder.is_dir():
            note(f"What is finished was kept in {folder}; run the command again to go on.")
        raise
