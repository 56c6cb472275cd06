"""The graph of structured, cited collections, and what stands around a passage there."""

from haybale.graph.document_graph import RELATIONS, DocumentGraph, Edges, Mask
from haybale.graph.node_vectors import NodeVectors
from haybale.graph.relation_paths import PATHS, RelationPaths

__all__ = ["PATHS", "RELATIONS", "DocumentGraph", "Edges", "Mask", "NodeVectors", "RelationPaths"]
