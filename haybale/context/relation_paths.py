"""Means of vectors or scores over the nodes around a passage, by ten relation paths, and section propagation.

The same functions serve vectors and scores, since means are linear: the mean of a query's inner products with some
nodes is its inner product with their mean.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.cached import cached_property
from haybale.collections.collection import Ints, indptr_from_counts, ragged_take
from haybale.context.document_graph import DocumentGraph, Mask

PATHS = (
    *("previous passage", "next passage", "section title", "parent title", "siblings", "rest of the document"),
    *("document title", "cited sections", "cited documents", "citing documents"),
)
Array = NDArray[np.floating]


class Sums(NamedTuple):
    """Sums of passage values."""

    sections: Array  # (n_sections, …) over the passages directly in each section
    documents: Array  # (n_documents, …)


class RelationPaths:
    """Means over the nodes that ten relation paths lead to from a passage, without the passage itself.

    *Siblings* are the other passages of the section, and *cited sections* the titles of sections that the passage
    refers to. *Cited documents* and *citing documents* are linked with the passage's document; the value of a document
    is the mean of its passages.
    """

    def __init__(self, graph: DocumentGraph) -> None:
        self.graph = graph

    @cached_property
    def _of_sections(self) -> sparse.csr_matrix:
        """(n_sections, n_passages) with 1 for the passages directly in a section."""
        return _membership(self.graph.section_of - self.graph.n_passages, self.graph.n_sections)

    @cached_property
    def _of_documents(self) -> sparse.csr_matrix:
        """(n_documents, n_passages) with 1 for the passages of a document."""
        return _membership(self.graph.doc_of[: self.graph.n_passages], self.graph.n_documents)

    @cached_property
    def _internal(self) -> tuple[Ints, Ints]:
        """``(offsets, section nodes)``, ragged: the sections that each passage refers to."""
        pairs = np.unique(self.graph.internal, axis=0)
        return indptr_from_counts(np.bincount(pairs[:, 0], minlength=self.graph.n_passages)), pairs[:, 1]

    def sums(self, values: Array) -> Sums:
        """Return the sums that :meth:`means` needs; compute them once for many calls with the same values."""
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
        """Return the mean over each of :data:`PATHS`, (c, 10) or (c, 10, d), 0 for a path without nodes.

        Parameters
        ----------
        values : (n_nodes,) or (n_nodes, d) floats
            Scores of all nodes for a query, or their vectors.
        passages : (c,) int
        own : (c,) int, or one for all, default -1
            The document that the query was taken from, -1 for none.
        mask : Mask, optional
            Which links of ``own`` are hidden.
        sums : Sums, optional
            The result of :meth:`sums` for these values; computed if not given.
        """
        graph, n = self.graph, self.graph.n_passages
        out = np.zeros((len(passages), len(PATHS), *values.shape[1:]), dtype=values.dtype)
        documents, sections = graph.doc_of[passages], graph.section_of[passages]
        parents = graph.parent[sections - n]

        def column(name: str, rows: Any, path_means: Array) -> None:
            out[rows, PATHS.index(name)] = path_means

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
            column(name, has, (total[has] - itself[has]) / _divisor(size[has] - 1, itself))
        column(
            "cited sections",
            slice(None),
            _means(*ragged_take(self._internal[0], passages)[::-1], self._internal[1], values),
        )
        # Passages with the same document and the same ``own`` share the means over linked documents.
        pairs, pair_of_passage = np.unique(
            (np.broadcast_to(own, len(passages)) + 1) * graph.n_documents + documents, return_inverse=True
        )
        own_documents, documents = pairs // graph.n_documents - 1, pairs % graph.n_documents
        for name, (offsets, linked) in zip(PATHS[-2:], graph.document_links, strict=True):
            at, ends = ragged_take(offsets, documents)
            of, others = np.repeat(np.arange(len(documents)), np.diff(ends)), linked[at]
            visible = sizes[others] > 0
            if mask is not None:
                visible &= ~mask.hides(own_documents[of], documents[of], others)
            ends = indptr_from_counts(np.bincount(of[visible], minlength=len(documents)))
            used, at = np.unique(others[visible], return_inverse=True)
            linked_means = _means(ends, np.arange(ends[-1]), at, sums.documents[used] / _divisor(sizes[used], itself))
            column(name, slice(None), linked_means[pair_of_passage])
        return out

    def neighbours(self, passage: int, own: int = -1, mask: Mask | None = None) -> list[tuple[str, Ints, float]]:
        """Return ``(path, nodes, weight of each node)`` of the values that :meth:`means` averages for a passage.

        A passage or section is returned alone, a linked document with all of its passages.
        """
        graph = self.graph
        document, section = int(graph.doc_of[passage]), int(graph.section_of[passage])
        first, end = graph.doc_offsets[document : document + 2].tolist()
        all_of = np.arange(first, end)
        beside = all_of[(graph.section_of[first:end] == section) & (all_of != passage)]
        offsets, sections = self._internal
        by_path: dict[str, list[Ints]] = {
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
            by_path[name] = [part for part in parts if len(part)]
        kept = {name: [nodes for nodes in groups if len(nodes) and nodes[0] >= 0] for name, groups in by_path.items()}
        return [(name, nodes, 1 / (len(groups) * len(nodes))) for name, groups in kept.items() for nodes in groups]

    def propagated(self, scores: Array, passages: Ints) -> Array:
        """Return for each passage (c,) the mean, over its sections, of the mean score of their other passages.

        The sections are the passage's own and all ancestors of that. A section contains the passages of all sections
        below it. Sections without another passage are skipped; the mean over no section is 0.
        """
        graph = self.graph
        sums = self._of_sections @ scores[: graph.n_passages]
        counts = np.diff(self._of_sections.indptr).astype(np.int64)
        for level in graph.levels[:0:-1]:
            above = graph.parent[level] - graph.n_passages
            np.add.at(sums, above, sums[level])
            np.add.at(counts, above, counts[level])
        own_scores, at = scores[passages], graph.section_of[passages]
        total, levels = np.zeros_like(own_scores), np.zeros(len(passages), dtype=np.int64)
        left = np.arange(len(passages))
        while len(left):
            section = at[left] - graph.n_passages
            others = counts[section] - 1
            has = others > 0
            total[left[has]] += (sums[section[has]] - own_scores[left[has]]) / others[has]
            levels[left[has]] += 1
            at[left] = graph.parent[section]
            left = left[at[left] >= 0]
        return total / np.maximum(levels, 1)


def _membership(groups: Ints, n: int) -> sparse.csr_matrix:
    """Return a matrix (n, len(groups)) with 1 where an item belongs to a group."""
    ones = np.ones(len(groups), dtype=np.float32)
    return sparse.csr_matrix((ones, (groups, np.arange(len(groups)))), shape=(n, len(groups)))


def _means(ends: Ints, at: Ints, nodes: Ints, values: Array) -> Array:
    """Return the means (n, …) of ``values[nodes[at]]`` over n groups that begin at ``ends``, 0 for empty groups."""
    counts = np.diff(ends)
    weights = np.repeat(1 / np.maximum(counts, 1), counts).astype(values.dtype)
    means: Array = sparse.csr_matrix((weights, nodes[at], ends), shape=(len(counts), len(values))) @ values
    return means


def _divisor(counts: Ints, values: Array) -> Array:
    """Return counts (n,) with the type and number of dimensions of values (n, …)."""
    return counts.reshape(-1, *[1] * (values.ndim - 1)).astype(values.dtype)
