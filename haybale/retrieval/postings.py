"""Which texts a term occurs in and how often: all that BM25 needs of texts, whatever its k1 and b."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from haybale.collections.collection import indptr_from_counts
from haybale.embeddings.counting import TermCounts
from haybale.parallel import in_threads
from haybale.retrieval.hits import Ints
from haybale.retrieval.inverted import frozen
from haybale.vectors import Floats

_PAIRS = 2**18  # whose weights a thread computes at once


@dataclass(frozen=True, eq=False)
class Postings:
    """The (text, term) pairs that occur, term after term, texts rising; 8 bytes a pair. And the statistics.

    Statistics are of all texts that were ever counted, which are more than those here after :meth:`take`.
    """

    texts: NDArray[np.int32]  # (n_pairs,)
    counts: NDArray[np.int32]  # (n_pairs,)
    offsets: Ints  # (n_terms + 1,) where the pairs of a term begin
    lengths: Ints  # (n_texts,) terms of each text, repetitions included
    frequencies: Ints  # (n_terms,) how many of all texts have the term
    n_texts: int  # all texts
    n_terms: int  # of all texts, repetitions included

    @classmethod
    def of(cls, counts: TermCounts) -> Postings:
        """Counted texts, term by term.

        >>> from haybale.analysis import Analyzer
        >>> postings = Postings.of(TermCounts.of(["dog lead dog", "lead"], Analyzer("english")))
        >>> postings.texts.tolist(), postings.counts.tolist(), postings.offsets.tolist()
        ([0, 0, 1], [2, 1, 1], [0, 1, 3])
        """
        table = counts.matrix.tocsc()
        table.sort_indices()
        offsets, lengths = table.indptr.astype(np.int64), counts.lengths
        texts, times = table.indices.astype(np.int32, copy=False), table.data.astype(np.int32)
        return cls(texts, times, offsets, lengths, np.diff(offsets), len(lengths), int(lengths.sum()))

    def weights(self, k1: float, b: float) -> Floats:
        """(n_pairs,) float32 weight of each pair in Lucene's BM25, the idf among its factors; as bm25s computes it."""
        values, places = np.unique(self.frequencies, return_inverse=True)
        # math.log, as bm25s: NumPy's may differ from it in the last bit.
        logs = [math.log(1 + (self.n_texts - df + 0.5) / (df + 0.5)) for df in values.tolist()]
        idf = np.array(logs, dtype=np.float32)[places]
        norm = k1 * ((1 - b) + b * self.lengths / (self.n_terms / self.n_texts))
        out = np.empty(len(self.texts), dtype=np.float32)
        index = frozen(self.offsets), frozen(self.texts), frozen(self.counts)

        def weigh(start: int) -> None:
            _weigh(start, min(start + _PAIRS, len(out)), *index, idf, norm, out)

        in_threads(weigh, range(0, len(out), _PAIRS))
        return out

    def take(self, chosen: Ints) -> tuple[Postings, NDArray[np.bool_]]:
        """Those of the texts ``chosen`` (rising numbers) alone, and which pairs these are; the statistics stay."""
        places = np.full(len(self.lengths), -1, dtype=np.int32)
        places[chosen] = np.arange(len(chosen), dtype=np.int32)
        texts = places[self.texts]
        there = texts >= 0
        pairs = texts[there], self.counts[there], indptr_from_counts(there.astype(np.int64))[self.offsets]
        return Postings(*pairs, self.lengths[chosen], self.frequencies, self.n_texts, self.n_terms), there

    def extended(self, more: Postings) -> Postings:
        """Those of more texts behind these; a term's number is the same in both, ``more`` may have further terms."""
        sizes = np.zeros((2, len(more.frequencies)), dtype=np.int64)
        sizes[0, : len(self.frequencies)], sizes[1] = np.diff(self.offsets), np.diff(more.offsets)
        terms = np.concatenate([np.repeat(np.arange(sizes.shape[1]), each) for each in sizes])
        order = np.argsort(terms, kind="stable")
        frequencies = more.frequencies.copy()
        frequencies[: len(self.frequencies)] += self.frequencies
        return Postings(
            np.concatenate((self.texts, more.texts + np.int32(len(self.lengths))))[order],
            np.concatenate((self.counts, more.counts))[order],
            indptr_from_counts(sizes.sum(axis=0)),
            np.concatenate((self.lengths, more.lengths)),
            frequencies,
            self.n_texts + more.n_texts,
            self.n_terms + more.n_terms,
        )


@njit(nogil=True, cache=True, error_model="numpy")
def _weigh(
    first: int, end: int, offsets: Any, texts: Any, counts: Any, idf: Any, norm: Any, out: Any
) -> None:  # pragma: no cover - compiled
    """The weights of pairs first to end, in float64, rounded."""
    term = np.searchsorted(offsets, first, side="right") - 1
    for pair in range(first, end):
        while offsets[term + 1] <= pair:
            term += 1
        count = float(counts[pair])
        out[pair] = np.float32(float(idf[term]) * (count / (norm[texts[pair]] + count)))
