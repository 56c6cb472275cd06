"""Metamorphic laws: the order of documents changes no ranking and no score, in whole engines, views and segments.

Few words make equal scores frequent, and few hits cut lists between equal scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.topics import SVR

from haybale import BM25, KNN, PARM, RRF, Engine, SimilarQueries, TfidfEncoder
from haybale.analysis import Analyzer
from haybale.collections import Collection, CollectionBuilder
from haybale.rankers import Ranker, parse
from haybale.retrieval import AGGREGATIONS, Run

WORDS = ["dog", "cat", "tax", "road"]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
DOCUMENTS = st.lists(st.lists(TEXTS, min_size=1, max_size=4), min_size=6, max_size=14)
QUERIES = {"q1": ["dog cat", "tax"], "q2": ["road road dog", "cat", "dog"], "q3": ["tax"]}
TFIDF = TfidfEncoder(min_df=1, analyzer=Analyzer("english")).fit([*WORDS, "dog dog cat", "tax"])


class FewVectors:
    """A fixed dense encoder: the counts of three words, so that many vectors are equal."""

    dim = 3

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([[text.split().count(word) for word in WORDS[:3]] for text in texts], dtype=np.float32)

    def describe(self) -> dict[str, Any]:
        return {"class": "FewVectors"}


ENCODERS = {"sparse": TFIDF, "dense": FewVectors()}
AGGREGATED = [
    *(PARM(name, n_hits=4) for name in AGGREGATIONS),
    PARM("rrf", n_hits=5, occurrences="best"),
    *(PARM(name, over="bm25", n_hits=3) for name, formula in AGGREGATIONS.items() if formula.vectors is None),
]
RANKERS: list[Ranker] = [BM25(), BM25("document", k3=0), KNN(), KNN("document"), KNN("first passage"), *AGGREGATED]
RANKERS += [RRF(BM25(), KNN("document"), PARM("rrf", n_hits=4)), SimilarQueries(k=2), RRF(SimilarQueries(), BM25())]


def collection_of(documents: list[list[str]], order: Sequence[int]) -> Collection:
    """Return the documents in an order; their ids are not in the order of the numbers."""
    builder = CollectionBuilder("ordered", language="english")
    for number in order:
        builder.add_document(name(number), documents[number])
    for query, paragraphs in QUERIES.items():
        builder.add_query(query, paragraphs, split="train")
        builder.add_judgement("train", query, name(len(query) % len(documents)))
    for number in (3, 1, 2):
        builder.add_query(f"same{number}", ["dog tax"], split="train")  # equal queries: which are neighbours?
        builder.add_judgement("train", f"same{number}", name(number))
    return builder.build()


def name(number: int) -> str:
    return f"d{number * 7 % 15}"


def ranked(ranker: Ranker, depth: int = 5, **within: Any) -> dict[str, list[tuple[str, float]]]:
    run = ranker.rank(QUERIES, depth=depth, **within)
    return {query: run[query] for query in run.query_ids}


@pytest.mark.filterwarnings("ignore::haybale.EmptyRankingWarning")
@pytest.mark.parametrize("encoder", [pytest.param("dense", marks=pytest.mark.thorough), "sparse"])
@settings(max_examples=6, deadline=None)
@given(documents=DOCUMENTS, data=st.data())
def test_the_order_of_documents_changes_no_ranking(
    encoder: str, documents: list[list[str]], data: st.DataObject
) -> None:
    n = len(documents)
    some = [name(number) for number in data.draw(st.lists(st.integers(0, n - 1), min_size=1, unique=True))]
    first, *others = (
        Engine(collection_of(documents, order), encoder=ENCODERS[encoder])
        for order in (range(n), range(n)[::-1], data.draw(st.permutations(range(n))))
    )
    for ranker in RANKERS:
        expected = ranker.clone().fit(first)
        for engine in others:
            found = ranker.clone().fit(engine)
            for depth in (2, 100):
                assert ranked(found, depth) == ranked(expected, depth), ranker
            assert ranked(found, within=some) == ranked(expected, within=some), ranker


@pytest.mark.filterwarnings("ignore::haybale.EmptyRankingWarning")
@pytest.mark.parametrize("encoder", [pytest.param("dense", marks=pytest.mark.thorough), "sparse"])
@settings(max_examples=6, deadline=None)
@given(documents=DOCUMENTS, data=st.data())
def test_an_engine_grown_in_any_order_ranks_as_one_of_all_documents(
    encoder: str, documents: list[list[str]], data: st.DataObject
) -> None:
    n, how = len(documents), {"encoder": ENCODERS[encoder], "language": "english"}
    whole = Engine(collection_of(documents, range(n)), encoder=ENCODERS[encoder])
    order = data.draw(st.permutations(range(n)))
    cuts = [0, *sorted(data.draw(st.sets(st.integers(1, n - 1), min_size=1, max_size=3))), n]
    parts = [{name(i): documents[i] for i in order[start:end]} for start, end in pairwise(cuts)]
    grown = Engine(parts[0], **how)
    if data.draw(st.booleans()):
        ranked(BM25().fit(grown))  # makes an index, which is extended then
        ranked(KNN().fit(grown))
    for part in parts[1:]:
        grown.add(part)
    for ranker in (each for each in RANKERS if not each.needs_training):
        assert ranked(ranker.clone().fit(grown)) == ranked(ranker.clone().fit(whole)), ranker


def permuted(collection: Collection, order: np.ndarray) -> Collection:
    """Return a collection with its documents in another order."""
    builder = CollectionBuilder(collection.name, language=collection.language)
    ids, offsets, texts = collection.doc_ids.to_pylist(), collection.passages.doc_offsets, collection.passages.texts
    for number in order.tolist():
        builder.add_document(ids[number], texts[int(offsets[number]) : int(offsets[number + 1])].to_pylist())
    queries = collection.queries
    splits = {int(q): split for split, part in collection.splits.items() for q in part.queries}
    for number, query in enumerate(queries.ids.to_pylist()):
        own = int(queries.own[number])
        paragraphs = queries.paragraphs_of(number)
        builder.add_query(query, paragraphs, own=None if own < 0 else ids[own], split=splits[number])
    for split in collection.splits:
        for query, document, grade in collection.qrels_frame(split)[["query_id", "doc_id", "relevance"]].to_numpy():
            builder.add_judgement(split, query, document, int(grade))
    return builder.build()


@pytest.mark.filterwarnings("ignore:.* bags have no relevant row")
@pytest.mark.parametrize("text", [f"svr({SVR})", f"svr-memory({SVR})", f"learned(bm25,knn,svr({SVR}),depth=20)"])
def test_trained_rankers_give_the_same_scores_up_to_rounding(topics: Collection, text: str) -> None:
    """The solver sums in the order of rows, so the scores of trained rankers are equal up to its tolerance."""
    encoder = TfidfEncoder(min_df=1, analyzer=Analyzer("english")).fit(topics.passages.texts.to_pylist())
    order = np.random.default_rng(0).permutation(topics.n_documents)
    runs: list[Run] = [
        parse(text).fit(Engine(each, encoder=encoder)).rank("dev") for each in (topics, permuted(topics, order))
    ]
    for query in runs[0].query_ids:
        first, second = (dict(run[query]) for run in runs)
        assert second == pytest.approx(first, rel=1e-3, abs=1e-4)
