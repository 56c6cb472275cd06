"""The hits of a search as files to take along: a table in CSV, and a Word file.

The table has a row for each hit, with the columns ``rank``, ``citation``, ``title``, ``court``, ``date``, ``docket``,
``page``, ``heading``, ``snippet`` (the best passage), ``link``, ``doc_id``, ``passage_id`` and ``score``, and then the
metadata, each column under its own name. A column of the metadata that has the name of one of these, such as ``court``,
and the same values, is not repeated; one with other values gets a number.
"""

from __future__ import annotations

import csv
import io
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from haybale.collections.citations import value_text
from haybale.collections.metadata import unique_name
from haybale.errors import InputError
from haybale.folders import check_file, replaced
from haybale.search.search_hit import SearchHit
from haybale.search.snippets import Snippet
from haybale.spreadsheets import as_cell
from haybale.word_document import WordDocument

HIT_FORMATS = ("docx", "csv", "json")
HIT_COLUMNS = (
    "rank", "citation", "title", "court", "date", "docket", "page", "heading", "snippet", "link", "doc_id",
    "passage_id", "score",
)  # fmt: skip
MAX_CELL_CHARACTERS = 32_767  # of Excel
MAX_PASSAGE_CHARACTERS = 3000  # of a passage in a Word file; of a longer one, the part with the most marks is shown
_MAX_TITLE_CHARACTERS = 200  # of a query as the title of a Word file


class Searched(NamedTuple):
    """Where was searched: the name of the collection, its number of documents, and the condition on the metadata."""

    collection: str
    n_documents: int
    where: str | None


class TakenHits:
    """The part of :class:`~haybale.search.SearchResults` that writes its hits as files."""

    query: str
    ranker: str
    hits: tuple[SearchHit, ...]
    searched: Searched | None

    @abstractmethod
    def to_json(self, indent: int | None = None) -> str:
        """Return JSON."""

    def to_csv(self) -> str:
        """Return a table with a row for each hit: citation, page, court, date, docket number, passage, link, metadata.

        :mod:`haybale.search.taken_hits` describes the columns. Cells have at most 32,767 characters, as in Excel, and
        none is a formula for a spreadsheet.
        """
        out = io.StringIO(newline="")
        csv.writer(out).writerows([_csv_cell(cell) for cell in row] for row in _rows(self.hits))
        return out.getvalue()

    def to_word(self) -> bytes:
        """Return a Word file: what was searched, and each hit under a heading, with its passages and their marks."""
        query, searched = " ".join(self.query.split()), self.searched
        is_short = len(query) <= _MAX_TITLE_CHARACTERS
        document = WordDocument(query if is_short else f"{query[: _MAX_TITLE_CHARACTERS - 1]}…")
        n_searched = "" if searched is None else f" of {searched.n_documents:,} documents"
        document.values(
            [
                ("Query", self.query),
                ("Date", f"{datetime.now(UTC):%Y-%m-%d}"),
                ("Hits", f"{len(self.hits):,}{n_searched}"),
                ("Collection", "" if searched is None else searched.collection),
                ("Filters", "" if searched is None else searched.where or ""),
                ("Ranker", self.ranker),
            ]
        )
        for hit in self.hits:
            _add_hit(document, hit)
        if not self.hits:
            document.paragraph("No document was found.")
        return document.to_bytes()

    def to_file(self, format: str) -> bytes:
        """Return the bytes of a file: ``"docx"``, ``"csv"``, which begins with a byte order mark, or ``"json"``."""
        if format == "docx":
            return self.to_word()
        return self.to_csv().encode("utf-8-sig") if format == "csv" else self.to_json(indent=1).encode()

    def write(self, path: str | Path) -> None:
        """Write the hits to a file that ends in ``.docx``, ``.csv`` or ``.json``; an existing one is replaced.

        A CSV file begins with a byte order mark, without which Excel takes UTF-8 for another encoding.

        Raises
        ------
        InputError
            If the file ends otherwise.
        """
        path = Path(path)
        format = path.suffix.lower().removeprefix(".")
        if format not in HIT_FORMATS:
            raise InputError(f"{path}: expected a file name that ends in .docx, .csv or .json, found {path.suffix!r}")
        check_file(path)
        with replaced(path) as aside:
            aside.write_bytes(self.to_file(format))


def _rows(hits: Sequence[SearchHit]) -> Iterator[Sequence[Any]]:
    """Yield the header of the table, and a row for each hit."""
    cells = [_cells(hit) for hit in hits]
    texts = [{name: value_text(value) for name, value in hit.metadata.items()} for hit in hits]
    names = [
        name
        for name in dict.fromkeys(name for values in texts for name in values)
        if not all(_has_value(row, name, values.get(name, "")) for row, values in zip(cells, texts, strict=True))
    ]
    header = list(HIT_COLUMNS)
    for name in names:
        header.append(unique_name(name, header))
    yield header
    for row, values in zip(cells, texts, strict=True):
        yield [*row, *(values.get(name, "") for name in names)]


def _cells(hit: SearchHit) -> list[Any]:
    """Return the cells of a hit in the :data:`HIT_COLUMNS`."""
    best, citation = hit.snippets[0] if hit.snippets else Snippet("", "", []), hit.citation
    about = [hit.rank, citation.text, hit.title, citation.court, citation.date, citation.docket]
    passage = ["" if best.page is None else best.page, best.heading or "", best.text]
    return [*about, *passage, citation.link, hit.doc_id, best.passage_id, hit.score]


def _has_value(cells: Sequence[Any], name: str, text: str) -> bool:
    """Return whether a row has a value in the column of that name."""
    return name in HIT_COLUMNS and value_text(cells[HIT_COLUMNS.index(name)]) == text


def _csv_cell(value: Any) -> Any:
    return as_cell(value[:MAX_CELL_CHARACTERS] if isinstance(value, str) else value)


def _add_hit(document: WordDocument, hit: SearchHit) -> None:
    citation = hit.citation
    document.heading(f"{hit.rank}. {hit.title}", 2)
    if citation.text != hit.title:
        document.paragraph(citation.text)
    about = [("Court", citation.court), ("Date", citation.date), ("Docket", citation.docket)]
    shown = {text for _, text in about}
    others = [(name, value_text(value)) for name, value in hit.metadata.items()]
    document.values([*about, *((name, text) for name, text in others if text not in shown), ("Id", hit.doc_id)])
    for snippet in hit.snippets:
        document.snippet(snippet.place, snippet.pieces(MAX_PASSAGE_CHARACTERS))
    if citation.link:
        document.link("Open the document", citation.link)
