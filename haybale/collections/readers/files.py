"""Read any folder of files: texts, PDF, Word and OpenDocument files, web pages, mail, tables, records, zip files."""

from __future__ import annotations

import csv
import stat
import warnings
import zipfile
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from io import BytesIO
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import NamedTuple

from haybale.collections.builder import CollectionBuilder
from haybale.collections.collection import Collection
from haybale.collections.files.delimited import rows_of
from haybale.collections.files.file_reader import FileDocument, FileReader, Unreadable, read_documents, reader_of
from haybale.collections.folder_listing import Skipped as Skipped
from haybale.collections.folder_listing import link_that_leaves, list_files, refuse_special_file
from haybale.collections.ids import check_characters
from haybale.collections.reader import Reader
from haybale.errors import InputError, MissingExtraError
from haybale.manifest import MANIFEST
from haybale.parallel import cpus
from haybale.progress import track

METADATA = "metadata.csv"
_MAX_FILE_BYTES = 2**31  # bytes of a file, and of a file in a zip file
_MAX_ARCHIVE_BYTES = 2**33  # bytes of all files in a zip file
_MAX_ZIP_DEPTH = 3  # levels of zip files in zip files
_MIN_FILES_FOR_PROCESSES = 32  # fewer files are read in this process alone


class _Item(NamedTuple):
    """A file of a folder, or in a zip file: ``inner`` are the names in nested zip files."""

    path: Path
    inner: tuple[str, ...]
    id: str  # the path relative to the folder


class Files(Reader):
    """Reader of folders of files, and of single files and zip files, if no other layout is recognised.

    The id of a document is the path of its file, relative to the folder. A record, such as a row of a table or a RIS
    record, has the id in its id column; without one, the path of the file and a key of the record, such as
    ``pubmed.ris:10.1000/xyz``: its DOI, PubMed id, accession number or another key that no other record of the file
    has, or else a digest of its title and text (:mod:`haybale.collections.files.record_keys`). These ids do not depend
    on the order of the records. A document has its own title, or its first heading, or the name of its file. Headings
    and pages become sections. ``metadata.csv``, whose first column is the path of a file, adds metadata.
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
        collection, skipped = read_files(Path(source))
        if skipped and warn:
            first, n = skipped[0], len(skipped)
            warnings.warn(
                f"{source}: {n:,} files could not be read, such as {first.file!r} ({first.reason}); "
                "correct or remove them",
                stacklevel=3,
            )
        return collection


def refuse_skipped(source: Path, skipped: Sequence[Skipped]) -> None:
    """Raise :class:`InputError` if files could not be read."""
    if skipped:
        first, n = skipped[0], len(skipped)
        raise InputError(
            f"{source}: {n:,} files could not be read, such as {first.file!r} ({first.reason}), "
            "but strict needs all; correct or remove them"
        )


def paths_of(source: Path) -> dict[str, Path]:
    """Return the files on disk, by their paths relative to the folder; zip files are not opened."""
    return list_files(source).paths


def read_files(source: Path, columns: Mapping[str, str] | None = None) -> tuple[Collection, list[Skipped]]:
    """Read a folder, a zip file or a single file.

    Parameters
    ----------
    source : Path
    columns : mapping, optional
        The names of the columns ``text``, ``id`` and ``title`` of tables. By default they are recognised.

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
    collection, skipped = read_some_files(source, columns)
    if collection is None:
        reasons = f"; {skipped[0].file}: {skipped[0].reason}" if skipped else ""
        raise InputError(f"{source}: found no document that can be read{reasons}; add files with text")
    return collection, skipped


def read_some_files(
    source: Path,
    columns: Mapping[str, str] | None = None,
    only: Set[str] | None = None,
    taken: Set[str] = frozenset(),
) -> tuple[Collection | None, list[Skipped]]:
    """Read some files of a folder, as :func:`read_files` does; the collection is None if no document could be read.

    Parameters
    ----------
    source : Path
    columns : mapping, optional
    only : set of str, optional
        Names of files, as :func:`paths_of` has them: the others are not read. Default: all are read.
    taken : set of str, optional
        Ids that records cannot have, because other documents have them.
    """
    skipped: list[Skipped] = []
    builder = CollectionBuilder(source.stem if source.is_file() else source.resolve().name)
    files = _read_items(builder, _items(source, skipped, only), skipped, columns, taken)
    if not files:
        return None, skipped
    if source.is_dir():
        problems = _add_columns(builder, source / METADATA, files)
        skipped += problems if only is None else []  # metadata.csv names the files that are not read, too
    return builder.build(warn=False), skipped


def read_single_files(
    paths: Iterable[Path], columns: Mapping[str, str] | None = None
) -> tuple[Collection | None, list[Skipped]]:
    """Read single files of any folders, as :func:`read_some_files` does; the ids are their names without folders."""
    skipped: list[Skipped] = []
    builder = CollectionBuilder("added documents")
    items = (item for path in paths for item in _expanded(_Item(path, (), path.name), skipped))
    files = _read_items(builder, items, skipped, columns)
    return builder.build(warn=False) if files else None, skipped


def _read_items(
    builder: CollectionBuilder,
    items: Iterable[_Item],
    skipped: list[Skipped],
    columns: Mapping[str, str] | None,
    taken: Set[str] = frozenset(),
) -> dict[str, list[int]]:
    """Add the documents of files, and return the numbers of the documents of each file."""
    readable = []
    for item in items:
        reader = reader_of(item.id)
        if reader is None:
            skipped.append(Skipped(item.id, f"no reader for files that end in {PurePosixPath(item.id).suffix!r}"))
        else:
            readable.append((item, reader))
    _check_packages(readable)
    files: dict[str, list[int]] = {}  # the documents of each file
    for (item, _), (documents, problem) in zip(readable, _read_all(readable, dict(columns or {})), strict=True):
        for document in documents:
            name = item.id if document.key is None else f"{item.id}:{document.key}"
            try:
                if document.problem is not None:
                    raise Unreadable(document.problem)
                number = _add(builder, name, item.id, document, taken)
            except (Unreadable, InputError) as error:
                at = name if document.place is None else f"{item.id}:{document.place}"
                skipped.append(Skipped(at, str(error)))
            else:
                files.setdefault(item.id, []).append(number)
        if problem is not None:
            skipped.append(Skipped(item.id, problem))
    return files


def _items(source: Path, skipped: list[Skipped], only: Set[str] | None = None) -> Iterator[_Item]:
    """Yield the files of a folder and of the zip files in it, sorted by name; hidden files are left out."""
    listing = list_files(source)
    if only is None:
        skipped += (skipped_file for skipped_file in listing.skipped if skipped_file.file != METADATA)
    for name, path in listing.paths.items():
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
        if len(item.inner) >= _MAX_ZIP_DEPTH:
            raise Unreadable(f"zip files are nested more than {_MAX_ZIP_DEPTH} deep; unpack it")
        refuse_special_file(item.path)
        archive = _archive(item.path, item.path.stat().st_mtime_ns, item.inner)
        entries = sorted((info for info in archive.infolist() if not info.is_dir()), key=lambda info: info.filename)
    except (Unreadable, OSError, zipfile.BadZipFile, RuntimeError) as error:
        skipped.append(Skipped(item.id, f"cannot be unpacked: {error}"))
        return
    if sum(entry.file_size for entry in entries) > _MAX_ARCHIVE_BYTES:
        skipped.append(Skipped(item.id, f"unpacks to more than {_MAX_ARCHIVE_BYTES:,} bytes; unpack it"))
        return
    start = f"{item.id}/" if prefix is None else prefix
    for entry in entries:
        reason = _reason_against(entry)
        if reason is not None:
            skipped.append(Skipped(start + entry.filename, reason))
        elif not any(part.startswith((".", "__MACOSX")) for part in PurePosixPath(entry.filename).parts):
            yield from _expanded(_Item(item.path, (*item.inner, entry.filename), start + entry.filename), skipped)


def _reason_against(entry: zipfile.ZipInfo) -> str | None:
    """Return why an entry of a zip file is not read: it is a link, or its name leaves the zip file."""
    if stat.S_ISLNK(entry.external_attr >> 16):
        return "a link in a zip file"
    name = entry.filename.replace("\\", "/")
    leaves = name.startswith("/") or ".." in name.split("/") or PureWindowsPath(entry.filename).drive
    return "its name leaves the zip file; pack it anew" if leaves else None


def _content(item: _Item) -> bytes:
    """Return the bytes of a file, also in nested zip files."""
    refuse_special_file(item.path)
    about = item.path.stat()
    if not item.inner:
        if about.st_size > _MAX_FILE_BYTES:
            raise Unreadable(f"larger than {_MAX_FILE_BYTES:,} bytes; split it")
        return item.path.read_bytes()
    *outer, name = item.inner
    with _archive(item.path, about.st_mtime_ns, tuple(outer)).open(name) as file:
        data = file.read(_MAX_FILE_BYTES + 1)
    if len(data) > _MAX_FILE_BYTES:
        raise Unreadable(f"unpacks to more than {_MAX_FILE_BYTES:,} bytes; split it")
    return data


@lru_cache(maxsize=_MAX_ZIP_DEPTH)
def _archive(path: Path, changed: int, inner: tuple[str, ...]) -> zipfile.ZipFile:
    """Open a zip file, or one in zip files, once for all of its files; ``changed`` is when it was written."""
    return zipfile.ZipFile(BytesIO(_content(_Item(path, inner, ""))) if inner else path)


def _check_packages(readable: Iterable[tuple[_Item, FileReader]]) -> None:
    counts = Counter(reader.name for _, reader in readable)
    for item, reader in {reader.name: (item, reader) for item, reader in readable}.values():
        try:
            reader.check_packages()
        except MissingExtraError as error:
            needed = f"{counts[reader.name]:,} {reader.name} files need it, such as {item.id!r}"
            raise MissingExtraError(error.package, error.extra, needed) from error


def _read_all(
    readable: list[tuple[_Item, FileReader]], columns: dict[str, str]
) -> Iterator[tuple[list[FileDocument], str | None]]:
    """Yield the documents of each file, and why it could not be read, in order; many files in several processes."""
    if len(readable) < _MIN_FILES_FOR_PROCESSES or cpus() == 1:
        yield from (read_file(item, columns) for item, _ in track(readable, "reading files", len(readable)))
        return
    import joblib

    jobs = (joblib.delayed(read_file)(item, columns) for item, _ in readable)
    results = joblib.Parallel(n_jobs=cpus(), return_as="generator", batch_size="auto")(jobs)
    yield from track(results, "reading files", len(readable))


def read_file(item: _Item, columns: dict[str, str]) -> tuple[list[FileDocument], str | None]:
    """Return the documents of a file that were read, and why the others, or all, could not be."""
    reader = reader_of(item.id)
    assert reader is not None
    try:
        data = _content(item)
    except (Unreadable, OSError, zipfile.BadZipFile, RuntimeError, MemoryError) as error:
        return [], str(error) if isinstance(error, Unreadable) else f"cannot be read: {error}"
    return read_documents(reader, data, columns)


def _add(builder: CollectionBuilder, name: str, file: str, document: FileDocument, taken: Set[str]) -> int:
    """Add a document with its headings, or its pages, as sections, and return its number.

    Titles and headings stand before the text that follows them, so that their words are found, as in collections of
    BEIR. Its id is ``name``, or the one that it has itself if no other document has that.
    """
    own_id, parts = document.own_id, document.parts
    doc_id = name if own_id is None or own_id in taken or builder.document_number(own_id) is not None else own_id
    if builder.document_number(doc_id) is not None:
        raise Unreadable(f"the id {doc_id!r} occurs twice")
    title = document.title or next((part.heading for part in parts if part.heading), PurePosixPath(file).stem)
    for text in (title, *(part.heading or "" for part in parts), *(part.text for part in parts)):
        check_characters(text, "the document")  # before any part of the document is added
    number = builder.add_document(doc_id, title=" ".join(title.split()), metadata={"file": file} | document.metadata)
    sections: dict[str | None, int] = {}
    before = [] if not parts or document.title in parts[0].text else [document.title]
    for part in parts:
        section_title = part.heading if part.page is None else f"page {part.page}"
        if section_title is not None and section_title not in sections:
            sections[section_title] = builder.add_section(number, f"{doc_id}#{len(sections)}", section_title, None)
            if part.heading and part.heading not in before:
                before.append(part.heading)
        builder.add_passage(number, "\n".join([*before, part.text]), section=sections.get(section_title, -1))
        before = []
    return number


def _add_columns(builder: CollectionBuilder, path: Path, files: Mapping[str, list[int]]) -> list[Skipped]:
    """Add the columns of ``metadata.csv`` to the documents whose file it names."""
    rows, problems = read_metadata(path)
    for name, values in rows.items():
        for number in files.get(name, ()):
            builder.add_metadata(number, values)
    return problems + unknown_paths(rows, files)


def read_metadata(path: Path) -> tuple[dict[str, dict[str, str]], list[Skipped]]:
    """Return the values of ``metadata.csv`` by file and column, and why it cannot be read; no values without a file."""
    values_by_file: dict[str, dict[str, str]] = {}
    reason = link_that_leaves(path)
    if reason is not None:
        return values_by_file, [Skipped(METADATA, reason)]
    try:
        rows = list(rows_of(path.read_bytes())) if path.is_file() else []
    except (Unreadable, csv.Error, OSError) as error:
        return values_by_file, [Skipped(METADATA, str(error))]
    for row in rows:
        (_, file), *others = row.items()
        name = str(file or "").replace("\\", "/").removeprefix("./")
        values_by_file.setdefault(name, {}).update({column: value for column, value in others if column and value})
    return values_by_file, []


def unknown_paths(rows: Iterable[str], files: Container[str | None]) -> list[Skipped]:
    """Return what is wrong with ``metadata.csv`` if it names files of which no document was read."""
    unknown = [name for name in rows if name not in files]
    return [Skipped(METADATA, f"{len(unknown):,} paths of no document, such as {unknown[0]!r}")] if unknown else []
