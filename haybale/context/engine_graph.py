"""The graph of an engine's documents, and the vectors of its nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.collections.collection import Ints
from haybale.context.document_graph import DocumentGraph
from haybale.context.relation_paths import RelationPaths
from haybale.device import is_sparse, to_numpy
from haybale.embeddings import Encoder, encode_texts
from haybale.engine import Engine
from haybale.retrieval.segmented_indexes import in_memory
from haybale.search.explanation import Share
from haybale.timing import timed
from haybale.vectors import Floats, Matrix

_SCORES_PER_PRODUCT = 2**26  # scores computed in one product: 256 MiB


class NodeVectors:
    """A vector for each node: a passage's own, and the vector of the title for a section, 0 if the title is empty.

    Parameters
    ----------
    graph : DocumentGraph
    passages : (n_passages, d) array or sparse matrix
        Vectors of the passages.
    encoder : Encoder
        Encodes the titles; equal titles are encoded once.
    """

    def __init__(self, graph: DocumentGraph, passages: Matrix, encoder: Encoder) -> None:
        self.graph = graph
        self.passages = to_numpy(passages)
        title_rows = {title: row for row, title in enumerate(dict.fromkeys(filter(str.strip, graph.titles)))}
        vectors: Any = encode_texts(encoder, list(title_rows)) if title_rows else self.passages[:0]
        rows = np.array([title_rows.get(title, len(title_rows)) for title in graph.titles], dtype=np.int64)
        width = self.passages.shape[1]
        if self.is_sparse:
            self.titles = sparse.vstack([vectors, sparse.csr_matrix((1, width), dtype=np.float32)], format="csr")[rows]
        else:
            self.titles = np.concatenate([to_numpy(vectors), np.zeros((1, width), dtype=np.float32)])[rows]

    @property
    def is_sparse(self) -> bool:
        return bool(is_sparse(self.passages))

    def dense(self) -> Floats:
        """Return all vectors (n_nodes, d) as one array; only for dense vectors."""
        return np.concatenate([np.asarray(self.passages, dtype=np.float32), self.titles])

    def scores(self, queries: Matrix) -> Iterator[NDArray[np.float32]]:
        """Yield for each of the queries (m, d) its inner products (n_nodes,) with all nodes."""
        query_vectors, n = to_numpy(queries), self.graph.n_nodes
        if self.is_sparse:  # one query at a time, so that its scores do not depend on the others
            for row in range(query_vectors.shape[0]):
                query = query_vectors[row].toarray()[0]
                yield np.concatenate([self.passages @ query, self.titles @ query])
            return
        step = max(1, _SCORES_PER_PRODUCT // n)
        for start in range(0, len(query_vectors), step):
            block = np.asarray(query_vectors[start : start + step], dtype=np.float32)
            yield from np.concatenate(
                [block @ np.asarray(part, np.float32).T for part in (self.passages, self.titles)], axis=1
            )


class EngineGraph(NamedTuple):
    """The graph of an engine's documents, its relation paths, and the vectors of its nodes."""

    graph: DocumentGraph
    paths: RelationPaths
    vectors: NodeVectors


def graph_of(engine: Engine) -> EngineGraph:
    """Return the graph of the documents that the engine has now, cached on the engine.

    If the engine is limited to some documents, the graph contains only these.
    """

    def build() -> EngineGraph:
        with timed("build graph"):
            graph = DocumentGraph.from_collection(engine.collection)
            return EngineGraph(
                graph, RelationPaths(graph), NodeVectors(graph, in_memory(engine.passages.vectors), engine.encoder)
            )

    return engine.cached("graph", build)


def node_share(engine: Engine, nodes: Ints, share: float, relation: str = "") -> Share:
    """Return the share of a score that nodes contribute through a relation, with a name for the nodes.

    ``nodes`` is one passage, one section, or all passages of a document.
    """
    graph, collection, text, passage_id = graph_of(engine).graph, engine.collection, None, None
    node = int(nodes[0])
    if len(nodes) > 1:
        what = f"document {collection.doc_ids[int(graph.doc_of[node])].as_py()}"
    elif node >= graph.n_passages:
        what = f"section “{graph.titles[node - graph.n_passages]}”"
    else:
        passage_id = collection.passages.ids[node].as_py()
        what = f"passage {passage_id}"
        text = collection.passages.texts[node].as_py()
    return Share(f"{relation}: {what}" if relation else what, share, text, passage_id=passage_id)
