"""List documents without a query: those that a condition leaves, sorted by a column, part by part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from haybale.engine import Engine
from haybale.search import Snippet
from haybale.search.search_hit import plain_metadata
from haybale.search.searching import metadata_of, title_of
from haybale.search.snippets import snippet_of


@dataclass(frozen=True)
class ListedDocument:
    """A document of a list, with its first passage if it has one."""

    doc_id: str
    title: str
    metadata: dict[str, Any]
    n_passages: int
    snippets: list[Snippet]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON; dates become ISO strings."""
        return {
            "doc_id": self.doc_id,
            "title": self.title,
            "metadata": plain_metadata(self.metadata),
            "n_passages": self.n_passages,
            "snippets": [snippet.to_dict() for snippet in self.snippets],
        }


@dataclass(frozen=True)
class DocumentList:
    """A part of the documents that a condition leaves, and their number."""

    documents: list[ListedDocument]
    n_documents: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {"documents": [document.to_dict() for document in self.documents], "n_documents": self.n_documents}


def list_documents(
    engine: Engine, where: str | None, sort: str, descending: bool, offset: int, limit: int
) -> DocumentList:
    """Return ``limit`` documents from ``offset`` on, sorted as :meth:`haybale.Engine.documents_where` sorts them."""
    snapshot = engine.snapshot()
    numbers = snapshot.documents_where(where or None, sort, descending=descending)
    collection = snapshot.collection
    listed = []
    for number in numbers[offset : offset + limit].tolist():
        first, end = collection.passages.doc_offsets[number : number + 2].tolist()
        snippets = [snippet_of(collection, first, [])] if first < end else []
        doc_id, title = str(collection.doc_ids[number].as_py()), title_of(collection, number)
        listed.append(ListedDocument(doc_id, title, metadata_of(collection, number), end - first, snippets))
    return DocumentList(listed, len(numbers))


def default_order(engine: Engine) -> tuple[str, bool]:
    """Return the column by which documents are listed, and whether they descend: the newest first, else by title."""
    schema = engine.snapshot().documents_table().schema
    dates = [field.name for field in schema if pa.types.is_date(field.type)]
    return (dates[0], True) if dates else ("title", False)
