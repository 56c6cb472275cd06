"""Search with a ranker, and show of each document its best passages and what each ranker adds to its score."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from haybale.collections import Collection
from haybale.collections.queries import queries_from
from haybale.parameters import COUNT, FROM_0, check_parameters
from haybale.rankers.explanation import Explanation
from haybale.rankers.query_batch import QueryBatch
from haybale.retrieval.run import DEPTH
from haybale.search.best_passages import best_snippets
from haybale.search.phrases import Phrases, find_phrases, parse_phrases
from haybale.search.results import SearchHit, SearchResults, SourceShare
from haybale.search.snippets import Snippet
from haybale.stopping_work import check_wanted

if TYPE_CHECKING:
    from haybale.engine import Engine
    from haybale.retrieval import Run


class Searchable(Protocol):
    """What a search needs of a fitted ranker."""

    engine_: Engine

    def check_fitted(self) -> None:
        """Raise an error if it is not fitted."""

    def run(self, batch: QueryBatch, depth: int) -> Run:
        """Return the first documents of each query."""
        ...

    def explained(self, batch: QueryBatch, document: int) -> Explanation:
        """Explain the score of a document."""
        ...


def search(
    ranker: Searchable, text: str | Sequence[str], k: int, where: str | None = None, offset: int = 0
) -> SearchResults:
    """Return what :meth:`haybale.Ranker.search` describes, without the first ``offset`` documents."""
    check_parameters("search", {"k": k, "offset": offset}, {"k": COUNT, "offset": FROM_0})
    query, found = "\n".join([text] if isinstance(text, str) else text), _searched(ranker, text, where)
    if found is None:
        return SearchResults(query, str(ranker), [])
    batch, phrases = found
    # Explanations need a run of this depth, so that a shallower one would be made twice.
    ranked = ranker.run(batch, max(offset + k, DEPTH)).top(offset + k)["query"][offset:]
    collection = batch.engine.collection
    numbers = collection.document_numbers([doc_id for doc_id, _ in ranked]).tolist()
    reasons = []
    for number in numbers:
        check_wanted()
        reasons.append(ranker.explained(batch, number))
    snippets = best_snippets(batch, numbers, reasons, phrases)
    hits = [
        SearchHit(
            rank, doc_id, score, title_of(collection, number), metadata_of(collection, number), shown, _shares(reason)
        )
        for rank, ((doc_id, score), number, shown, reason) in enumerate(
            zip(ranked, numbers, snippets, reasons, strict=True), offset + 1
        )
    ]
    return SearchResults(query, str(ranker), hits)


def explain_hit(
    ranker: Searchable, text: str | Sequence[str], doc_id: str, where: str | None = None
) -> tuple[Explanation, list[Snippet]]:
    """Explain the score that a document has in :func:`search`, and return its best passages.

    There is no passage if the search does not find the document. InputError is raised for an unknown document.
    """
    found = _searched(ranker, text, where)
    ranker.engine_.snapshot().collection.document_numbers([doc_id])  # raises for unknown documents
    if found is None:
        return Explanation(str(ranker), "query", doc_id, None, None), []
    batch, phrases = found
    number = int(batch.engine.collection.find_documents([doc_id])[0])
    if number < 0:
        return Explanation(str(ranker), "query", doc_id, None, None), []
    reason = ranker.explained(batch, number)
    return reason, [] if reason.score is None else best_snippets(batch, [number], [reason], phrases)[0]


def _searched(
    ranker: Searchable, text: str | Sequence[str], where: str | None
) -> tuple[QueryBatch, Phrases | None] | None:
    """Return a text as a batch of one query on the documents to search; None if there is none."""
    ranker.check_fitted()
    parsed = [parse_phrases(part) for part in ([text] if isinstance(text, str) else text)]
    quoted = [phrase for _, each in parsed for phrase in each]
    engine, phrases = ranker.engine_.snapshot(), None
    queries = queries_from(engine.collection, {"query": [bare for bare, _ in parsed]})
    if where is not None or quoted:
        kept = np.ones(engine.collection.n_documents, dtype=bool)
        if where is not None:
            kept = np.isin(np.arange(len(kept)), engine.documents_where(where))
        found = find_phrases(engine, quoted) if quoted else None
        kept &= found.documents if found is not None else np.diff(engine.collection.passages.doc_offsets) > 0
        if not kept.any():
            return None
        phrases, engine = None if found is None else found.within(engine, kept), engine.within(kept)
    return QueryBatch(engine, queries), phrases


def title_of(collection: Collection, document: int) -> str:
    """Return the title of a document; its id if it has none."""
    title = str(collection.doc_titles[document].as_py() or "").strip()
    return title or str(collection.doc_ids[document].as_py())


def metadata_of(collection: Collection, document: int) -> dict[str, Any]:
    """Return the metadata that a document has."""
    if collection.metadata is None:
        return {}
    (row,) = collection.metadata.slice(document, 1).to_pylist()
    return {name: value for name, value in row.items() if value is not None}


def _shares(reason: Explanation) -> list[SourceShare]:
    """Return what each nested ranker adds to a score; shares of no nested ranker are the ranker's own."""
    sums: defaultdict[str, float] = defaultdict(float)
    for share in reason.shares:
        sums[reason.ranker if share.of is None else share.of.ranker] += share.share
    found = [SourceShare(source, float(value)) for source, value in sums.items()]
    return sorted(found, key=lambda each: (-abs(each.share), each.source))
