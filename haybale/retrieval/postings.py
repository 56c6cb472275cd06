"""The term counts of texts, by term: the part of a BM25 index that does not depend on k1 and b."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haybale.collections.collection import indptr_from_counts
from haybale.embeddings.counting import TermCounts
from haybale.first_work import numpy_is_faster
from haybale.parallel import in_threads
from haybale.retrieval.hits import Ints
from haybale.retrieval.inverted import read_only
from haybale.vectors import Floats

_PAIRS_PER_TASK = 2**18  # pairs whose weights a task computes
_VALUES_PER_SEARCH = 256  # a binary search takes as long as NumPy takes for so many values


@dataclass(frozen=True, eq=False)
class Postings:
    """The (text, term) pairs that occur, sorted by term, then by text, with the statistics of the texts.

    After :meth:`take`, the statistics are still those of all texts.
    """

    texts: NDArray[np.int32]  # (n_pairs,)
    counts: NDArray[np.int32]  # (n_pairs,) term frequencies
    offsets: Ints  # (n_terms + 1,) where the pairs of each term begin
    lengths: Ints  # (n_texts,) number of terms of each text, with repetitions
    frequencies: Ints  # (n_terms,) document frequencies among all texts
    n_texts: int  # number of all texts
    n_terms: int  # number of terms of all texts, with repetitions

    @classmethod
    def of(cls, counts: TermCounts) -> Postings:
        """Sort term counts by term.

        >>> from haybale.analysis import Analyzer
        >>> postings = Postings.of(TermCounts.of(["dog lead dog", "lead"], Analyzer("english")))
        >>> postings.texts.tolist(), postings.counts.tolist(), postings.offsets.tolist()
        ([0, 0, 1], [2, 1, 1], [0, 1, 3])
        """
        lengths = counts.lengths  # before the table takes memory
        table = counts.matrix.tocsc()
        table.sort_indices()
        offsets = table.indptr.astype(np.int64)
        texts, times = table.indices.astype(np.int32, copy=False), table.data.astype(np.int32)
        return cls(texts, times, offsets, lengths, np.diff(offsets), len(lengths), int(lengths.sum()))

    def weights(self, k1: float, b: float) -> Floats:
        """Return the weight of each pair, (n_pairs,) float32; see :class:`BM25Index` for the formula."""
        values, value_rows = np.unique(self.frequencies, return_inverse=True)
        # math.log as in bm25s: NumPy's logarithm may differ in the last bit.
        logs = [math.log(1 + (self.n_texts - df + 0.5) / (df + 0.5)) for df in values.tolist()]
        idf = np.array(logs, dtype=np.float32)[value_rows]
        norm = k1 * ((1 - b) + b * self.lengths / (self.n_terms / self.n_texts))
        out = np.empty(len(self.texts), dtype=np.float32)

        if numpy_is_faster(len(out)):
            counts = self.counts.astype(np.float64)
            with np.errstate(invalid="ignore"):  # as compiled loops do
                out[:] = np.repeat(idf, np.diff(self.offsets)).astype(np.float64) * (
                    counts / (norm[self.texts] + counts)
                )
            return out
        from haybale.retrieval.posting_loops import weigh

        index = read_only(self.offsets), read_only(self.texts), read_only(self.counts)

        def weigh_pairs(start: int) -> None:
            weigh(start, min(start + _PAIRS_PER_TASK, len(out)), *index, idf, norm, out)

        in_threads(weigh_pairs, range(0, len(out), _PAIRS_PER_TASK))
        return out

    def pairs(self, terms: Sequence[int] | Ints, start: int, end: int) -> list[tuple[int, int]]:
        """Return, for each term, where its pairs with the texts ``start:end`` begin and end."""
        numbers = np.array(terms, dtype=np.int64)
        if numpy_is_faster(2 * _VALUES_PER_SEARCH * len(numbers)):
            edges = zip(self.offsets[numbers].tolist(), self.offsets[numbers + 1].tolist(), strict=True)
            return [(bisect_left(self.texts, start, *pair), bisect_left(self.texts, end, *pair)) for pair in edges]
        from haybale.retrieval.posting_loops import find

        firsts, ends = np.empty_like(numbers), np.empty_like(numbers)
        find(read_only(self.offsets), read_only(self.texts), numbers, start, end, firsts, ends)
        return list(zip(firsts.tolist(), ends.tolist(), strict=True))

    def values_at(self, terms: Ints, wanted: Ints, values: Floats) -> Floats:
        """Return a table (n_terms, n_wanted) of the values (n_pairs,) of pairs, 0 where a text lacks a term.

        Terms below 0 are in no text.
        """
        from haybale.retrieval.posting_loops import fill

        out = np.zeros((len(terms), len(wanted)), dtype=np.float32)
        index = read_only(self.offsets), read_only(self.texts), read_only(values)
        fill(*index, np.array(terms, dtype=np.int64), np.array(wanted, dtype=np.int64), out)
        return out

    def take(self, chosen: Ints) -> tuple[Postings, NDArray[np.bool_]]:
        """Return the postings of some texts, given by rising numbers, and the mask of their pairs, (n_pairs,)."""
        new_numbers = np.full(len(self.lengths), -1, dtype=np.int32)
        new_numbers[chosen] = np.arange(len(chosen), dtype=np.int32)
        texts = new_numbers[self.texts]
        kept = texts >= 0
        pairs = texts[kept], self.counts[kept], indptr_from_counts(kept.astype(np.int64))[self.offsets]
        return Postings(*pairs, self.lengths[chosen], self.frequencies, self.n_texts, self.n_terms), kept

    def extended(self, more: Postings) -> Postings:
        """Append the texts of ``more``, whose vocabulary extends this one."""
        sizes = np.zeros((2, len(more.frequencies)), dtype=np.int64)
        sizes[0, : len(self.frequencies)], sizes[1] = np.diff(self.offsets), np.diff(more.offsets)
        terms = np.concatenate([np.repeat(np.arange(sizes.shape[1]), counts) for counts in sizes])
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
