"""``haybale backup``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from haybale.cli.application import MORE, command
from haybale.cli.options import argument
from haybale.cli.terminal import note
from haybale.errors import InputError


@command(MORE)
def backup(
    judgements: Annotated[Path, argument("The file that keeps the judgements.")],
    out: Annotated[Path, argument("The new file for the copy.")],
) -> None:
    """Copy a file of judgements while it is in use; the copy is of one moment."""
    from haybale.review import JudgementStore

    if not judgements.is_file():
        raise InputError(f"{judgements}: expected a store of judgements, found no file; check the path")
    with JudgementStore(judgements) as store:
        store.backup(out)
        note(f"Copied {store.n_rows():,} rows of {judgements} to {out}.")
