"""Update an engine that was built from a folder of files: only new, changed and deleted files are read again.

``files.json`` in the engine's folder has the size, the time and the SHA-256 of each file, the values of
``metadata.csv``; ``skipped.csv`` what could not be read. They are written after the engine has changed: after an
interruption the engine is the old or the new one, and the next update repeats what is not recorded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any, NamedTuple

from haybale.collections import Collection
from haybale.collections.folder_listing import Listing, list_files
from haybale.collections.readers.files import (
    METADATA,
    read_metadata,
    read_some_files,
    unknown_paths,
)
from haybale.collections.unread import refuse_unread, write_unread
from haybale.engine.engine import Engine
from haybale.engine.indexed_source import (
    CHANGEABLE_OPTIONS,
    FILES,
    about_source,
    check_source,
    path_of,
    recorded_options,
)
from haybale.engine.reattaching import Unattached
from haybale.errors import InputError
from haybale.folders import replace_json
from haybale.text_files import read_json

IDS = 2  # the version of the ids of records: keys or digests, and not positions

Signature = list[Any]  # size, time in nanoseconds, SHA-256; of metadata.csv, its values, too


class Update(NamedTuple):
    """What an update did: the numbers of documents, and the engine's own judgements.

    Attributes
    ----------
    n_added, n_replaced, n_removed : int
        Documents with new ids, with ids that the engine had, and with ids that it no longer has.
    n_described : int
        Documents that stay, with values of ``metadata.csv`` that changed.
    n_moved : int
        Judgements in the engine that followed their text to another id.
    unattached : Unattached
        Documents of the engine's judgements that do not have the text that was judged.
    """

    n_added: int
    n_replaced: int
    n_removed: int
    n_described: int
    n_moved: int
    unattached: Unattached


def record_files(
    engine: Engine,
    files: Mapping[str, Signature],
    source: Path,
    options: Mapping[str, str] | None = None,
) -> None:
    """Record the files that an engine was built from; their signatures are those from before they were read.

    ``source`` and ``options`` are those of :func:`update`.
    """
    assert engine.folder is not None
    replace_json(engine.folder / FILES, {"ids": IDS, "files": files} | about_source(source, options or {}))


def update(
    engine: Engine,
    source: Path,
    options: Mapping[str, str] | None = None,
    *,
    strict: bool = False,
) -> Update:
    """Update an engine after the files of its folder have changed; searches go on meanwhile.

    Parameters
    ----------
    engine : Engine
        An engine in a folder, whose files :func:`record_files` recorded.
    source : Path
        The folder of files, the zip file or the single file that it was built from.
    options : mapping, optional
        The options of readers (:func:`~haybale.collections.readers.files.read_files`), as when it was built; by default
        those. Other values of ``ocr`` and ``ocr_languages`` are taken: files that may have other text are read again.
    strict : bool, default False
        Whether to raise :class:`~haybale.InputError`, and to change nothing, if a file cannot be read.

    Raises
    ------
    InputError
        If the source is another one, or other options are given than those that the engine was built with. Nothing is
        changed then.
    """
    assert engine.folder is not None
    record = read_json(engine.folder / FILES)
    if record.get("ids") != IDS or not {"source", "columns"} <= record.keys():
        raise InputError(
            f"{engine.folder / FILES}: expected a record of files with version {IDS} of the ids, found one of an "
            "earlier build; index the files with a new --out, and bind the file of judgements to the new engine with "
            "haybale attach"
        )
    options = recorded_options(engine.folder, record, options or {})
    listing = list_files(source)
    before, now = record["files"], _signatures_of(listing, record["files"])
    check_source(engine.folder, record, source, before, now)
    names = before.keys() | now.keys()
    changed = {name for name in names if _digest(before.get(name)) != _digest(now.get(name))}
    changed |= _files_of_other_ocr(engine, record["columns"], options, names)
    rows, problems = read_metadata(source / METADATA) if METADATA in changed else ({}, [])
    old_rows = before[METADATA][3:] if METADATA in before else [{}]
    if METADATA in changed:
        # A file that has lost a value of metadata.csv is read again: the value may have replaced one of the file.
        lost = (file for file, row in old_rows[0].items() if not row.keys() <= rows.get(file, {}).keys())
        changed |= {path_of(file, names) for file in lost}
        rows = {file: row for file, row in rows.items() if row != old_rows[0].get(file)}
    files = _files(engine.whole) if changed else {}
    unread = [part for part in engine.unread if path_of(part.file, names) in names - changed]
    unread += (part for part in listing.unread if part.file != METADATA)
    old = {doc_id for doc_id, file in files.items() if file is not None and path_of(file, before.keys()) in changed}
    read, failed = read_some_files(source, options, changed & now.keys() - {METADATA}, files.keys() - old)
    new_files = {} if read is None else _files(read)
    stays = {doc_id: file for doc_id, file in files.items() if doc_id not in old}
    unread += failed + problems + unknown_paths(rows, {*stays.values(), *new_files.values()})
    if strict:
        refuse_unread(source, unread)
    gone = sorted(old - new_files.keys())
    values = {doc_id: rows[file] for doc_id, file in stays.items() if file in rows}
    judged_before = _judged(engine)
    if read is not None or gone or values:
        engine.replace(read, remove=gone, metadata=values)
    moved = [document for _, _, document in _judged(engine) - judged_before]
    n_moved = int((engine.whole.find_documents(moved) >= 0).sum())
    write_unread(engine.folder, unread)
    record_files(engine, now, source, options)
    counts = len(new_files.keys() - old), len(new_files.keys() & old), len(gone), len(values)
    return Update(*counts, n_moved, engine.unattached_judgements())


def _files_of_other_ocr(engine: Engine, before: Mapping[str, str], now: Mapping[str, str], names: Set[str]) -> set[str]:
    """Return the files that are read again because the options of OCR have changed: those that may have other text."""
    if all(before.get(name) == now.get(name) for name in CHANGEABLE_OPTIONS):
        return set()
    if (before.get("ocr", "never"), now.get("ocr")) == ("never", "missing"):
        return {path_of(part.file, names) for part in engine.unread} & names - {METADATA}
    return set(names) - {METADATA}


def signatures(source: Path) -> dict[str, Signature]:
    """Return size, time and SHA-256 of each file."""
    return _signatures_of(list_files(source), {})


def _signatures_of(listing: Listing, recorded: Mapping[str, Signature]) -> dict[str, Signature]:
    """Return the :func:`signatures` of listed files; a file with the recorded size and time is not read again."""
    # Files of a folder that cannot be listed now are not deleted.
    closed = tuple(f"{folder}/" for folder in listing.closed)
    current: dict[str, Signature] = {
        name: signature for name, signature in recorded.items() if closed and name.startswith(closed)
    }
    for name, path in listing.paths.items():
        try:
            status = path.stat()
        except OSError:  # it was deleted meanwhile
            continue
        size, time = status.st_size, status.st_mtime_ns
        before = recorded.get(name)
        if before is not None and before[:2] == [size, time] and before[2]:
            current[name] = before
        else:
            rows = (
                [read_metadata(path)[0]] if name == METADATA else []
            )  # read before the digest: the next update notices a change between
            current[name] = [size, time, _sha256(path), *rows]
    return current


def _sha256(path: Path) -> str:
    """Return the SHA-256 of a file; an empty text if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _files(documents: Collection) -> dict[str, str | None]:
    """Return the file of each document by its id; None for documents that were added in another way."""
    files: list[str | None] = [None] * documents.n_documents
    if documents.metadata is not None and "file" in documents.metadata.column_names:
        files = documents.metadata["file"].to_pylist()
    return dict(zip(documents.doc_ids.to_pylist(), files, strict=True))


def earlier_records(engine: Engine, added: Collection) -> list[str]:
    """Return the ids of records that an engine has of the same files as added documents, and that these lack.

    They were deleted from the file, or were edited.
    """
    new_files = _files(added)
    files = {file for doc_id, file in new_files.items() if file is not None and doc_id.startswith(f"{file}:")}
    old_files = _files(engine.whole) if files else {}
    return [
        doc_id
        for doc_id, file in old_files.items()
        if file in files and doc_id.startswith(f"{file}:") and doc_id not in new_files
    ]


def _judged(engine: Engine) -> set[tuple[str, str, str]]:
    """Return the split, the query and the document of each judgement that was added to the engine."""
    splits = engine.added_judgements.splits
    return {(split, query, document) for split, grades in splits.items() for query, document in grades}


def _digest(signature: Signature | None) -> Any:
    return None if signature is None else signature[2]
