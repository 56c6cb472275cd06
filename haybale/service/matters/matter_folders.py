"""Which engines a service has: those that it was given, and those in folders that it watches."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from haybale.errors import InputError
from haybale.service.users_file import MAX_MATTER


class EngineFolder(NamedTuple):
    """The folder of an engine, and its number on the disk, which another folder of the same name does not have."""

    path: Path
    number: tuple[int, int]


class MatterFolders:
    """The folders of engines by the names of their matters, which are the names of the folders.

    Parameters
    ----------
    folders : sequence of str or Path
        Each is the folder of an engine, or a folder that is watched: the folders in it that have an engine are
        matters, except hidden ones.

    Raises
    ------
    InputError
        If a path is no folder, or if two engines have the same name, or are the same one.
    """

    def __init__(self, folders: Sequence[str | Path]) -> None:
        paths = [Path(os.path.abspath(folder)) for folder in folders]
        for path in paths:
            if not path.is_dir():
                raise InputError(f"{path}: expected an engine or a folder of engines, found no folder; check the path")
        self._engines = [path for path in paths if has_engine(path)]
        self._watched = [path for path in paths if not has_engine(path)]
        self._reported: set[str] = set()
        self._latest: dict[str, EngineFolder] = {}
        for problem in self.look():
            raise InputError(problem)

    @property
    def latest(self) -> dict[str, EngineFolder]:
        """The folders at the last look, by the names of their matters, in the order of these."""
        return self._latest

    def look(self) -> list[str]:
        """Look which engines there are now, and return why some were left out, each reason once.

        If a watched folder cannot be read for a moment, the engines in it are those of before.
        """
        problems: list[str] = []
        latest: dict[str, EngineFolder] = {}
        real_paths: dict[str, Path] = {}
        for path in dict.fromkeys(self._candidates(problems)):
            try:
                status = path.stat()
            except OSError:  # it was removed in this moment
                continue
            name, real = path.name, os.path.realpath(path)
            if not name.isprintable() or not name.strip() or len(name) > MAX_MATTER:
                problems.append(
                    f"{str(path)!r}: the name of a matter must have 1 to {MAX_MATTER} printable characters, "
                    "found others; rename the folder"
                )
            elif name in latest:
                problems.append(
                    f"matters must have different names, found {latest[name].path} and {path}; rename one folder"
                )
            elif real in real_paths:
                problems.append(
                    f"matters must be different engines, found {real_paths[real]} and {path}, which are one; omit one"
                )
            else:
                latest[name], real_paths[real] = EngineFolder(path, (status.st_dev, status.st_ino)), path
        self._latest = dict(sorted(latest.items()))
        fresh = [problem for problem in problems if problem not in self._reported]
        self._reported = set(problems)
        return fresh

    def _candidates(self, problems: list[str]) -> Iterator[Path]:
        """Yield the folders of engines, and add why a watched folder cannot be read to the problems."""
        yield from filter(has_engine, self._engines)
        for folder in self._watched:
            try:
                entries = sorted(entry.name for entry in os.scandir(folder))
            except OSError as error:
                why = error.strerror or str(error)
                problems.append(f"{folder}: expected a folder that can be read, found {why}; its matters stay for now")
                yield from (entry.path for entry in self._latest.values() if entry.path.parent == folder)
                continue
            paths = (folder / name for name in entries if not name.startswith("."))
            yield from filter(has_engine, paths)


def has_engine(folder: Path) -> bool:
    """Return whether a folder has an engine that was built to its end."""
    return (folder / "engine.json").is_file()


def is_single(folders: Sequence[Path]) -> bool:
    """Return whether one engine is meant: one path, which is not a folder that is empty or has engines in it."""
    if len(folders) != 1:
        return False
    (folder,) = folders
    if has_engine(folder) or not folder.is_dir():
        return True
    entries = list(folder.iterdir())
    return bool(entries) and not any(map(has_engine, entries))
