"""The graph of a structured collection: passages and titled sections as nodes, and typed edges between them.

Albarède et al., "Passage Retrieval on Structured Documents using Graph Attention Networks", ECIR 2022, section 2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from haybale.cached import cached_property
from haybale.collections import Collection, Links, Sections
from haybale.collections.collection import Ints, indptr_from_counts
from haybale.errors import InputError

RELATIONS = ("order", "order_i", "structural", "structural_i", "internal", "internal_i", "external", "external_i")
EXTERNAL = (RELATIONS.index("external"), RELATIONS.index("external_i"))


class Mask(NamedTuple):
    """A mask of links between documents, which hides links of the document that a query was taken from.

    The links of a training query's document reveal its relevant documents, and a new document has no links yet.
    """

    # The links to hide: own * n_documents + other for links, in either direction, between the documents ``own`` and
    # ``other``. None hides all links of ``own``.
    pairs: Ints | None
    n_documents: int

    def hides(self, own: Ints | int, one: Ints, other: Ints) -> NDArray[np.bool_]:
        """Return a mask (n,) of the links between documents ``one`` and ``other`` (n,) that are hidden.

        ``own`` is the document that the query was taken from, -1 for none.
        """
        touched: NDArray[np.bool_] = (np.asarray(own) >= 0) & ((one == own) | (other == own))
        if self.pairs is None:
            return touched
        return touched & np.isin(own * self.n_documents + np.where(one == own, other, one), self.pairs)


class Edges(NamedTuple):
    """Typed edges, sorted by target, relation and source. The dtypes are small: a graph may have millions of edges."""

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    relation: NDArray[np.int8]  # index in RELATIONS


@dataclass(frozen=True)
class DocumentGraph:
    """Passages and sections of all documents as nodes, with eight types of edges: four relations and their inverses.

    Passages are numbered first, then sections. The root section of a document represents the document. Edges lead from
    a passage to the next passage (*order*), from a passage to its section and from a section to its parent
    (*structural*), from a passage to a section that it refers to (*internal*), and from a passage or section to a
    document that it cites (*external*). :meth:`from_collection` builds the graph.

    Parameters
    ----------
    n_passages : int
    doc_offsets : (n_documents + 1,) int64
        Where the passages of each document begin.
    titles : list of str
        Titles of the section nodes; may be empty.
    section_of : (n_passages,) int64
        The section node of each passage.
    parent : (n_sections,) int64
        The parent of each section, a section node; -1 for roots.
    root : (n_documents,) int64
        The section node that represents each document.
    doc_of : (n_nodes,) int64
        The document of each node.
    internal, external : (n, 2) int64
        Links from a node to a section node; repeated links are kept.
    n_self_links : int
        Number of links from a document to itself, which were dropped.

    Examples
    --------
    >>> from haybale.collections import CollectionBuilder
    >>> builder = CollectionBuilder("two laws", language="english")
    >>> for law in "ab":
    ...     number = builder.add_document(law)
    ...     section = builder.add_section(number, f"{law}1", f"Law {law}", None)
    ...     builder.add_passage(number, "Dogs.", f"{law}2", section)
    ...     builder.add_passage(number, "Cats.", f"{law}3", section)
    >>> builder.add_external_link("a3", "b")
    >>> graph = DocumentGraph.from_collection(builder.build())
    >>> graph
    DocumentGraph: 4 passages, 2 sections; edges: order 2, structural 4, internal 0, external 1, and their inverses
    >>> graph.cited(0)
    array([1])
    """

    n_passages: int
    doc_offsets: Ints
    titles: list[str]
    section_of: Ints
    parent: Ints
    root: Ints
    doc_of: Ints
    internal: Ints
    external: Ints
    n_self_links: int

    @classmethod
    def from_collection(cls, collection: Collection) -> Self:
        """Return the graph of a collection's sections and links.

        A document without a root section, or with several, gets a new one. A root section without a title gets the
        title of the document.

        Raises
        ------
        InputError
            The collection has neither sections nor links, the parents of its sections form a cycle, or a link leads to
            something that is not in the collection.
        """
        sections, links = collection.sections, collection.links
        if sections is None and links is None:
            raise InputError(
                f"collection {collection.name!r} has neither sections nor links to build a graph from; add some, or "
                "choose a ranker that needs no graph"
            )
        n_p, n_d, none = collection.n_passages, collection.n_documents, np.empty((0, 2), dtype=np.int64)
        if sections is None:
            sections = Sections(
                collection.doc_ids[:0], collection.doc_titles[:0], none[:, 0], np.zeros(n_d + 1, np.int64)
            )
        if links is None:
            links = Links(none, none, none)
        n_s, in_section = len(sections), collection.passages.sections
        if in_section is None:
            in_section = np.full(n_p, -1)
        for name, ends, sizes in (
            ("internal", links.internal, (n_p, n_s)),
            ("passage to document", links.passage_to_document, (n_p, n_d)),
            ("section to document", links.section_to_document, (n_s, n_d)),
            ("parent", np.stack([sections.parents, sections.parents], axis=1) + 1, (n_s + 1, n_s + 1)),
        ):
            if len(ends) and (ends.min() < 0 or (ends.max(axis=0) >= sizes).any()):
                raise InputError(
                    f"collection {collection.name!r}: a {name!r} link must lead to a passage, section or document in "
                    "it; correct the links"
                )
        section_doc = np.repeat(np.arange(n_d), np.diff(sections.doc_offsets))
        roots = np.flatnonzero(sections.parents < 0)
        single = np.bincount(section_doc[roots], minlength=n_d) == 1
        added = np.flatnonzero(~single)  # documents that get a new root
        root = np.empty(n_d, dtype=np.int64)
        root[section_doc[roots]] = n_p + roots
        root[added] = n_p + n_s + np.arange(len(added))
        parent = np.where(sections.parents < 0, -1, n_p + sections.parents)
        below = roots[~single[section_doc[roots]]]
        parent[below] = root[section_doc[below]]
        doc_of_passage = collection.passages.doc_of
        cites = [
            np.stack([ends[:, 0] + first, ends[:, 1]], axis=1)
            for ends, first in ((links.passage_to_document, 0), (links.section_to_document, n_p))
        ]
        external, doc_of = np.concatenate(cites), np.concatenate([doc_of_passage, section_doc, added])
        itself = doc_of[external[:, 0]] == external[:, 1]
        external = external[~itself]
        titles = [*sections.titles.to_pylist(), *([""] * len(added))]
        for node, title in zip((root - n_p).tolist(), collection.doc_titles.to_pylist(), strict=True):
            titles[node] = titles[node] if titles[node].strip() else title
        graph = cls(
            n_passages=n_p,
            doc_offsets=collection.passages.doc_offsets,
            titles=titles,
            section_of=np.where(in_section < 0, root[doc_of_passage], n_p + in_section),
            parent=np.concatenate([parent, np.full(len(added), -1)]),
            root=root,
            doc_of=doc_of,
            internal=links.internal + np.array([0, n_p]),
            external=np.stack([external[:, 0], root[external[:, 1]]], axis=1),
            n_self_links=int(itself.sum()),
        )
        _ = graph.levels
        return graph

    @property
    def n_documents(self) -> int:
        return len(self.root)

    @property
    def n_sections(self) -> int:
        return len(self.titles)

    @property
    def n_nodes(self) -> int:
        return self.n_passages + self.n_sections

    def __repr__(self) -> str:
        counts = ", ".join(f"{name} {len(ends):,}" for name, ends in self._forward().items())
        nodes = f"{self.n_passages:,} passages, {self.n_sections:,} sections"
        return f"DocumentGraph: {nodes}; edges: {counts}, and their inverses"

    def above(self, passage: int) -> list[int]:
        """Return the sections that contain a passage, from its own up to the root."""
        sections = [int(self.section_of[passage])]
        while (parent := int(self.parent[sections[-1] - self.n_passages])) >= 0:
            sections.append(parent)
        return sections

    @cached_property
    def levels(self) -> list[Ints]:
        """Sections (numbered from 0) by depth, the roots first; a cycle raises :class:`InputError`."""
        above = np.where(self.parent < 0, -1, self.parent - self.n_passages)
        depth = np.where(above < 0, 0, -1)
        levels = [np.flatnonzero(above < 0)]
        left = np.flatnonzero(above >= 0)
        while len(left):
            ready = depth[above[left]] == len(levels) - 1
            if not ready.any():
                title = self.titles[int(left[0])]
                raise InputError(f"section {title!r} must not be its own ancestor; correct the parents of sections")
            depth[left[ready]] = len(levels)
            levels.append(left[ready])
            left = left[~ready]
        return levels

    def _forward(self) -> dict[str, Ints]:
        """Return the edges ``(source, target)`` (n, 2) of the four relations without inverses."""
        follows = np.flatnonzero(self.doc_of[1 : self.n_passages] == self.doc_of[: max(0, self.n_passages - 1)])
        inner = np.flatnonzero(self.parent >= 0)
        into = np.stack([np.arange(self.n_passages), self.section_of], axis=1)
        within = np.stack([self.n_passages + inner, self.parent[inner]], axis=1)
        order = np.stack([follows, follows + 1], axis=1)
        structural = np.concatenate([into, within])
        return {"order": order, "structural": structural, "internal": self.internal, "external": self.external}

    @cached_property
    def edges(self) -> Edges:
        """All edges, without duplicates."""
        ends, kinds = [], []
        for name, forward in self._forward().items():
            for kind, pair in ((name, forward), (f"{name}_i", forward[:, ::-1])):
                ends.append(pair.astype(np.int32))
                kinds.append(np.full(len(pair), RELATIONS.index(kind), dtype=np.int8))
        both, relation = np.concatenate(ends), np.concatenate(kinds)
        del ends, kinds
        # Sorting one integer key for each edge in place takes a third of the time of lexsort.
        n, r = self.n_nodes, len(RELATIONS)
        if n * n * r >= 2**63:
            raise InputError(f"the edges of a graph of {n:,} nodes cannot be numbered in 64 bits; split the collection")
        keys = (both[:, 1].astype(np.int64) * r + relation) * n + both[:, 0]
        del both, relation
        keys.sort()
        keys = keys[np.append(True, keys[1:] != keys[:-1])] if len(keys) else keys
        source = (keys % n).astype(np.int32)
        keys //= n
        return Edges(source, (keys // r).astype(np.int32), (keys % r).astype(np.int8))

    @cached_property
    def _incoming(self) -> Ints:
        """The position (n_nodes + 1,) in ``edges`` of the first edge into each node."""
        return indptr_from_counts(np.bincount(self.edges.target, minlength=self.n_nodes))

    def edges_into(self, nodes: Ints, own: Ints | int = -1, mask: Mask | None = None) -> tuple[Ints, Ints, Ints]:
        """Return ``(position in nodes, source, relation)`` of the edges into nodes (n,).

        ``own``, (n,) or one for all, is the document that the query was taken from; ``mask`` hides some of its links.
        """
        counts = np.diff(self._incoming)[nodes]
        begins = indptr_from_counts(counts)
        at = np.repeat(self._incoming[nodes] - begins[:-1], counts) + np.arange(begins[-1])
        position = np.repeat(np.arange(len(nodes)), counts)
        source, relation = self.edges.source[at].astype(np.int64), self.edges.relation[at].astype(np.int64)
        if mask is not None:
            of = np.broadcast_to(own, len(nodes))[position]
            hidden = mask.hides(of, self.doc_of[source], self.doc_of[np.asarray(nodes)[position]])
            kept = ~(hidden & np.isin(relation, EXTERNAL))
            position, source, relation = position[kept], source[kept], relation[kept]
        return position, source, relation

    @cached_property
    def document_links(self) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
        """``(offsets, documents)``, ragged: the documents that each document cites, and those that cite it."""
        pairs = np.unique(self.doc_of[self.external], axis=0) if len(self.external) else np.empty((0, 2), np.int64)
        cites = indptr_from_counts(np.bincount(pairs[:, 0], minlength=self.n_documents)), pairs[:, 1]
        order = np.lexsort((pairs[:, 0], pairs[:, 1]))
        cited_by = indptr_from_counts(np.bincount(pairs[:, 1], minlength=self.n_documents)), pairs[order, 0]
        return cites, cited_by

    def cited(self, document: int) -> Ints:
        """Return the documents that a document cites."""
        offsets, documents = self.document_links[0]
        return documents[offsets[document] : offsets[document + 1]]

    def citing(self, document: int) -> Ints:
        """Return the documents that cite a document."""
        offsets, documents = self.document_links[1]
        return documents[offsets[document] : offsets[document + 1]]
