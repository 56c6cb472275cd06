"""Explanations: shares that sum to the prediction, of pairs that were really taught, and that read well."""

from __future__ import annotations

import math

import numpy as np
import pytest
from worlds import candidates_with_features, word_collection

from haybale.ensemble import SVREnsemble
from haybale.errors import InputError
from haybale.retrieval import PassageIndex


@pytest.mark.parametrize("eta", [0.0, 0.5])
def test_shares_sum_to_the_prediction(eta: float) -> None:
    index, queries, relevant, candidates, features = candidates_with_features(8)
    given = {"candidates": candidates, "features": features} if eta else {"candidates": candidates}
    ids = [f"query {i}" for i in range(40)]
    ensemble = SVREnsemble(4, eta=eta, threshold=0.3).fit(index, queries, relevant, query_ids=ids, **given)
    scores = ensemble.score_candidates(queries, candidates.passages, features if eta else None)
    votes = ensemble.votes(queries, candidates.passages, features if eta else None)
    for i, j in ((0, 0), (5, 3), (17, 11)):
        passage = index.passage_ids[int(candidates.passages[i, j])].as_py()
        given = {"features": features[i, j]} if eta else {}
        found = ensemble.explain(queries[i], passage, top=5, **given)
        assert len(found.evidence) == 5
        shares = [item.share for item in found.evidence]
        assert found.prediction == math.fsum([*shares, found.others, found.intercept])
        assert found.prediction == pytest.approx(scores[i, j], abs=1e-5)
        assert found.prediction == pytest.approx(found.bags.mean(), abs=1e-12)
        assert len(found.votes) == votes[i, j]
        assert sorted(map(abs, shares), reverse=True) == list(map(abs, shares))
        everything = ensemble.explain(queries[i], passage, top=10**6, **given)
        assert everything.others == 0
        for bag in range(4):
            own = [item.by_bag.get(bag, 0.0) for item in everything.evidence]
            assert math.fsum(own) + ensemble.support_.intercept[bag] == pytest.approx(found.bags[bag], abs=1e-9)
        for item in everything.evidence:
            assert item.query_id.startswith("query ")
            document = index.doc_ids[int(index.doc_of[index.numbers([item.passage_id])[0]])].as_py()
            assert item.label == (document in relevant[int(item.query_id.split()[1])])
        assert list(found.to_frame()["share"]) == shares


def test_an_explanation_reads_well() -> None:
    """Ids, texts, the parts and the sum."""
    collection = word_collection()
    rng, train = np.random.default_rng(0), collection.split("train").queries
    index = PassageIndex.from_collection(collection, rng.normal(size=(24, 5)))
    queries, ids = rng.normal(size=(24, 5)), collection.queries.ids.take(train).to_pylist()
    ensemble = SVREnsemble(3, k=20).fit(index, queries, collection.relevant_ids("train"), query_ids=ids)
    passage = index.passage_ids[3].as_py()
    found = ensemble.explain(queries[0], passage, top=3, collection=collection)
    text = str(found)
    assert text.splitlines()[0].startswith(f"{passage}: ")
    assert "of 3 bags vote for it" in text
    assert "other training pairs" in text
    assert f"{found.intercept:+.4f}  intercept" in text
    assert found.evidence[0].query_text in collection.queries.texts(train)
    assert found.to_frame().loc[0, "passage_text"] == found.evidence[0].passage_text
    with pytest.raises(InputError, match="unknown passage id 'zz'"):
        ensemble.explain(queries[0], "zz")


@pytest.mark.parametrize("solver", ["product", "sklearn"])
def test_pairs_drawn_twice_and_pairs_with_two_labels_lose_no_share(solver: str) -> None:
    """Bootstrapped bags hold a row more than once; the injected protocol has a pair as positive and as negative."""
    index, queries, relevant, candidates, _ = candidates_with_features(8)
    published = {"strategy": "rows", "protocol": "injected", "overlap": 2, "gamma": (2.0, 1.0), "solver": solver}
    ensemble = SVREnsemble(3, **published).fit(index, queries, relevant, candidates=candidates)
    for i in (0, 9, 23):
        passage = index.passage_ids[int(candidates.passages[i, 0])].as_py()
        found = ensemble.explain(queries[i], passage, top=10**6)
        for bag in range(3):
            own = math.fsum(item.by_bag.get(bag, 0.0) for item in found.evidence)
            assert own + ensemble.support_.intercept[bag] == pytest.approx(found.bags[bag], abs=1e-9)
        listed = [(item.query_id, item.passage_id, item.label) for item in found.evidence]
        assert len(listed) == len(set(listed))
    taught = set(zip(ensemble.support_.query, ensemble.support_.passage, strict=True))
    assert len(listed) > len(taught)  # some pairs were taught both ways
