"""Update an engine that was built from a folder of files: only new, changed and deleted files are read again.

``files.json`` in the engine's folder has the size, the time and the SHA-256 of each file, and the files that could not
be read. It is written after the engine has changed: after an interruption the engine is the old or the new one, and the
next update repeats what is not recorded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from haybale.collections import Collection
from haybale.collections.readers.files import METADATA, Skipped, paths_of, read_files
from haybale.engine.engine import Engine
from haybale.folders import replace_json
from haybale.text_files import read_json

FILES = "files.json"


class Update(NamedTuple):
    """The numbers of documents that an update added, replaced and removed, and the files that cannot be read."""

    n_added: int
    n_replaced: int
    n_removed: int
    skipped: list[Skipped]


def record_files(engine: Engine, source: Path, skipped: Iterable[Skipped]) -> None:
    """Record the files that an engine was built from."""
    assert engine.folder is not None
    replace_json(engine.folder / FILES, {"files": _signatures(source, {}), "skipped": [*skipped]})


def update(engine: Engine, source: Path, columns: Mapping[str, str] | None = None) -> Update:
    """Update an engine after the files of its folder have changed; searches go on meanwhile.

    Parameters
    ----------
    engine : Engine
        An engine in a folder, whose files :func:`record_files` recorded.
    source : Path
        The folder of files, the zip file or the single file that it was built from.
    columns : mapping, optional
        The names of the columns ``text``, ``id`` and ``title`` of tables, as when it was built.
    """
    assert engine.folder is not None
    record = read_json(engine.folder / FILES)
    before, now = record["files"], _signatures(source, record["files"])
    changed = {name for name in before.keys() | now.keys() if _digest(before.get(name)) != _digest(now.get(name))}
    if METADATA in changed:
        changed |= now.keys()
    if not changed:
        replace_json(engine.folder / FILES, record | {"files": now})  # times may have changed
        return Update(0, 0, 0, [Skipped(*each) for each in record["skipped"]])
    skipped = [
        Skipped(*each) for each in record["skipped"] if _path_of(each[0], before.keys() | now.keys()) not in changed
    ]
    collection = engine.whole
    files = dict(zip(collection.doc_ids.to_pylist(), _files(collection), strict=True))
    old = {doc_id for doc_id, file in files.items() if file is not None and _path_of(file, before) in changed}
    how: dict[str, Any] = {"only": changed & now.keys() - {METADATA}, "taken": files.keys() - old}
    read, failed = read_files(source, columns, may_be_empty=True, **how) if how["only"] else (None, [])
    skipped += failed
    new = set() if read is None else set(read.doc_ids.to_pylist())
    gone = sorted(old - new)
    if read is not None:
        engine.replace(read, remove=gone)
    elif gone:
        engine.remove(gone)
    replace_json(engine.folder / FILES, {"files": now, "skipped": skipped})
    return Update(len(new - old), len(new & old), len(gone), skipped)


def _signatures(source: Path, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return size, time and SHA-256 of each file; a file with a known size and time is not read again."""
    found: dict[str, Any] = {}
    for name, path in paths_of(source).items():
        about = path.stat()
        size, time = about.st_size, about.st_mtime_ns
        before = known.get(name)
        if before is not None and before[:2] == [size, time]:
            found[name] = before
        else:
            with path.open("rb") as file:
                found[name] = [size, time, hashlib.file_digest(file, "sha256").hexdigest()]
    return found


def _files(collection: Collection) -> list[str | None]:
    """Return the file of each document; None for documents that were added in another way."""
    if collection.metadata is None or "file" not in collection.metadata.column_names:
        return [None] * collection.n_documents
    return list(collection.metadata["file"].to_pylist())


def _digest(signature: Any) -> Any:
    return None if signature is None else signature[2]


def _path_of(file: str, names: Iterable[str]) -> str:
    """Return the name of the file on disk that a document comes from, also out of zip files and mail."""
    known = set(names)
    if known == {""}:  # a zip file in place of a folder
        return ""
    parts = file.split("/")
    candidates = ["/".join(parts[:n]) for n in range(1, len(parts) + 1)]
    found = [each for each in candidates if each in known]
    return found[0] if found else file.partition(":")[0]
