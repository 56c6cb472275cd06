"""What stands around a passage, by ten paths in the graph, each without the passage itself; and section propagation.

Everything is linear in what the nodes have, so it is the same for vectors and for scores: the mean of the inner
products of a query with some nodes is its inner product with their mean.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.collections.collection import Ints, indptr_from_counts, ragged_take
from haybale.context.document_graph import DocumentGraph, Mask

PATHS = (
    *("previous passage", "next passage", "section title", "parent title", "siblings", "rest of the document"),
    *("document title", "cited sections", "cited documents", "citing documents"),
)
Array = NDArray[np.floating]


class Sums(NamedTuple):
    """Of values of passages: (n_sections, …), directly in a section, and (n_documents, …)."""

    sections: Array
    documents: Array


class RelationPaths:
    """Means over what ten relation paths lead to from passages.

    *Siblings* are the other passages of the section, *cited sections* the titles of sections that the passage refers
    to. *Cited documents* and *citing documents* are those of the passage's document, of each the mean of its passages.

    Parameters
    ----------
    graph : DocumentGraph
    """

    def __init__(self, graph: DocumentGraph) -> None:
        self.graph = graph

    @cached_property
    def _of_sections(self) -> sparse.csr_matrix:
        """(n_sections, n_passages) 1 for the passages that stand directly in a section."""
        graph = self.graph
        rows = graph.section_of - graph.n_passages
        ones = np.ones(graph.n_passages, dtype=np.float32)
        shape = graph.n_sections, graph.n_passages
        return sparse.csr_matrix((ones, (rows, np.arange(graph.n_passages))), shape=shape)

    @cached_property
    def _of_documents(self) -> sparse.csr_matrix:
        """(n_documents, n_passages) 1 for the passages of a document."""
        graph = self.graph
        ones = np.ones(graph.n_passages, dtype=np.float32)
        return sparse.csr_matrix(
            (ones, np.arange(graph.n_passages), graph.doc_offsets), shape=(graph.n_documents, graph.n_passages)
        )

    @cached_property
    def _internal(self) -> tuple[Ints, Ints]:
        """``(offsets, section nodes)`` that each passage refers to."""
        pairs = np.unique(self.graph.internal, axis=0)
        return indptr_from_counts(np.bincount(pairs[:, 0], minlength=self.graph.n_passages)), pairs[:, 1]

    def sums(self, values: Array) -> Sums:
        """Of what passages have, by section and by document: for many calls of :meth:`means` with these values."""
        texts = values[: self.graph.n_passages]
        return Sums(self._of_sections @ texts, self._of_documents @ texts)

    def means(
        self,
        values: Array,
        passages: Ints,
        own: Ints | int = -1,
        mask: Mask | None = None,
        sums: Sums | None = None,
    ) -> Array:
        """What stands around passages.

        Parameters
        ----------
        values : (n_nodes,) or (n_nodes, d) floats
            Of passages and sections: scores of a query, or vectors.
        passages : (c,) int
        own : (c,) int, or one for all
            The document of the query that looks, -1 for none.
        mask : Mask, optional
            What of the links of ``own`` must not be seen.
        sums : Sums, optional
            Of these values.

        Returns
        -------
        (c, 10) or (c, 10, d), by :data:`PATHS`; 0 where a path leads nowhere.
        """
        graph, n = self.graph, self.graph.n_passages
        out = np.zeros((len(passages), len(PATHS), *values.shape[1:]), dtype=values.dtype)
        documents, sections = graph.doc_of[passages], graph.section_of[passages]
        parents = graph.parent[sections - n]

        def column(name: str, rows: Any, found: Array) -> None:
            out[rows, PATHS.index(name)] = found

        has = passages > graph.doc_offsets[documents]
        column("previous passage", has, values[passages[has] - 1])
        has = passages + 1 < graph.doc_offsets[documents + 1]
        column("next passage", has, values[passages[has] + 1])
        column("section title", slice(None), values[sections])
        has = parents >= 0
        column("parent title", has, values[parents[has]])
        column("document title", slice(None), values[graph.root[documents]])
        itself, sums = values[passages], sums or self.sums(values)
        sizes = np.diff(graph.doc_offsets)
        for name, total, size in (
            ("siblings", sums.sections[sections - n], np.diff(self._of_sections.indptr)[sections - n]),
            ("rest of the document", sums.documents[documents], sizes[documents]),
        ):
            has = size > 1
            column(name, has, (total[has] - itself[has]) / _beside(size[has] - 1, itself))
        column(
            "cited sections",
            slice(None),
            _means(*ragged_take(self._internal[0], passages)[::-1], self._internal[1], values),
        )
        # Of each document once for every query that looks.
        looks, place = np.unique(
            (np.broadcast_to(own, len(passages)) + 1) * graph.n_documents + documents, return_inverse=True
        )
        looking, different = looks // graph.n_documents - 1, looks % graph.n_documents
        for name, (offsets, linked) in zip(PATHS[-2:], graph.document_links, strict=True):
            at, ends = ragged_take(offsets, different)
            of, there = np.repeat(np.arange(len(different)), np.diff(ends)), linked[at]
            seen = sizes[there] > 0
            if mask is not None:
                seen &= ~mask.hides(looking[of], different[of], there)
            ends = indptr_from_counts(np.bincount(of[seen], minlength=len(different)))
            used, at = np.unique(there[seen], return_inverse=True)
            found = _means(ends, np.arange(ends[-1]), at, sums.documents[used] / _beside(sizes[used], itself))
            column(name, slice(None), found[place])
        return out

    def neighbours(self, passage: int, own: int = -1, mask: Mask | None = None) -> list[tuple[str, Ints, float]]:
        """``(path, nodes, weight of each)`` of what :meth:`means` is the mean of: passages and sections one by one,
        linked documents with all of their passages."""
        graph = self.graph
        document, section = int(graph.doc_of[passage]), int(graph.section_of[passage])
        first, end = graph.doc_offsets[document : document + 2].tolist()
        all_of = np.arange(first, end)
        beside = all_of[(graph.section_of[first:end] == section) & (all_of != passage)]
        offsets, sections = self._internal
        found: dict[str, list[Ints]] = {
            "previous passage": [all_of[all_of == passage - 1]],
            "next passage": [all_of[all_of == passage + 1]],
            "section title": [np.array([section])],
            "parent title": [graph.parent[[section - graph.n_passages]]],
            "siblings": list(beside[:, None]),
            "rest of the document": list(all_of[all_of != passage][:, None]),
            "document title": [graph.root[[document]]],
            "cited sections": list(sections[offsets[passage] : offsets[passage + 1]][:, None]),
        }
        for name, linked in (("cited documents", graph.cited(document)), ("citing documents", graph.citing(document))):
            if mask is not None:
                linked = linked[~mask.hides(own, np.full(len(linked), document), linked)]
            parts = [np.arange(*graph.doc_offsets[other : other + 2]) for other in linked]
            found[name] = [part for part in parts if len(part)]
        kept = {name: [nodes for nodes in groups if len(nodes) and nodes[0] >= 0] for name, groups in found.items()}
        return [(name, nodes, 1 / (len(groups) * len(nodes))) for name, groups in kept.items() for nodes in groups]

    def propagated(self, scores: Array, passages: Ints) -> Array:
        """(c,) the mean score of the other passages of a passage's section, and of those around it, up to the root.

        The mean over these sections, each with all that stands below it, that have another passage; 0 without any.
        """
        graph = self.graph
        sums, counts = (
            self._of_sections @ scores[: graph.n_passages],
            np.diff(self._of_sections.indptr).astype(np.int64),
        )
        for level in graph.levels[:0:-1]:
            above = graph.parent[level] - graph.n_passages
            np.add.at(sums, above, sums[level])
            np.add.at(counts, above, counts[level])
        own, at = scores[passages], graph.section_of[passages]
        total, levels = np.zeros_like(own), np.zeros(len(passages), dtype=np.int64)
        left = np.arange(len(passages))
        while len(left):
            section = at[left] - graph.n_passages
            others = counts[section] - 1
            has = others > 0
            total[left[has]] += (sums[section[has]] - own[left[has]]) / others[has]
            levels[left[has]] += 1
            at[left] = graph.parent[section]
            left = left[at[left] >= 0]
        return total / np.maximum(levels, 1)


def _means(ends: Ints, at: Ints, things: Ints, values: Array) -> Array:
    """(n, …) means of the values of ``things[at]``, those of each side by side, beginning at ``ends``; 0 of none."""
    counts = np.diff(ends)
    weights = np.repeat(1 / np.maximum(counts, 1), counts).astype(values.dtype)
    found: Array = sparse.csr_matrix((weights, things[at], ends), shape=(len(counts), len(values))) @ values
    return found


def _beside(counts: Ints, values: Array) -> Array:
    """Counts (n,) in the shape and type to divide (n, …) by."""
    return counts.reshape(-1, *[1] * (values.ndim - 1)).astype(values.dtype)
