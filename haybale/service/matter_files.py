"""The files of a matter: the engine's folder, its file of judgements, and what is kept beside that file.

A backup has them under names that depend on no folder: ``engine/``, ``judgements.sqlite``, ``judgements-models/`` for
the trained rankers, ``judgements.sqlite.queries/`` for long queries, and ``judgements-NAME.sqlite`` or
``engine-NAME.sqlite`` for other databases.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from haybale.engine.storage import Storage, segment_numbers
from haybale.errors import InputError, StoreError
from haybale.review import judgement_file_of
from haybale.review.judgement_store import JudgementStore

ENGINE, JUDGEMENTS, MODELS = "engine", "judgements.sqlite", "judgements-models"  # the names in a backup
_STEM = "judgements"
_SET_ASIDE = re.compile(r"\.\d{8}T\d{6}(-\d+)?(-\w+)?$")  # the end of a name that a restore has given
_DATABASE = ".sqlite"


@dataclass(frozen=True)
class MatterFiles:
    """Where the files of a matter are.

    Parameters
    ----------
    engine : Path
        The engine's folder.
    judgements : Path
        The file of judgements. What else belongs to the matter lies beside it, and begins with its name, or with the
        name of the engine's folder.
    models : Path
        The folder of trained rankers.

    Examples
    --------
    >>> files = MatterFiles.of("/data/smith", None, None)
    >>> name = files.name_of(Path("/data/smith-judgements-log.sqlite"))
    >>> name, MatterFiles.of("/srv/jones", None, None).path_of(name).as_posix()
    ('judgements-log.sqlite', '/srv/jones-judgements-log.sqlite')
    """

    engine: Path
    judgements: Path
    models: Path

    @classmethod
    def of(cls, engine: str | Path, judgements: str | Path | None, models: str | Path | None) -> MatterFiles:
        """Return the files of an engine, where ``haybale serve`` has them unless they are given."""
        folder = Path(os.path.realpath(engine))
        file = Path(os.path.realpath(judgement_file_of(folder) if judgements is None else judgements))
        return cls(folder, file, file.with_name(f"{file.stem}-models") if models is None else Path(models).absolute())

    def name_of(self, path: Path) -> str:
        """Return the name that a file or folder of the matter, other than the engine's, has in a backup."""
        if path == self.models:
            return MODELS
        for start, name in ((self.judgements.name, JUDGEMENTS), (self.judgements.stem, _STEM)):
            if path.name.startswith(start):
                return name + path.name[len(start) :]
        return ENGINE + path.name[len(self.engine.name) :]

    def path_of(self, name: str) -> Path:
        """Return the path of what a backup has under a name without slashes; an unknown name raises InputError."""
        folder = self.judgements.parent
        if name == ENGINE:
            return self.engine
        if name == MODELS:
            return self.models
        if name == JUDGEMENTS or name.startswith(f"{JUDGEMENTS}."):
            return folder / (self.judgements.name + name[len(JUDGEMENTS) :])
        for start, stem in ((_STEM, self.judgements.stem), (ENGINE, self.engine.name)):
            if name.startswith(f"{start}-"):
                return folder / (stem + name[len(start) :])
        raise InputError(f"expected the name of a file of a matter, found {name!r}; make the backup again")

    def beside(self, identity: str) -> Iterator[Path]:
        """Yield the files and folders of the matter that exist, other than the engine and the file of judgements.

        Databases that say that they belong to another engine than the one with this identity are left out.
        """
        if self.models.is_dir():
            yield self.models
        try:
            names = sorted(path.name for path in self.judgements.parent.iterdir())
        except FileNotFoundError:  # a folder that a restore will make
            return
        names = [name for name in names if not _SET_ASIDE.search(name) and not self._is_of_another_engine(name)]
        databases = [name for name in names if self._is_database(name, identity)]
        starts = (f"{self.judgements.name}.", f"{self.judgements.stem}-", *(f"{name}." for name in databases))
        for name in names:
            path = self.judgements.with_name(name)
            is_folder = name.startswith(starts) and path.is_dir() and not (path / "engine.json").exists()
            # The default folder of trained rankers is that of another service if another one was named.
            if name in databases or (is_folder and path != self.models and name != f"{self.judgements.stem}-models"):
                yield path

    def _is_database(self, name: str, identity: str) -> bool:
        """Return whether a name beside the file of judgements is that of another database of this matter."""
        path = self.judgements.with_name(name)
        starts = (f"{self.judgements.name}.", f"{self.judgements.stem}-", f"{self.engine.name}-")
        is_named = name.startswith(starts) and name.endswith(_DATABASE) and path != self.judgements
        return is_named and path.is_file() and _may_belong(path, identity)

    def _is_of_another_engine(self, name: str) -> bool:
        """Return whether another engine lies beside this one whose longer name a name begins with."""
        parts = name.split("-")
        longer = ("-".join(parts[:n]) for n in range(1, len(parts)))
        return any(
            len(other) > len(self.engine.name) and (self.engine.parent / other / "engine.json").exists()
            for other in longer
        )


def owner_of(connection: sqlite3.Connection) -> str | None:
    """Return the identity of the engine that a database says it belongs to; None if it does not say."""
    if not connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'engines'").fetchone()[0]:
        return None
    row = connection.execute("SELECT identity FROM engines ORDER BY id DESC LIMIT 1").fetchone()
    return None if row is None else str(row[0])


def _may_belong(path: Path, identity: str) -> bool:
    """Return whether a database is none of judgements, and does not belong to another engine."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True)) as connection:
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            return application != JudgementStore.store_format.application and owner_of(connection) in (None, identity)
    except sqlite3.Error as error:
        raise StoreError(f"{path}: expected a database, found that it cannot be read ({error}); move it away") from None


def read_engine(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of an engine; None if there is no engine."""
    return Storage(folder).read() if (folder / "engine.json").exists() or (folder / "building.json").exists() else None


def engine_files(folder: Path, manifest: dict[str, Any]) -> Iterator[tuple[str, Path]]:
    """Yield the files of an engine that belong to the state of a manifest, with their names in the folder.

    Unfinished files, and segments that were merged or are not finished, are left out.
    """
    segments = set(map(str, segment_numbers(manifest)))
    for name, path in files_in(folder):
        first = name.partition("/")[0]
        if not first.isdecimal() or first in segments:
            yield name, path


def files_in(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files in a folder, with their names there, without those whose names begin with a dot."""
    for path in sorted(folder.rglob("*")):
        name = PurePosixPath(*path.relative_to(folder).parts)
        if path.is_file() and not any(part.startswith(".") for part in name.parts):
            yield str(name), path
