"""The SVR ensemble over whole documents: rows [query ; document] in place of [query ; passage].

A document is one vector, so that what a bag learned of it from one query holds for the next, whichever passage that
would have met. The candidates are the first documents of every search there is, among them the documents of similar
training queries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from scipy import sparse

from haybale.collections.collection import numbers_of
from haybale.ensemble import SVREnsemble
from haybale.experiments.training import facts_of
from haybale.retrieval import Hits, Run, rank_documents
from haybale.retrieval.hits import from_flat

if TYPE_CHECKING:
    from haybale.experiments.workbench import Workbench

RunOf = Callable[["Workbench", str, str], Run]  # the run of a ranker, by name, for the queries of a part
SEARCHES = ("bm25", "bm25-doc", "knn", "knn-doc", "knn-queries")
SPARSE_GAMMA = (8.0, 2.5)  # two TF-IDF vectors are farther apart than two of LSA: a narrower kernel for queries


def rank_by_ensemble(bench: Workbench, part: str, run_of: RunOf) -> Run:
    """The pool of a part, ranked by memory; training queries by the bags that did not see them."""
    ensemble = trained(bench, run_of)
    candidates = pooled(bench, part, bench.settings.document_candidates, run_of)
    vectors = bench.query_vectors(part)
    with bench.stage("score svr-doc", part):
        hits = bench.remembered(ensemble, part, candidates, vectors)
        return rank_documents(bench.whole_documents, hits, bench.query_ids(part), depth=bench.depth(part))


def trained(bench: Workbench, run_of: RunOf) -> SVREnsemble:
    """The fitted ensemble, made once."""
    key = ("svr-doc",)
    if key not in bench.made:
        settings, index, train = bench.settings, bench.whole_documents, bench.settings.train_split
        chosen: dict[str, Any] = {"gamma": SPARSE_GAMMA} if sparse.issparse(index.vectors) else {}
        chosen |= {name: getattr(settings, name) for name in ("rows_per_bag", "random_state", "n_jobs")}
        ensemble = SVREnsemble(**(chosen | settings.ensemble | {"blend": False, "eta": 0.0}))
        vectors = bench.query_vectors(train)
        candidates = pooled(bench, train, settings.train_document_candidates, run_of)
        # A document without a passage has no vector, and no query's own document is an answer to it.
        known = set(index.doc_ids.to_pylist())
        relevant = [[doc for doc in ids if doc in known] for ids in bench.collection.relevant_ids(train)]
        with bench.stage("train svr-doc"):
            ensemble.fit(index, vectors, relevant, candidates=candidates, exclude=bench.own_with_passages(train))
        bench.made[key] = ensemble
        bench.facts["svr-doc"] = facts_of(ensemble, int(vectors.shape[0]))
    return bench.made[key]  # type: ignore[no-any-return]


def pooled(bench: Workbench, part: str, n: int, run_of: RunOf) -> Hits:
    """The first ``n`` documents of every search, as hits of :attr:`Workbench.whole_documents`; scores mean nothing."""
    index, queries = bench.whole_documents, len(bench.query_ids(part))
    rows, documents = [], []
    for name in SEARCHES:
        row, _, ids, _ = run_of(bench, name, part).top(n).flat()
        if name == "knn-queries":  # it knows documents by judgements, also those without a vector
            there = np.isin(np.asarray(ids.to_pylist(), dtype=object), index.doc_ids.to_pylist())
            row, ids = row[there], ids.filter(pa.array(there))
        names, place = np.unique(np.asarray(ids.to_pylist(), dtype=object), return_inverse=True)
        rows.append(row)
        documents.append(numbers_of(index.doc_ids, list(names), "document")[place] if len(names) else place)
    pairs = np.unique(np.concatenate(rows) * len(index) + np.concatenate(documents))
    return from_flat(queries, pairs // len(index), pairs % len(index), np.zeros(len(pairs), dtype=np.float32))
