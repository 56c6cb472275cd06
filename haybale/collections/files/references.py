"""Read files with bibliographic records: the content decides which format is read, and not the end of the name.

Reference managers and databases export tagged formats also as ``.txt``, and people rename files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from haybale.collections.files.bibtex import bibtex_records, is_bibtex
from haybale.collections.files.encodings import decode_text
from haybale.collections.files.endnote_xml import endnote_records, is_endnote_xml
from haybale.collections.files.file_document import FileDocument
from haybale.collections.files.file_reader import FileReader, Unreadable
from haybale.collections.files.review_notes import without_review_notes
from haybale.collections.files.ris import is_ris, ris_records
from haybale.collections.files.table_rows import NAMES, Row, columns_of, documents_of_rows
from haybale.collections.files.tagged_references import MEDLINE, REFER, WEB_OF_SCIENCE
from haybale.collections.unread import UnreadPart


class ReferenceFormat(NamedTuple):
    """A format of bibliographic records: its name, whether a text has it, and the records of a text."""

    label: str
    recognises: Callable[[str], bool]
    records: Callable[[str], Iterator[Row | UnreadPart]]


FORMATS: dict[str, ReferenceFormat] = {
    "ris": ReferenceFormat("RIS", is_ris, ris_records),
    "nbib": ReferenceFormat("the format of PubMed", MEDLINE.recognises, MEDLINE.records),
    "wos": ReferenceFormat("the format of the Web of Science", WEB_OF_SCIENCE.recognises, WEB_OF_SCIENCE.records),
    "enw": ReferenceFormat("the tagged format of EndNote", REFER.recognises, REFER.records),
    "bibtex": ReferenceFormat("BibTeX", is_bibtex, bibtex_records),
    "endnote-xml": ReferenceFormat("the XML of EndNote", is_endnote_xml, endnote_records),
}


def format_of(text: str) -> str | None:
    """Return the key in :data:`FORMATS` of the format that a text has, or None.

    >>> format_of("PMID- 17\\nTI  - Leases\\n"), format_of("TY  - JOUR\\nTI  - Leases\\nER  - \\n"), format_of("Leases")
    ('nbib', 'ris', None)
    """
    return next((name for name, candidate in FORMATS.items() if candidate.recognises(text)), None)


def has_references(data: bytes) -> bool:
    """Return whether the content of a file has bibliographic records."""
    try:
        return format_of(decode_text(data).text) is not None
    except Unreadable:
        return False


def records_of(data: bytes, expected: str | None = None) -> Iterator[Row | UnreadPart]:
    """Yield the records of a file, in the format that its content has, and what is to be said about it.

    Parameters
    ----------
    data : bytes
    expected : str, optional
        The format that the name of the file promises: a key of :data:`FORMATS`. If the content is in another one, this
        is said; if it is in none, the records are read as if they were in the expected one. Default: none is promised.

    Raises
    ------
    Unreadable
        If there are no records.
    """
    decoded = decode_text(data)
    yield from decoded.unread
    name = format_of(decoded.text)
    if name is None and expected is None:
        raise Unreadable("expected bibliographic records such as RIS, found other text; export them in such a format")
    if name is not None and expected is not None and name != expected:
        reason = f"its name promises {FORMATS[expected].label}, but it has {FORMATS[name].label}; it is read as that"
        yield UnreadPart(part="format", reason=reason)
    yield from FORMATS[name or expected or "ris"].records(decoded.text)


class RIS(FileReader):
    """Reader of ``.ris`` files, as reference managers and screening programs export them."""

    name = "ris"
    suffixes = (".ris",)

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument | UnreadPart]:
        yield from documents_of_references(records_of(data, "ris"), options)


class PubMedRecords(FileReader):
    """Reader of ``.nbib`` files of PubMed, in the MEDLINE format."""

    name = "nbib"
    suffixes = (".nbib", ".medline")

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument | UnreadPart]:
        yield from documents_of_references(records_of(data, "nbib"), options)


class WebOfScience(FileReader):
    """Reader of ``.ciw`` files of the Web of Science."""

    name = "wos"
    suffixes = (".ciw", ".isi")

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument | UnreadPart]:
        yield from documents_of_references(records_of(data, "wos"), options)


class EndNoteTagged(FileReader):
    """Reader of ``.enw`` files, the tagged format of EndNote and Refer."""

    name = "enw"
    suffixes = (".enw", ".refer", ".enl")

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument | UnreadPart]:
        yield from documents_of_references(records_of(data, "enw"), options)


class BibTeX(FileReader):
    """Reader of ``.bib`` files."""

    name = "bibtex"
    suffixes = (".bib", ".bibtex")
    packages = ("bibtexparser",)

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument | UnreadPart]:
        yield from documents_of_references(records_of(data, "bibtex"), options)


class EndNoteXML(FileReader):
    """Reader of ``.xml`` files that EndNote has exported; other XML is refused."""

    name = "endnote-xml"
    suffixes = (".xml",)
    packages = ("lxml",)

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument | UnreadPart]:
        decoded = decode_text(data)
        if format_of(decoded.text) is None:
            root = re.search(r"<([\w:.-]+)[\s/>]", decoded.text)
            element = f"the element {root[1]!r}" if root else "no element"
            raise Unreadable(
                f"expected XML with records of EndNote, found {element}; export the records as RIS or EndNote XML"
            )
        yield from documents_of_references(records_of(data, "endnote-xml"), options)


def documents_of_references(
    records: Iterator[Row | UnreadPart], options: Mapping[str, str]
) -> Iterator[FileDocument | UnreadPart]:
    """Yield the documents of bibliographic records; the notes of a review are no part of them, and are counted."""
    rows, n_decided = list[Row | UnreadPart](), 0
    for item in records:
        rows.append(item if isinstance(item, UnreadPart) else without_review_notes(item))
        n_decided += rows[-1] is not item
    names = columns_of(rows)
    if names and not any(name in NAMES[role] for name in map(str.lower, names) for role in ("text", "title")):
        raise Unreadable(f"its records have neither a title nor an abstract, only {', '.join(names)[:200]}; add titles")
    if n_decided:
        reason = (
            f"{n_decided:,} records have notes of a review; they are no part of the records: import them to a topic"
        )
        yield UnreadPart(part="decisions", reason=reason)
    yield from documents_of_rows(rows, options)
