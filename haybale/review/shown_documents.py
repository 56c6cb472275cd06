"""Find the document that has the text which was shown to a judge, after documents have changed."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace

from haybale.engine.reattaching import TextDigests
from haybale.errors import InputError
from haybale.review.judgement_store import Judgement
from haybale.review.topic_ranking import TopicRanking


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
