"""Copy a matter while it is in use: judgements, trained rankers, long queries, and the engine, all of one moment.

The moment is when no process writes to any of the matter's databases: they are locked for some milliseconds, in which a
reading transaction of each begins, and the names of all other files are listed. The databases are copied from these
transactions afterwards, while others write. Other files never change once they have their names, except those of JSON,
which are read within the moment; if one is removed meanwhile, such as that of a merged segment, the copy begins again.
"""

from __future__ import annotations

import io
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from haybale.engine.storage import Storage
from haybale.errors import InputError, StoreError
from haybale.review.judgement_store import JudgementStore
from haybale.review.left_log import closed, is_whole_store, opening
from haybale.service.backup_archive import NewArchive, new_archive
from haybale.service.matter_files import ENGINE, JUDGEMENTS, MatterFiles, engine_files, files_in, owner_of

_MAX_ATTEMPTS = 5
_LOCK_SECONDS = 60.0  # to wait for another process that is writing


class MatterBackup(NamedTuple):
    """What :func:`backup_matter` wrote: rows of judgements, and files with their bytes, before compression."""

    n_rows: int
    n_files: int
    n_bytes: int


@dataclass
class _Moment:
    """A state of a matter: open transactions of its databases, contents of small files, and paths of others."""

    databases: dict[str, sqlite3.Connection] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    paths: dict[str, Path] = field(default_factory=dict)


def backup_matter(
    engine: str | Path,
    out: str | Path,
    judgements: str | Path | None = None,
    models: str | Path | None = None,
    with_engine: bool = False,
) -> MatterBackup:
    """Write a copy of all that belongs to an engine to a new folder or zip file, while others read and write.

    These are the judgements, trained rankers and which was accepted, long queries, and further databases beside the
    judgements (:mod:`haybale.service.matter_files`). The original files of documents are not copied.

    Parameters
    ----------
    engine : str or Path
        The engine's folder.
    out : str or Path
        A new folder, or a new file whose name ends in ``.zip``.
    judgements, models : str or Path, optional
        The file of judgements and the folder of trained rankers. Default: where ``haybale serve`` has them.
    with_engine : bool, default False
        Whether to copy the engine, too.

    Raises
    ------
    InputError
        If there is no engine, or no file of judgements although the engine is not copied either.
    OutputExistsError
        If ``out`` exists.
    StoreError
        If a database is damaged or belongs to another engine, or the disk is full.
    """
    files, path = MatterFiles.of(engine, judgements, models), Path(out)
    if not with_engine and not files.judgements.is_file():
        raise InputError(
            f"{files.judgements}: expected a file of judgements, found none; check the path, or copy the engine with "
            "--with-engine"
        )
    for _ in range(_MAX_ATTEMPTS):
        try:
            with new_archive(path) as archive:
                return _write(files, archive, with_engine)
        except FileNotFoundError:
            continue
        except sqlite3.Error as error:
            raise StoreError(
                f"{files.judgements}: expected databases that can be copied, found that one cannot ({error}); check "
                "that the files and the disk are whole"
            ) from error
    raise StoreError(
        f"{files.engine}: expected files that stay for a moment, found that others removed some {_MAX_ATTEMPTS} times; "
        "make the backup again"
    )


def _write(files: MatterFiles, archive: NewArchive, with_engine: bool) -> MatterBackup:
    manifest = Storage(files.engine).read()
    n_rows = 0
    with ExitStack() as block:
        moment = block.enter_context(_one_moment(files, manifest["identity"], with_engine))
        for name, connection in moment.databases.items():
            n_rows += _copy_database(name, connection, archive)
        for name, content in moment.contents.items():
            archive.write(name, io.BytesIO(content))
        for name, path in moment.paths.items():
            with path.open("rb") as file:
                archive.write(name, file)
    time = datetime.now(UTC).isoformat(timespec="seconds")
    n_bytes = archive.finish(identity=manifest["identity"], time=time, rows=n_rows)
    return MatterBackup(n_rows, len(moment.databases) + len(moment.contents) + len(moment.paths), n_bytes)


@contextmanager
def _one_moment(files: MatterFiles, identity: str, with_engine: bool) -> Iterator[_Moment]:
    """Yield the state of a matter at one moment."""
    moment = _Moment()
    with ExitStack() as block:
        databases: dict[str, Path] = {}
        folders: dict[str, Path] = {}
        if files.judgements.is_file():
            with opening(files.judgements, JudgementStore.store_format):
                pass
            block.callback(closed, files.judgements)
            databases[JUDGEMENTS] = files.judgements
        for path in files.beside(identity):
            (folders if path.is_dir() else databases)[files.name_of(path)] = path
        with ExitStack() as locked:
            for path in databases.values():
                locked.enter_context(_connected(path)).execute("BEGIN IMMEDIATE")
            for name, path in databases.items():
                connection = block.enter_context(_connected(path))
                connection.execute("BEGIN")
                if owner_of(connection) not in (None, identity):
                    raise StoreError(
                        f"{path}: expected judgements of the engine in {files.engine}, found those of another one; "
                        "give the file of this engine"
                    )
                moment.databases[name] = connection
            for name, folder in folders.items():
                for within, path in files_in(folder):
                    _add(moment, f"{name}/{within}", path, is_changing=path.suffix == ".json")
            if with_engine:
                for within, path in engine_files(files.engine, Storage(files.engine).read()):
                    _add(moment, f"{ENGINE}/{within}", path, is_changing=within.endswith(".json") and "/" not in within)
        yield moment


def _add(moment: _Moment, name: str, path: Path, is_changing: bool) -> None:
    if is_changing:
        moment.contents[name] = path.read_bytes()
    else:
        moment.paths[name] = path


@contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    how = f"{path.as_uri()}?mode=rw"
    with closing(sqlite3.connect(how, uri=True, timeout=_LOCK_SECONDS, isolation_level=None)) as connection:
        yield connection


def _copy_database(name: str, connection: sqlite3.Connection, archive: NewArchive) -> int:
    """Copy a database as its open transaction sees it, and return the number of judgements that it has."""
    with tempfile.TemporaryDirectory(prefix="haybale-") as folder:
        path = Path(folder, "copy.sqlite")
        with closing(sqlite3.connect(path, isolation_level=None)) as copy:
            connection.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # all of it is in one file
            n_rows = _checked(name, copy)
        connection.execute("ROLLBACK")
        with path.open("rb") as file:
            archive.write(name, file)
    return n_rows


def _checked(name: str, copy: sqlite3.Connection) -> int:
    """Check a copy of a database; give that of judgements an id of its own, and return the number of its rows."""
    is_of_judgements = name == JUDGEMENTS
    is_whole = (
        is_whole_store(copy, JudgementStore.store_format)
        if is_of_judgements
        else copy.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    )
    if not is_whole:
        raise StoreError(f"{name}: expected a whole database, found a damaged one; restore an earlier backup")
    if not is_of_judgements:
        return 0
    copy.execute("UPDATE store SET id = lower(hex(randomblob(16)))")
    row: tuple[Any, ...] = copy.execute("SELECT count(*) FROM judgements").fetchone()
    return int(row[0])
