"""Which texts a term occurs in and how often: all that BM25 needs of texts, whatever its k1 and b."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from haybale.embeddings.counting import TermCounts
from haybale.machine import in_threads
from haybale.retrieval.hits import Ints
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

    def __post_init__(self) -> None:
        # As what is mapped into memory is: so the loops are compiled once, for both.
        for array in (self.texts, self.counts, self.offsets, self.lengths, self.frequencies):
            array.flags.writeable = False

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
        texts = table.indices.astype(np.int32, copy=False)
        frequencies = np.diff(offsets)
        return cls(texts, table.data.astype(np.int32), offsets, lengths, frequencies, len(lengths), int(lengths.sum()))

    def weights(self, k1: float, b: float) -> Floats:
        """(n_pairs,) float32 weight of each pair in Lucene's BM25, the idf among its factors; as bm25s computes it."""
        idf = np.empty(len(self.frequencies), dtype=np.float32)
        values, places = np.unique(self.frequencies, return_inverse=True)
        # math.log, as bm25s: NumPy's may differ from it in the last bit.
        idf[:] = np.array([math.log(1 + (self.n_texts - df + 0.5) / (df + 0.5)) for df in values.tolist()])[places]
        norm = k1 * ((1 - b) + b * self.lengths / (self.n_terms / self.n_texts))
        out = np.empty(len(self.texts), dtype=np.float32)
        # Terms by runs of about as many pairs; a term of more is one run.
        cuts = np.unique(np.searchsorted(self.offsets, np.arange(0, len(out) + _PAIRS, _PAIRS)))
        cuts = np.unique(np.append(cuts, [0, len(idf)]).clip(0, len(idf)))

        def weigh(terms: tuple[int, int]) -> None:
            _weigh(*terms, self.offsets, self.texts, self.counts, idf, norm, out)

        in_threads(weigh, list(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)))
        return out

    def take(self, chosen: Ints) -> tuple[Postings, NDArray[np.bool_]]:
        """Those of the texts ``chosen`` (rising numbers) alone, and which pairs these are; the statistics stay."""
        places = np.full(len(self.lengths), -1, dtype=np.int32)
        places[chosen] = np.arange(len(chosen), dtype=np.int32)
        texts = places[self.texts]
        there = texts >= 0
        offsets = np.concatenate(([0], np.cumsum(there)))[self.offsets]
        lengths = self.lengths[chosen]
        statistics = self.frequencies, self.n_texts, self.n_terms
        return Postings(texts[there], self.counts[there], offsets, lengths, *statistics), there

    def extended(self, more: Postings) -> Postings:
        """Those of more texts behind these; a term's number is the same in both, ``more`` may have further terms."""
        n_new = len(more.frequencies)
        sizes = [_padded(np.diff(part.offsets), n_new) for part in (self, more)]
        offsets = np.concatenate(([0], np.cumsum(sizes[0] + sizes[1])))
        texts, counts = (np.empty(offsets[-1], dtype=np.int32) for _ in range(2))
        starts = offsets[:-1], offsets[:-1] + sizes[0]
        for part, size, start, shift in zip((self, more), sizes, starts, (0, len(self.lengths)), strict=True):
            own = np.concatenate(([0], np.cumsum(size)))
            _spread(own, part.texts, part.counts, start, np.int32(shift), texts, counts)
        return Postings(
            texts,
            counts,
            offsets,
            np.concatenate((self.lengths, more.lengths)),
            _padded(self.frequencies, n_new) + more.frequencies,
            self.n_texts + more.n_texts,
            self.n_terms + more.n_terms,
        )


def _padded(values: Ints, n: int) -> Ints:
    return np.concatenate((values, np.zeros(n - len(values), dtype=np.int64)))


@njit(nogil=True, cache=True, error_model="numpy")
def _weigh(
    first: int, end: int, offsets: Any, texts: Any, counts: Any, idf: Any, norm: Any, out: Any
) -> None:  # pragma: no cover - compiled
    """The weights of terms first to end, in float64, rounded."""
    for term in range(first, end):
        factor = float(idf[term])
        for pair in range(offsets[term], offsets[term + 1]):
            count = float(counts[pair])
            out[pair] = np.float32(factor * (count / (norm[texts[pair]] + count)))


@njit(nogil=True, cache=True)
def _spread(
    own: Any, texts: Any, counts: Any, starts: Any, shift: Any, out_texts: Any, out_counts: Any
) -> None:  # pragma: no cover - compiled
    """The pairs of each term to where they begin among those of all."""
    for term in range(len(starts)):
        place = starts[term]
        for pair in range(own[term], own[term + 1]):
            out_texts[place] = texts[pair] + shift
            out_counts[place] = counts[pair]
            place += 1
