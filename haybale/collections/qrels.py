"""Relevance judgements in the three forms they come in, told apart by their columns.

2 columns   query id, document id                      (GerDaLIR; the grade is 1)
3 columns   query id, document id, grade               (BEIR; a first line that names columns is skipped)
4 columns   query id, 0, document id, grade            (TREC; separated by any white space)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from haybale.collections.builder import CollectionBuilder
from haybale.collections.lines import read_lines
from haybale.collections.split_order import in_usual_order
from haybale.errors import FileFormatError, InputError
from haybale.frames import Frame, check_filled, numbers, to_pandas

Judgement = tuple[int, str, str, int]  # line, query id, document id, grade


def read_qrels(path: Path | str) -> Iterator[Judgement]:
    """Yield ``(line number, query id, document id, grade)`` of a qrels file in any of the three forms."""
    path = Path(path)
    for line, text in read_lines(path):
        columns = text.split("\t") if "\t" in text else text.split()
        if line == 1 and len(columns) == 3 and columns[2].strip().lower() in {"score", "relevance", "grade"}:
            continue
        match columns:
            case [query, document]:
                yield line, query, document, 1
            case [query, document, grade] | [query, _, document, grade]:
                try:
                    yield line, query, document, int(grade)
                except ValueError:
                    raise FileFormatError(path, line, f"expected a whole number as grade, found {grade!r}") from None
            case _:
                raise FileFormatError(path, line, f"expected 2, 3 or 4 columns, found {len(columns)}")


def add_qrels(builder: CollectionBuilder, split: str, path: Path) -> None:
    """Judge the builder's documents by a qrels file."""
    for line, query_id, doc_id, grade in read_qrels(path):
        builder.add_judgement(split, query_id, doc_id, grade, at=(path, line))


def qrels_files(folder: Path) -> dict[str, Path]:
    """``{split: path}`` of ``qrels/{split}.tsv[.gz]``, train, dev and test first, then the others by name."""
    found = {
        path.name.removesuffix(".gz").removesuffix(".tsv"): path
        for path in sorted(folder.glob("qrels/*.tsv.gz")) + sorted(folder.glob("qrels/*.tsv"))
    }
    return in_usual_order(found)


def judgements(qrels: Frame) -> pd.DataFrame:
    """Columns ``query_id``, ``doc_id``, both strings, and ``relevance``, whole numbers, of a frame of any library."""
    found = to_pandas(qrels, ["query_id", "doc_id", "relevance"], "qrels")
    check_filled(found, "qrels")
    grades = numbers(found, "relevance", "qrels")
    whole = (grades == np.round(grades)) & (np.abs(grades) < 2**31)
    if not whole.all():
        row = int(whole.argmin())
        raise InputError(f"qrels: row {row}, column relevance: expected a whole number, found {grades[row]}")
    return found.astype({"query_id": str, "doc_id": str}).assign(relevance=grades.astype(np.int64))
