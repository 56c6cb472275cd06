"""Select the best passages or documents of queries from an inverted index, term by term (Turtle & Flood 1995).

:mod:`haybale.retrieval.range_search` searches for one query by compiled loops; before they are loaded, NumPy does.
:mod:`haybale.retrieval.score_values` defines *values*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from haybale.cached import cached_property
from haybale.first_work import numpy_is_faster
from haybale.parallel import in_threads
from haybale.progress import track
from haybale.retrieval.exclusion import Exclusion, HiddenPassages
from haybale.retrieval.hits import NO_PASSAGE, Ints
from haybale.retrieval.id_order import IdOrder, Places
from haybale.retrieval.score_values import Values, decoded, encoded
from haybale.vectors import Floats

if TYPE_CHECKING:
    from haybale.retrieval.range_search import SearchBuffers

T = TypeVar("T")
Query = tuple[Ints, Floats]  # terms, in the order in which they are added, and their float32 factors
Search = Callable[
    [int], tuple[Values, Values]
]  # query row -> numbers of its best passages or documents, and their values

_QUERIES_PER_STEP = 1024  # a step of the progress bar
_QUERIES_PER_TASK = 32  # the queries of a task share a workspace
_HIGHEST_VALUE = np.uint64(2**32 - 1)
_NO_DOCUMENTS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class TermLists:
    """The passages of each term, with their weights.

    The score of a passage is the sum of factor · weight over the terms of the query. Products are rounded to float32,
    and so is the sum.
    """

    offsets: Ints  # (n_terms + 1,) where the postings of each term begin
    passages: NDArray[Any]  # (n_postings,) rising within a term
    weights: Floats  # (n_postings,) float32
    doc_offsets: Ints  # (n_documents + 1,) where the passages of each document begin
    sums: type[np.float32] | type[np.float64]  # in which products are added
    least: np.uint32  # the lowest value of a hit
    # Free workspaces: for passages, documents, and documents by several passages.
    _spaces: tuple[list[SearchBuffers], ...] = field(default_factory=lambda: ([], [], []))

    @cached_property
    def by_document(self) -> bool:
        """Whether a document can have several passages."""
        return len(self.doc_offsets) - 1 != len(self) or bool((np.diff(self.doc_offsets) != 1).any())

    def __len__(self) -> int:
        return int(self.doc_offsets[-1])

    @contextmanager
    def searcher(
        self, queries: Callable[[int], Query], hidden: HiddenPassages, k: int, top: int, doc_of: Ints
    ) -> Iterator[Search]:
        """Yield a search for one thread; parameters as in :func:`range_search.search_ranges`.

        The next search overwrites the arrays that a search returns.
        """
        top = top if top and self.by_document else 0
        days = read_only(hidden.days)
        compiled_search: Callable[..., tuple[Values, Values]] | None = None
        with ExitStack() as stack:

            def search(row: int) -> tuple[Values, Values]:
                nonlocal compiled_search
                terms, factors = queries(row)
                start, end, before = int(hidden.starts[row]), int(hidden.ends[row]), int(hidden.before[row])
                if compiled_search is None:
                    if top < 2 and numpy_is_faster(len(self) + (self.offsets[terms + 1] - self.offsets[terms]).sum()):
                        is_late = days >= before if len(days) else None
                        return self._search_by_numpy(terms, factors, slice(start, end), is_late, top, k)
                    compiled_search = stack.enter_context(self._compiled_searcher(doc_of, top, k))
                return compiled_search(terms, factors, start, end, days, before)

            yield search

    def _search_by_numpy(
        self, terms: Ints, factors: Floats, hidden: slice, is_late: NDArray[np.bool_] | None, top: int, k: int
    ) -> tuple[Values, Values]:
        """Search for one query, as the compiled loops do, with ``top`` 0 or 1."""
        sums = np.full(len(self), -0.0, dtype=self.sums)
        with np.errstate(over="ignore", invalid="ignore"):
            for term, factor in zip(terms, factors, strict=True):
                postings = slice(self.offsets[term], self.offsets[term + 1])
                sums[self.passages[postings]] += factor * self.weights[postings] + np.float32(0)
            sums[hidden] = -0.0
            if is_late is not None:
                sums[is_late] = -0.0
            values = encoded(sums.astype(np.float32))
        numbers = np.arange(len(self))
        if top:
            numbers = np.flatnonzero(np.diff(self.doc_offsets))  # documents without passages are no hits
            values = np.maximum.reduceat(values, self.doc_offsets[numbers])
        hits = np.flatnonzero(values >= self.least)
        if len(hits) > k:
            hits = hits[values[hits] >= np.partition(values[hits], -k)[-k]]
        return numbers[hits].astype(np.uint32), values[hits]

    @contextmanager
    def _compiled_searcher(self, doc_of: Ints, top: int, k: int) -> Iterator[Callable[..., tuple[Values, Values]]]:
        """Yield a search by compiled loops for the terms and factors of a query and its hidden passages and days."""
        from haybale.retrieval.range_search import SearchBuffers, range_edges, search_ranges

        offsets = read_only(self.doc_offsets)
        spaces = self._spaces[min(top, 2)]
        try:
            space = spaces.pop()
        except IndexError:
            edges = range_edges(len(self), self.doc_offsets if top > 1 else None)
            space = SearchBuffers(edges, len(offsets) - 1 if top == 1 else 0, self.sums)
        unsigned = self.passages.view(f"u{self.passages.itemsize}")
        index = read_only(self.offsets), read_only(unsigned), read_only(self.weights), space.edges
        documents = read_only(doc_of.view(np.uint64)), offsets

        def search(
            terms: Ints, factors: Floats, start: int, end: int, days: Ints, before: int
        ) -> tuple[Values, Values]:
            query = np.array(terms), np.array(factors)  # numba takes longer to accept read-only arrays
            hidden = start, end, days, before
            arguments: Any = *query, *index, *hidden, *documents, top, k, self.least, *space.arrays
            n = search_ranges(*arguments)
            return space.found[:n], space.found_values[:n]

        yield search
        spaces.append(space)  # not after an error


def top_passages(
    lists: TermLists, queries: Callable[[int], Query], k: int, excluded: Exclusion, order: IdOrder
) -> tuple[Ints, Floats]:
    """Return the numbers and scores of the k best passages of each query, (m, k), padded with -1 and -inf.

    ``queries`` returns the query of a row. ``excluded`` (m,) says what each query excludes.
    """
    m, hidden = len(excluded), excluded.passages(lists.doc_offsets)
    passages, values = np.full((m, k), NO_PASSAGE), np.zeros((m, k), dtype=np.uint32)

    def search(rows: range) -> None:
        with lists.searcher(queries, hidden, k, 0, _NO_DOCUMENTS) as searched:
            for row in rows:
                numbers, hit_values = searched(row)
                positions = order.places if order.is_known else None  # ids are not sorted before the first tie
                keys = np.sort(_sort_keys(numbers, hit_values, positions))
                if positions is None and (np.diff(keys >> np.uint64(32)) == 0).any() and order.places is not None:
                    positions = order.places
                    keys = np.sort(_sort_keys(numbers, hit_values, positions))
                _write_top(keys, None if positions is None else order.passages, passages[row], values[row])

    _map_rows(search, m)
    return passages, np.where(passages == NO_PASSAGE, np.float32(-np.inf), decoded(values))


def top_documents(
    lists: TermLists, queries: Callable[[int], Query], k: int, excluded: Exclusion, doc_of: Ints, top: int = 1
) -> tuple[Ints, Ints, Floats]:
    """Return ``(query row, document, score)``, each (n_found,), of the k best documents by their best passages.

    The ``top`` best passages of a document are summed; see :mod:`haybale.retrieval.passage_sums`. Documents that tie
    with the k-th are included. The result is sorted by row, then by document. ``doc_of`` (n_passages,) is the document
    of each passage; the other parameters are those of :func:`top_passages`.
    """
    hidden = excluded.passages(lists.doc_offsets)

    def search(rows: range) -> list[NDArray[np.uint64]]:
        with lists.searcher(queries, hidden, k, top, doc_of) as searched:
            best = (searched(row) for row in rows)
            return [np.sort(documents.astype(np.uint64) << np.uint64(32) | values) for documents, values in best]

    parts = [part for done in _map_rows(search, len(excluded)) for part in done]
    rows = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    keys = np.concatenate([np.empty(0, dtype=np.uint64), *parts])
    return rows, (keys >> np.uint64(32)).astype(np.int64), decoded(keys.astype(np.uint32))


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view. Compiled loops get only such views, because numba compiles a loop again for others."""
    array = array.view()
    array.flags.writeable = False
    return array


def _map_rows(work: Callable[[range], T], m: int) -> list[T]:
    """Call ``work`` on slices of the query rows, in threads; return the results in order."""
    done: list[T] = []
    for start in track(range(0, m, _QUERIES_PER_STEP), "searching terms"):
        end = min(start + _QUERIES_PER_STEP, m)
        done += in_threads(
            work, [range(row, min(row + _QUERIES_PER_TASK, end)) for row in range(start, end, _QUERIES_PER_TASK)]
        )
    return done


def _sort_keys(numbers: Values, values: Values, positions: Places | None) -> NDArray[np.uint64]:
    """Return a key of value and position for each number; keys rise with falling values, then with rising positions.

    Without ``positions``, the position of a number is the number.
    """
    return (_HIGHEST_VALUE - values) << np.uint64(32) | (numbers if positions is None else positions[numbers])


def _write_top(keys: NDArray[np.uint64], by_position: Places | None, passages: Ints, values: Values) -> None:
    """Write the passages and values of the first sorted keys; ``by_position`` has the passage of each position."""
    keys = keys[: len(passages)]
    positions = keys & _HIGHEST_VALUE
    passages[: len(keys)] = positions if by_position is None else by_position[positions]
    values[: len(keys)] = _HIGHEST_VALUE - (keys >> np.uint64(32))
