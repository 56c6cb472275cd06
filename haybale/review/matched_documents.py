"""Find the documents of an engine that records of other programs are about: by DOI, PubMed id or title."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from haybale.cached import cached_property
from haybale.collections import Collection
from haybale.collections.files.record_keys import KEY_COLUMNS, keys_of_row
from haybale.collections.files.table_rows import NAMES, Row, paragraphs_of_value
from haybale.spreadsheets import from_cell

_YEAR_COLUMNS = (
    "year",
    "publication_year",
    "published_year",
    "py",
    "date",
    "publication_date",
    "published_date",
    "pubdate",
)
_YEAR = re.compile(r"(?<!\d)(?:1[5-9]|20|21)\d\d(?!\d)")
_URL_COLUMNS = ("url", "uri", "urls", "link")
_DOI_IN_URL = re.compile(r"https?://(?:dx\.|www\.)?doi\.org/(10\.\d{4,9}/\S+)", re.I)
# Prefixes of keys that name one publication everywhere; ISBN and accession numbers do not.
_UNIVERSAL = ("10.", "pmid:", "pmcid:", "wos:", "eid:", "openalex:", "arxiv:", "nct:", "ecli:", "celex:")


class RecordIdentity(NamedTuple):
    """What a record can be recognised by.

    Parameters
    ----------
    doc_id : str
        The id that the record has in its file; empty if it has none.
    title : str
    keys : tuple of str
        DOI, PubMed id and others, the best first (:mod:`haybale.collections.files.record_keys`).
    year : str
        Empty if it is not known.
    """

    doc_id: str
    title: str
    keys: tuple[str, ...]
    year: str


def identity_of(row: Row) -> RecordIdentity:
    """Return what a record can be recognised by.

    >>> identity_of(Row("line 2", {"Title": "Leases", "DOI": "https://doi.org/10.1000/X", "Year": 2016.0}))
    RecordIdentity(doc_id='', title='Leases', keys=('10.1000/x',), year='2016')
    """
    columns: dict[str, Any] = {}
    for name, value in row.values.items():
        columns.setdefault(re.sub(r"[\s_-]+", "_", str(name).strip().lower()), value)
    doc_id, title = (
        next(filter(None, (_text(columns.get(name.replace(" ", "_"))) for name in names)), "")
        for names in (("doc_id", *NAMES["id"]), NAMES["title"])
    )
    return RecordIdentity(doc_id, " ".join(title.split()), _universal_keys(columns), _year(columns))


def title_key(title: str) -> str:
    """Return the letters and digits of a title, without case, accents and white space; of no title, an empty text.

    >>> title_key("Über die Mieten: 2."), title_key(" uber die mieten 2")
    ('uberdiemieten2', 'uberdiemieten2')
    """
    return "".join(character for character in unicodedata.normalize("NFKD", title.casefold()) if character.isalnum())


class DocumentIdentities:
    """What the documents of a collection can be recognised by.

    Parameters
    ----------
    collection : Collection
    """

    def __init__(self, collection: Collection) -> None:
        self._collection = collection

    def matching(self, record: RecordIdentity) -> list[str]:
        """Return the ids of the documents that a record is about: none, one, or several.

        A document with the id of the record is meant if the titles agree. Otherwise those with the first key that any
        document has, of which those with the title of the record are meant, if there are some; otherwise those with the
        title whose year is not another one.
        """
        wanted_title = title_key(record.title)
        number = int(self._collection.find_documents([record.doc_id])[0]) if record.doc_id else -1
        if number >= 0 and (not wanted_title or wanted_title == self._titles[number]):
            return [record.doc_id]
        for key in record.keys:
            numbers = self._by_key.get(key, [])
            if numbers:
                titled = [number for number in numbers if wanted_title and self._titles[number] == wanted_title]
                return self._ids(titled or numbers)
        numbers = self._by_title.get(wanted_title, []) if wanted_title else []
        return self._ids([number for number in numbers if "" in (record.year, self._years[number])
                          or record.year == self._years[number]])  # fmt: skip

    def _ids(self, numbers: list[int]) -> list[str]:
        return [str(self._collection.doc_ids[number].as_py()) for number in numbers]

    @cached_property
    def _titles(self) -> list[str]:
        """The keys of the titles; a document without a title is called by its id, as on pages."""
        named = zip(self._collection.doc_titles.to_pylist(), self._collection.doc_ids.to_pylist(), strict=True)
        return [title_key(title or doc_id) for title, doc_id in named]

    @cached_property
    def _by_title(self) -> dict[str, list[int]]:
        return _positions((title,) if title else () for title in self._titles)

    @cached_property
    def _by_key(self) -> dict[str, list[int]]:
        names = {name for _, columns, _ in KEY_COLUMNS for name in columns} | {*_URL_COLUMNS}
        return _positions(map(_universal_keys, self._rows(names)))

    @cached_property
    def _years(self) -> list[str]:
        return [_year(columns) for columns in self._rows({*_YEAR_COLUMNS})]

    def _rows(self, names: set[str]) -> list[dict[str, Any]]:
        """Return, for each document, the metadata in some columns, by their names in lower case with underscores."""
        metadata = self._collection.metadata
        by_name = {} if metadata is None else {
            re.sub(r"[\s_-]+", "_", name.strip().lower()): name for name in reversed(metadata.column_names)
        }  # fmt: skip
        columns = {name: metadata[by_name[name]].to_pylist() for name in names if name in by_name}  # type: ignore[index]
        return [
            {name: values[number] for name, values in columns.items()} for number in range(self._collection.n_documents)
        ]


def _positions(keys: Any) -> dict[str, list[int]]:
    """Return the positions at which each key occurs."""
    positions: defaultdict[str, list[int]] = defaultdict(list)
    for number, keys_here in enumerate(keys):
        for key in keys_here:
            positions[key].append(number)
    return dict(positions)


def _universal_keys(columns: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys in some columns that name one publication everywhere, also a DOI in an address."""
    cells = {name: _cell(value) for name, value in columns.items()}
    keys = [key for key in keys_of_row(cells) if key.startswith(_UNIVERSAL)]
    addresses = (text for name in _URL_COLUMNS for text in paragraphs_of_value(columns.get(name)))
    keys += [match[1].lower().rstrip(".,;") for match in map(_DOI_IN_URL.fullmatch, addresses) if match is not None]
    return tuple(dict.fromkeys(keys))


def _year(columns: Mapping[str, Any]) -> str:
    """Return the first year in the columns of years and dates; empty if there is none."""
    texts = (_text(columns.get(name)) for name in _YEAR_COLUMNS)
    return next((match[0] for match in map(_YEAR.search, texts) if match is not None), "")


def _text(value: Any) -> str:
    return from_cell(" ".join(paragraphs_of_value(value)))


def _cell(value: Any) -> Any:
    return from_cell(value) if isinstance(value, str) else value
