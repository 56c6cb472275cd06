"""What the rankers of a comparison share: vectors, hits and scores of the queries they rank, each made once.

A part is a named set of queries: a split, or :data:`TRAIN_SAMPLE`, a random draw of the training queries. The
ensembles score training queries out of bag, so that what is learned from those scores holds for other queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from haybale.collections.collection import pick
from haybale.embeddings import encode_queries
from haybale.ensemble import SVREnsemble, pair_features
from haybale.experiments.indexes import Indexes, kept
from haybale.experiments.training import check_training, train
from haybale.retrieval import (
    PARM,
    BM25Index,
    Hits,
    ParagraphHits,
    PassageIndex,
    QueryNeighbours,
    Run,
    Vectors,
    pool,
    rank_documents,
)
from haybale.retrieval.hits import Ints
from haybale.vectors import Floats

TRAIN_SAMPLE = "train sample"


class Workbench(Indexes):
    """One collection, one configuration: its indexes, and what they find for the queries of any part."""

    # queries ------------------------------------------------------------------------------------------

    @kept
    def queries(self, part: str) -> Ints:
        """(m,) numbers of the part's queries; those of a sample ascend."""
        if part != TRAIN_SAMPLE:
            return self.collection.split(part).queries
        drawn = self.collection.split(self.settings.train_split).queries
        rng = np.random.default_rng(self.settings.random_state)
        size = min(len(drawn), self.settings.fusion_queries)
        return np.asarray(np.sort(rng.choice(drawn, size=size, replace=False)), dtype=np.int64)

    def depth(self, part: str) -> int:
        """Documents kept of each query: of training queries, no more than are learned from."""
        if part == TRAIN_SAMPLE:
            return min(self.settings.depth, self.settings.fusion_depth)
        return self.settings.train_document_candidates if self.is_training(part) else self.settings.depth

    def is_training(self, part: str) -> bool:
        """Whether the queries of the part are those that ensembles learn from."""
        return part in (TRAIN_SAMPLE, self.settings.train_split)

    @kept
    def places(self, part: str) -> Ints:
        """(m,) where the queries of the part stand among those of their split."""
        if part != TRAIN_SAMPLE:
            return np.arange(len(self.queries(part)))
        split = self.queries(self.settings.train_split)
        order = np.argsort(split)
        return np.asarray(order[np.searchsorted(split, self.queries(part), sorter=order)])

    def query_ids(self, part: str) -> list[str]:
        return pick(self.collection.queries.ids, self.queries(part))

    def texts(self, part: str) -> list[str]:
        return self.collection.queries.texts(self.queries(part))

    def own(self, part: str) -> Ints:
        """(m,) the document that each query was taken from, -1 for none."""
        return np.asarray(self.collection.queries.own[self.queries(part)])

    def own_with_passages(self, part: str) -> Ints:
        """(m,) the place of each query's own document among :attr:`with_passages`, -1 for none."""
        place = np.full(self.collection.n_documents + 1, -1)  # the last is for queries without one
        place[self.with_passages] = np.arange(len(self.with_passages))
        return place[self.own(part)]

    @kept
    def query_vectors(self, part: str) -> Floats:
        """(m, d), each query one vector."""
        whole = self._of_split("query_vectors", part)
        if whole is not None:
            return whole[self.places(part)]  # type: ignore[no-any-return]
        encoder = self.encoder
        with self.stage(f"encode {part} queries"):
            return encode_queries(encoder, self.texts(part))

    @kept
    def paragraphs(self, part: str) -> list[list[str]]:
        """The paragraphs of each query."""
        queries = self.collection.queries
        paragraphs = [queries.paragraphs_of(int(number)) for number in self.queries(part)]
        name = "query paragraphs" if part == self.settings.split else f"query paragraphs ({part})"
        self.facts[name] = sum(map(len, paragraphs))
        return paragraphs

    def _of_split(self, name: str, part: str, *more: int) -> Any | None:
        """What was made before for the split that a sample is drawn from, if anything was."""
        return self.made.get((name, self.settings.train_split, *more)) if part == TRAIN_SAMPLE else None

    # hits ---------------------------------------------------------------------------------------------

    @kept
    def neighbours(self, part: str) -> Hits:
        """Hits of queries as one vector each, as deep as a run may need."""
        index, vectors = self.index, self.query_vectors(part)
        # MaxP wants `depth` documents; three passages for each find nearly all of them.
        k = min(len(index), max(3 * self.depth(part), self.settings.candidates))
        with self.stage("search kNN", part):
            return index.search(vectors, k, exclude=self.own(part))

    @kept
    def paragraph_hits(self, part: str) -> ParagraphHits:
        """Hits of every paragraph of the queries, their vectors, and where queries begin."""
        paragraphs, index, encoder = self.paragraphs(part), self.index, self.encoder
        with self.stage("encode query paragraphs", part):
            vectors = encode_queries(encoder, [text for each in paragraphs for text in each])
        ends = np.cumsum([len(each) for each in paragraphs])
        vectors_of = [vectors[end - len(each) : end] for each, end in zip(paragraphs, ends, strict=True)]
        with self.stage("search query paragraphs", part):
            return self._paragraph_hits(part, index, vectors_of)

    @kept
    def lexical_paragraph_hits(self, part: str) -> ParagraphHits:
        """The same from BM25."""
        paragraphs, index = self.paragraphs(part), self.bm25("passage")
        with self.stage("search query paragraphs (BM25)", part):
            return self._paragraph_hits(part, index, paragraphs)

    def _paragraph_hits(self, part: str, index: PassageIndex | BM25Index, given: Sequence[Any]) -> ParagraphHits:
        parm = PARM(index, "rrf", n_hits=self.settings.parm_hits)
        return parm.search(given, exclude=self.own(part), query_ids=self.query_ids(part))

    @kept
    def searches(self, part: str, k: int) -> tuple[Hits, Hits]:
        """k passages from BM25 and k neighbours of each query."""
        whole = self._of_split("searches", part, k)
        if whole is not None:
            lexical, near = (taken(hits, self.places(part)) for hits in whole)
            return lexical, near
        index, bm25, own = self.index, self.bm25("passage"), self.own(part)
        k = min(k, len(index))
        # Only what is ranked is searched as deep as a run; of the training split a few candidates are enough.
        deep = part in (self.settings.split, TRAIN_SAMPLE) or ("neighbours", part) in self.made
        found = self.neighbours(part).top(k) if deep else None
        vectors = self.query_vectors(part)
        with self.stage(f"search candidates ({part})"):
            if found is None:
                found = index.search(vectors, k, exclude=own)
            return bm25.search(self.texts(part), k, exclude=own), found

    @kept
    def candidates(self, part: str, k: int) -> Hits:
        """The candidate pool: what either search found."""
        return pool(*self.searches(part, k))

    @kept
    def features(self, part: str, k: int) -> Floats:
        """Pair features of the pool."""
        candidates, searches = self.candidates(part, k), self.searches(part, k)
        index, vectors = self.index, self.query_vectors(part)
        with self.stage(f"pair features ({part})"):
            return pair_features(candidates, searches, index, vectors)

    # scores and runs ----------------------------------------------------------------------------------

    @kept
    def ensemble(self, name: str) -> SVREnsemble:
        """A fitted ensemble: ``"svr"`` or ``"svr-paper"``."""
        return train(self, name)

    @cached_property
    def query_neighbours(self) -> QueryNeighbours:
        """The training queries, and what was relevant to them."""
        train = self.settings.train_split
        check_training(self, "knn-queries")
        vectors, relevant = self.query_vectors(train), self.collection.relevant_ids(train)
        return QueryNeighbours(vectors, relevant, self.collection.doc_ids, query_ids=self.query_ids(train))

    @kept
    def memory(self, part: str) -> Hits:
        """The pool of the part with the scores of the ensemble ``svr``, in the order of the pool."""
        settings, ensemble = self.settings, self.ensemble("svr")
        candidates, vectors = self.candidates(part, settings.candidates), self.query_vectors(part)
        features = self.features(part, settings.candidates) if ensemble.eta else None
        with self.stage("score svr", part):
            return self.remembered(ensemble, part, candidates, vectors, features)

    def remembered(
        self, ensemble: SVREnsemble, part: str, candidates: Hits, vectors: Floats, features: Floats | None = None
    ) -> Hits:
        """Candidates with an ensemble's scores; of training queries, by the bags that did not see them."""
        passages = candidates.passages
        if self.is_training(part):
            scores = ensemble.out_of_bag_memory(self.places(part), vectors, passages, features)
        else:
            scores = ensemble.memory(vectors, passages, features)
        return Hits(passages, scores)

    def aggregated(
        self, part: str, name: str, hits: Hits, offsets: Ints | None = None, vectors: Vectors | None = None
    ) -> Run:
        """A run from hits by one aggregation."""
        return rank_documents(
            self.index,
            hits,
            self.query_ids(part),
            name,
            offsets,
            vectors=vectors,
            n_hits=None if offsets is None else self.settings.parm_hits,
            depth=self.depth(part),
        )


def taken(hits: Hits, rows: Ints) -> Hits:
    """Some rows of hits."""
    return Hits(hits.passages[rows], hits.scores[rows])
