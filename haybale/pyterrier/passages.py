"""Search for passages, and passages as documents: PyTerrier transformers over the indexes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pyterrier as pt
from numpy.typing import NDArray

from haybale.collections.collection import pick
from haybale.embeddings import Encoder, encode_queries
from haybale.errors import InputError
from haybale.pyterrier.frames import own_of, ranked, texts_of
from haybale.retrieval import BM25Index, Hits, PassageIndex
from haybale.retrieval.hits import Ints
from haybale.retrieval.passages import PassageTable

UNITS = ("document", "passage")
Found = tuple[Ints, Ints, NDArray[np.floating]]  # row of the query, number of the document or passage, score


class PassageRetriever(pt.Transformer):
    """Queries to the ``k`` best documents, each by its best passage (MaxP), or to the ``k`` best passages.

    Parameters: ``index``, a :class:`PassageIndex` with the ``encoder`` of its vectors, or a :class:`BM25Index`;
    ``k`` results of a query (default 1000, or as many as there are); ``unit`` ``"document"`` or ``"passage"``, which
    is also what ``docno`` names. Results are exact: equal scores at place ``k`` are decided by docno.

    Input: ``qid``, ``query``, optionally ``own``; output: the same with ``docno``, ``score``, ``rank``. Errors: a blank
    query, an ``own`` that is no document of the index.

    >>> index = BM25Index(["a dog", "two dogs, one dog", "a cat"], np.array([0, 2, 3]), doc_ids=["dogs", "cats"])
    >>> PassageRetriever(index).search("dog")[["qid", "docno", "rank"]]
      qid docno  rank
    0   1  dogs     0
    """

    def __init__(
        self,
        index: PassageIndex | BM25Index,
        encoder: Encoder | None = None,
        k: int = 1000,
        unit: str = "document",
    ) -> None:
        if isinstance(index, BM25Index) != (encoder is None):
            raise InputError("a PassageIndex needs the encoder of its vectors, a BM25Index takes none")
        if k < 1:
            raise InputError(f"k must be at least 1, found {k}")
        check_unit(unit)
        self.index = index
        self.encoder = encoder
        self.k = k
        self.unit = unit

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Queries to results."""
        pt.validate.query_frame(inp, ["query"], context=self)
        texts = texts_of(inp)
        if not texts:
            return ranked(inp, np.empty(0, dtype=np.int64), [], np.empty(0))
        rows, numbers, scores = self._found(texts, self.index.excluded(own_of(inp), len(texts)))
        ids = self.index.doc_ids if self.unit == "document" else self.index.passage_ids
        return ranked(inp, rows, pick(ids, numbers), scores, self.k)

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer:
        """``self % k``, by searching for no more."""
        return self if k >= self.k else pt.inspect.transformer_apply_attributes(self, k=k)

    def _found(self, texts: list[str], own: Ints) -> Found:
        index = self.index
        unit_of = index.doc_of if self.unit == "document" else np.arange(len(index))
        if isinstance(index, PassageIndex):
            assert self.encoder is not None
            vectors = encode_queries(self.encoder, texts)
            return best(lambda rows, k: index.search(vectors[rows], k, exclude=own[rows]), own, unit_of, self.k)
        if self.unit == "document":
            return index.documents(texts, self.k, exclude=own)
        return best(lambda rows, k: index.search([texts[i] for i in rows], k, exclude=own[rows]), own, unit_of, self.k)


class BestPassage(pt.Transformer):
    """Retrieved passages to their documents, each with the score and the other columns of its best passage (MaxP).

    Parameters: ``index`` of the passages, any of haybale's. Input: ``qid``, ``docno`` (passage ids), ``score``.

    >>> index = PassageTable(3, np.array([0, 2, 3]), doc_ids=["a", "b"])
    >>> found = pd.DataFrame({"qid": "1", "docno": ["0", "2", "1"], "score": [1.0, 2.0, 3.0]})
    >>> BestPassage(index)(found)
      qid docno  score  rank
    0   1     a    3.0     0
    1   1     b    2.0     1
    """

    def __init__(self, index: PassageTable) -> None:
        self.index = index

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Results by passage to results by document."""
        pt.validate.result_frame(inp, ["score"], context=self)
        passages = ranked(inp, np.arange(len(inp)), inp["docno"].tolist(), inp["score"].to_numpy(dtype=np.float64))
        documents = self.index.doc_of[self.index.numbers(passages["docno"].tolist())]
        first = ~pd.DataFrame({"qid": passages["qid"], "document": documents}).duplicated().to_numpy()
        ids = pick(self.index.doc_ids, documents[first])
        return ranked(passages, np.flatnonzero(first), ids, passages["score"].to_numpy()[first])


def check_unit(unit: str) -> None:
    if unit not in UNITS:
        raise InputError(f"unit must be 'document' or 'passage', found {unit!r}")


def best(search: Callable[[Ints, int], Hits], own: Ints, unit_of: Ints, k: int) -> Found:
    """Of each query, every unit that scores at least as high as its ``k``-th best: ties are for the docno to decide.

    ``search`` takes rows of queries and a depth. Rows whose k-th unit may have equals further down are searched
    deeper. ``own`` (m,), one a query; ``unit_of`` (n_passages,), the unit of each passage.
    """
    rows, n = np.arange(len(own)), len(unit_of)
    parts: list[Found] = []
    depth = min(n, 2 * k)
    while len(rows):
        hits = search(rows, depth)
        row, _, passage, score = hits.flat()
        unit = unit_of[passage]
        _, first = np.unique(row * n + unit, return_index=True)
        first.sort()  # a unit's best passage is its first in the list
        row, unit, score = row[first], unit[first], score[first]
        starts = np.searchsorted(row, np.arange(len(rows) + 1))
        enough = np.diff(starts) >= k
        threshold = np.full(len(rows), -np.inf)
        threshold[enough] = score[starts[:-1][enough] + k - 1]
        last = hits.scores[:, -1]  # -inf where the list is complete
        settled = np.isneginf(last) | (enough & (last < threshold)) | (depth == n)
        kept = settled[row] & (score >= threshold[row])
        parts.append((rows[row[kept]], unit[kept], score[kept]))
        rows = rows[~settled]
        depth = min(n, 2 * depth)
    found = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return found[0], found[1], found[2]
