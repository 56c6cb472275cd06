"""Which paragraph of a query retrieves which paragraph of its relevant documents: figure 4 of the PARM paper.

Althammer et al., "PARM: A Paragraph Aggregation Retrieval Model for Dense Document-to-Document Retrieval",
ECIR 2022, section 5.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from haybale.drawing import draw_heatmap
from haybale.errors import InputError
from haybale.retrieval import Hits
from haybale.retrieval.hits import Ints

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LATER = "later"
Labels = Sequence[str] | pd.Categorical


@dataclass(frozen=True)
class ParagraphRelations:
    """How often query paragraphs (rows) retrieve paragraphs of relevant documents (columns), by position or label.

    ``counts`` (r, c) int64, hits; ``pairs`` (r, c) int64, how many pairs of a query paragraph and a paragraph of a
    document relevant to the query there are, retrieved or not.
    """

    counts: Ints
    pairs: Ints
    rows: list[str]
    columns: list[str]

    @property
    def rates(self) -> NDArray[np.float64]:
        """(r, c) the share of the pairs that are hits, from 0 to 1; NaN where there is no pair."""
        rates = np.full(self.counts.shape, np.nan)
        np.divide(self.counts, self.pairs, out=rates, where=self.pairs > 0)
        return rates

    def to_frame(self, normalize: bool = False) -> pd.DataFrame:
        """The counts, or with ``normalize`` the rates, with the names of rows and columns."""
        index, columns = (
            pd.Index(names, name=name) for names, name in ((self.rows, "query"), (self.columns, "document"))
        )
        return pd.DataFrame(self.rates if normalize else self.counts, index=index, columns=columns)

    def plot(self, path: Path | str | None = None, normalize: bool = False, title: str = "") -> Figure:
        """The frame as a heatmap; saved to ``path`` (.svg, .png or .pdf) where one is given."""
        return draw_heatmap(
            self.rates if normalize else self.counts,
            self.rows,
            self.columns,
            title=title,
            x_label="paragraph of a relevant document",
            y_label="paragraph of the query",
            value_label="share retrieved" if normalize else "hits",
            path=path,
        )


def paragraph_relations(
    hits: Hits,
    offsets: Ints,
    doc_offsets: Ints,
    relevant: tuple[Ints, Ints],
    *,
    size: int = 12,
    query_labels: Labels | None = None,
    passage_labels: Labels | None = None,
) -> ParagraphRelations:
    """Count the hits on relevant documents by the place of the paragraph in the query and in the document.

    ``hits`` (n_paragraphs, N); ``offsets`` (n_queries + 1,), query j being rows ``offsets[j]:offsets[j + 1]``;
    ``doc_offsets`` (n_documents + 1,), where documents begin among the passages; ``relevant``, ``(query rows,
    document numbers)``, each (n,), as :meth:`Split.relevant_rows` gives them. The first ``size`` positions,
    counted from 0, have a row or column of their own, all others together the last, ``later``.

    ``query_labels`` (n_paragraphs,) and ``passage_labels`` (n_passages,) take the positions' place: the first
    ``size`` labels in order of first appearance, or in the order of the categories of a ``pd.Categorical``.

    >>> hits = Hits(np.array([[0, 2], [1, -1]]), np.array([[2.0, 1.0], [1.0, -np.inf]], dtype=np.float32))
    >>> found = paragraph_relations(hits, np.array([0, 2]), np.array([0, 2, 3]), (np.array([0]), np.array([0])))
    >>> found.to_frame()
    document  0  1
    query
    0         1  0
    1         0  1
    """
    offsets, doc_offsets = np.asarray(offsets, dtype=np.int64), np.asarray(doc_offsets, dtype=np.int64)
    if size < 1:
        raise InputError(f"size must be 1 or more; found {size}")
    used = _used(hits, offsets, doc_offsets, relevant)
    row_axis = _axis(query_labels, offsets, size, "query_labels")
    column_axis = _axis(passage_labels, doc_offsets, size, "passage_labels")
    shape = (len(row_axis.names), len(column_axis.names))
    query_of, position = _places(np.diff(offsets))
    row_bins = row_axis.bins(np.arange(len(hits)), position)
    used_of, position = _places(used.lengths)  # of the passages of the documents in use, side by side
    passages = used.starts[used_of] + position
    column_bins = column_axis.bins(passages, position)

    side_by_side = np.full(doc_offsets[-1] + 1, -1)  # the place of each passage there; the last is the padding's
    side_by_side[passages] = np.arange(len(passages))
    rows, columns = _counted(hits, offsets, side_by_side, used_of, used)
    counts = _histogram(row_bins[rows], column_bins[columns], shape)
    of_query = _histogram(query_of, row_bins, (len(offsets) - 1, shape[0]))
    of_document = _histogram(used_of, column_bins, (len(used.starts), shape[1]))
    pairs = of_query[used.queries].T @ of_document[used.places]
    return ParagraphRelations(counts, pairs, row_axis.names, column_axis.names)


@dataclass(frozen=True)
class _Used:
    """The documents relevant to any query, in rising order, and the relevant pairs, each once, in rising order."""

    starts: Ints  # (n_used,) first passage of each document
    lengths: Ints  # (n_used,)
    queries: Ints  # (n_pairs,)
    places: Ints  # (n_pairs,) which of the documents above


def _used(hits: Hits, offsets: Ints, doc_offsets: Ints, relevant: tuple[Ints, Ints]) -> _Used:
    if offsets[0] != 0 or offsets[-1] != len(hits) or (np.diff(offsets) < 0).any():
        raise InputError(f"offsets must rise from 0 to the number of rows of hits, {len(hits)}")
    if doc_offsets[0] != 0 or (np.diff(doc_offsets) < 0).any():
        raise InputError("doc_offsets must rise from 0 to the number of passages")
    if hits.passages.max(initial=-1) >= doc_offsets[-1]:
        raise InputError(f"hits name passage {hits.passages.max()}, but doc_offsets end at {doc_offsets[-1]}")
    queries, documents = (np.asarray(part, dtype=np.int64) for part in relevant)
    for name, part, n in (("query row", queries, len(offsets) - 1), ("document", documents, len(doc_offsets) - 1)):
        outside = part[(part < 0) | (part >= n)]
        if len(outside):
            raise InputError(f"relevant: {name} {outside[0]} is not among the {n} there are")
    used = np.unique(documents)
    pairs = np.unique(queries * len(used) + np.searchsorted(used, documents))
    queries, places = np.divmod(pairs, max(len(used), 1))
    return _Used(doc_offsets[used], np.diff(doc_offsets)[used], queries, places)


def _counted(hits: Hits, offsets: Ints, side_by_side: Ints, used_of: Ints, used: _Used) -> tuple[Ints, Ints]:
    """The hits on documents relevant to their query: row of ``hits`` and place of the passage; (n,) each."""
    wanted = np.zeros(len(used.starts) + 1, dtype=np.bool_)  # by document in use; the last stands for all others
    document_of = np.append(used_of, len(used.starts))[side_by_side].astype(np.int32)
    kept = [np.empty(0, dtype=np.int64)]
    bounds = np.searchsorted(used.queries, np.arange(len(offsets)))
    for query in np.unique(used.queries):
        relevant = used.places[bounds[query] : bounds[query + 1]]
        wanted[relevant] = True
        own = hits.passages[offsets[query] : offsets[query + 1]]
        kept.append(np.flatnonzero(wanted[document_of[own]]) + offsets[query] * own.shape[1])
        wanted[relevant] = False
    rows, ranks = np.divmod(np.concatenate(kept), max(hits.passages.shape[1], 1))
    return rows, side_by_side[hits.passages[rows, ranks]]


@dataclass(frozen=True)
class _Axis:
    """The bins of the paragraphs of one side: by label where there are labels, else by position."""

    names: list[str]
    codes: Ints | None  # (n,) number of each paragraph's label
    size: int

    def bins(self, numbers: Ints, positions: Ints) -> Ints:
        """(n,) the bin of paragraphs by their numbers and their positions, from 0, in query or document."""
        return np.minimum(positions if self.codes is None else self.codes[numbers], self.size)


def _axis(labels: Labels | None, offsets: Ints, size: int, what: str) -> _Axis:
    if labels is None:
        longest = int(np.diff(offsets).max(initial=0))
        codes, names = None, [str(position) for position in range(min(longest, size + 1))]
    else:
        if len(labels) != offsets[-1]:
            raise InputError(f"expected {offsets[-1]} {what}, found {len(labels)}")
        if isinstance(labels, pd.Categorical):
            codes, names = np.asarray(labels.codes, dtype=np.int64), [str(name) for name in labels.categories]
        else:
            codes, found = pd.factorize(np.asarray(labels, dtype=object))
            names = [str(name) for name in found]
        if (codes < 0).any():
            raise InputError(f"{what}: paragraph {int(np.argmax(codes < 0))} has no label")
    return _Axis([*names[:size], LATER] if len(names) > size else names, codes, size)


def _places(lengths: Ints) -> tuple[Ints, Ints]:
    """For things of these lengths side by side: ``(whose, position in it)`` of every part."""
    whose = np.repeat(np.arange(len(lengths)), lengths)
    return whose, np.arange(len(whose)) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _histogram(rows: Ints, columns: Ints, shape: tuple[int, int]) -> Ints:
    """How often each (row, column) occurs, as int64 of that shape."""
    return np.bincount(rows * shape[1] + columns, minlength=shape[0] * shape[1]).reshape(shape)
