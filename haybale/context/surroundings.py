"""What a context network reads around passages: means over relation paths, or neighbours edge by edge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from haybale.collections.collection import Ints
from haybale.context.document_graph import RELATIONS, Mask
from haybale.context.engine_graph import graph_of
from haybale.context.neighbourhoods import Neighbourhoods, near, neighbourhoods
from haybale.context.relation_paths import PATHS
from haybale.engine import Engine
from haybale.vectors import Floats

Behind: TypeAlias = "Iterator[tuple[Ints, Floats]]"  # nodes, and the vector that they have together


class PathSurroundings:
    """The means over ten relation paths: a passage attends to one vector for each path that leads somewhere.

    With ``context_only`` it does not attend to itself, and its vector is not added to the result.
    """

    relations = (*PATHS, "itself")
    n_layers = 1

    def __init__(self, engine: Engine, mask: Mask | None, context_only: bool) -> None:
        view = graph_of(engine)
        self.graph, self.paths, self.mask, self.context_only = view.graph, view.paths, mask, context_only
        self.values: Floats = engine.cached("node vectors", view.vectors.dense)
        self._sums = engine.cached("node sums", lambda: self.paths.sums(self.values))

    def read(self, passages: Ints, own: Ints | int) -> tuple[Floats, Neighbourhoods]:
        """Return what a network reads to put passages (t,) in context, for queries from documents ``own``."""
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
        """Return which passages (t,) links of a document can change, and thus hiding them."""
        linked = np.concatenate([self.graph.cited(own), self.graph.citing(own)])
        return np.isin(self.graph.doc_of[passages], linked)

    def behind(self, passage: int, own: int, around: Neighbourhoods, edge: int, read: Floats) -> Behind:
        """Iterate over the nodes behind an edge into a passage; their vectors sum to what the last layer read."""
        for path, nodes, weight in self.paths.neighbours(passage, own, self.mask):
            if path == PATHS[around.relation[edge]]:
                yield nodes, weight * self.values[nodes].sum(axis=0)


class EdgeSurroundings:
    """The neighbours by the paper's eight relations, layer by layer, as :class:`PathSurroundings` has means."""

    relations = (*RELATIONS, "itself")
    n_layers = 3

    def __init__(self, engine: Engine, mask: Mask | None, context_only: bool) -> None:
        view = graph_of(engine)
        self.graph, self.mask, self.context_only = view.graph, mask, context_only
        self.values: Floats = engine.cached("node vectors", view.vectors.dense)

    def read(self, passages: Ints, own: Ints | int) -> tuple[Floats, Neighbourhoods]:
        found = neighbourhoods(self.graph, passages, self.n_layers, own, self.mask, context_only=self.context_only)
        return self.values[found.nodes], found

    def changed(self, passages: Ints, own: int) -> NDArray[np.bool_]:
        return np.isin(passages, near(self.graph, own, self.n_layers))

    def behind(self, passage: int, own: int, around: Neighbourhoods, edge: int, read: Floats) -> Behind:
        source = around.source[edge]
        yield around.nodes[[source]], read[source]
