"""Search with a ranker, and show the best passages of each document and what each ranker adds to its score."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from haybale.collections import Collection, Queries
from haybale.collections.queries import queries_from
from haybale.parameters import COUNT, FROM_0, check_parameters
from haybale.retrieval.run import DEPTH
from haybale.search.best_passages import best_snippets
from haybale.search.explanation import Explanation
from haybale.search.hit_groups import grouped
from haybale.search.phrases import Phrases, find_phrases, parse_phrases
from haybale.search.query_batch import QueryBatch
from haybale.search.results import SearchResults
from haybale.search.search_hit import SearchHit, SourceShare
from haybale.search.snippets import Snippet
from haybale.search.taken_hits import Searched
from haybale.stopping_work import check_wanted

if TYPE_CHECKING:
    from haybale.engine import Engine
    from haybale.retrieval import Run


class Searchable(Protocol):
    """The attributes and methods of a fitted ranker that a search calls."""

    engine_: Engine

    def _check_fitted(self) -> None:
        """Raise an error if it is not fitted."""

    def _check_answers(self, queries: Queries | None) -> None:
        """Raise an error if it cannot rank queries; None is a new text."""

    def run(self, batch: QueryBatch, depth: int) -> Run:
        """Return the first documents of each query."""
        ...

    def explained(self, batch: QueryBatch, document: int) -> Explanation:
        """Explain the score of a document."""
        ...


def search(
    ranker: Searchable,
    text: str | Sequence[str],
    k: int,
    where: str | None = None,
    offset: int = 0,
    together: str | None = None,
) -> SearchResults:
    """Return what :meth:`haybale.Ranker.search` describes, without the first ``offset`` documents, or groups."""
    check_parameters("search", {"k": k, "offset": offset}, {"k": COUNT, "offset": FROM_0})
    query = "\n".join([text] if isinstance(text, str) else text)
    ranker._check_fitted()
    whole_engine = ranker.engine_.snapshot()
    all_documents = whole_engine.collection
    searched = Searched(all_documents.name, all_documents.n_documents, where)
    batch_and_phrases = _batch_and_phrases(ranker, text, where)
    if batch_and_phrases is None:
        return SearchResults(query, str(ranker), [], None if together is None else [], searched)
    batch, phrases = batch_and_phrases
    depth = offset + k if together is None else max(offset + k, DEPTH)
    # Explanations need a run of this depth, so that a shallower one would be made twice.
    ranked = ranker.run(batch, max(depth, DEPTH)).top(depth)["query"]
    if not ranked and phrases is not None:  # the phrases have no term that is indexed, as in "§ 5"
        ranked = phrases.first_documents(batch.engine, depth)
    ranks, groups = list(range(offset + 1, len(ranked) + 1)), None
    if together is not None:
        # Documents that the condition leaves out may say what belongs together.
        groups = grouped(whole_engine, [doc_id for doc_id, _ in ranked], together)[offset : offset + k]
        ranks = [rank for group in groups for rank in group.shown]
    ranked = [ranked[rank - 1] for rank in ranks]
    collection = batch.engine.collection
    numbers = collection.document_numbers([doc_id for doc_id, _ in ranked]).tolist()
    reasons = []
    for number in numbers:
        check_wanted()
        reasons.append(ranker.explained(batch, number))
    snippets = best_snippets(batch, numbers, reasons, phrases)
    hits = [
        SearchHit(
            rank, doc_id, score, title_of(collection, number), metadata_of(collection, number), best, _shares(reason)
        )
        for rank, (doc_id, score), number, best, reason in zip(ranks, ranked, numbers, snippets, reasons, strict=True)
    ]
    return SearchResults(query, str(ranker), hits, groups, searched)


def explain_hit(
    ranker: Searchable, text: str | Sequence[str], doc_id: str, where: str | None = None
) -> tuple[Explanation, list[Snippet]]:
    """Explain the score that a document has in :func:`search`, and return its best passages.

    There is no passage if the search does not find the document. InputError is raised for an unknown document.
    """
    batch_and_phrases = _batch_and_phrases(ranker, text, where)
    ranker.engine_.snapshot().collection.document_numbers([doc_id])  # raises for unknown documents
    if batch_and_phrases is None:
        return Explanation(str(ranker), "query", doc_id, None, None), []
    batch, phrases = batch_and_phrases
    number = int(batch.engine.collection.find_documents([doc_id])[0])
    if number < 0:
        return Explanation(str(ranker), "query", doc_id, None, None), []
    reason = ranker.explained(batch, number)
    return reason, [] if reason.score is None else best_snippets(batch, [number], [reason], phrases)[0]


def _batch_and_phrases(
    ranker: Searchable, text: str | Sequence[str], where: str | None
) -> tuple[QueryBatch, Phrases | None] | None:
    """Return a text as a batch of one query on the documents to search, and its phrases; None without documents."""
    ranker._check_fitted()
    ranker._check_answers(None)
    parsed = [parse_phrases(part) for part in ([text] if isinstance(text, str) else text)]
    quoted = [phrase for _, part_phrases in parsed for phrase in part_phrases]
    engine, phrases = ranker.engine_.snapshot(), None
    queries = queries_from(engine.collection, {"query": [bare for bare, _ in parsed]})
    if where is not None or quoted:
        is_searched = np.ones(engine.collection.n_documents, dtype=bool)
        if where is not None:
            is_searched = np.isin(np.arange(len(is_searched)), engine.documents_where(where))
        phrases = find_phrases(engine, quoted) if quoted else None
        has_text = np.diff(engine.collection.passages.doc_offsets) > 0
        is_searched &= has_text if phrases is None else phrases.documents
        if not is_searched.any():
            return None
        phrases = None if phrases is None else phrases.within(engine, is_searched)
        engine = engine.within(is_searched)
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
    """Return what each nested ranker adds to a score; the other shares are summed under the explaining ranker."""
    sums: defaultdict[str, float] = defaultdict(float)
    for share in reason.shares:
        sums[reason.ranker if share.of is None else share.of.ranker] += share.share
    source_shares = [SourceShare(source, float(total)) for source, total in sums.items()]
    return sorted(source_shares, key=lambda share: (-abs(share.share), share.source))
