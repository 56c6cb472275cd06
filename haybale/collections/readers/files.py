"""Read any folder of files: texts, PDF, Word and OpenDocument files, web pages, mail, tables, records, zip files."""

from __future__ import annotations

import csv
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from haybale.collections.builder import CollectionBuilder
from haybale.collections.collection import Collection
from haybale.collections.files.file_reader import FileDocument, FileReader, Unreadable, decoded, reader_of
from haybale.collections.metadata import metadata_table
from haybale.collections.reader import Reader
from haybale.errors import InputError, MissingExtraError
from haybale.manifest import MANIFEST
from haybale.parallel import cpus
from haybale.progress import track

METADATA = "metadata.csv"
_MAX_FILE = 2**31  # bytes of a file, and of a file in a zip file
_MAX_ARCHIVE = 2**33  # bytes of all files in a zip file
_MAX_DEPTH = 3  # of zip files in zip files
_FEW = 32  # fewer files are read in this process


class Skipped(NamedTuple):
    """A file that was not read, and the reason."""

    file: str
    reason: str


class _Item(NamedTuple):
    """A file of a folder, or in a zip file: ``inner`` are the names in nested zip files."""

    path: Path
    inner: tuple[str, ...]
    id: str  # the path relative to the folder


class Files(Reader):
    """Reader of folders of files, and of single files and zip files, if no other layout is recognised.

    The id of a document is the path of its file, relative to the folder; the rows of a table are numbered, or have the
    ids of a column. A document has its own title, or its first heading, or the name of its file. Headings and pages
    become sections. ``metadata.csv``, whose first column is the path of a file, adds metadata.
    """

    name = "files"
    expected = "any files"
    fallback = True

    def recognises(self, source: str) -> bool:
        path = Path(source)
        if path.is_dir():
            saved_by_haybale = any((path / name).exists() for name in ("engine.json", MANIFEST))
            return not saved_by_haybale and any(reader_of(item.id) is not None for item in _items(path, []))
        return path.is_file()

    def read(
        self, source: str, *, queries: bool = True, missing_judgements: str = "refuse", warn: bool = True
    ) -> Collection:
        collection: Collection
        collection, skipped = read_files(Path(source))
        if skipped and warn:
            first, n = skipped[0], len(skipped)
            warnings.warn(
                f"{source}: {n:,} files could not be read, such as {first.file!r} ({first.reason}); "
                "correct or remove them",
                stacklevel=3,
            )
        return collection


def paths_of(source: Path) -> dict[str, Path]:
    """Return the files on disk, by their paths relative to the folder; zip files are not opened."""
    if source.is_file():
        return {"" if source.suffix.lower() == ".zip" else source.name: source}
    paths = {path.relative_to(source).as_posix(): path for path in sorted(source.rglob("*")) if path.is_file()}
    return {name: path for name, path in paths.items() if not any(p.startswith(".") for p in name.split("/"))}


def read_files(
    source: Path,
    columns: Mapping[str, str] | None = None,
    *,
    only: Set[str] | None = None,
    taken: Set[str] = frozenset(),
    may_be_empty: bool = False,
) -> tuple[Any, list[Skipped]]:
    """Read a folder, a zip file or a single file.

    Parameters
    ----------
    source : Path
    columns : mapping, optional
        The names of the columns ``text``, ``id`` and ``title`` of tables. By default they are recognised.
    only : set of str, optional
        Names of files, as :func:`paths_of` has them: the others are not read.
    taken : set of str, optional
        Ids that records cannot have, because other documents have them.
    may_be_empty : bool, default False
        Whether to return None instead of a collection without documents.

    Returns
    -------
    collection : Collection
    skipped : list of Skipped
        The files that could not be read, each with the reason.

    Raises
    ------
    MissingExtraError
        If a package is needed that is not installed; nothing is read then.
    InputError
        If no file could be read.
    """
    if not source.exists():
        raise InputError(f"{source}: no such file or folder; give a folder with documents")
    skipped: list[Skipped] = []
    items = list(_items(source, skipped, only))
    known = []
    for item in items:
        reader = reader_of(item.id)
        if reader is None:
            skipped.append(Skipped(item.id, f"no reader for files that end in {PurePosixPath(item.id).suffix!r}"))
        else:
            known.append((item, reader))
    _check_packages(known)
    builder = CollectionBuilder(source.stem if source.is_file() else source.resolve().name)
    rows: list[dict[str, Any]] = []
    for (item, _), (documents, problem) in zip(known, _read_all(known, dict(columns or {})), strict=True):
        if problem is not None:
            skipped.append(Skipped(item.id, problem))
        for document in documents:
            file = item.id if document.key is None else f"{item.id}:{document.key}"
            if document.problem is not None:
                skipped.append(Skipped(file, document.problem))
                continue
            own = document.own_id
            doc_id = file if own is None or own in taken or builder.document_number(own) is not None else own
            if builder.document_number(doc_id) is not None:
                skipped.append(Skipped(file, f"the id {doc_id!r} occurs twice"))
                continue
            try:
                _add(builder, doc_id, item.id, document)
            except InputError as error:  # a lone surrogate, for example
                skipped.append(Skipped(file, str(error)))
                continue
            rows.append({"file": item.id} | document.metadata)
    if not rows and may_be_empty:
        return None, skipped
    if not rows:
        reasons = f"; {skipped[0].file}: {skipped[0].reason}" if skipped else ""
        raise InputError(f"{source}: found no document that can be read{reasons}; add files with text")
    if source.is_dir():
        problems = _add_columns(source / METADATA, rows)
        skipped += problems if only is None else []  # it names the files that are not read, too
    return replace(builder.build(warn=False), metadata=metadata_table(rows)), skipped


def _items(source: Path, skipped: list[Skipped], only: Set[str] | None = None) -> Iterator[_Item]:
    """Yield the files of a folder and of the zip files in it, sorted by name; hidden files are left out."""
    for name, path in paths_of(source).items():
        if name == METADATA or (only is not None and name not in only):
            continue
        whole = path == source and not name  # a zip file in place of a folder
        yield from _expanded(_Item(path, (), name or path.name), skipped, "" if whole else None)


def _expanded(item: _Item, skipped: list[Skipped], prefix: str | None = None) -> Iterator[_Item]:
    """Yield a file, or the files in a zip file."""
    if not item.id.lower().endswith(".zip"):
        yield item
        return
    try:
        if len(item.inner) >= _MAX_DEPTH:
            raise Unreadable(f"zip files are nested more than {_MAX_DEPTH} deep; unpack it")
        with zipfile.ZipFile(BytesIO(_content(item)) if item.inner else item.path) as archive:
            entries = sorted((each for each in archive.infolist() if not each.is_dir()), key=lambda each: each.filename)
    except (Unreadable, OSError, zipfile.BadZipFile, RuntimeError) as error:
        skipped.append(Skipped(item.id, f"cannot be unpacked: {error}"))
        return
    if sum(each.file_size for each in entries) > _MAX_ARCHIVE:
        skipped.append(Skipped(item.id, f"unpacks to more than {_MAX_ARCHIVE:,} bytes; unpack it"))
        return
    start = f"{item.id}/" if prefix is None else prefix
    for entry in entries:
        if not any(part.startswith((".", "__MACOSX")) for part in PurePosixPath(entry.filename).parts):
            yield from _expanded(_Item(item.path, (*item.inner, entry.filename), start + entry.filename), skipped)


def _content(item: _Item) -> bytes:
    """Return the bytes of a file, also in nested zip files."""
    if not item.inner:
        if item.path.stat().st_size > _MAX_FILE:
            raise Unreadable(f"larger than {_MAX_FILE:,} bytes; split it")
        return item.path.read_bytes()
    source: Path | BytesIO = item.path
    for name in item.inner:
        with zipfile.ZipFile(source) as archive, archive.open(name) as file:
            data = file.read(_MAX_FILE + 1)
        if len(data) > _MAX_FILE:
            raise Unreadable(f"unpacks to more than {_MAX_FILE:,} bytes; split it")
        source = BytesIO(data)
    return data


def _check_packages(known: Iterable[tuple[_Item, FileReader]]) -> None:
    counts = Counter(reader.name for _, reader in known)
    for item, reader in {reader.name: (item, reader) for item, reader in known}.values():
        try:
            reader.check_packages()
        except MissingExtraError as error:
            needed = f"{counts[reader.name]:,} {reader.name} files need it, such as {item.id!r}"
            raise MissingExtraError(error.package, error.extra, needed) from error


def _read_all(
    known: list[tuple[_Item, FileReader]], columns: dict[str, str]
) -> Iterator[tuple[list[FileDocument], str | None]]:
    """Yield the documents of each file, and why it could not be read, in order; many files in several processes."""
    if len(known) < _FEW or cpus() == 1:
        yield from (read_file(item, columns) for item, _ in track(known, "reading files", len(known)))
        return
    import joblib

    jobs = (joblib.delayed(read_file)(item, columns) for item, _ in known)
    results = joblib.Parallel(n_jobs=cpus(), return_as="generator", batch_size="auto")(jobs)
    yield from track(results, "reading files", len(known))


def read_file(item: _Item, columns: dict[str, str]) -> tuple[list[FileDocument], str | None]:
    """Return the documents of a file that were read, and why the others, or all, could not be."""
    documents: list[FileDocument] = []
    try:
        data = _content(item)
        if not data.strip(b"\x00\t\n\r "):
            return [], "empty"
        reader = reader_of(item.id)
        assert reader is not None
        documents += (each for each in reader.read(data, columns) if each.parts or each.problem)
        return documents, None if documents else "no text"
    except Unreadable as error:
        return documents, str(error)
    except (OSError, zipfile.BadZipFile, RuntimeError, MemoryError) as error:
        return documents, f"cannot be read: {error}"


def _add(builder: CollectionBuilder, doc_id: str, file: str, document: FileDocument) -> None:
    """Add a document with its headings, or its pages, as sections."""
    headings = [part.heading for part in document.parts]
    title = document.title or next(filter(None, headings), "") or PurePosixPath(file).stem
    number = builder.add_document(doc_id, title=" ".join(title.split()))
    sections: dict[str, int] = {}
    for part in document.parts:
        name = part.heading if part.page is None else f"page {part.page}"
        if name is not None and name not in sections:
            sections[name] = builder.add_section(number, f"{doc_id}#{len(sections)}", name, None)
        builder.add_passage(number, part.text, section=-1 if name is None else sections[name])


def _add_columns(path: Path, rows: list[dict[str, Any]]) -> list[Skipped]:
    """Add the columns of ``metadata.csv`` to the rows of the documents whose file it names."""
    if not path.is_file():
        return []
    by_file: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_file.setdefault(row["file"], []).append(row)
    try:
        lines = list(csv.DictReader(decoded(path.read_bytes()).splitlines()))
    except (Unreadable, csv.Error, OSError) as error:
        return [Skipped(METADATA, str(error))]
    unknown = []
    for line in lines:
        file, *_ = line.values()
        found = by_file.get(str(file or "").replace("\\", "/").removeprefix("./"))
        if found is None:
            unknown.append(str(file))
        for row in found or ():
            row |= {name: value for name, value in list(line.items())[1:] if name and value}
    if unknown:
        return [Skipped(METADATA, f"{len(unknown):,} paths of no document, such as {unknown[0]!r}")]
    return []
