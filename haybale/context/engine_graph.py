"""The graph of an engine's documents, with the vectors of its nodes."""

from __future__ import annotations

from typing import NamedTuple

from haybale.collections.collection import Ints
from haybale.context.document_graph import DocumentGraph
from haybale.context.node_vectors import NodeVectors
from haybale.context.relation_paths import RelationPaths
from haybale.engine import Engine
from haybale.rankers.explanation import Share
from haybale.timing import timed


class EngineGraph(NamedTuple):
    """The graph of an engine's documents, its relation paths, and the vectors of its nodes."""

    graph: DocumentGraph
    paths: RelationPaths
    vectors: NodeVectors


def graph_of(engine: Engine) -> EngineGraph:
    """Return the graph of the documents that an engine has now; of an engine limited to some documents, of these."""

    def build() -> EngineGraph:
        with timed("build graph"):
            graph = DocumentGraph.from_collection(engine.collection)
            return EngineGraph(graph, RelationPaths(graph), NodeVectors(graph, engine.passages.vectors, engine.encoder))

    return engine.cached("graph", build)


def node_share(engine: Engine, nodes: Ints, share: float, relation: str = "") -> Share:
    """Return the share of a score that a passage, a section, or all passages of a document carry through a relation."""
    graph, collection, text = graph_of(engine).graph, engine.collection, None
    node = int(nodes[0])
    if len(nodes) > 1:
        what = f"document {collection.doc_ids[int(graph.doc_of[node])].as_py()}"
    elif node >= graph.n_passages:
        what = f"section “{graph.titles[node - graph.n_passages]}”"
    else:
        what = f"passage {collection.passages.ids[node].as_py()}"
        text = collection.passages.texts[node].as_py()
    return Share(f"{relation}: {what}" if relation else what, share, text)
