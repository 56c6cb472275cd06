"""Record the source of an engine of files, and check it at updates: its folder, and the options of readers.

``files.json`` has them as ``source`` and ``columns``, because the first options were columns of tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from haybale.errors import InputError

FILES = "files.json"
CHANGEABLE_OPTIONS = ("ocr", "ocr_languages")  # options of readers that updates may change
_MIN_SHARE_OF_FILES = 0.5  # a folder with this share of the recorded files is taken for the recorded folder


def about_source(source: Path, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the entries of ``files.json`` for a source: its absolute path, and the options of readers."""
    return {"source": str(source.resolve()), "columns": dict(options)}


def recorded_options(folder: Path, record: Mapping[str, Any], requested_options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that an engine was built with; InputError if others are given, but for those of OCR."""
    options: dict[str, str] = record["columns"]
    ocr = {name: value for name, value in requested_options.items() if name in CHANGEABLE_OPTIONS}
    for name, value in requested_options.items():
        if name not in ocr and options.get(name) != value:
            was = repr(options[name]) if name in options else "none"
            raise InputError(
                f"{folder}: expected the {name} it was built with, {was}, found {value!r}; give a new folder"
            )
    return options | ocr


def check_source(
    folder: Path, record: Mapping[str, Any], source: Path, before: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
    """Raise InputError if the source of an update is not the one that the engine was built from.

    A folder that was moved or copied is the same if it has the contents of half of the recorded files, whatever their
    names are now.
    ``before`` and ``now`` are the recorded and the present signatures of files: size, time and SHA-256.
    """
    origin = record["source"]
    if not before or origin == str(source.resolve()):
        return
    contents = {signature[2] for signature in now.values() if signature[2]}
    same = sum(signature[2] in contents for signature in before.values())
    if same < _MIN_SHARE_OF_FILES * len(before):
        raise InputError(
            f"{source}: expected the source that {folder} was built from, {origin}, found another one: it has {same:,} "
            f"of {len(before):,} files, and all other documents would be removed; give a new --out"
        )


def path_of(file: str, names: Set[str]) -> str:
    """Return the name of the file on disk that has a document, which may be inside a zip file or a mail."""
    if names == {""}:  # a zip file in place of a folder
        return ""
    parts = file.split("/")
    candidates = ("/".join(parts[:n]) for n in range(1, len(parts) + 1))
    return next((path for path in candidates if path in names), file.partition(":")[0])
