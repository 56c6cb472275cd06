"""Search with a ranker, and show of each document its best passages and what each ranker adds to its score."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from haybale.collections import Collection
from haybale.collections.queries import queries_from
from haybale.parameters import COUNT, check_parameters
from haybale.rankers.explanation import Explanation
from haybale.rankers.query_batch import QueryBatch
from haybale.retrieval.run import DEPTH
from haybale.search.best_passages import best_snippets
from haybale.search.phrases import find_phrases, parse_phrases
from haybale.search.results import SearchHit, SearchResults, SourceShare

if TYPE_CHECKING:
    from haybale.rankers.ranker import Ranker


def search(ranker: Ranker, text: str | Sequence[str], k: int, where: str | None = None) -> SearchResults:
    """Return what :meth:`haybale.Ranker.search` describes."""
    check_parameters("search", {"k": k}, {"k": COUNT})
    ranker.check_fitted()
    parts = [text] if isinstance(text, str) else list(text)
    parsed = [parse_phrases(part) for part in parts]
    quoted = [phrase for _, each in parsed for phrase in each]
    engine, query, phrases = ranker.engine_.snapshot(), "\n".join(parts), None
    queries = queries_from(engine.collection, {"query": [bare for bare, _ in parsed]})
    if where is not None or quoted:
        kept = np.ones(engine.collection.n_documents, dtype=bool)
        if where is not None:
            kept = np.isin(np.arange(len(kept)), engine.documents_where(where))
        found = find_phrases(engine, quoted) if quoted else None
        kept &= found.documents if found is not None else np.diff(engine.collection.passages.doc_offsets) > 0
        if not kept.any():
            return SearchResults(query, str(ranker), [])
        phrases, engine = None if found is None else found.within(engine, kept), engine.within(kept)
    batch = QueryBatch(engine, queries)
    # Explanations need a run of this depth, so that a shallower one would be made twice.
    ranked = ranker.run(batch, max(k, DEPTH)).top(k)["query"]
    collection = batch.engine.collection
    numbers = collection.document_numbers([doc_id for doc_id, _ in ranked]).tolist()
    reasons = [ranker.explained(batch, number) for number in numbers]
    snippets = best_snippets(batch, numbers, reasons, phrases)
    hits = [
        SearchHit(
            rank, doc_id, score, title_of(collection, number), metadata_of(collection, number), shown, _shares(reason)
        )
        for rank, ((doc_id, score), number, shown, reason) in enumerate(
            zip(ranked, numbers, snippets, reasons, strict=True), 1
        )
    ]
    return SearchResults(query, str(ranker), hits)


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
