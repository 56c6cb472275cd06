"""Passages in context: the graph of structured, cited collections, and the rankers that read it."""

from haybale.context.document_graph import RELATIONS, DocumentGraph, Edges, Mask
from haybale.context.engine_graph import NodeVectors
from haybale.context.graph_context import GraphContext
from haybale.context.linear_context import LinearContext
from haybale.context.linked_documents import LinkedDocuments
from haybale.context.relation_paths import PATHS, RelationPaths
from haybale.context.section_propagation import SectionPropagation
from haybale.context.token_context import TokenContext

__all__ = [
    "PATHS",
    "RELATIONS",
    "DocumentGraph",
    "Edges",
    "GraphContext",
    "LinearContext",
    "LinkedDocuments",
    "Mask",
    "NodeVectors",
    "RelationPaths",
    "SectionPropagation",
    "TokenContext",
]
__dir__ = __all__.copy  # dir() lists the public names only
