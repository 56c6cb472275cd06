"""Read any folder of files: texts, PDF, Word and OpenDocument files, web pages, mail, tables, records, zip files."""

from __future__ import annotations

import re
import stat
import warnings
import zipfile
from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator, Mapping, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from io import BytesIO
from itertools import repeat
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import NamedTuple

from haybale.collections.builder import CollectionBuilder
from haybale.collections.collection import Collection
from haybale.collections.files.delimited import rows_of
from haybale.collections.files.file_document import FileDocument
from haybale.collections.files.file_reader import (
    FileReader,
    Unreadable,
    check_options,
    no_reader,
    read_documents,
    reader_of,
)
from haybale.collections.files.ocr import ADVICE, PageRecogniser, recognising
from haybale.collections.files.page_titles import title_of_page
from haybale.collections.files.table_rows import Row
from haybale.collections.folder_listing import link_that_leaves, list_files, refuse_special_file
from haybale.collections.ids import check_characters
from haybale.collections.reader import Reader
from haybale.collections.unread import UnreadPart, counted
from haybale.errors import InputError, MissingExtraError
from haybale.manifest import MANIFEST
from haybale.parallel import cpus
from haybale.progress import track

METADATA = "metadata.csv"
_MAX_FILE_BYTES = 2**31  # bytes of a file, and of a file in a zip file
_MAX_ARCHIVE_BYTES = 2**33  # bytes of all files in a zip file
_MAX_ZIP_DEPTH = 3  # levels of zip files in zip files
_MAX_WAITING_FILES = 64  # files whose documents are held until an earlier one is recognised
_MIN_FILES_FOR_PROCESSES = 32  # fewer files are read in this process alone


_Read = tuple[list[FileDocument], list[UnreadPart]]  # the documents of a file, and what could not be read


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
    and pages become sections. A document that is attached to another one has the id of that in its metadata, as
    ``parent``. ``metadata.csv``, whose first column is the path of a file, adds metadata.
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
        collection = read_files(Path(source))
        if collection.unread and warn:
            first, counts = collection.unread[0], counted(collection.unread)
            warnings.warn(
                f"{source}: {counts} could not be read, such as {first.location!r} ({first.reason}); "
                "correct or remove them",
                stacklevel=3,
            )
        return collection


def paths_of(source: Path) -> dict[str, Path]:
    """Return the files on disk, by their paths relative to the folder; zip files are not opened."""
    return list_files(source).paths


def read_files(source: Path, options: Mapping[str, str] | None = None) -> Collection:
    """Read a folder, a zip file or a single file; what could not be read is in ``unread`` of the collection.

    Parameters
    ----------
    source : Path
    options : mapping, optional
        Options of readers: the names of the columns ``text``, ``id`` and ``title`` of tables, which are recognised by
        default; for web pages ``html``: ``"all-text"``, which is the default, or ``"main-text"``; for scans ``ocr``:
        ``"never"``, which is the default, ``"missing"`` for pages without a text, or ``"all"``, and ``ocr_languages``:
        codes of Tesseract such as ``"deu+eng"``, by default all that are installed.

    Raises
    ------
    MissingExtraError
        If a package is needed that is not installed; nothing is read then.
    InputError
        If no file could be read.
    """
    if not source.exists():
        raise InputError(f"{source}: no such file or folder; give a folder with documents")
    collection, unread = read_some_files(source, options)
    if collection is None:
        reasons = f"; {unread[0]}" if unread else ""
        raise InputError(f"{source}: found no document that can be read{reasons}; add files with text")
    return collection


def read_some_files(
    source: Path,
    options: Mapping[str, str] | None = None,
    only: Set[str] | None = None,
    taken: Set[str] = frozenset(),
) -> tuple[Collection | None, list[UnreadPart]]:
    """Read some files of a folder, as :func:`read_files` does; the collection is None if no document could be read.

    What could not be read is returned beside the collection, too, since there may be none.

    Parameters
    ----------
    source : Path
    options : mapping, optional
    only : set of str, optional
        Names of files, as :func:`paths_of` has them: the others are not read. Default: all are read.
    taken : set of str, optional
        Ids that records cannot have, because other documents have them.
    """
    unread: list[UnreadPart] = []
    builder = CollectionBuilder(source.stem if source.is_file() else source.resolve().name)
    files = _read_items(builder, _items(source, unread, only), unread, options, taken)
    if files and source.is_dir():
        problems = _add_columns(builder, source / METADATA, files)
        unread += problems if only is None else []  # metadata.csv names the files that are not read, too
    return _built(builder, files, unread)


def read_single_files(
    paths: Iterable[Path], options: Mapping[str, str] | None = None
) -> tuple[Collection | None, list[UnreadPart]]:
    """Read single files of any folders, as :func:`read_some_files` does; the ids are their names without folders."""
    unread: list[UnreadPart] = []
    builder = CollectionBuilder("added documents")
    items = (item for path in paths for item in _expanded(_Item(path, (), path.name), unread))
    files = _read_items(builder, items, unread, options)
    return _built(builder, files, unread)


def _built(
    builder: CollectionBuilder, files: Mapping[str, list[int]], unread: list[UnreadPart]
) -> tuple[Collection | None, list[UnreadPart]]:
    """Return the collection with what could not be read; None in its place if no document was read."""
    return replace(builder.build(warn=False), unread=tuple(unread)) if files else None, unread


def _read_items(
    builder: CollectionBuilder,
    items: Iterable[_Item],
    unread: list[UnreadPart],
    options: Mapping[str, str] | None,
    taken: Set[str] = frozenset(),
) -> dict[str, list[int]]:
    """Add the documents of files, and return the numbers of the documents of each file."""
    check_options(options or {})
    readable = []
    for item in items:
        reader = reader_of(item.id)
        if reader is None:
            unread.append(UnreadPart(file=item.id, reason=no_reader(item.id)))
        else:
            readable.append((item, reader))
    _check_packages(readable)
    files: dict[str, list[int]] = {}  # the documents of each file
    for (item, _), (documents, parts) in zip(readable, _read_all(readable, dict(options or {})), strict=True):
        for document in documents:
            name = _id_of(item, document.key)
            if document.attached_to is not None:
                document.metadata.setdefault("parent", _id_of(item, document.attached_to))
            try:
                number = _add(builder, name, item.id, document, taken)
            except (Unreadable, InputError) as error:
                unread.append(UnreadPart(file=item.id, part=document.location, reason=str(error)))
            else:
                files.setdefault(item.id, []).append(number)
        unread += (part.of_file(item.id) for part in parts)
    return files


def _id_of(item: _Item, key: str | None) -> str:
    return f"{item.id}:{key}" if key else item.id


def _items(source: Path, unread: list[UnreadPart], only: Set[str] | None = None) -> Iterator[_Item]:
    """Yield the files of a folder and of the zip files in it, sorted by name; hidden files are left out."""
    listing = list_files(source)
    if only is None:
        unread += (part for part in listing.unread if part.file != METADATA)
    for name, path in listing.paths.items():
        if name == METADATA or (only is not None and name not in only):
            continue
        whole = path == source and not name  # a zip file in place of a folder
        yield from _expanded(_Item(path, (), name or path.name), unread, "" if whole else None)


def _expanded(item: _Item, unread: list[UnreadPart], prefix: str | None = None) -> Iterator[_Item]:
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
        unread.append(UnreadPart(file=item.id, reason=f"cannot be unpacked: {error}"))
        return
    if sum(entry.file_size for entry in entries) > _MAX_ARCHIVE_BYTES:
        unread.append(UnreadPart(file=item.id, reason=f"unpacks to more than {_MAX_ARCHIVE_BYTES:,} bytes; unpack it"))
        return
    start = f"{item.id}/" if prefix is None else prefix
    for entry in entries:
        reason = _reason_against(entry)
        if reason is not None:
            unread.append(UnreadPart(file=start + entry.filename, reason=reason))
        elif not any(part.startswith((".", "__MACOSX")) for part in PurePosixPath(entry.filename).parts):
            yield from _expanded(_Item(item.path, (*item.inner, entry.filename), start + entry.filename), unread)


def _reason_against(entry: zipfile.ZipInfo) -> str | None:
    """Return why an entry of a zip file is not read: it is a link, or its name leaves the zip file."""
    if stat.S_ISLNK(entry.external_attr >> 16):
        return "a link in a zip file"
    name = entry.filename.replace("\\", "/")
    leaves = name.startswith("/") or ".." in name.split("/") or PureWindowsPath(entry.filename).drive
    return "its name leaves the zip file; pack it anew" if leaves else None


def content_of_file(path: Path, name: str, file: str) -> bytes:
    """Return the bytes of a file that was read: that on disk, or one in it if it is a zip file.

    Parameters
    ----------
    path : Path
        The file on disk.
    name : str
        Its name as :func:`paths_of` has it: empty for a zip file in place of a folder.
    file : str
        The metadata ``file`` of its documents.

    Raises
    ------
    Unreadable
        If a zip file does not have the file, or a file is too large.
    """
    item = _Item(path, (), name or path.name)
    for expanded in _expanded(item, [], None if name else ""):
        if expanded.id == file:
            return _content(expanded)
    raise Unreadable(f"{file!r:.200} is not in {path.name!r:.200}")


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


def _read_all(readable: list[tuple[_Item, FileReader]], options: dict[str, str]) -> Iterator[_Read]:
    """Yield the documents of each file, and what could not be read, in order; many files in several processes."""
    items = [item for item, _ in readable]
    with recognising(options) as recogniser:
        if recogniser is None:
            yield from track(_read_in_processes(items, options), "reading files", len(items))
            return
        # Files with text are read in processes, and then those again that have pages to be recognised, in threads.
        unrecognised = repeat(None) if recogniser.every_page else _read_in_processes(items, options)
        results = _recognised(recogniser, items, unrecognised, options)
        yield from track(results, "reading files", len(items), recogniser.progress)


def _read_in_processes(items: list[_Item], options: dict[str, str]) -> Iterator[_Read]:
    if len(items) < _MIN_FILES_FOR_PROCESSES or cpus() == 1:
        yield from (read_file(item, options) for item in items)
        return
    import joblib

    jobs = (joblib.delayed(read_file)(item, options) for item in items)
    yield from joblib.Parallel(n_jobs=cpus(), return_as="generator", batch_size="auto")(jobs)


def _recognised(
    recogniser: PageRecogniser, items: list[_Item], results: Iterable[_Read | None], options: dict[str, str]
) -> Iterator[_Read]:
    """Yield what was read of each file; files that lack text, or were not read yet, are read with OCR, in threads."""
    waiting: deque[Future[_Read]] = deque()
    with ThreadPoolExecutor(cpus()) as readers:
        try:
            for item, result in zip(items, results, strict=False):
                if result is None or any(part.reason.endswith(ADVICE) for part in result[1]):
                    waiting.append(readers.submit(recogniser.run, read_file, item, options))
                else:
                    finished: Future[_Read] = Future()
                    finished.set_result(result)
                    waiting.append(finished)
                while waiting and (waiting[0].done() or len(waiting) > _MAX_WAITING_FILES):
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            readers.shutdown(wait=False, cancel_futures=True)


def read_file(item: _Item, options: dict[str, str]) -> tuple[list[FileDocument], list[UnreadPart]]:
    """Return the documents of a file, and the parts that could not be read, or the whole file."""
    reader = reader_of(item.id)
    assert reader is not None
    try:
        data = _content(item)
    except (Unreadable, OSError, zipfile.BadZipFile, RuntimeError, MemoryError) as error:
        return [], [UnreadPart(reason=str(error) if isinstance(error, Unreadable) else f"cannot be read: {error}")]
    return read_documents(reader, data, options)


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
    section, section_title, n_sections = -1, None, 0
    before = [document.title] if document.title and parts and not is_title_in(document.title, parts[0].text) else []
    for part in parts:
        part_title = part.heading if part.page is None else title_of_page(part.page, part.by_ocr)
        if part_title is not None and (part_title != section_title or not part.text):
            section = builder.add_section(number, f"{doc_id}#{n_sections}", part_title, None)
            n_sections += 1
            if part.heading and part.heading not in before:
                before.append(part.heading)
        section = -1 if part_title is None else section
        section_title = part_title
        if part.text:
            builder.add_passage(number, "\n".join([*before, part.text]), section=section)
            before = []
    if before:  # headings without text under them
        builder.add_passage(number, "\n".join(before), section=section)
    return number


def is_title_in(title: str, text: str) -> bool:
    """Return whether the words of a title are in a text, not as a part of another word; those of no title are."""
    return not title or re.search(rf"(?<!\w){re.escape(title)}(?!\w)", text) is not None


def _add_columns(builder: CollectionBuilder, path: Path, files: Mapping[str, list[int]]) -> list[UnreadPart]:
    """Add the columns of ``metadata.csv`` to the documents whose file it names."""
    rows, problems = read_metadata(path)
    for name, values in rows.items():
        for number in files.get(name, ()):
            builder.add_metadata(number, values)
    return problems + unknown_paths(rows, files)


def read_metadata(path: Path) -> tuple[dict[str, dict[str, str]], list[UnreadPart]]:
    """Return the values of ``metadata.csv`` by file and column, and why it cannot be read; no values without a file."""
    values_by_file: dict[str, dict[str, str]] = {}
    reason = link_that_leaves(path)
    if reason is not None:
        return values_by_file, [UnreadPart(file=METADATA, reason=reason)]
    try:
        rows = list(rows_of(path.read_bytes())) if path.is_file() else []
    except (Unreadable, OSError) as error:
        return values_by_file, [UnreadPart(file=METADATA, reason=str(error))]
    for row in rows:
        if isinstance(row, Row):
            (_, file), *others = row.values.items()
            name = str(file or "").replace("\\", "/").removeprefix("./")
            values_by_file.setdefault(name, {}).update({column: value for column, value in others if value})
    return values_by_file, [row.of_file(METADATA) for row in rows if isinstance(row, UnreadPart)]


def unknown_paths(rows: Iterable[str], files: Container[str | None]) -> list[UnreadPart]:
    """Return what is wrong with ``metadata.csv`` if it names files of which no document was read."""
    unknown = [name for name in rows if name not in files]
    return (
        [UnreadPart(file=METADATA, reason=f"{len(unknown):,} paths of no document, such as {unknown[0]!r}")]
        if unknown
        else []
    )
