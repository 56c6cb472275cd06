"""Small random indexes, queries and collections for tests of the ensemble."""

from __future__ import annotations

import numpy as np

from haybale.collections import Collection, CollectionBuilder
from haybale.ensemble import CandidateRows
from haybale.retrieval import PassageIndex


def world(seed: int = 0, n_documents: int = 60, n_queries: int = 40, d: int = 6):
    """Return documents of 1 to 4 passages near a topic, and queries near the topic of their relevant document."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, size=n_documents)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    topics = rng.normal(size=(n_documents, d))
    vectors = np.repeat(topics, sizes, axis=0) + rng.normal(scale=0.3, size=(offsets[-1], d))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    index = PassageIndex(vectors, offsets, doc_ids=[f"d{i}" for i in range(n_documents)])
    answer = rng.integers(n_documents, size=n_queries)
    queries = topics[answer] + rng.normal(scale=0.5, size=(n_queries, d))
    queries = (queries / np.linalg.norm(queries, axis=1, keepdims=True)).astype(np.float32)
    return index, queries, [[f"d{i}"] for i in answer]


def features(rows: CandidateRows, queries: np.ndarray, passages: np.ndarray) -> np.ndarray:
    return np.concatenate([queries[rows.query], passages[rows.passage]], axis=1).astype(np.float64)


def random_rows(seed: int, n: int, n_queries: int, n_passages: int) -> CandidateRows:
    rng = np.random.default_rng(seed)
    return CandidateRows(
        np.sort(rng.integers(n_queries, size=n)).astype(np.int32),
        rng.integers(n_passages, size=n).astype(np.int32),
        rng.integers(2, size=n).astype(np.int8),
    )


def candidates_with_features(seed: int = 0, **sizes):
    """Return a world with candidates and two random features of each candidate."""
    index, queries, relevant = world(seed, **sizes)
    candidates = index.search(queries, 12)
    features = np.random.default_rng(seed).normal(size=(*candidates.passages.shape, 2)).astype(np.float32)
    return index, queries, relevant, candidates, features


def word_collection(n_train: int = 24, n_dev: int = 6, n_documents: int = 12) -> Collection:
    """Return documents of two passages, each with common words and a rare word of the document.

    A query, in descending order, has the rare word of its relevant document; its own document is the next one.
    """
    rng = np.random.default_rng(0)
    builder = CollectionBuilder("words", language="english")

    def drawn(n: int) -> str:
        return " ".join(f"word{i}" for i in np.minimum(rng.geometric(0.05, size=n), 60))

    for d in range(n_documents):
        builder.add_document(f"d{d}", [f"topic{d} {drawn(int(n))}" for n in rng.integers(3, 41, size=2)])
    for split, n in (("train", n_train), ("dev", n_dev)):
        for i in reversed(range(n)):
            asked = f"topic{i % n_documents}" if i % 3 else drawn(3)
            own = f"d{(i + 1) % n_documents}"
            builder.add_query(f"{split}{i}", [f"{asked} {drawn(2)}", asked], own=own, split=split)
            builder.add_judgement(split, f"{split}{i}", f"d{i % n_documents}")
    return builder.build()


def backwards(collection: Collection) -> Collection:
    """Return a collection with the same documents, queries and judgements, the last document first."""
    builder = CollectionBuilder(collection.name, language=collection.language)
    texts, offsets = collection.passages.texts.to_pylist(), collection.passages.doc_offsets.tolist()
    doc_ids = collection.doc_ids.to_pylist()
    for number in reversed(range(len(doc_ids))):
        builder.add_document(doc_ids[number], texts[offsets[number] : offsets[number + 1]])
    for split, part in collection.splits.items():
        for number in part.queries.tolist():
            own = int(collection.queries.own[number])
            found = collection.queries.ids[number].as_py(), collection.queries.paragraphs_of(number)
            builder.add_query(*found, own=None if own < 0 else doc_ids[own], split=split)
        for row in collection.qrels_frame(split).itertuples():
            builder.add_judgement(split, row.query_id, row.doc_id, row.relevance)
    return builder.build()
