"""Count the records of a review as PRISMA 2020 reports them: identified, screened, assessed, included.

The items are those of the flow diagram for new systematic reviews which included searches of databases and registers
only: Page et al., "The PRISMA 2020 statement", BMJ 2021;372:n71, https://doi.org/10.1136/bmj.n71.
"""

from __future__ import annotations

import csv
import io
import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from haybale.errors import InputError, UnknownNameError
from haybale.folders import check_file, replaced
from haybale.review.flow_diagram import FlowBoxes, draw_flow
from haybale.review.full_text import full_text_state, is_not_retrieved, main_reason
from haybale.review.judgement_store import Topic
from haybale.review.protocol import ReviewProtocol
from haybale.review.topic_ranking import TopicRanking
from haybale.spreadsheets import as_cell

if TYPE_CHECKING:
    from haybale.collections import Collection

PRISMA_FORMATS = ("svg", "csv", "json")
DATABASE_COLUMNS = ("database", "name_of_database")  # of the metadata, as readers of references name it
_FILE = "file"
_RECORDS_PER_FILE = 2  # mean from which on files are sources; otherwise each file is a record itself
_MAX_PARTS, _MAX_NAME = 12, 88  # sources or reasons that the diagram lists; their letters
NO_REASON = "no reason given"


class PrismaItem(NamedTuple):
    """A number of the flow diagram: its phase, what was counted, and how many; a part of the item before it, or not."""

    phase: str
    what: str
    n: int
    is_part: bool = False


@dataclass(frozen=True)
class PrismaNumbers:
    """The numbers of a PRISMA 2020 flow diagram. Each record counts once in each of them.

    Parameters
    ----------
    topic : str
    identified : dict of str to int
        Records by where they were identified: the database that a record names, else its file.
    n_duplicates, n_not_read : int
        Records that were removed before screening: duplicates, and those that nobody has read, because the ranking put
        them behind the ones that were.
    n_screened : int
        Records that were judged.
    excluded : dict of str to int
        Excluded records by their main reason, the most frequent first.
    n_stages : {1, 2}
        The numbers of reports are those of the second stage. With one stage, they are 0.
    n_sought, n_not_retrieved, n_waiting, n_assessed : int
        Reports that were sought, those of them that nobody could get, that wait to be assessed, and that were assessed.
    full_texts_excluded : dict of str to int
        Excluded reports by their main reason.
    n_included : int
    n_gone : int
        Judged records that the engine no longer has; no other number counts them.
    """

    topic: str
    identified: dict[str, int]
    n_duplicates: int
    n_not_read: int
    n_screened: int
    excluded: dict[str, int]
    n_stages: int
    n_sought: int
    n_not_retrieved: int
    n_waiting: int
    n_assessed: int
    full_texts_excluded: dict[str, int]
    n_included: int
    n_gone: int

    @property
    def n_identified(self) -> int:
        """Records of all sources."""
        return sum(self.identified.values())

    @property
    def n_excluded(self) -> int:
        """Records that were excluded by screening."""
        return sum(self.excluded.values())

    @property
    def n_full_texts_excluded(self) -> int:
        """Reports that were excluded by their full text."""
        return sum(self.full_texts_excluded.values())

    def items(self) -> list[PrismaItem]:
        """Return the numbers in the order of the diagram."""
        items = [PrismaItem("Identification", "Records identified", self.n_identified)]
        items += _parts("Identification", "Records identified from {}", self.identified)
        items += [
            PrismaItem("Identification", "Duplicate records removed before screening", self.n_duplicates),
            PrismaItem("Identification", "Records not read", self.n_not_read),
            PrismaItem("Screening", "Records screened", self.n_screened),
            PrismaItem("Screening", "Records excluded", self.n_excluded),
            *_parts("Screening", "Records excluded: {}", self.excluded),
        ]
        if self.n_stages == 2:
            items += [
                PrismaItem("Screening", "Reports sought for retrieval", self.n_sought),
                PrismaItem("Screening", "Reports not retrieved", self.n_not_retrieved),
                PrismaItem("Screening", "Reports not assessed yet", self.n_waiting),
                PrismaItem("Screening", "Reports assessed for eligibility", self.n_assessed),
                PrismaItem("Screening", "Reports excluded", self.n_full_texts_excluded),
                *_parts("Screening", "Reports excluded: {}", self.full_texts_excluded),
            ]
        return [*items, PrismaItem("Included", "Reports included in review", self.n_included)]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        totals = ("n_identified", "n_excluded", "n_full_texts_excluded")
        return asdict(self) | {name: getattr(self, name) for name in totals}

    def to_csv(self) -> str:
        """Return a table with the columns phase, item and n."""
        out = io.StringIO(newline="")
        lines = ((item.phase, item.what, item.n) for item in self.items())
        csv.writer(out).writerows([("phase", "item", "n"), *(map(as_cell, line) for line in lines)])
        return out.getvalue()

    def to_svg(self, *, is_page: bool = False) -> str:
        """Return the flow diagram as SVG, with its numbers as a description.

        Parameters
        ----------
        is_page : bool, default False
            Whether it is part of a page, whose colours it takes. Default: black on white, as a file of its own.
        """
        said = ". ".join(f"{item.what}: {item.n:,}" for item in self.items()) + "."
        return draw_flow(f"PRISMA 2020 flow diagram: {self.topic}", said, _boxes(self), is_page=is_page)

    def text(self, format: str) -> str:
        """Return the numbers as ``"svg"``, ``"csv"`` or ``"json"``."""
        if format not in PRISMA_FORMATS:
            raise UnknownNameError("format", format, PRISMA_FORMATS)
        if format == "json":
            return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"
        return self.to_svg() if format == "svg" else self.to_csv()

    def write(self, path: str | Path) -> None:
        """Write the numbers to a file, whose suffix says how: ``.svg``, ``.csv`` or ``.json``. It may exist."""
        path = Path(path)
        format = path.suffix.lower().removeprefix(".")
        if format not in PRISMA_FORMATS:
            raise InputError(f"{path}: expected a file name that ends in .svg, .csv or .json, found {path.suffix!r}")
        check_file(path)
        with replaced(path) as aside:
            aside.write_text(self.text(format), encoding="utf-8", newline="")

    def _repr_html_(self) -> str:
        """Return the flow diagram for notebooks."""
        return self.to_svg()


def _boxes(numbers: PrismaNumbers) -> list[FlowBoxes]:
    """Return the boxes of the flow diagram."""
    identified = [f"Records identified (n = {numbers.n_identified:,}):", *_listed(numbers.identified)]
    removed = ["Records removed before screening:", f"  Duplicate records (n = {numbers.n_duplicates:,})"]
    removed += [f"  Records not read (n = {numbers.n_not_read:,})"] if numbers.n_not_read else []
    excluded = [f"Records excluded (n = {numbers.n_excluded:,})", *_listed(numbers.excluded)]
    boxes = [
        FlowBoxes("Identification", identified, removed),
        FlowBoxes("Screening", [f"Records screened (n = {numbers.n_screened:,})"], excluded),
    ]
    if numbers.n_stages == 2:
        missing = [f"Reports not retrieved (n = {numbers.n_not_retrieved:,})"]
        missing += [f"Reports not assessed yet (n = {numbers.n_waiting:,})"] if numbers.n_waiting else []
        out = [f"Reports excluded (n = {numbers.n_full_texts_excluded:,})", *_listed(numbers.full_texts_excluded)]
        boxes += [
            FlowBoxes("Screening", [f"Reports sought for retrieval (n = {numbers.n_sought:,})"], missing),
            FlowBoxes("Screening", [f"Reports assessed for eligibility (n = {numbers.n_assessed:,})"], out),
        ]
    return [*boxes, FlowBoxes("Included", [f"Reports included in review (n = {numbers.n_included:,})"], [])]


def _listed(counts: Mapping[str, int]) -> list[str]:
    """Return a line for each source or reason; the least frequent ones are summed if there are many."""
    entries = list(counts.items())
    shown, others = entries[:_MAX_PARTS], entries[_MAX_PARTS:]
    if others:
        shown.append((f"{len(others):,} others", sum(n for _, n in others)))
    return [f"  {textwrap.shorten(name, _MAX_NAME, placeholder='…') or '–'} (n = {n:,})" for name, n in shown]


def prisma_numbers(
    ranking: TopicRanking,
    topic: Topic,
    protocol: ReviewProtocol,
    *,
    source: str | None = None,
) -> PrismaNumbers:
    """Return the numbers of the PRISMA 2020 flow diagram of a review.

    A document is excluded or included as the judgements of all judges are combined. If it was excluded for several
    reasons, its first one counts, of the judge who excluded it last. A group of duplicates is one record.

    Parameters
    ----------
    ranking : TopicRanking
        With all judgements of the topic.
    topic : Topic
    protocol : ReviewProtocol
    source : str, optional
        The column of the metadata that says where a record was identified. Default: the database that records name
        (``database``, or ``name_of_database`` in RIS), else their file, if files hold several records.
    """
    state, full_texts = ranking.state, full_text_state(ranking.state)
    judged = [doc_id for doc_id in state.rows if state.is_read(doc_id)]
    copies = [doc_id for doc_id, kept in state.representatives.items() if doc_id != kept]
    removed = {doc_id for doc_id in copies if ranking.number(doc_id) is not None}
    screened = [doc_id for doc_id in judged if doc_id not in removed and ranking.number(doc_id) is not None]
    excluded = [doc_id for doc_id in screened if not state.grade(doc_id)]
    sought = [doc_id for doc_id in screened if state.grade(doc_id)] if protocol.n_stages == 2 else []
    decided = [doc_id for doc_id in sought if full_texts.grades(doc_id)]
    assessed = [doc_id for doc_id in decided if not is_not_retrieved(full_texts, doc_id)]
    assessed_out = [doc_id for doc_id in assessed if not full_texts.grade(doc_id)]
    is_whole = protocol.n_stages == 1
    n_documents = ranking.collection.n_documents
    return PrismaNumbers(
        topic=topic.name,
        identified=_sources(ranking, source),
        n_duplicates=len(removed),
        n_not_read=n_documents - len(removed) - len(screened),
        n_screened=len(screened),
        excluded=_by_reason(main_reason(state, doc_id) for doc_id in excluded),
        n_stages=protocol.n_stages,
        n_sought=len(sought),
        n_not_retrieved=len(decided) - len(assessed),
        n_waiting=len(sought) - len(decided),
        n_assessed=len(assessed),
        full_texts_excluded=_by_reason(main_reason(full_texts, doc_id) for doc_id in assessed_out),
        n_included=len(screened) - len(excluded) if is_whole else len(assessed) - len(assessed_out),
        n_gone=sum(ranking.number(doc_id) is None for doc_id in judged),
    )


def source_columns(collection: Collection) -> list[str]:
    """Return the columns of the metadata that can say where a record was identified."""
    return [] if collection.metadata is None else list(collection.metadata.column_names)


def _sources(ranking: TopicRanking, column: str | None) -> dict[str, int]:
    """Return the number of documents of each source, the largest first."""
    collection = ranking.collection
    names = source_columns(collection)
    if column is not None and column not in names:
        raise UnknownNameError("column", column, names)
    chosen = [name for name in (*DATABASE_COLUMNS, _FILE) if name in names] if column is None else [column]
    values = [] if collection.metadata is None else [collection.metadata.column(name).to_pylist() for name in chosen]
    if column is None and chosen[-1:] == [_FILE]:
        files = [file for file in values[-1] if file]
        if len(files) < _RECORDS_PER_FILE * len(set(files)):
            values.pop()
    default = collection.name or "other sources"
    rows = zip(*values, strict=True) if values else ((),) * collection.n_documents
    return dict(Counter(next((_as_text(value) for value in row if value), default) for row in rows).most_common())


def _as_text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _by_reason(reasons: Iterable[str]) -> dict[str, int]:
    return dict(Counter(reason or NO_REASON for reason in reasons).most_common())


def _parts(phase: str, text: str, counts: dict[str, int]) -> list[PrismaItem]:
    return [PrismaItem(phase, text.format(name), n, is_part=True) for name, n in counts.items()]
