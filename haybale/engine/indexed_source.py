"""What an engine of files remembers of its source: the folder, and the columns of tables that were asked for.

``files.json`` has them as ``source`` and ``columns``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from haybale.errors import InputError

_LEAST_SHARE = 0.5  # of the recorded files that another folder must have to be taken for the same


def about_source(source: Path, columns: Mapping[str, str]) -> dict[str, Any]:
    """Return what is recorded of a source: its absolute path, and the columns that were given."""
    return {"source": str(source.resolve()), "columns": dict(columns)}


def recorded_columns(folder: Path, record: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, str]:
    """Return the columns that an engine was built with; InputError if others are given."""
    columns = record["columns"]
    for name, value in given.items():
        if columns.get(name) != value:
            was = "no column" if name not in columns else f"the column {columns[name]!r}"
            raise InputError(
                f"{folder}: expected the {name} it was built with, {was}, found {value!r}; give a new folder"
            )
    return dict(columns)


def check_source(
    folder: Path, record: Mapping[str, Any], source: Path, before: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
    """Raise InputError if the source of an update is another one than the engine was built from.

    A folder that was moved or copied is the same if it has the contents of half of the recorded files, whatever their
    names are now.
    ``before`` and ``now`` are the recorded and the present signatures of files: size, time and SHA-256.
    """
    known = record["source"]
    if not before or known == str(source.resolve()):
        return
    contents = {signature[2] for signature in now.values() if signature[2]}
    same = sum(signature[2] in contents for signature in before.values())
    if same < _LEAST_SHARE * len(before):
        raise InputError(
            f"{source}: expected the source that {folder} was built from, {known}, found another one: it has {same:,} "
            f"of {len(before):,} files, and all other documents would be removed; give a new --out"
        )
