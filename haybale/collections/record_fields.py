"""The fields of bibliographic records by which duplicates are found: DOI, PubMed id, title, year, place and authors.

Databases name their columns differently, and write the same value in different ways. Columns are recognised by their
names; values are brought to one form. What is not understood is left out, so that it decides nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Set
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from haybale.collections.collection import Collection
from haybale.collections.files.record_keys import KEY_COLUMNS

# Names of columns in lower case with underscores; the first that a record has a value in is taken.
_ID_COLUMNS = {"doi": (*KEY_COLUMNS[0][1], "url", "urls", "link"), "pmid": KEY_COLUMNS[1][1]}
_COLUMNS = {
    "year": ("year", "publication_year", "pub_year", "paper_year", "py", "y1", "publication_date", "dp", "published"),
    "authors": ("authors", "author", "first_authors", "author_names", "author_full_names", "creator", "au", "fau"),
    "page": ("start_page", "first_page", "pages", "page_range", "pagination", "page_start", "sp", "pg"),
    "volume": ("volume", "vol", "vl", "vi"),
    "venue": (
        "journal", "journal_name", "secondary_title", "journal_title", "source_title", "publication_title", "venue",
        "booktitle", "journal/book", "container_title", "alternate_title3", "jt", "jo", "t2",
    ),
    "date": ("date", "sent"),
}  # fmt: skip
_DATABASE = ("name_of_database", "database", "source_database", "database_provider", "db")
_MARKUP = re.compile(r"<[a-z/][^<>]{0,40}>|&[a-z]+;", re.I)
_WORD = re.compile(r"[^\W_]+")
_YEAR = re.compile(r"(?<!\d)(1[5-9]\d\d|20\d\d)(?!\d)")
_PAGE = re.compile(r"[a-z]*0*(\d+)", re.I)
_ROMAN = re.compile(r"(?:x{0,3}(?:ix|iv|v?i{0,3}))")


@dataclass(frozen=True)
class RecordFields:
    """The fields of n documents, each a list of n values; an empty text or set, or 0, is no value.

    Attributes
    ----------
    doi, pmid : list of str
    title : list of str
        Words of the title in lower case, without accents and marks.
    numbers : list of tuple of str
        The numbers in the title, Roman ones included.
    year : list of int
    authors : list of frozenset of str
        The words in the names of the authors, of two letters or more.
    page, volume : list of str
        The first page, and the volume, as numbers.
    venue : list of str
        Words of the name of the journal or the conference.
    date : list of str
        A date such as that of a mail.
    source : list of str
        The database, or else the file, that a document comes from.
    """

    doi: list[str]
    pmid: list[str]
    title: list[str]
    numbers: list[tuple[str, ...]]
    year: list[int]
    authors: list[frozenset[str]]
    page: list[str]
    volume: list[str]
    venue: list[str]
    date: list[str]
    source: list[str]

    @classmethod
    def of(cls, collection: Collection) -> RecordFields:
        """Read the fields of the documents of a collection."""
        columns = _columns(
            collection, {*_ID_COLUMNS["doi"], *_ID_COLUMNS["pmid"], *chain.from_iterable(_COLUMNS.values())}
        )

        def values(names: tuple[str, ...], read: Callable[[Any], Any], nothing: Any) -> list[Any]:
            present = [columns[name] for name in names if name in columns]
            made: list[Any] = [nothing] * collection.n_documents
            for column in reversed(present):  # values of columns with better names replace others
                made = [
                    before if value is None else read(value) or before
                    for value, before in zip(column, made, strict=True)
                ]
            return made

        ids = {
            name: values(_ID_COLUMNS[name], partial(_key, key_of), "")
            for name, (_, _, key_of) in zip(_ID_COLUMNS, KEY_COLUMNS, strict=False)
        }
        titles = [words_of(title) for title in collection.doc_titles.to_pylist()]
        return cls(
            **ids,
            title=titles,
            numbers=[_numbers(title) for title in titles],
            year=values(_COLUMNS["year"], _year, 0),
            authors=values(_COLUMNS["authors"], _authors, frozenset()),
            page=values(_COLUMNS["page"], _page, ""),
            volume=values(_COLUMNS["volume"], _page, ""),
            venue=values(_COLUMNS["venue"], lambda value: words_of(_text(value)), ""),
            date=values(_COLUMNS["date"], _text, ""),
            source=sources_of(collection),
        )

    def is_bibliographic(self, document: int) -> bool:
        """Return whether a document has an id of literature, or two of year, authors, and venue or volume."""
        venue = self.venue[document] or self.volume[document]
        described = (self.year[document], self.authors[document], venue)
        return bool(self.doi[document] or self.pmid[document]) or sum(map(bool, described)) > 1


def may_have_records(collection: Collection) -> bool:
    """Return whether the names of the columns are those of records of literature: an id, or two other fields."""
    names = set() if collection.metadata is None else {_usual(name) for name in collection.metadata.column_names}
    venues = {*_COLUMNS["venue"], *_COLUMNS["volume"]}
    n_fields = sum(not names.isdisjoint(columns) for columns in (_COLUMNS["year"], _COLUMNS["authors"], venues))
    return n_fields > 1 or not names.isdisjoint((*KEY_COLUMNS[0][1], *KEY_COLUMNS[1][1]))


def words_of(text: str) -> str:
    """Return the words of a text in lower case, without accents, marks and markup.

    >>> words_of("<i>Étude</i> of the β-blockers: a re-analysis (Part II).")
    'etude of the β blockers a re analysis part ii'
    """
    if not text.isascii():
        decomposed = unicodedata.normalize("NFKD", text)
        text = "".join(sign for sign in decomposed if not unicodedata.combining(sign))
    return " ".join(_WORD.findall(_MARKUP.sub(" ", text).casefold() if "<" in text or "&" in text else text.casefold()))


def sources_of(collection: Collection) -> list[str]:
    """Return the file, or else the database, that each document comes from; an empty text if it is not known."""
    columns = _columns(collection, {"file", *_DATABASE})
    sources = [""] * collection.n_documents
    for column in (columns.get(name) for name in (*reversed(_DATABASE), "file")):
        if column is not None:
            sources = [before if value is None else _text(value) for value, before in zip(column, sources, strict=True)]
    return sources


def _columns(collection: Collection, wanted: Set[str]) -> dict[str, list[Any]]:
    """Return wanted columns of the metadata by their names in lower case with underscores."""
    if collection.metadata is None:
        return {}
    columns: dict[str, list[Any]] = {}
    for name in collection.metadata.column_names:
        usual = _usual(name)
        if usual in wanted:
            values, before = collection.metadata[name].to_pylist(), columns.get(usual)
            if before is not None:  # files of other databases have written the name in another way
                values = [value if other is None else other for value, other in zip(values, before, strict=True)]
            columns[usual] = values
    return columns


def _usual(name: str) -> str:
    """Return the name of a column in lower case with underscores."""
    return re.sub(r"[\s_-]+", "_", name.strip().lower())


def _text(value: Any) -> str:
    """Return a value as a text; of a list, its members."""
    return "; ".join(map(str, value)) if isinstance(value, list) else str(value).strip()


def _key(key_of: Callable[[str], str | None], value: Any) -> str:
    """Return a key of a value, or of the only member of a list that is one; otherwise nothing."""
    members = value if isinstance(value, list) else [int(value) if isinstance(value, float) else value]
    keys = {key for member in members if (key := key_of(str(member).strip()))}
    return keys.pop() if len(keys) == 1 else ""


def _year(value: Any) -> int:
    years = set(_YEAR.findall(_text(value)))
    return int(years.pop()) if len(years) == 1 else 0


def _authors(value: Any) -> frozenset[str]:
    return frozenset(word for word in words_of(_text(value)).split() if len(word) > 1 and word not in ("and", "et"))


def _page(value: Any) -> str:
    match = _PAGE.search(_text(value))
    return match[1] if match else ""


def _numbers(title: str) -> tuple[str, ...]:
    """Return the numbers of a title.

    >>> _numbers("a trial of 12 weeks part ii")
    ('12', 'ii')
    """
    return tuple(word for word in title.split() if word[0].isdigit() or (len(word) > 1 and _ROMAN.fullmatch(word)))
