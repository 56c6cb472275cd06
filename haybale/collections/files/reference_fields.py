"""The fields of bibliographic records in RIS: tags, the names that fields have here, and what other programs call them.

The names are those of the package rispy, which many programs use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

NAME_BY_TAG = {
    "TY": "type_of_reference", "A1": "first_authors", "A2": "secondary_authors", "A3": "tertiary_authors",
    "A4": "subsidiary_authors", "AB": "abstract", "AD": "author_address", "AN": "accession_number", "AU": "authors",
    "C1": "custom1", "C2": "custom2", "C3": "custom3", "C4": "custom4", "C5": "custom5", "C6": "custom6",
    "C7": "custom7", "C8": "custom8", "CA": "caption", "CN": "call_number", "CY": "place_published", "DA": "date",
    "DB": "name_of_database", "DO": "doi", "DP": "database_provider", "EP": "end_page", "ET": "edition", "ID": "id",
    "IS": "number", "J2": "alternate_title1", "JA": "alternate_title2", "JF": "alternate_title3", "JO": "journal_name",
    "KW": "keywords", "L1": "file_attachments1", "L2": "file_attachments2", "L4": "figure", "LA": "language",
    "LB": "label", "M1": "note", "M3": "type_of_work", "N1": "notes", "N2": "notes_abstract", "NV": "number_of_volumes",
    "OP": "original_publication", "PB": "publisher", "PY": "year", "RI": "reviewed_item", "RN": "research_notes",
    "RP": "reprint_edition", "SE": "section", "SN": "issn", "SP": "start_page", "ST": "short_title",
    "T1": "primary_title", "T2": "secondary_title", "T3": "tertiary_title", "TA": "translated_author", "TI": "title",
    "TT": "translated_title", "UR": "urls", "VL": "volume", "Y1": "publication_year", "Y2": "access_date",
}  # fmt: skip
LIST_TAGS = frozenset({"A1", "A2", "A3", "A4", "AU", "KW", "N1", "UR"})  # a record may have several of them
SEPARATORS = {"UR": ";"}  # of several values in one field
_TAG_BY_NAME = {name: tag for tag, name in NAME_BY_TAG.items()}
# What databases and reference managers call fields, in lower case with underscores.
_TAG_BY_OTHER_NAME = {
    "author": "AU", "author_names": "AU", "author_full_names": "AU", "author(s)": "AU", "editor": "A2", "editors": "A2",
    "published_year": "PY", "pubyear": "PY", "publication_date": "DA", "published_date": "DA", "journal": "T2",
    "journal_title": "T2", "journal/book": "T2", "source_title": "T2", "publication_title": "T2", "booktitle": "T2",
    "source": "T2", "journal_abbreviation": "JA", "abbreviated_source_title": "JA", "digital_object_identifier": "DO",
    "item_doi": "DO", "keyword": "KW", "author_keywords": "KW", "mesh_terms": "KW", "issue": "IS", "vol": "VL",
    "pages": "SP", "page": "SP", "page_start": "SP", "page_end": "EP", "url": "UR", "link": "UR", "pmid": "AN",
    "pubmed_id": "AN", "address": "CY", "affiliations": "AD", "affiliation": "AD", "eissn": "SN", "isbn": "SN",
    "database": "DB", "document_type": "M3", "language_of_original_document": "LA",
}  # fmt: skip
_RIS_TYPES = {
    "article": "JOUR", "journal article": "JOUR", "journal": "JOUR", "j": "JOUR", "book": "BOOK", "b": "BOOK",
    "inproceedings": "CPAPER", "conference": "CPAPER", "conference paper": "CPAPER", "proceedings": "CONF",
    "conference proceedings": "CONF", "incollection": "CHAP", "inbook": "CHAP", "book section": "CHAP",
    "phdthesis": "THES", "mastersthesis": "THES", "thesis": "THES", "techreport": "RPRT", "report": "RPRT",
    "patent": "PAT", "unpublished": "UNPB", "electronic article": "EJOUR",
}  # fmt: skip
_TAG = re.compile("[A-Z][A-Z0-9]")
# Fields of the record itself, that the writer of a file sets.
_RESERVED = frozenset({"TY", "ER", "ID"})


def ris_type(value: str) -> str:
    """Return the type of a record in RIS; ``GEN`` for one that RIS does not have.

    >>> [ris_type(value) for value in ("JOUR", "article", "Journal Article", "")]
    ['JOUR', 'JOUR', 'JOUR', 'GEN']
    """
    text = value.strip()
    return text if re.fullmatch("[A-Z]{3,7}", text) else _RIS_TYPES.get(text.lower(), "GEN")


def tag_of(name: str) -> str | None:
    """Return the tag in RIS for the name of a field, or of a column of another program; None if there is none.

    >>> tag_of("authors"), tag_of("Publication Year"), tag_of("U3"), tag_of("court")
    ('AU', 'Y1', 'U3', None)
    """
    key = re.sub(r"[\s_-]+", "_", name.strip().lower())
    tag = _TAG_BY_NAME.get(key) or _TAG_BY_OTHER_NAME.get(key) or (name if _TAG.fullmatch(name) else None)
    return None if tag in _RESERVED else tag


def name_of_tag(tag: str) -> str:
    """Return the name of the field with a tag; an unknown tag is its own name."""
    return NAME_BY_TAG.get(tag, tag)


def ris_fields(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the metadata of a record as tags and texts of RIS; what RIS has no tag for is left out.

    A field whose name is that of RIS comes before one of another name for the same tag.
    """
    taken: set[str] = set()
    named = sorted(metadata, key=lambda name: name not in _TAG_BY_NAME and not _TAG.fullmatch(name))
    for name in named:
        tag, value = tag_of(name), metadata[name]
        if tag is None or tag in taken:
            continue
        taken.add(tag)
        if tag in SEPARATORS:
            texts = [SEPARATORS[tag].join(texts_of(value))]
        elif tag in LIST_TAGS and not isinstance(value, list) and tag != "N1":
            texts = re.split(r"\s*;\s*", text_of(value))
        else:
            texts = texts_of(value)
        yield from ((tag, text) for text in texts if text.strip())


def texts_of(value: Any) -> list[str]:
    """Return a value of metadata as texts: several for a list."""
    return [text_of(member) for member in value] if isinstance(value, list) else [text_of(value)]


def text_of(value: Any) -> str:
    """Return a single value of metadata as a text that is read as an equal value.

    >>> [text_of(value) for value in ("a", 2016, 2.0, True, date(2016, 3, 1))]
    ['a', '2016', '2', 'true', '2016-03-01']
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.isoformat() if isinstance(value, date) else str(value)
