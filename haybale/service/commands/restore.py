"""``haybale restore``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from haybale.cli.application import MORE, command
from haybale.cli.options import argument
from haybale.cli.terminal import note


@command(MORE)
def restore(
    backup: Annotated[Path, argument("A file that haybale backup has written. It stays as it is.")],
    judgements: Annotated[Path, argument("The file of judgements to restore.")],
) -> None:
    """Put a backup in the place of a file of judgements, which must not be in use; the old file is kept.

    The backup is checked first. The old file and its log are renamed with the time, and nothing is deleted.
    """
    from haybale.review import restore as restored

    restoration = restored(backup, judgements)
    for path in restoration.set_aside:
        note(f"Kept {path}.")
    note(f"Restored {restoration.n_rows:,} rows of {backup} to {judgements}.")
