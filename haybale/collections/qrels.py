"""Read relevance judgements from files or frames, and TREC runs.

A file of judgements whose name ends in ``.csv`` has a header, with the columns ``query_id``, ``doc_id`` and, if not all
grades are 1, ``relevance``. For other files, the number of columns determines the format:

2 columns   query id, document id                      (GerDaLIR; the grade is 1)
3 columns   query id, document id, grade               (BEIR; a header line is skipped)
4 columns   query id, 0, document id, grade            (TREC; separated by any white space)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from haybale.collections.builder import CollectionBuilder, sorted_splits
from haybale.collections.ids import id_codes
from haybale.errors import FileFormatError, InputError
from haybale.frames import Frame, check_filled, numbers, to_pandas
from haybale.text_files import finite_number, read_csv, read_lines, suffix_of, whole_number

if TYPE_CHECKING:
    import pandas as pd


_QUERY, _DOCUMENT = ("query_id", "query-id", "query"), ("doc_id", "corpus-id", "document")  # names of columns
_GRADE = ("relevance", "score", "grade")


def read_qrels(path: Path | str) -> Iterator[tuple[int, str, str, int]]:
    """Yield ``(line number, query id, document id, grade)`` of a qrels file in any of the four formats.

    Another number of columns, or a grade that is not a whole number, raises :class:`FileFormatError`.
    """
    path = Path(path)
    if suffix_of(path) == ".csv":
        for line, row in read_csv(path, {"query": _QUERY, "document": _DOCUMENT}, {"grade": _GRADE}):
            yield line, row["query"], row["document"], _grade(path, line, row.get("grade", "1"))
        return
    for line, text in read_lines(path):
        columns = text.split("\t") if "\t" in text else text.split()
        if line == 1 and len(columns) == 3 and columns[2].strip().lower() in _GRADE:
            continue
        match columns:
            case [query, document]:
                yield line, query, document, 1
            case [query, document, grade] | [query, _, document, grade]:
                yield line, query, document, _grade(path, line, grade)
            case _:
                raise FileFormatError(path, line, f"expected 2, 3 or 4 columns, found {len(columns)}")


def _grade(path: Path, line: int, text: str) -> int:
    if (number := whole_number(text)) is None:
        raise FileFormatError(path, line, f"expected a whole number as grade, found {text[:40]!r}")
    return number


def read_trec_run(path: Path | str) -> pd.DataFrame:
    """Read a run file, plain or ``.gz``: ``query id, Q0, document id, rank, score, tag``, separated by white space.

    The frame has the columns ``query_id``, ``doc_id``, ``score`` and ``rank``, in the order of the lines. A rank that
    is no number is NaN. A line without six columns or a finite score raises :class:`FileFormatError`.
    """
    import pandas as pd

    path, rows = Path(path), []
    for line, text in read_lines(path):
        columns = text.split()
        if len(columns) != 6:
            raise FileFormatError(path, line, f"expected 6 columns (qid Q0 docid rank score tag), found {len(columns)}")
        if (score := finite_number(columns[4])) is None:
            raise FileFormatError(path, line, f"expected a finite number as score, found {columns[4]!r}")
        rank = finite_number(columns[3])
        rows.append((columns[0], columns[2], score, math.nan if rank is None else rank))
    frame = pd.DataFrame(rows, columns=["query_id", "doc_id", "score", "rank"])
    return frame.astype({"score": float, "rank": float})


def add_qrels(builder: CollectionBuilder, split: str, path: Path) -> None:
    """Add the judgements of a qrels file."""
    for line, query_id, doc_id, grade in read_qrels(path):
        builder.add_judgement(split, query_id, doc_id, grade, at=(path, line))


def add_qrels_folder(builder: CollectionBuilder, folder: Path) -> None:
    """Add the judgements of all files ``qrels/{split}.tsv[.gz]``; at least one must exist."""
    paths = [*folder.glob("qrels/*.tsv.gz"), *folder.glob("qrels/*.tsv")]  # a plain file replaces its gzipped copy
    files = {path.name.removesuffix(".gz").removesuffix(".tsv"): path for path in paths}
    if not files:
        raise InputError(f"{folder}: expected qrels/<split>.tsv or .tsv.gz, found none")
    for split in sorted_splits(files):
        add_qrels(builder, split, files[split])


def judgements(qrels: Frame) -> pd.DataFrame:
    """Convert a frame of any library to pandas: ``query_id`` and ``doc_id`` as strings, ``relevance`` as integers."""
    frame = to_pandas(qrels, ["query_id", "doc_id", "relevance"], "qrels")
    check_filled(frame, "qrels")
    grades = numbers(frame, "relevance", "qrels")
    whole = (grades == np.round(grades)) & (np.abs(grades) < 2**31)
    if not whole.all():
        row = int(whole.argmin())
        raise InputError(f"qrels: row {row}, column relevance: expected a whole number, found {grades[row]}")
    ids = {}
    for name in ("query_id", "doc_id"):
        codes, names = id_codes(frame[name], f"qrels: column {name}")
        ids[name] = np.array(names, dtype=object)[codes]
    return frame.assign(**ids, relevance=grades.astype(np.int64))
