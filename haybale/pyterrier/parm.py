"""PARM as a PyTerrier transformer: a whole document is the query."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import pyterrier as pt

from haybale.collections import Paragraph, find_splitter
from haybale.errors import InputError
from haybale.pyterrier.frames import own_of, ranked, texts_of
from haybale.retrieval import PARM


class PARMRetriever(pt.Transformer):
    """Query documents to ranked documents, by what their paragraphs find.

    Parameters: ``parm``, a :class:`~haybale.retrieval.PARM` that takes texts, whose ``depth`` is how many documents
    are ranked; ``splitter``, the name of one of :data:`~haybale.collections.SPLITTERS` (default: every non-empty line
    is a paragraph) or a function from a text to its paragraphs.

    Input: ``qid``, ``query`` (the text of a whole document), optionally ``own``; output: the same with ``docno``,
    ``score``, ``rank``. Errors: a blank query, or one that the splitter makes no or a blank paragraph of.
    """

    def __init__(
        self, parm: PARM, splitter: str | Callable[[str], Sequence[str] | Sequence[Paragraph]] = "lines"
    ) -> None:
        self.parm = parm
        self.splitter = find_splitter(splitter) if isinstance(splitter, str) else splitter

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Queries to results."""
        pt.validate.query_frame(inp, ["query"], context=self)
        texts = texts_of(inp)
        if not texts:
            return ranked(inp, np.empty(0, dtype=np.int64), [], np.empty(0))
        paragraphs = [self._paragraphs(qid, text) for qid, text in zip(inp["qid"], texts, strict=True)]
        # By position: the same qid may be there twice.
        run = self.parm.rank([str(row) for row in range(len(inp))], paragraphs, exclude=own_of(inp)).to_frame()
        rows = run["query_id"].to_numpy(dtype=np.int64)
        return ranked(inp, rows, run["doc_id"].tolist(), run["score"].to_numpy(dtype=np.float64))

    def _paragraphs(self, qid: object, text: str) -> Sequence[str]:
        found = self.splitter(text)
        paragraphs = [part.text if isinstance(part, Paragraph) else part for part in found]
        if isinstance(found, str) or not paragraphs or not all(part.strip() for part in paragraphs):
            raise InputError(f"query {qid!r}: the splitter must make a list of non-empty paragraphs of it")
        return paragraphs
