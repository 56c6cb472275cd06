"""A topic as one folder, or zip file, that opens without haybale: pages, tables, texts and the original files.

``index.html`` opens from a disk, loads nothing, and leads to all other files: the judgements as CSV, JSON, RIS and
Word, the protocol, the PRISMA diagram and its numbers, the statement of an audit with the program that checks it, the
text of each relevant document as a page, and its original file. ``SHA256SUMS`` has the digests of all files, which
``sha256sum --check SHA256SUMS`` compares. What a judge must not see is in none of them.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
import zipfile
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from haybale.engine.original_files import OriginalFileError, OriginalFiles
from haybale.errors import InputError
from haybale.extras import import_optional
from haybale.folders import check_file, check_output, replaced, whole_folder
from haybale.reports.page import render_page
from haybale.review.audit_statement import check_program
from haybale.review.exported_records import ExportedRecord
from haybale.review.exports import records_text
from haybale.review.prisma import PRISMA_FORMATS
from haybale.search.snippets import snippet_of

if TYPE_CHECKING:
    from haybale.review.review import Review

INDEX, SUMS = "index.html", "SHA256SUMS"
MAX_ORIGINAL_BYTES = 2**29  # of all original files together
_MAX_NAME = 60  # characters of the name of a file that come from a title
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)  # of all files in a zip file, so that equal contents are equal files


class FolderFile(NamedTuple):
    """A file of the folder: its path in it, what it is, its size in bytes and its SHA-256."""

    path: str
    what: str
    n_bytes: int
    digest: str


class IncludedDocument(NamedTuple):
    """A relevant document: its record, the pages and files about it, and why its original file is not there.

    ``text`` and ``original`` are paths in the folder; empty if there is none. ``anchor`` leads to the passage shown.
    """

    record: ExportedRecord
    text: str
    anchor: str
    original: str
    without_original: str


def write_topic(
    review: Review,
    path: str | Path,
    *,
    seen_by: str | None = None,
    originals: bool = True,
    link_of: Callable[[str], str] = lambda doc_id: "",
    max_original_bytes: int = MAX_ORIGINAL_BYTES,
) -> None:
    """Write a topic as a folder that opens without haybale, or as a zip file with it. Needs the extra ``reports``.

    Parameters
    ----------
    review : Review
    path : str or Path
        The new folder, or the zip file if it ends in ``.zip``; an existing zip file is replaced.
    seen_by : str, optional
        Leave out what this judge must not see. Default: all is there.
    originals : bool, default True
        Whether to add the files that the relevant documents were read from, as far as they are unchanged.
    link_of : callable, optional
        Returns the address of a document in a service. Default: the link in its metadata.
    max_original_bytes : int, default 512 MiB
        The largest size of all original files together; the index names those that are left out.

    Raises
    ------
    OutputError
        If the folder exists, or nothing can be written there.
    """
    path = Path(path)
    parts = _Parts(review, seen_by, originals, link_of, max_original_bytes)
    if path.suffix.lower() == ".zip":
        check_file(path)
        with replaced(path) as aside, zipfile.ZipFile(aside, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in parts.all():
                entry = zipfile.ZipInfo(f"{parts.folder}/{name}", _ZIP_TIME)
                entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                archive.writestr(entry, data)
        return
    check_output(path)
    with whole_folder(path) as aside:
        for name, data in parts.all():
            (aside / name).parent.mkdir(parents=True, exist_ok=True)
            (aside / name).write_bytes(data)


class _Parts:
    """The files of the folder, which are made one after the other."""

    def __init__(
        self,
        review: Review,
        seen_by: str | None,
        originals: bool,
        link_of: Callable[[str], str],
        max_original_bytes: int,
    ) -> None:
        self.review, self.seen_by, self.originals = review, seen_by, originals
        with review._lock:  # so that all files are of one moment
            self.report = review.report("judged", seen_by).linked(link_of)
            self.prisma = review.prisma()
            self.audit = None if review.audit.settings is None else review.audit.statement()
        self.files: list[FolderFile] = []
        self.folder = file_name(self.report.topic.name, "topic")
        self._n_bytes_left = max_original_bytes
        self._original_files = OriginalFiles(review.engine)

    def all(self) -> Iterator[tuple[str, bytes]]:
        """Yield the path and the content of each file."""
        included = []
        for number, record in enumerate(self.report.relevant, 1):
            document, parts = self._included(number, record)
            included.append(document)
            yield from parts
        yield from self._tables()
        yield from self._statement()
        for format in PRISMA_FORMATS:
            yield self._part(f"prisma.{format}", "PRISMA 2020", self.prisma.text(format).encode())
        markup = import_optional("markupsafe", "reports").Markup
        values = {"diagram": markup(self.prisma.to_svg(is_page=True)), "audit": self.audit, "included": included}
        yield self._part(INDEX, "this page", self._page("topic_index.html", values))
        sums = "".join(f"{file.digest}  {file.path}\n" for file in self.files)
        yield SUMS, sums.encode()

    def _part(self, path: str, what: str, data: bytes) -> tuple[str, bytes]:
        self.files.append(FolderFile(path, what, len(data), hashlib.sha256(data).hexdigest()))
        return path, data

    def _page(self, template: str, values: dict[str, Any]) -> bytes:
        content = {"report": self.report, "files": self.files, "sums": SUMS, **values}
        return render_page(files("haybale.review") / template, content).encode()

    def _tables(self) -> Iterator[tuple[str, bytes]]:
        report = self.report
        yield self._part("judgements.csv", "the judgements", records_text("csv", report.topic, report.judged).encode())
        yield self._part("judgements.json", "the judgements and the protocol", report.to_json().encode())
        yield self._part(
            "records.ris", "for reference managers", records_text("ris", report.topic, report.judged).encode()
        )
        yield self._part("judgements.docx", "for Word", report.to_word())

    def _statement(self) -> Iterator[tuple[str, bytes]]:
        """Yield the files of the statement of an audit, if one was begun."""
        if self.audit is not None:
            yield self._part("statement.html", "the statement of recall", self.audit.to_html().encode())
            yield self._part("statement.json", "the statement, for programs", self.audit.to_json().encode())
            yield self._part("check.py", "a program that checks the statement", check_program().encode())

    def _included(self, number: int, record: ExportedRecord) -> tuple[IncludedDocument, list[tuple[str, bytes]]]:
        """Return a relevant document, and its files."""
        name, parts = f"{number:04d}-{file_name(record.title or record.doc_id, 'document')}", []
        original, without_original = "", ""
        if self.originals and not record.status:
            try:
                original, data = self._original(name, record.doc_id)
                parts.append(self._part(original, "original file", data))
            except InputError as error:
                without_original = str(error)
        passages = self._passages(record)
        shown_id = None if record.shown is None else record.shown.passage_id
        anchors = [f"p{n}" for n, (passage_id, *_) in enumerate(passages, 1) if passage_id == shown_id]
        document = IncludedDocument(record, f"texts/{name}.html", "", original, without_original)
        document = document._replace(anchor=anchors[0] if anchors else "")
        values = {"document": document, "passages": passages, "anchor": document.anchor}
        parts.append(self._part(document.text, "text", self._page("topic_document.html", values)))
        return document, parts

    def _original(self, name: str, doc_id: str) -> tuple[str, bytes]:
        """Return the path and the content of the file of a document; raise InputError if it cannot be taken along."""
        file = self._original_files.find(doc_id)
        data = file.read()
        if len(data) > self._n_bytes_left:
            raise OriginalFileError(
                f"expected original files of at most {MAX_ORIGINAL_BYTES:,} bytes together, found more with "
                f"{file.name!r:.200}; copy it from its folder"
            )
        self._n_bytes_left -= len(data)
        suffix = re.sub(r"[^a-z0-9.]", "", file.suffix)
        return f"originals/{name}{suffix}", data

    def _passages(self, record: ExportedRecord) -> list[tuple[str, str, list[tuple[str, bool]]]]:
        """Return the id, the place where it differs from the one before, and the pieces of each passage."""
        if record.status:
            return [("", "", [(text, False)]) for text in record.paragraphs]
        collection = self.review.engine.snapshot().collection
        number = int(collection.find_documents([record.doc_id])[0])
        start, end = collection.passages.doc_offsets[number : number + 2].tolist() if number >= 0 else (0, 0)
        rows, last_place = [], ""
        for passage in range(start, end):
            snippet = snippet_of(collection, passage, [])
            if record.shown is not None and snippet.passage_id == record.shown.passage_id:
                snippet = record.shown
            rows.append((snippet.passage_id, snippet.place if snippet.place != last_place else "", snippet.pieces()))
            last_place = snippet.place
        return rows


def file_name(text: str, default: str) -> str:
    """Return a name of a file, without a suffix, that every system takes.

    >>> file_name("Ärger: wer zahlt?", "x"), file_name("???", "document"), file_name("..", "x")
    ('Arger-wer-zahlt', 'document', 'x')
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9]+", "-", plain).strip("-")[:_MAX_NAME].strip("-") or default
