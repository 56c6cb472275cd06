"""What is shown to a judge: a passage with marked terms; and the document that has its text, after changes."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace

from haybale.engine.reattaching import TextDigests
from haybale.errors import InputError
from haybale.review.judgement_store import Judgement
from haybale.review.marked_terms import marked_terms
from haybale.review.topic_ranking import TopicRanking
from haybale.search.snippets import Snippet, snippet_of


def where_shown(shown_rows: MutableMapping[str, Judgement], ranking: TopicRanking, doc_id: str) -> str:
    """Return the id that the text shown for a document has now; the documents may have changed since.

    If no document has that text any more, and this one has another text, InputError is raised. ``shown_rows``, what was
    shown by document, is moved to the id.
    """
    shown = shown_rows.get(doc_id)
    if shown is None or shown.document is None:
        return doc_id
    texts = TextDigests(ranking.collection)
    (present,) = texts.of([doc_id]).values()
    if present == shown.document:
        return doc_id
    del shown_rows[doc_id]
    candidates = texts.ids_with(shown.document)
    rows = (row for possible_id in (doc_id, *candidates) for row in ranking.state.rows_of(possible_id))
    if any(row.grade is not None and row.document == shown.document for row in rows):
        return doc_id  # what was shown has been judged, so this is about the present text
    if candidates:
        shown_rows[candidates[0]] = replace(shown, doc_id=candidates[0])
        return candidates[0]
    if present is not None:
        raise InputError(f"document {doc_id!r} has another text than was shown; read it and judge it again")
    return doc_id


def marked_passage(ranking: TopicRanking, passage: int, text: str, without: str | None = None) -> Snippet:
    """Return a passage with marked terms: those of a topic's text and of the other relevant documents."""
    snippet = snippet_of(ranking.collection, passage, [])
    spans = marked_terms(ranking.snapshot, text, snippet.text, ranking.relevant_terms(without=without))
    return replace(snippet, highlights=spans)
