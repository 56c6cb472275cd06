"""The part of a graph that attention layers read to compute their target nodes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from haybale.collections.collection import Ints
from haybale.context.document_graph import RELATIONS, DocumentGraph, Mask

SELF = len(RELATIONS)  # the relation of a node to itself


class Neighbourhoods(NamedTuple):
    """A subgraph whose rows are nodes, ordered by their distance from the targets.

    Of L layers, layer l computes the first ``sizes[L - l]`` rows from the first ``sizes[L - l + 1]``.
    """

    nodes: Ints  # (n,) the node of the graph in each row
    is_section: Any  # (n,) bool
    source: Any  # (e,) the row that each edge leaves
    target: Any  # (e,) the row that each edge enters
    relation: Any  # (e,) the relation of each edge, an index in RELATIONS or SELF
    sizes: tuple[int, ...]  # number of rows within 0, 1, … hops of the targets
    targets: Ints | slice  # (t,) the row of each target
    n_blind: int = 0  # number of first rows without a residual connection: a layer does not add their input


def neighbourhoods(
    graph: DocumentGraph,
    targets: Ints,
    hops: int,
    own: Ints | int = -1,
    mask: Mask | None = None,
    *,
    context_only: bool = False,
) -> Neighbourhoods:
    """Return the exact subgraph that ``hops`` attention layers read to compute the targets.

    Targets share rows, unless their queries are from different documents and a mask hides different links from them.

    Parameters
    ----------
    graph : DocumentGraph
    targets : (t,) int
        Nodes to compute.
    hops : int
        Number of layers.
    own : (t,) int, or one for all, default -1
        The document that the query of each target was taken from, -1 for none.
    mask : Mask, optional
        Which links of ``own`` are hidden.
    context_only : bool, default False
        Give each target its own rows, without edges out of the target, to others or to itself. The result then depends
        on the target only through its attention query (context-only graph attention, Albarède et al., section 2.2).
    """
    n, own = graph.n_nodes, np.broadcast_to(own, len(targets))
    if context_only:
        group, own_of = np.arange(len(targets)), own
    elif mask is None:
        group, own_of = np.zeros(len(targets), dtype=np.int64), np.array([-1])
    else:
        own_of, group = np.unique(own, return_inverse=True)
    keys, target_rows = np.unique(group * n + targets, return_inverse=True)  # a row is a node in a group of targets
    frontier, sizes = keys, [len(keys)]
    sources, ends, relations = [], [], []
    for _ in range(hops):
        position, source, relation = graph.edges_into(frontier % n, own_of[frontier // n], mask)
        of = frontier[position] // n
        if context_only:
            kept = source != targets[of]
            position, source, relation, of = position[kept], source[kept], relation[kept], of[kept]
        sources.append(of * n + source)
        ends.append(frontier[position])
        relations.append(relation)
        frontier = np.setdiff1d(sources[-1], keys)
        keys = np.concatenate([keys, frontier])
        sizes.append(len(keys))
    itself = np.arange(sizes[0] if context_only else 0, sizes[-2])
    order = np.argsort(keys)
    source, target = (
        np.concatenate([order[np.searchsorted(keys, np.concatenate(parts), sorter=order)], itself])
        for parts in (sources, ends)
    )
    relation = np.concatenate([*relations, np.full(len(itself), SELF)])
    by_target = np.argsort(target, kind="stable")
    source, target, relation = source[by_target], target[by_target], relation[by_target]
    nodes, n_blind = keys % n, sizes[0] if context_only else 0
    is_section = nodes >= graph.n_passages
    return Neighbourhoods(nodes, is_section, source, target, relation, tuple(sizes), target_rows, n_blind)


def passages_near(graph: DocumentGraph, document: int, hops: int) -> Ints:
    """Return the passages within ``hops`` of a document's links: hiding the links can change their context."""
    ends = np.unique(graph.external[(graph.doc_of[graph.external] == document).any(axis=1)])
    for _ in range(hops - 1):  # every relation has an inverse, so the edges into a node come from all of its neighbours
        ends = np.union1d(ends, graph.edges_into(ends)[1])
    return ends[ends < graph.n_passages]
