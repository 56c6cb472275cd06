"""``haybale log``."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

from haybale.cli.application import MORE, command
from haybale.cli.options import argument, option
from haybale.cli.terminal import show
from haybale.errors import FileFormatError, InputError

CHECK = "Check"  # a panel of the help


@command(MORE)
def log(
    source: Annotated[
        Path, argument("An engine, its file of saved searches (…-searches.sqlite), or an exported log (JSON lines).")
    ],
    check: Annotated[
        bool, option("Check that no line was changed or removed. Default: print the lines.", CHECK)
    ] = False,
    heads: Annotated[
        Path | None, option("A file with heads that --head printed earlier, to check with. Default: none.", CHECK)
    ] = None,
    head: Annotated[
        bool, option("Print the number and the SHA-256 of the last line. Default: print the lines.", CHECK)
    ] = False,
) -> None:
    """Print or check the log of a service: who searched, opened, judged, exported and trained what.

    Each line has the SHA-256 of the line before. Keep heads where nobody who runs the service can write: with them, it
    is noticed if lines were changed later, or removed at the end.
    """
    from haybale.service.log_chain import check_lines, read_heads
    from haybale.service.matter_log import stored_lines
    from haybale.service.matter_store import MatterStore, is_matter_store, searches_file_of

    with ExitStack() as block:
        path = source
        if source.is_dir():
            from haybale.review import judgement_file_of

            path = searches_file_of(judgement_file_of(source))
        if not path.is_file():
            raise InputError(f"{path}: expected a log, found no file; turn the log on with haybale serve --log")
        if is_matter_store(path):
            lines = stored_lines(block.enter_context(MatterStore(path, read_only=True)))
        else:
            lines = iter(block.enter_context(path.open(encoding="utf-8", errors="replace")))
        if not (check or head or heads):
            for line in lines:
                show(line.rstrip("\n"))
            return
        kept = [] if heads is None else read_heads(heads.read_text(encoding="utf-8", errors="replace"))
        result = check_lines(lines, kept)
        if not result.is_whole:
            raise FileFormatError(
                path, None, f"expected a whole log, found that {result.problem}; compare it with an exported copy"
            )
        if head:
            show(f"{result.head.number} {result.head.digest}")
        else:
            show(f"{result.n_lines:,} lines, from {result.first} to {result.last}: each has the SHA-256 of the last")
            show(f"heads: {result.n_heads:,} fit, {result.n_heads_cut:,} are of lines that were cut")
