"""Explanations: their shares sum to the prediction, and their pairs are training pairs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.worlds import candidates_with_features

from haybale.ensemble import SVREnsemble
from haybale.errors import InputError


@pytest.mark.parametrize("eta", [0.0, 0.5])
def test_shares_sum_to_the_prediction(eta: float) -> None:
    index, queries, relevant, candidates, features = candidates_with_features(8)
    values = features if eta else None
    ids = [f"query {i}" for i in range(40)]
    ensemble = SVREnsemble(4, eta=eta, threshold=0.3)
    ensemble.fit(index, queries, relevant, query_ids=ids, candidates=candidates, features=values)
    scores = ensemble.score_candidates(queries, candidates.passages, values)
    votes = ensemble.votes(queries, candidates.passages, values)
    for i, j in ((0, 0), (5, 3), (17, 11)):
        passage = index.passage_ids[int(candidates.passages[i, j])].as_py()
        given = {"features": features[i, j]} if eta else {}
        found = ensemble.explain(queries[[i]], passage, top=5, **given)
        shares = [item.share for item in found.pairs]
        assert len(shares) == 5
        assert found.prediction == math.fsum([*shares, found.others, *found.features, found.intercept])
        assert found.prediction == pytest.approx(scores[i, j], abs=1e-5)
        assert found.prediction == pytest.approx(found.bags.mean(), abs=1e-12)
        assert len(found.votes) == votes[i, j]
        assert len(found.features) == (2 if eta else 0)
        if eta:  # the share of a feature is the change of the prediction if it has its mean value
            for number in range(2):
                without = features[[i]][:, [j]].copy()
                without[..., number] = ensemble.features_.shift[number]
                left = ensemble.score_candidates(queries[[i]], candidates.passages[[i]][:, [j]], without)[0, 0]
                assert found.features[number] == pytest.approx(scores[i, j] - left, abs=1e-5)
            assert np.abs(found.features).max() > 1e-4
        everything = ensemble.explain(queries[[i]], passage, top=10**6, **given)
        every = [abs(item.share) for item in everything.pairs]
        assert every == sorted(every, reverse=True)
        assert every[:5] == list(map(abs, shares))
        assert (everything.others, everything.n_others) == (0, found.n_others + 5 - len(every))
        for item in everything.pairs:
            assert item.query_id.startswith("query ")
            document = index.doc_ids[int(index.doc_of[index.numbers([item.passage_id])[0]])].as_py()
            assert item.label == (document in relevant[int(item.query_id.split()[1])])
    with pytest.raises(InputError, match="'zz'"):
        ensemble.explain(queries[:1], "zz", **given)


def test_shares_of_repeated_pairs_and_of_pairs_with_two_labels_are_complete() -> None:
    """Bootstrapped bags repeat rows; in the injected protocol, a pair may be a positive and a negative."""
    index, queries, relevant, candidates, _ = candidates_with_features(8)
    published = {"strategy": "rows", "protocol": "injected", "overlap": 2, "gamma": (2.0, 1.0)}
    ensemble = SVREnsemble(3, **published).fit(index, queries, relevant, candidates=candidates)
    scores = ensemble.score_candidates(queries, candidates.passages)
    for i in (0, 9, 23):
        passage = index.passage_ids[int(candidates.passages[i, 0])].as_py()
        found = ensemble.explain(queries[[i]], passage, top=10**6)
        assert math.fsum(item.share for item in found.pairs) + found.intercept == pytest.approx(scores[i, 0], abs=1e-5)
        listed = [(item.query_id, item.passage_id, item.label) for item in found.pairs]
        assert len(listed) == len(set(listed))
    training_pairs = set(zip(ensemble.support_.query, ensemble.support_.passage, strict=True))
    assert len(listed) > len(training_pairs)  # some pairs have both labels
