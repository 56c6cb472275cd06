"""Find passages with equal texts: a text that occurs in a relevant document must not be used as a negative."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from haybale.collections.collection import Passages, indptr_from_counts, ragged_take
from haybale.retrieval.hits import Ints

_TEXTS_PER_BLOCK = 100_000  # texts that are decoded at once


class SameTexts:
    """The texts of passages as numbers; equal texts have equal numbers.

    Parameters
    ----------
    passages : Passages
    documents : iterable of int
        The numbers of the documents that :meth:`documents_with` searches.
    """

    def __init__(self, passages: Passages, documents: Iterable[int]) -> None:
        self._offsets = passages.doc_offsets
        texts, starts = passages.texts, range(0, len(passages.texts), _TEXTS_PER_BLOCK)
        hashes = (hash(text) for start in starts for text in texts.slice(start, _TEXTS_PER_BLOCK).to_pylist())
        # Two different texts with the same 64-bit hash would only count as one text.
        self.of: Ints = np.unique(np.fromiter(hashes, np.int64, len(texts)), return_inverse=True)[1]  # (n_passages,)
        self.counts = np.bincount(self.of)  # the number of passages with each text
        rows = self._passages_in(sorted(documents))
        pairs = np.unique(np.stack([self.of[rows], passages.doc_of[rows]]), axis=1)
        self._documents = pairs[1]
        self._starts = indptr_from_counts(np.bincount(pairs[0], minlength=len(self.counts)))

    def _passages_in(self, documents: Sequence[int]) -> Ints:
        return ragged_take(self._offsets, np.asarray(documents, dtype=np.int64))[0]

    def in_documents(self, documents: Iterable[int]) -> Ints:
        """Return the numbers of the texts that occur in some documents, in ascending order."""
        return np.unique(self.of[self._passages_in(sorted(documents))])

    def documents_with(self, passages: Ints) -> Ints:
        """Return the numbers of the constructor's ``documents`` that contain the text of one of the passages."""
        return np.unique(self._documents[ragged_take(self._starts, self.of[passages])[0]])
