"""Put a backup of a matter in the place of its files, on this or another machine: all of it, or nothing."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from haybale.engine.storage import Storage
from haybale.errors import InputError, StoreError
from haybale.folders import check_output, locked
from haybale.review import JudgementStore
from haybale.review.interrupted_restore import Move, finish_restore, is_interrupted, put_in_place
from haybale.review.left_log import glob_literal, is_whole_store, set_aside_name, unused
from haybale.service.backup_archive import Archive, opened_archive
from haybale.service.matter_files import ENGINE, JUDGEMENTS, MatterFiles, read_engine

_SQLITE_SUFFIXES = ("-wal", "-shm", "-journal")  # ends of the names of SQLite's files beside a database
_STAGED = ".restore-"  # within the name of a file or folder that is not in its place yet


class RestoredMatter(NamedTuple):
    """What :func:`restore_matter` did.

    ``n_rows`` are the rows of judgements, ``set_aside`` the files and folders that were there before, under their new
    names, and ``engine_is_restored`` says whether the engine is that of the backup, rather than the one that was there.
    """

    n_rows: int
    set_aside: list[Path]
    engine_is_restored: bool


def restore_matter(
    backup: str | Path,
    engine: str | Path,
    judgements: str | Path | None = None,
    models: str | Path | None = None,
) -> RestoredMatter:
    """Put a backup of a matter in the place of its files, which must not be in use. What was there is kept.

    The whole backup is checked before anything is changed. If this process is killed, the old state is there or, as
    soon as the judgements are opened, the new one. Files of an older version get the form of today.

    Parameters
    ----------
    backup : str or Path
        A folder or a zip file that :func:`~haybale.service.backup_matter` or ``haybale backup`` has written.
    engine : str or Path
        The folder of the engine that was backed up, wherever it is now; it stays as it is. If there is none, or it is
        empty, the engine of the backup is restored there.
    judgements, models : str or Path, optional
        The file of judgements and the folder of trained rankers. Default: where ``haybale serve`` has them.

    Raises
    ------
    InputError
        If there is no such backup, or it has no engine and the folder neither.
    StoreError
        If the backup is damaged, the engine is another one, files are in use, or the disk cannot be written.
    """
    files = MatterFiles.of(engine, judgements, models)
    try:
        with locked(files.judgements.parent):
            finish_restore(files.judgements)
            with opened_archive(Path(backup)) as archive:
                return _restore(archive, files)
    except OSError as error:
        if isinstance(error, StoreError | InputError):
            raise
        raise StoreError(
            f"{files.judgements}: expected to restore {backup}, found that it cannot be done ({error}); check that "
            "the folder can be written, and that its disk has room"
        ) from error


def _restore(archive: Archive, files: MatterFiles) -> RestoredMatter:
    has_engine = _has_engine(archive, files)
    with ExitStack() as block:
        databases = [path for path in (files.judgements, *files.beside(archive.manifest["identity"])) if path.is_file()]
        for path in (files.judgements, *(path for path in databases if path != files.judgements)):
            block.enter_context(unused(path))
        staged = block.enter_context(_staged(archive, files, without_engine=has_engine))
        n_rows = _check_databases(archive, staged)
        moves = list(_moves(archive, files, staged))
        put_in_place(files.judgements, moves)
    set_aside = [move.kept for move in moves if move.kept is not None and move.kept.exists()]
    return RestoredMatter(n_rows, set_aside, ENGINE in staged)


def _has_engine(archive: Archive, files: MatterFiles) -> bool:
    """Return whether the engine of the backup is there already; raise an error if another one or other files are."""
    manifest, identity = read_engine(files.engine), archive.manifest["identity"]
    if manifest is not None:
        if manifest["identity"] != identity:
            raise StoreError(
                f"{files.engine}: expected the engine that was backed up, found another one; give the folder of that "
                "engine, or a new one if the backup has it"
            )
        return True
    if not any(name.startswith(f"{ENGINE}/") for name in archive.names):
        raise InputError(
            f"{files.engine}: expected the engine that was backed up, found none; copy it there first, or make the "
            "backup with --with-engine"
        )
    check_output(files.engine)
    return False


@contextmanager
def _staged(archive: Archive, files: MatterFiles, without_engine: bool) -> Iterator[dict[str, Path]]:
    """Extract a backup under other names beside their places, and yield these by the names in the backup.

    They are removed at the end, unless the list of moves names them.
    """
    mark = f"{_STAGED}{uuid4().hex[:12]}"
    staged: dict[str, Path] = {}
    try:
        for name in archive.names:
            first, _, within = name.partition("/")
            if first == ENGINE and without_engine:
                archive.extract(name, None)
                continue
            if first not in staged:
                target = files.path_of(first)
                for unfinished in target.parent.glob(f".{glob_literal(target.name)}{_STAGED}*"):
                    _remove(unfinished)  # of a restore that was killed
                staged[first] = target.with_name(f".{target.name}{mark}")
            archive.extract(name, staged[first] / within if within else staged[first])
        yield staged
    finally:
        if not is_interrupted(files.judgements):
            for path in staged.values():
                _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _set_owner(staged: Path, existing: os.stat_result) -> None:
    """Give what was extracted the owner of what it replaces, and its mode, as far as this user may."""
    staged.chmod(stat.S_IMODE(existing.st_mode))
    for path in (staged, *staged.rglob("*")):
        with suppress(PermissionError):
            os.chown(path, existing.st_uid, existing.st_gid)


def _check_databases(archive: Archive, staged: dict[str, Path]) -> int:
    """Check what was extracted, give the judgements the tables of today, and return the number of their rows."""
    if ENGINE in staged:
        Storage(staged[ENGINE]).read()  # raises an error for a version that cannot be opened
    for name, path in staged.items():
        if path.is_dir():
            continue
        if name == JUDGEMENTS:
            JudgementStore(path).close()
        with closing(sqlite3.connect(path)) as connection:
            is_whole = (
                is_whole_store(connection, JudgementStore.store_format)
                if name == JUDGEMENTS
                else connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            )
        if not is_whole:
            raise StoreError(f"{archive.path}: expected a whole database {name}, found a damaged one; give another")
    return int(archive.manifest["rows"])


def _moves(archive: Archive, files: MatterFiles, staged: dict[str, Path]) -> Iterator[Move]:
    """Yield the moves that make the backup the present state: also away from the names of what it does not have."""
    new = {files.path_of(name): path for name, path in staged.items()}
    old = [path for path in (files.judgements, *files.beside(archive.manifest["identity"])) if os.path.lexists(path)]
    for path in [*old, *(path for path in new if path not in old)]:
        kept = set_aside_name(path) if path in old else None
        if kept is not None and path in new:
            _set_owner(new[path], path.stat())
        if kept is not None and path.is_file():
            for suffix in _SQLITE_SUFFIXES:
                log = path.with_name(path.name + suffix)
                if log.exists():
                    yield Move(None, log, kept.with_name(kept.name + suffix))
        yield Move(new.get(path), path, kept)
