"""TREC run files: ``query id, Q0, document id, rank, score, tag``, separated by white space."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from haybale.collections.lines import read_lines
from haybale.errors import FileFormatError


def read_trec_run(path: Path | str) -> pd.DataFrame:
    """A run file, plain or ``.gz``, as columns ``query_id``, ``doc_id``, ``score`` in the order of the lines.

    The rank column is not read: the score decides, as in trec_eval.
    """
    path = Path(path)
    queries, documents, scores = [], [], []
    for line, text in read_lines(path):
        columns = text.split()
        if len(columns) != 6:
            raise FileFormatError(path, line, f"expected 6 columns (qid Q0 docid rank score tag), found {len(columns)}")
        try:
            score = float(columns[4])
        except ValueError:
            raise FileFormatError(path, line, f"expected a number as score, found {columns[4]!r}") from None
        if not math.isfinite(score):
            raise FileFormatError(path, line, f"expected a finite score, found {columns[4]!r}")
        queries.append(columns[0])
        documents.append(columns[2])
        scores.append(score)
    return pd.DataFrame({"query_id": queries, "doc_id": documents, "score": pd.Series(scores, dtype=float)})
