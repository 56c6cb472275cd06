"""The runs of a variation: the ensemble over documents fitted and asked as `svr-doc` is, with one thing changed.

Searches, vectors and pools are those of a workbench, made once; only the ensemble is fitted anew.
"""

from __future__ import annotations

import copy
import time
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from explore_variations import Variation
from scipy import sparse

from haybale.collections import Collection
from haybale.collections.collection import numbers_of
from haybale.embeddings import Chunking
from haybale.ensemble import CandidateRows, SVREnsemble, candidate_rows, pair_features
from haybale.experiments import Settings
from haybale.experiments.document_ensemble import SPARSE_GAMMA
from haybale.experiments.rankers import run_of
from haybale.experiments.workbench import TRAIN_SAMPLE, Workbench
from haybale.retrieval import Hits, PassageIndex, Run, rank_documents
from haybale.retrieval.hits import NO_PASSAGE, from_flat

PARTS = (TRAIN_SAMPLE, "dev")
DEEPEST = 30  # documents of each search that a training query may be taught with


class Benches:
    """The workbenches of a collection, by what they search with."""

    def __init__(self, collection: Collection, settings: Settings) -> None:
        self.collection, self.settings = collection, settings

    def report(self, stage: str, seconds: float) -> None:
        print(f"    {stage} {seconds:.1f} s", flush=True)

    @cached_property
    def tfidf(self) -> Workbench:
        return Workbench(self.collection, replace(self.settings, encoder="tfidf"), self.report)

    @cached_property
    def lsa(self) -> Workbench:
        return Workbench(self.collection, replace(self.settings, encoder="lsa"), self.report)

    @cached_property
    def chunked(self) -> Workbench:
        settings = replace(self.settings, encoder="tfidf", chunking=Chunking(100, 50))
        return Workbench(self.collection, settings, self.report)

    def of(self, variation: Variation) -> Workbench:
        if variation.chunked:
            return self.chunked
        return self.lsa if variation.space == "lsa" else self.tfidf


def branch(bench: Workbench, **changes: Any) -> Workbench:
    """A workbench that has what was made before; what it makes is its own."""
    other = copy.copy(bench)
    other.settings = replace(bench.settings, **changes)
    other.made, other.facts, other.seconds = dict(bench.made), dict(bench.facts), {}
    return other


def runs_of(benches: Benches, variation: Variation) -> tuple[dict[str, Run], float | None]:
    """The runs by part, and the seconds of the fit (None: nothing was fitted)."""
    bench = benches.of(variation)
    parts = PARTS if variation.out_of_bag else PARTS[1:]
    if variation.ranker != "svr-doc":
        if variation.ranker == "svr":  # what all that follow need
            _ = bench.candidates("train", bench.settings.train_candidates)
            _ = [bench.candidates(part, bench.settings.candidates) for part in parts]
        other = branch(bench, ensemble=variation.parameters)
        return {part: run_of(other, variation.ranker, part) for part in parts}, other.seconds.get("train svr")
    spaces = spaces_of(benches, variation)
    candidates = taught(bench, variation)
    _ = [vectors_of(spaces, "train"), [other.whole_documents for other in spaces]]  # made before the clock starts
    start = time.perf_counter()
    ensemble = fitted(bench, variation, spaces, candidates)
    seconds = time.perf_counter() - start
    return {part: ranked(bench, variation, spaces, ensemble, part) for part in parts}, seconds


def spaces_of(benches: Benches, variation: Variation) -> list[Workbench]:
    """The workbenches whose vectors the ensemble has."""
    return [benches.tfidf, benches.lsa] if variation.space == "both" else [benches.of(variation)]


def vectors_of(spaces: list[Workbench], part: str) -> Any:
    """The query vectors of a part: a matrix, or a list with one a space."""
    vectors = [bench.query_vectors(part) for bench in spaces]
    return vectors if len(vectors) > 1 else vectors[0]


def fitted(bench: Workbench, variation: Variation, spaces: list[Workbench], candidates: Hits) -> SVREnsemble:
    """The ensemble, as ``svr-doc`` makes it."""
    index, settings = bench.whole_documents, bench.settings
    chosen: dict[str, Any] = {"gamma": SPARSE_GAMMA} if sparse.issparse(index.vectors) else {}
    chosen |= {name: getattr(settings, name) for name in ("rows_per_bag", "random_state", "n_jobs")}
    ensemble = SVREnsemble(**(chosen | variation.parameters))
    relevant = relevant_of(bench, variation)
    if variation.symmetric:
        return symmetric(ensemble, bench, candidates, relevant)
    given: dict[str, Any] = {"spaces": [other.whole_documents.vectors for other in spaces[1:]]}
    if ensemble.eta:
        given["features"] = features_of(bench, "train", variation.taught, candidates)
    own = bench.own_with_passages("train")
    return ensemble.fit(index, vectors_of(spaces, "train"), relevant, candidates=candidates, exclude=own, **given)


def ranked(bench: Workbench, variation: Variation, spaces: list[Workbench], ensemble: SVREnsemble, part: str) -> Run:
    """The pool of a part by memory; training queries by the bags that did not see them."""
    candidates, features = pooled(bench, part, variation.ranked, variation.searches), None
    if ensemble.eta:
        features = features_of(bench, part, variation.ranked, candidates)
    if variation.intercepts:
        hits = bench.remembered(ensemble, part, candidates, vectors_of(spaces, part), features)
    else:
        hits = without_intercepts(bench, ensemble, part, candidates)
    return rank_documents(bench.whole_documents, hits, bench.query_ids(part), depth=bench.depth(part))


def without_intercepts(bench: Workbench, ensemble: SVREnsemble, part: str, candidates: Hits) -> Hits:
    """Scores Σ coef · K: within a query they order as the predictions do, but float32 holds even the smallest."""
    pairs, real, _ = ensemble._pairs(bench.query_vectors(part), candidates.passages, None)
    weights = ensemble._unseen_weights(bench.places(part)) if bench.is_training(part) else None
    scores = np.full(candidates.passages.shape, -np.inf, dtype=np.float32)
    bare = replace(ensemble.support_, intercept=np.zeros(ensemble.n_bags))
    scores[real] = bare.mean(pairs, weights)
    return Hits(candidates.passages, scores)


def relevant_of(bench: Workbench, variation: Variation) -> list[list[str]]:
    """Of each training query; none of those that the ensemble does not learn from."""
    known = set(bench.whole_documents.doc_ids.to_pylist())
    relevant = [[doc for doc in ids if doc in known] for ids in bench.collection.relevant_ids("train")]
    return [ids if kept else [] for ids, kept in zip(relevant, learned_from(bench, variation), strict=True)]


def learned_from(bench: Workbench, variation: Variation) -> np.ndarray:
    """(m,) whether the ensemble learns from a training query."""
    m = len(bench.queries("train"))
    return np.random.default_rng(bench.settings.random_state).permutation(m) < round(variation.share * m)


# pools ------------------------------------------------------------------------------------------------


def found(bench: Workbench, name: str, part: str, n: int) -> Hits:
    """The first documents of a search, as hits of the index of whole documents."""
    key = ("documents found", name, part, n)
    if key not in bench.made:
        rows, _, ids, scores = run_of(bench, name, part).top(n).flat()
        names, place = np.unique(np.asarray(ids.to_pylist(), dtype=object), return_inverse=True)
        documents = numbers_of(bench.whole_documents.doc_ids, list(names), "document")
        documents = documents[place] if len(names) else place
        bench.made[key] = from_flat(len(bench.query_ids(part)), rows, documents, scores.astype(np.float32))
    return bench.made[key]  # type: ignore[no-any-return]


def pooled(bench: Workbench, part: str, n: int, searches: tuple[str, ...]) -> Hits:
    """What any of the searches has among its first ``n``; by document."""
    m, size = len(bench.query_ids(part)), len(bench.whole_documents)
    flats = [found(bench, name, part, n).flat() for name in searches]
    pairs = np.unique(np.concatenate([flat[0] * size + flat[2] for flat in flats]))
    return from_flat(m, *np.divmod(pairs, size), np.zeros(len(pairs), dtype=np.float32))


def taught(bench: Workbench, variation: Variation) -> Hits:
    """The candidates of the training queries; -1 for those of queries that the ensemble does not learn from."""
    hits = pooled(bench, "train", variation.taught, variation.searches)
    if variation.random_negatives:
        hits = at_random(bench, hits)
    passages = np.where(learned_from(bench, variation)[:, None], hits.passages, NO_PASSAGE)
    return Hits(passages, np.where(passages == NO_PASSAGE, np.float32(-np.inf), hits.scores))


def at_random(bench: Workbench, hits: Hits) -> Hits:
    """As many documents of each query, drawn at random; what is relevant is added when rows are made of them."""
    rng, own = np.random.default_rng(bench.settings.random_state), bench.own_with_passages("train")
    size = len(bench.whole_documents)
    drawn = [
        rng.choice(np.delete(np.arange(size), [own[row]] if own[row] >= 0 else []), size=int(n), replace=False)
        for row, n in enumerate((hits.passages != NO_PASSAGE).sum(axis=1))
    ]
    rows, documents = np.repeat(np.arange(len(drawn)), [len(each) for each in drawn]), np.concatenate(drawn)
    return from_flat(len(drawn), rows, documents, np.zeros(len(rows), dtype=np.float32))


def features_of(bench: Workbench, part: str, n: int, candidates: Hits) -> np.ndarray:
    """Pair features of a pool: the cosine, and the share of each search's best score."""
    searches = [found(bench, name, part, n) for name in ("bm25", "bm25-doc", "knn", "knn-doc", "knn-queries")]
    return pair_features(candidates, searches, bench.whole_documents, bench.query_vectors(part))


# symmetric pairs --------------------------------------------------------------------------------------


def symmetric(ensemble: SVREnsemble, bench: Workbench, candidates: Hits, relevant: list[list[str]]) -> SVREnsemble:
    """Fitted on the candidate rows and on every relevant pair once more, the document as query, the query as document.

    The queries stand behind the documents in the index, and the documents that are relevant behind the queries.
    """
    index, queries, own = bench.whole_documents, bench.query_vectors("train"), bench.own_with_passages("train")
    m, n = queries.shape[0], len(index)
    query = np.repeat(np.arange(m), [len(ids) for ids in relevant])
    document = numbers_of(index.doc_ids, [doc for ids in relevant for doc in ids], "document")
    query, document = query[document != own[query]], document[document != own[query]]
    rows = candidate_rows("end-to-end", candidates, (query, document), index, queries)
    asked, place = np.unique(document, return_inverse=True)
    order = np.argsort(place, kind="stable")
    both = CandidateRows(
        np.concatenate((rows.query, m + place[order])).astype(np.int32),
        np.concatenate((rows.passage, n + query[order])).astype(np.int32),
        np.concatenate((rows.label, np.ones(len(order), dtype=np.int8))),
    )
    ids = [*index.doc_ids.to_pylist(), *(f"query {number}" for number in range(m))]
    stacked = PassageIndex(sparse.vstack([index.vectors, queries]).tocsr(), passage_ids=ids, doc_ids=ids)
    ensemble.fit_rows(stacked, sparse.vstack([queries, index.vectors[asked]]).tocsr(), both)
    # A bag that was taught a pair the other way round knows the query too.
    np.logical_or.at(ensemble.seen_, query, ensemble.seen_[m + place])
    return ensemble
