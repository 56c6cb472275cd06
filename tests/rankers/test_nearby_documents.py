"""Documents near those of another ranking, in the order of the collection."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest
from support.ranker_cases import batch_of

from haybale import Engine, Learned, NearbyDocuments, Run, load, parse
from haybale.collections import Collection


def expected_of(inner: Run, query: str, ids: list[str], distance: float, depth: int) -> list[tuple[str, float]]:
    """Return the ranking of a query, document by document."""
    first = [(ids.index(doc_id), score) for doc_id, score in inner[query][:depth] if score > 0]
    scores = {}
    for place, doc_id in enumerate(ids):
        summands = [
            score * math.exp(-abs(place - other) / distance)
            for other, score in first
            if 0 < abs(place - other) <= int(5 * distance)
        ]
        if summands:
            scores[doc_id] = sum(summands)
    return sorted(scores.items(), key=lambda ranked: (-ranked[1], ranked[0]))


@pytest.mark.parametrize(("text", "distance", "n_ranked"), [("knn-queries", 2.0, 100), ("bm25", 0.5, 3)])
def test_scores_are_sums_over_the_neighbours(
    topics: Collection, tmp_path: Path, text: str, distance: float, n_ranked: int
) -> None:
    engine = Engine.build(topics, tmp_path / "engine")
    ranker = parse(f"nearby({text},distance={distance},n_ranked={n_ranked})").fit(engine)
    inner, ids = parse(text).fit(engine), topics.doc_ids.to_pylist()
    for split, run, whole in (
        ("test", ranker.rank("test"), inner.rank("test")),
        ("train", ranker.out_of_fold("train"), inner.out_of_fold("train")),
    ):
        batch = batch_of(engine, split)
        for query, own in zip(batch.ids, batch.own.tolist(), strict=True):
            ranking = expected_of(whole, query, ids, distance, n_ranked)
            ranking = [row for row in ranking if own < 0 or row[0] != ids[own]]
            assert [score for _, score in run[query]] == pytest.approx([score for _, score in ranking])
            assert dict(run[query]) == pytest.approx(dict(ranking))
    ranker.save(tmp_path / "ranker")
    assert load(tmp_path / "ranker", Engine.open(tmp_path / "engine")).rank("test") == ranker.rank("test")


def test_places_are_those_of_the_documents_that_are_searched(topics: Collection) -> None:
    engine, chosen = Engine(topics), topics.doc_ids.to_pylist()[::2]
    inner, ranker = parse("bm25").fit(engine), parse("nearby(bm25,distance=1)").fit(engine)
    run, whole = ranker.rank("test", within=chosen), inner.rank("test", within=chosen)
    for query, own in zip(run.query_ids, batch_of(engine, "test").own.tolist(), strict=True):
        ranking = dict(expected_of(whole, query, chosen, 1, 100))
        ranking.pop(topics.doc_ids[own].as_py() if own >= 0 else "", None)
        assert dict(run[query]) == pytest.approx(ranking)


def test_an_explanation_names_the_neighbours(topics: Collection) -> None:
    engine = Engine(topics)
    ranker = NearbyDocuments(parse("knn-queries"), distance=2).fit(engine)
    run, batch = ranker.rank("test"), batch_of(engine, "test")
    row = next(row for row, query in enumerate(batch.ids) if run[query])
    doc_id, score = run[batch.ids[row]][0]
    explanation = ranker.explain(batch.queries.take([row]), doc_id)
    assert sum(share.share for share in explanation.shares) == pytest.approx(score)
    places = {name: place for place, name in enumerate(topics.doc_ids.to_pylist())}
    for share in explanation.shares:
        n, where, other = share.what.partition(",")[0].split()
        assert places[doc_id] == places[other] + {"after": 1, "before": -1}[where] * int(n)


def test_a_fusion_finds_unseen_neighbours_of_seen_documents() -> None:
    """Each statute has sections that were cited, and one that no query has cited and no text tells."""
    documents = {f"s{statute}-{section}": f"section{section}" for statute in range(8) for section in range(4)}
    queries = {
        f"q{statute}-{n}": f"topic{statute} case{statute}{n} fact{n}{statute}" for statute in range(8) for n in range(6)
    }
    documents["glossary"] = " ".join(queries.values())
    judged = [(query, f"{query[:2].replace('q', 's')}-{int(query[-1]) % 3}", 1) for query in queries]
    training = queries, pd.DataFrame(judged, columns=["query_id", "doc_id", "relevance"])
    engine = Engine(documents, language="none", encoder="tfidf(min_df=1)")
    similar = parse("knn-queries").fit(engine, *training).rank({"new": "topic3"})
    ranker = Learned(parse("knn-queries"), parse("nearby(knn-queries,distance=1)"), unseen_share=0.5)
    fused = ranker.fit(engine, *training).rank({"new": "topic3"})
    assert {doc_id for doc_id, _ in similar["new"]} == {"s3-0", "s3-1", "s3-2"}
    assert "s3-3" in [doc_id for doc_id, _ in fused["new"][:5]]
