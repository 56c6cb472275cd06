"""Put the files of a restore in place, also if the process that began it was killed: all of them, or none.

A restore writes its files under other names first. Then it writes a list of moves beside the file of judgements, under
the name of that file with ``.restoring``. From then on the restored files are the present ones: whoever opens the file
of judgements next does the moves that are left, and removes the list.
"""

from __future__ import annotations

import fcntl
import glob
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from haybale.errors import FileFormatError, StoreError
from haybale.folders import replaced
from haybale.manifest import check_kinds, verify_checksum, with_checksum
from haybale.text_files import parsed_json, read_bytes

_SUFFIX = ".restoring"
_KINDS = {"moves": [{"staged": (str, None), "target": str, "kept": (str, None)}]}


class Move(NamedTuple):
    """A file or folder that gets its name, and where the one that has this name now is kept.

    ``staged`` is None if nothing takes the name ``target``; ``kept`` is None if nothing has it.
    """

    staged: Path | None
    target: Path
    kept: Path | None


def put_in_place(judgements: Path, moves: Iterable[Move]) -> None:
    """Do moves, all or none: if this process is killed, whoever opens the file of judgements does the others."""
    path = _list_of(judgements)
    folder = path.parent
    for unfinished in folder.glob(f".{glob.escape(path.name)}.*"):
        unfinished.unlink()  # of a restore that was killed
    rows = [
        {name: None if path is None else os.path.relpath(path, folder) for name, path in move._asdict().items()}
        for move in moves
    ]
    with replaced(path) as aside, aside.open("w", encoding="utf-8") as file:
        json.dump(with_checksum({"moves": rows}), file)
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(folder)
    finish_restore(judgements)


def is_interrupted(judgements: Path) -> bool:
    """Return whether a restore of a file of judgements has begun to put its files in place, and is not finished."""
    return _list_of(judgements).exists()


def finish_restore(judgements: Path) -> None:
    """Do the moves that a killed restore has left for a file of judgements; do nothing if there is no list of moves.

    Raises
    ------
    StoreError
        If the files cannot be moved.
    FileFormatError
        If the list is damaged.
    """
    path = _list_of(judgements)
    if not is_interrupted(judgements):
        return
    try:
        with path.open("rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # of one process at a time; the others find no list afterwards
            if path.exists() and os.fstat(file.fileno()).st_ino == path.stat().st_ino:
                moves = _read_moves(path)
                for move in moves:
                    _do(move)
                for folder in {move.target.parent for move in moves}:
                    _sync_folder(folder)
                path.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        if isinstance(error, StoreError | FileFormatError):
            raise
        raise StoreError(
            f"{path}: expected to finish the restore that this file lists, found that it cannot ({error.strerror}); "
            "check that the folder can be written, and open the judgements again"
        ) from error


def _list_of(judgements: Path) -> Path:
    real = Path(os.path.realpath(judgements))
    return real.with_name(f"{real.name}{_SUFFIX}")


def _read_moves(path: Path) -> list[Move]:
    values = verify_checksum(path, parsed_json(path, read_bytes(path)))
    check_kinds(path, values, _KINDS)
    folder = path.parent
    return [
        Move(*(None if row[name] is None else folder / row[name] for name in Move._fields))  # type: ignore[arg-type]
        for row in values["moves"]
    ]


def _sync_folder(folder: Path) -> None:
    """Return when the names in a folder are on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _do(move: Move) -> None:
    """Do a move, or what is left of it."""
    staged, target, kept = move
    if staged is not None and not os.path.lexists(staged):
        return
    if kept is not None and os.path.lexists(target) and not os.path.lexists(kept):
        os.rename(target, kept)
    if staged is not None:
        os.replace(staged, target)
