"""``haybale backup``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from haybale.cli import options
from haybale.cli.application import MORE, command
from haybale.cli.options import RESULTS, argument, option
from haybale.cli.terminal import note
from haybale.errors import InputError


@command(MORE)
def backup(
    matter: Annotated[Path, argument("The folder of an engine; or a file of judgements, which is copied alone.")],
    out: Annotated[Path, argument("The new folder, or the new file if its name ends in .zip.")],
    judgements: options.JudgementsFile = None,
    models: options.ModelsFolder = None,
    with_engine: Annotated[
        bool, option("Copy the engine's folder, too. Default: only what is beside it.", RESULTS, "--with-engine")
    ] = False,
) -> None:
    """Copy an engine's judgements, trained rankers and long queries while they are in use; all are of one moment.

    The original files of documents and the file of users are not copied. haybale restore puts the copy in place.
    """
    from haybale.review import JudgementStore
    from haybale.service import backup_matter

    if matter.is_dir():
        written = backup_matter(matter, out, judgements, models, with_engine)
        note(
            f"Copied {written.n_rows:,} rows of judgements and {written.n_files:,} files, {written.n_bytes:,} bytes, "
            f"to {out}."
        )
        return
    if not matter.is_file():
        raise InputError(f"{matter}: expected a store of judgements or an engine, found neither; check the path")
    if judgements is not None or models is not None or with_engine:
        raise InputError(f"{matter}: expected an engine with these options, found a file; give the engine's folder")
    with JudgementStore(matter) as store:
        store.backup(out)
        note(f"Copied {store.n_rows():,} rows of {matter} to {out}.")
