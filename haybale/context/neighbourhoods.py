"""The part of a graph that decides what attention layers make of some nodes, each with a copy of its own."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from haybale.collections.collection import Ints
from haybale.context.document_graph import RELATIONS, DocumentGraph, Mask

SELF = len(RELATIONS)  # the relation of a node to itself


class Neighbourhoods(NamedTuple):
    """Disjoint graphs side by side, in numbers of their own: the first nodes are the targets."""

    nodes: Ints  # (n,) nodes of the graph
    source: Ints  # (e,) edges, sorted by target
    target: Ints
    relation: Ints


def neighbourhoods(
    graph: DocumentGraph,
    targets: Ints,
    hops: int,
    own: Ints | int = -1,
    mask: Mask | None = None,
    *,
    context_only: bool = False,
) -> Neighbourhoods:
    """What ``hops`` attention layers read for each target, exactly.

    Parameters
    ----------
    graph : DocumentGraph
    targets : (t,) int
    hops : int
    own, mask : (t,) int, or one for all; Mask, optional
        The document of the query that looks at each target, and what of its links it must not see.
    context_only : bool
        Without the edges that go out of a target, in its own graph alone, and from it to itself: what is made of it
        then has nothing of it but, perhaps, how it asks. (Context-only graph attention, Albarède et al., section 2.2.)
    """
    n, own = graph.n_nodes, np.broadcast_to(own, len(targets))
    first = np.arange(len(targets)) * n + targets
    known, frontier = first, first
    sources, ends, relations = [], [], []
    for _ in range(hops):
        copy = frontier // n
        place, source, relation = graph.edges_into(frontier % n, own[copy], mask)
        if context_only:
            kept = source != targets[copy[place]]
            place, source, relation = place[kept], source[kept], relation[kept]
        sources.append(copy[place] * n + source)
        ends.append(frontier[place])
        relations.append(relation)
        frontier = np.setdiff1d(sources[-1], known)
        known = np.concatenate([known, frontier])
    order = np.argsort(known)

    def number(keys: Ints) -> Ints:
        return order[np.searchsorted(known, keys, sorter=order)]

    itself = np.arange(len(targets) if context_only else 0, len(known))
    source = np.concatenate([number(np.concatenate(sources)), itself])
    target = np.concatenate([number(np.concatenate(ends)), itself])
    relation = np.concatenate([*relations, np.full(len(itself), SELF)])
    by_target = np.argsort(target, kind="stable")
    return Neighbourhoods(known % n, source[by_target], target[by_target], relation[by_target])


def near(graph: DocumentGraph, document: int, hops: int) -> Ints:
    """Passages that attention of so many layers can reach through a link of a document: the only ones that a mask of
    its links changes."""
    ends = np.unique(graph.external[(graph.doc_of[graph.external] == document).any(axis=1)])
    for _ in range(hops - 1):  # every relation has its inverse, so what leads here is what is led to
        ends = np.union1d(ends, graph.edges_into(ends)[1])
    return ends[ends < graph.n_passages]
