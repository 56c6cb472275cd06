"""How often terms occur in texts: all that BM25 needs of them, whatever its k1 and b."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.analysis import Terms
from haybale.vectors import Floats


@dataclass(frozen=True)
class TermCounts:
    """The (text, term) pairs that occur, term after term, texts ascending; 8 bytes a pair."""

    text: NDArray[np.int32]  # (n_pairs,)
    count: Floats  # (n_pairs,) float32
    offsets: NDArray[np.int64]  # (n_terms + 1,) where the pairs of a term begin
    lengths: NDArray[np.int64]  # (n_texts,) terms of each text, repetitions included

    @classmethod
    def of(cls, terms: Terms) -> TermCounts:
        """Count the terms of analysed texts.

        >>> counts = TermCounts.of(Terms([[0, 1, 0], [1]], {"dog": 0, "lead": 1}))
        >>> counts.text.tolist(), counts.count.tolist(), counts.offsets.tolist()
        ([0, 0, 1], [2.0, 1.0, 1.0], [0, 1, 3])
        """
        lengths = np.array([len(ids) for ids in terms.ids], dtype=np.int64)
        flat = np.fromiter(chain.from_iterable(terms.ids), dtype=np.int32, count=int(lengths.sum()))
        of_text = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        shape = (len(lengths), len(terms.vocabulary))
        table = sparse.coo_matrix((np.ones(len(flat), dtype=np.float32), (of_text, flat)), shape=shape).tocsc()
        table.sort_indices()
        return cls(table.indices.astype(np.int32), table.data, table.indptr.astype(np.int64), lengths)

    def weights(self, k1: float, b: float) -> Floats:
        """(n_pairs,) float32 weight of each pair in Lucene's BM25, the idf among its factors; as bm25s computes it."""
        n, frequency = len(self.lengths), np.diff(self.offsets)
        idf = np.log(1 + (n - frequency + 0.5) / (frequency + 0.5)).astype(np.float32)
        norm = k1 * ((1 - b) + b * self.lengths / self.lengths.mean())
        weights = np.repeat(idf, frequency) * (self.count / (norm[self.text] + self.count))
        return np.asarray(weights, dtype=np.float32)
