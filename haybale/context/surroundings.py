"""The inputs of a context network: the means over relation paths around a passage, or its neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from haybale.collections.collection import Ints
from haybale.context.document_graph import RELATIONS, Mask
from haybale.context.engine_graph import graph_of
from haybale.context.neighbourhoods import Neighbourhoods, neighbourhoods, passages_near
from haybale.context.relation_paths import PATHS
from haybale.engine import Engine
from haybale.vectors import Floats

NodeGroups: TypeAlias = "Iterator[tuple[Ints, Floats]]"  # nodes, and the sum of their weighted vectors


class PathSurroundings:
    """Means over ten relation paths: a passage attends to one vector for each path with nodes.

    With ``context_only`` a passage does not attend to itself, and the residual connection leaves its vector out.
    """

    relations = (*PATHS, "itself")
    n_layers = 1

    def __init__(self, engine: Engine, mask: Mask | None, context_only: bool) -> None:
        view = graph_of(engine)
        self.graph, self.paths, self.mask, self.context_only = view.graph, view.paths, mask, context_only
        self.values: Floats = engine.cached("node vectors", view.vectors.dense)
        self._sums = engine.cached("node sums", lambda: self.paths.sums(self.values))

    def read(self, passages: Ints, own: Ints | int) -> tuple[Floats, Neighbourhoods]:
        """Return the node vectors and the subgraph that a network reads to compute passages (t,) in context.

        ``own``, (t,) or one for all, is the document that the query was taken from, -1 for none.
        """
        t = np.arange(len(passages))
        means = self.paths.means(self.values, passages, own, self.mask, self._sums)
        target, relation = np.nonzero((means != 0).any(axis=2))
        values = np.concatenate([self.values[passages], means[target, relation]])
        source = np.arange(len(t), len(values))
        if not self.context_only:
            source, target = np.concatenate([source, t]), np.concatenate([target, t])
            relation = np.concatenate([relation, np.full(len(t), len(PATHS))])
        is_section, n_blind = np.zeros(len(values), dtype=bool), len(t) if self.context_only else 0
        sizes = len(t), len(values)
        return values, Neighbourhoods(passages, is_section, source, target, relation, sizes, slice(None), n_blind)

    def changed(self, passages: Ints, own: int) -> NDArray[np.bool_]:
        """Return a mask (t,) of the passages whose context can change when the links of document ``own`` are hidden."""
        linked = np.concatenate([self.graph.cited(own), self.graph.citing(own)])
        return np.isin(self.graph.doc_of[passages], linked)

    def edge_sources(self, passage: int, own: int, around: Neighbourhoods, edge: int, read: Floats) -> NodeGroups:
        """Yield the nodes that an edge into a passage summarises; their vectors sum to the last layer's input."""
        for path, nodes, weight in self.paths.neighbours(passage, own, self.mask):
            if path == PATHS[around.relation[edge]]:
                yield nodes, weight * self.values[nodes].sum(axis=0)


class EdgeSurroundings:
    """Neighbours by the paper's eight relations, with the interface of :class:`PathSurroundings`."""

    relations = (*RELATIONS, "itself")
    n_layers = 3

    def __init__(self, engine: Engine, mask: Mask | None, context_only: bool) -> None:
        view = graph_of(engine)
        self.graph, self.mask, self.context_only = view.graph, mask, context_only
        self.values: Floats = engine.cached("node vectors", view.vectors.dense)

    def read(self, passages: Ints, own: Ints | int) -> tuple[Floats, Neighbourhoods]:
        subgraph = neighbourhoods(self.graph, passages, self.n_layers, own, self.mask, context_only=self.context_only)
        return self.values[subgraph.nodes], subgraph

    def changed(self, passages: Ints, own: int) -> NDArray[np.bool_]:
        return np.isin(passages, passages_near(self.graph, own, self.n_layers))

    def edge_sources(self, passage: int, own: int, around: Neighbourhoods, edge: int, read: Floats) -> NodeGroups:
        source = around.source[edge]
        yield around.nodes[[source]], read[source]
