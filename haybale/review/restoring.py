"""Put a backup of judgements in the place of a file, without losing or mixing what was there."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from haybale.errors import InputError, StoreError
from haybale.folders import check_file, replaced
from haybale.review.judgement_store import JUDGEMENTS, JudgementStore
from haybale.review.left_log import is_whole_store, set_aside_name, unused

_SQLITE_SUFFIXES = ("-wal", "-shm", "-journal")  # ends of the names of SQLite's files beside a database


class Restored(NamedTuple):
    """What :func:`restore` did: the rows of the restored file, and the files that were set aside."""

    n_rows: int
    set_aside: list[Path]


def restore(backup: str | Path, judgements: str | Path) -> Restored:
    """Put a copy of a backup in the place of a file of judgements. What was there is kept under another name.

    The backup is checked before anything is changed. The old file and its log are renamed together, with the time, so
    that they can be opened under their new name. The restored file belongs to the engine that the backup says.

    Parameters
    ----------
    backup : str or Path
        A file that :meth:`JudgementStore.backup <haybale.review.JudgementStore.backup>` or ``haybale backup`` has
        written. It stays as it is.
    judgements : str or Path
        The file to restore, which need not exist.

    Returns
    -------
    Restored
        ``n_rows`` of the restored file, and the paths that were ``set_aside``.

    Raises
    ------
    InputError
        If there is no such backup, or both paths are one file.
    StoreError
        If the backup is no whole store of judgements, the old file is in use, or the disk cannot be written.
    """
    backup, path = Path(backup), Path(os.path.realpath(judgements))
    if not backup.is_file():
        raise InputError(f"{backup}: expected a backup of judgements, found no file; check the path")
    if path.exists() and os.path.samefile(backup, path):
        raise InputError(
            f"{backup}: expected a backup beside the file of judgements, found this file; give another one"
        )
    check_file(path)
    try:
        with unused(path):
            with replaced(path) as aside:
                n_rows = _copy(backup, aside)
                kept = _keep(path)
            for suffix in _SQLITE_SUFFIXES:
                path.with_name(path.name + suffix).unlink(missing_ok=True)
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"{path}: could not be restored ({error.strerror}); check that it can be written") from error
    return Restored(n_rows, kept)


def _copy(backup: Path, aside: Path) -> int:
    """Copy a backup, with its log if it has one, under an id of its own; return the number of its rows."""
    aside.unlink(missing_ok=True)  # an empty file, which holds the place
    with JudgementStore(backup, read_only=True) as store:
        store.backup(aside)
    with closing(sqlite3.connect(aside)) as copy:
        is_whole = is_whole_store(copy, JUDGEMENTS)
        n_rows = int(copy.execute("SELECT count(*) FROM judgements").fetchone()[0]) if is_whole else 0
    if not is_whole:
        raise StoreError(f"{backup}: expected a whole store of judgements, found a damaged one; give another backup")
    return n_rows


def _keep(path: Path) -> list[Path]:
    """Give a file, and SQLite's files beside it, second names, and return these names.

    They lose their first names after the new file is in place. If this process is killed before that, the old log is
    beside the new file, and recognised as that of another file (:mod:`haybale.review.left_log`).
    """
    base, kept = set_aside_name(path), list[Path]()
    for suffix in ("", *_SQLITE_SUFFIXES):
        old, new = path.with_name(path.name + suffix), base.with_name(base.name + suffix)
        if old.exists():
            try:
                os.link(old, new)
            except OSError:  # the file system has no links
                shutil.copy2(old, new)
            kept.append(new)
    return kept
