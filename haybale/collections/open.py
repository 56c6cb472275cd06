"""Opens a collection by name or folder; a folder's layout is recognised by its files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from haybale.collections.beir import read_beir
from haybale.collections.collection import Collection
from haybale.collections.gerdalir import read_gerdalir
from haybale.collections.lines import find_file
from haybale.collections.pydocs import read_pydocs
from haybale.collections.structured import read_structured
from haybale.errors import InputError, UnknownNameError

LAYOUTS: dict[str, tuple[str, Callable[[Path], Collection]]] = {
    "gerdalir": ("collection.tsv", read_gerdalir),
    "beir": ("corpus.jsonl", read_beir),
    "structured": ("documents.jsonl", read_structured),
}


def open_collection(name: str | Path, layout: str | None = None) -> Collection:
    """``"pydocs"``, or a folder in one of the :data:`LAYOUTS`.

    Errors: a folder that does not exist, that holds the files of no layout, or of more than one (give
    ``layout`` then).
    """
    if name == "pydocs":
        return read_pydocs()
    folder = Path(name)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; expected 'pydocs' or the folder of a collection")
    if layout is not None:
        if layout not in LAYOUTS:
            raise UnknownNameError("layout", layout, LAYOUTS)
        return LAYOUTS[layout][1](folder)
    found = [name for name, (file, _) in LAYOUTS.items() if find_file(folder, file)]
    if len(found) == 1:
        return LAYOUTS[found[0]][1](folder)
    known = ", ".join(f"{file} ({name})" for name, (file, _) in LAYOUTS.items())
    if found:
        raise InputError(f"{folder}: fits the layouts {', '.join(found)}; say which one with layout=")
    raise InputError(f"{folder}: no layout recognised; expected one of {known}, plain or .gz")
