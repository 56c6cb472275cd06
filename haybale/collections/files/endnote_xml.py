"""Split the XML that EndNote exports into the fields of its records, with lxml."""

from __future__ import annotations

import re
from collections.abc import Iterator

from haybale.collections.files.file_reader import Unreadable
from haybale.collections.files.packed_xml import Element, child_of, elements, name_of, parsed
from haybale.collections.files.table_rows import Row

# Names of fields by their path in a record; a field of several elements is a list.
_FIELDS = {
    "title": ("titles", "title"), "secondary_title": ("titles", "secondary-title"),
    "tertiary_title": ("titles", "tertiary-title"), "alternate_title1": ("titles", "alt-title"),
    "short_title": ("titles", "short-title"), "translated_title": ("titles", "translated-title"),
    "authors": ("contributors", "authors", "author"),
    "secondary_authors": ("contributors", "secondary-authors", "author"),
    "tertiary_authors": ("contributors", "tertiary-authors", "author"),
    "subsidiary_authors": ("contributors", "subsidiary-authors", "author"),
    "translated_author": ("contributors", "translated-authors", "author"), "author_address": ("auth-address",),
    "journal": ("periodical", "full-title"), "journal_abbreviation": ("periodical", "abbr-1"),
    "alternate_journal": ("alt-periodical", "full-title"), "year": ("dates", "year"),
    "date": ("dates", "pub-dates", "date"), "keywords": ("keywords", "keyword"),
    "urls": ("urls", "related-urls", "url"), "pdf_urls": ("urls", "pdf-urls", "url"),
    "doi": ("electronic-resource-num",),
    "accession_number": ("accession-num",), "place_published": ("pub-location",), "call_number": ("call-num",),
    "name_of_database": ("remote-database-name",), "database_provider": ("remote-database-provider",),
    "number_of_volumes": ("num-vols",), "type_of_work": ("work-type",), "issn": ("isbn",),
    "access_date": ("access-date",),
    "reprint_edition": ("reprint-edition",), "research_notes": ("research-notes",),
    "electronic_number": ("electronic-num",),
    "caption": ("caption",),
}  # fmt: skip
_LISTS = frozenset({
    "authors", "secondary_authors", "tertiary_authors", "subsidiary_authors", "keywords", "urls", "pdf_urls",
})  # fmt: skip
_CONTAINERS = frozenset({path[0] for path in _FIELDS.values()})
# Elements that are about the library of EndNote, and not about the record.
_OF_LIBRARY = frozenset({"database", "source-app", "rec-number", "foreign-keys", "ref-type"})
_RECORD = re.compile(r"<records>\s*<record\b|<record>\s*<(?:database|rec-number|ref-type|source-app)\b")


def is_endnote_xml(text: str) -> bool:
    """Return whether a text is XML with records of EndNote."""
    begin = text[: 2**16]
    return begin.lstrip("\ufeff \t\r\n").startswith("<") and _RECORD.search(begin) is not None


def endnote_records(text: str) -> Iterator[Row]:
    """Yield the records of EndNote's XML."""
    declaration = re.match(r"\s*<\?xml[^>]*\?>", text.lstrip("\ufeff"))  # its encoding is that of the bytes
    body = text.lstrip("\ufeff")[declaration.end() if declaration else 0 :]
    root = parsed(body.encode())
    records = [element for element in root.iter() if isinstance(element.tag, str) and name_of(element) == "record"]
    if not records:
        raise Unreadable("expected records of EndNote, found none")
    for number, record in enumerate(records, 1):
        yield Row(f"record {number}", _values(record))


def _values(record: Element) -> dict[str, str | list[str]]:
    """Return the fields of a record."""
    values: dict[str, str | list[str]] = {}
    kind = child_of(record, "ref-type")
    if kind is not None:
        values["type_of_reference"] = kind.get("name") or _text(kind)
    for name, path in _FIELDS.items():
        texts = list(filter(None, map(_text, _along(record, path))))
        if texts:
            values[name] = texts if name in _LISTS or len(texts) > 1 else texts[0]
    for element in elements(record):  # abstract, pages, volume and others have their names
        name = name_of(element)
        if name not in _CONTAINERS and name not in _OF_LIBRARY and (text := _text(element)):
            values.setdefault(name.replace("-", "_"), text)
    return values


def _along(element: Element, path: tuple[str, ...]) -> list[Element]:
    """Return all descendants along a path of names."""
    reached = [element]
    for name in path:
        reached = [child for parent in reached for child in elements(parent) if name_of(child) == name]
    return reached


def _text(element: Element) -> str:
    r"""Return the text of an element with its styles; EndNote writes line ends as \r."""
    return re.sub(r"\r\n?", "\n", "".join(element.itertext())).strip()
