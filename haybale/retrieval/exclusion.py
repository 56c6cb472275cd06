"""The documents that queries must not find: one document of each query, and those that are not earlier than it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from haybale.device import Device, to_device
from haybale.retrieval.hits import Ints

NO_DATE = np.iinfo(np.int64).max  # the last day of a document without a date, which is earlier than no query


@dataclass(frozen=True, eq=False)
class Cutoffs:
    """The days before which documents must lie to be found, as days since 1970-01-01.

    A query finds a document if the last day that the document's date may mean is before the first day that its own date
    may mean.
    """

    documents: Ints  # (n_documents,) the last day of each document, NO_DATE for a document without a date
    queries: Ints  # (m,) the first day of each query

    def __len__(self) -> int:
        return len(self.queries)

    def take(self, rows: Any) -> Cutoffs:
        """Return the cutoffs of some queries, given by their rows or as a slice."""
        return replace(self, queries=self.queries[rows])

    def hides(self, rows: Ints, documents: Ints) -> NDArray[np.bool_]:
        """Return whether the queries in ``rows`` must not find these documents; both have the shape of the result."""
        hidden: NDArray[np.bool_] = self.documents[documents] >= self.queries[rows]
        return hidden

    @property
    def hide_nothing(self) -> bool:
        """Whether every document is earlier than every query."""
        return not len(self) or not len(self.documents) or bool(self.documents.max() < self.queries.min())


class HiddenPassages(NamedTuple):
    """The passages that each query must not find: a range, and those with a day that is not before the query's."""

    starts: Ints  # (m,)
    ends: Ints  # (m,)
    days: Ints  # (n_passages,) the last day of each passage's document; empty if days do not matter
    before: Ints  # (m,)


@dataclass(frozen=True, eq=False)
class Exclusion:
    """What queries must not find: the document ``documents`` (m,), -1 for none, and what ``cutoffs`` hide.

    ``exclusion[rows]`` is that of some queries.
    """

    documents: Ints
    cutoffs: Cutoffs | None = None

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, rows: Any) -> Exclusion:
        return Exclusion(self.documents[rows], None if self.cutoffs is None else self.cutoffs.take(rows))

    def hides(self, rows: Ints, documents: Ints) -> NDArray[np.bool_]:
        """Return whether the queries in ``rows`` must not find these documents; both have the shape of the result."""
        hidden: NDArray[np.bool_] = self.documents[rows] == documents
        return hidden if self.cutoffs is None else hidden | self.cutoffs.hides(rows, documents)

    def in_segment(self, first: int, n: int) -> Exclusion:
        """Return the exclusion among the documents ``first:first + n``, which are renumbered from 0."""
        is_inside = (self.documents >= first) & (self.documents < first + n)
        cutoffs = self.cutoffs
        if cutoffs is not None:
            cutoffs = replace(cutoffs, documents=cutoffs.documents[first : first + n])
        return Exclusion(np.where(is_inside, self.documents - first, -1), cutoffs)

    def passages(self, doc_offsets: Ints) -> HiddenPassages:
        """Return the passages that are hidden, if those of document d are ``doc_offsets[d]:doc_offsets[d + 1]``."""
        starts = np.where(self.documents >= 0, doc_offsets[self.documents], 0)
        ends = np.where(self.documents >= 0, doc_offsets[self.documents + 1], 0)
        if self.cutoffs is None:
            return HiddenPassages(starts, ends, np.empty(0, dtype=np.int64), np.zeros(len(self), dtype=np.int64))
        days = np.repeat(self.cutoffs.documents, np.diff(doc_offsets))
        return HiddenPassages(starts, ends, days, self.cutoffs.queries)

    def on(self, device: Device) -> Exclusion:
        """Return the exclusion with its arrays on a device."""
        if device.is_cpu:
            return self
        cutoffs = self.cutoffs
        if cutoffs is not None:
            cutoffs = Cutoffs(to_device(cutoffs.documents, device), to_device(cutoffs.queries, device))
        return Exclusion(to_device(self.documents, device), cutoffs)
