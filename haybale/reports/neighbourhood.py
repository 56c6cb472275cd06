"""Some queries, their nearest passages, their relevant ones, and others of the collection: what a picture shows.

Bönisch & Mehler, "Finding Needles in Emb(a)dding Haystacks: Legal Document Retrieval via Bagging and SVR
Ensembles", 2024, figure 1a: queries amid passages, each with a line to its relevant passage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from haybale.embeddings import encode_queries
from haybale.engine import Engine
from haybale.reports.study import Study
from haybale.retrieval.hits import NO_PASSAGE, Ints
from haybale.vectors import Matrix

QUERIES, NEIGHBOURS, OTHERS = 40, 20, 600
OPEN = 3  # relevant documents of a query at most


@dataclass(frozen=True)
class Neighbourhood:
    """Passages, then queries, as rows of ``vectors``; the other fields name rows by number.

    ``passages`` (n,) are the passage numbers of the first n rows; ``query_ids`` those of the rows after them.
    ``near`` and ``relevant``: for each query, rows of its nearest passages and, for each of its relevant documents, of
    the passage nearest to it; ``similarity`` (queries,) the greatest of the latter.
    """

    vectors: Matrix
    passages: Ints
    query_ids: list[str]
    near: list[Ints]
    relevant: list[Ints]
    similarity: list[float]

    @property
    def found(self) -> tuple[int, int]:
        """How many of the relevant passages are among the nearest of their query, and how many there are."""
        pairs = zip(self.near, self.relevant, strict=True)
        return sum(int(np.isin(relevant, near).sum()) for near, relevant in pairs), sum(map(len, self.relevant))


def neighbourhood(study: Study, engine: Engine, random_state: int) -> Neighbourhood:
    """Up to 40 measured queries by chance, 20 passages each, their relevant ones, and 600 others."""
    rng = np.random.default_rng(random_state)
    ids = sorted(study.query_ids)
    chosen = sorted(rng.choice(len(ids), size=min(QUERIES, len(ids)), replace=False).tolist())
    query_ids = [ids[place] for place in chosen]
    numbers = engine.collection.query_numbers(query_ids)
    index = engine.passages
    vectors = encode_queries(engine.encoder, engine.collection.queries.texts(numbers))
    own = engine.collection.queries.own[numbers]
    hits = index.search(vectors, min(NEIGHBOURS, len(index)), exclude=own).to_numpy()
    near = [row[row != NO_PASSAGE] for row in hits.passages]
    relevant, similarity = [], []
    for place, query in enumerate(query_ids):
        best, score = _best_passages(study, engine, query, vectors[place : place + 1])
        relevant.append(best)
        similarity.append(score)
    used = np.unique(np.concatenate([*near, *relevant, np.empty(0, dtype=np.int64)]).astype(np.int64))
    others = rng.choice(len(index), size=min(OTHERS, len(index)), replace=False)
    passages = np.concatenate([np.setdiff1d(others, used), used])
    row = {int(passage): place for place, passage in enumerate(passages)}
    return Neighbourhood(
        _stacked(index.vectors[passages], vectors),
        passages,
        query_ids,
        [np.array([row[int(passage)] for passage in part], dtype=np.int64) for part in near],
        [np.array([row[int(passage)] for passage in part], dtype=np.int64) for part in relevant],
        similarity,
    )


def _best_passages(study: Study, engine: Engine, query: str, vector: Matrix) -> tuple[Ints, float]:
    """Of each relevant document (the three nearest) the passage nearest to the query; and how near the nearest is."""
    offsets = engine.passages.doc_offsets
    found: list[tuple[float, int]] = []
    for document in engine.collection.document_numbers(study.relevant[query]).tolist():
        if offsets[document] < offsets[document + 1]:
            products = np.asarray(engine.passages.similarities(vector, document))[0]
            found.append((-float(products.max()), int(offsets[document] + products.argmax())))
    found.sort()
    passages = np.array([passage for _, passage in found[:OPEN]], dtype=np.int64)
    return passages, -found[0][0] if found else 0.0


def _stacked(passages: Any, queries: Any) -> Matrix:
    if sparse.issparse(passages):
        return sparse.vstack([passages, queries], format="csr")
    return np.concatenate([passages, queries]).astype(np.float32)
