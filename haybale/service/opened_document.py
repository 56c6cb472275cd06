"""A document as its page shows it: its passages, what a query matches in them, and its links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from haybale.collections import Collection
from haybale.collections.collection import Ints, Links, take_strings
from haybale.engine import Engine
from haybale.review.combined_judgements import are_contradictory
from haybale.search.highlights import term_highlights
from haybale.search.phrases import parse_phrases
from haybale.search.search_hit import plain_metadata
from haybale.search.searching import metadata_of, title_of
from haybale.search.snippets import Snippet, snippet_of


@dataclass(frozen=True)
class OpenedDocument:
    """A document with some of its passages.

    Parameters
    ----------
    doc_id, title : str
        The title is the id if the document has none.
    metadata : dict
        The metadata that it has, by column.
    n_passages, offset : int
        The number of its passages, and of the first that is in ``passages``.
    passages : list of Snippet
        Passages in the order of the document. Terms of the query are marked.
    matching : list of Snippet
        The best passages for the query, at most two, the best first; empty without a query.
    cites, cited_by : list of (str, str)
        Ids and titles of linked documents, sorted by id.
    judged : dict of str to dict
        By topic, the latest grade of each judge, as far as the reader may see them.
    resolved : dict of str to int
        By topic, the grade of the resolution of a conflict.
    """

    doc_id: str
    title: str
    metadata: dict[str, Any]
    n_passages: int
    offset: int
    passages: list[Snippet]
    matching: list[Snippet]
    cites: list[tuple[str, str]]
    cited_by: list[tuple[str, str]]
    judged: dict[str, dict[str, int]]
    resolved: dict[str, int]

    @property
    def contradictory(self) -> list[str]:
        """The topics for which one judge found the document relevant and another not, and nobody has resolved it."""
        differing = [topic for topic, grades in self.judged.items() if are_contradictory(grades)]
        return [topic for topic in differing if topic not in self.resolved]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON; dates become ISO strings."""
        return {
            "doc_id": self.doc_id,
            "title": self.title,
            "metadata": plain_metadata(self.metadata),
            "n_passages": self.n_passages,
            "offset": self.offset,
            "passages": [passage.to_dict() for passage in self.passages],
            "matching": [passage.to_dict() for passage in self.matching],
            "cites": [{"doc_id": doc_id, "title": title} for doc_id, title in self.cites],
            "cited_by": [{"doc_id": doc_id, "title": title} for doc_id, title in self.cited_by],
            "judged": self.judged,
            "resolved": self.resolved,
            "contradictory": self.contradictory,
        }


def open_document(
    engine: Engine,
    doc_id: str,
    offset: int,
    limit: int,
    text: str,
    matching: list[Snippet],
    judged: dict[str, dict[str, int]],
    resolved: dict[str, int],
) -> OpenedDocument:
    """Return a document of a snapshot with at most ``limit`` passages from ``offset``; ``text`` is the query or empty.

    The passages are those before the engine cut them into pieces. An unknown id raises InputError.
    """
    collection = engine.whole
    number = int(collection.document_numbers([doc_id])[0])
    start, end = (int(bound) for bound in collection.passages.doc_offsets[number : number + 2])
    terms = {engine.analyzer: dict.fromkeys(engine.analyzer.terms(parse_phrases(text)[0]), 1.0)} if text else {}
    numbers = range(min(start + offset, end), min(start + offset + limit, end))
    texts = take_strings(collection.passages.texts, np.array(numbers, dtype=np.int64))
    marked = term_highlights(texts, [terms] * len(texts))
    passages = [snippet_of(collection, passage, spans) for passage, spans in zip(numbers, marked, strict=True)]
    cites, cited_by = linked_documents(collection, number)
    about = doc_id, title_of(collection, number), metadata_of(collection, number)
    return OpenedDocument(*about, end - start, offset, passages, matching, cites, cited_by, judged, resolved)


def passage_number(engine: Engine, doc_id: str, passage_id: str) -> int | None:
    """Return the number of a passage within its document, from 0; that of the whole passage for a piece of one.

    None if there is no such passage or document.
    """
    whole = engine.snapshot().whole
    document = int(whole.find_documents([doc_id])[0])
    if document < 0:
        return None
    first, end = whole.passages.doc_offsets[document : document + 2].tolist()
    ids = whole.passages.ids.slice(first, end - first).to_pylist()
    names = (passage_id, passage_id.rpartition("#")[0])
    return next((ids.index(name) for name in names if name in ids), None)


def linked_documents(collection: Collection, number: int) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the ids and titles of the documents that a document cites, and of those that cite it."""
    links = collection.links
    if links is None:
        return [], []
    sources, targets = _document_links(collection, links)
    named = []
    for others in (targets[sources == number], sources[targets == number]):
        linked = [other for other in np.unique(others).tolist() if other != number]
        named.append(sorted((str(collection.doc_ids[other].as_py()), title_of(collection, other)) for other in linked))
    return named[0], named[1]


def _document_links(collection: Collection, links: Links) -> tuple[Ints, Ints]:
    """Return the number of the citing document, and of the cited document, for each link."""
    sources = [collection.passages.doc_of[links.passage_to_document[:, 0]]]
    if collection.sections is not None:
        of_section = np.searchsorted(collection.sections.doc_offsets, links.section_to_document[:, 0], side="right") - 1
        sources.append(of_section)
        return np.concatenate(sources), np.concatenate(
            [links.passage_to_document[:, 1], links.section_to_document[:, 1]]
        )
    return sources[0], links.passage_to_document[:, 1]
