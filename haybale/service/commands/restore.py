"""``haybale restore``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from haybale.cli import options
from haybale.cli.application import MORE, command
from haybale.cli.options import argument
from haybale.cli.terminal import note
from haybale.errors import InputError


@command(MORE)
def restore(
    backup: Annotated[Path, argument("What haybale backup has written. It stays as it is.")],
    target: Annotated[
        Path, argument("The folder of the engine; or the file of judgements, for a backup of such a file.")
    ],
    judgements: options.JudgementsFile = None,
    models: options.ModelsFolder = None,
) -> None:
    """Put a backup in the place of the files of a matter, which must not be in use; the old files are kept.

    The backup is checked first. The old files are renamed with the time, and nothing is deleted. An engine that is
    there stays; if there is none, that of the backup is restored.
    """
    from haybale.review import restore as restored
    from haybale.service import restore_matter
    from haybale.service.backup_archive import is_archive

    if is_archive(backup):
        matter = restore_matter(backup, target, judgements, models)
        set_aside, n_rows = matter.set_aside, matter.n_rows
        note(f"{'Restored' if matter.engine_is_restored else 'Kept'} the engine in {target}.")
    else:
        if judgements is not None or models is not None:
            raise InputError(f"{backup}: expected a backup of an engine with these options, found a file; omit them")
        set_aside, n_rows = restored(backup, target)[::-1]
    for path in set_aside:
        note(f"Kept {path}.")
    note(f"Restored {n_rows:,} rows of {backup} to {target}.")
