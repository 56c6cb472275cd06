"""What stands beside the memory of an ensemble: pair features, routed bags, out-of-bag scores, explanations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse
from worlds import candidates_with_features, world

from haybale.ensemble import CandidateRows, SVREnsemble, candidate_rows, feature_names, pair_features
from haybale.errors import InputError
from haybale.retrieval import Hits, pool

NONE = -np.inf


# pair features --------------------------------------------------------------------------------------------


def test_pair_features_by_hand() -> None:
    index, queries, _ = world()
    queries = 3 * queries[:2]
    lexical = Hits(np.array([[4, 7, -1], [-1, -1, -1]]), np.array([[8, 2, NONE], [NONE] * 3], dtype=np.float32))
    nearest = Hits(np.array([[7, 9], [3, 2]]), np.array([[0.5, 0.4], [0.9, 0.3]], dtype=np.float32))
    candidates = pool(lexical, nearest)
    assert candidates.passages.tolist() == [[4, 7, 9], [3, 2, -1]]
    found = pair_features(candidates, [lexical, nearest], index, queries)
    assert found.shape == (2, 3, len(feature_names()))
    cosine = [
        [q @ index.vectors[p] / np.linalg.norm(q) if p >= 0 else 0 for p in row]
        for q, row in zip(queries, candidates.passages, strict=True)
    ]
    np.testing.assert_allclose(found[:, :, 0], cosine, atol=1e-6)
    # A search that did not find a passage has its last hit's score and no rank; one without hits has nothing.
    np.testing.assert_allclose(found[0, :, 1], [1, 2 / 8, 2 / 8])
    np.testing.assert_allclose(found[0, :, 2], [0.4 / 0.5, 1, 0.4 / 0.5])
    assert not found[1, :, 1].any()
    assert not found[1, 2].any()
    ranked = pair_features(candidates, [lexical, nearest], index, queries, ranks=True)
    np.testing.assert_array_equal(ranked[:, :, [0, 1, 3]], found)
    np.testing.assert_allclose(ranked[0, :, 2], [1, 1 / 2, 0])
    np.testing.assert_allclose(ranked[0, :, 4], [0, 1, 1 / 2])
    wide = [sparse.random(n, 9, density=0.6, random_state=3, dtype=np.float32).tocsr() for n in (2, len(index))]
    lengths = np.arange(len(index))
    more = pair_features(candidates, [lexical], index, queries, spaces=[(wide[0], wide[1])], lengths=lengths)
    assert more.shape[2] == len(feature_names(["bm25"], spaces=1, lengths=True))
    q, p = wide[0].toarray()[0], wide[1].toarray()[candidates.passages[0]]
    np.testing.assert_allclose(more[0, :, 1], p @ q / np.linalg.norm(p, axis=1) / np.linalg.norm(q), atol=1e-6)
    np.testing.assert_allclose(more[0, :, 3], np.log1p(candidates.passages[0]), rtol=1e-6)
    with pytest.raises(InputError, match="of the 2 queries that have candidates"):
        pair_features(candidates, [lexical], index, queries[:1])


def test_a_passage_added_for_its_label_has_no_evidence() -> None:
    """Whatever its features were, the model is the same: they cannot give it away."""
    index, queries, relevant, candidates, features = candidates_with_features()
    pairs = np.arange(len(queries)), np.array([int(ids[0][1:]) for ids in relevant])
    rows = candidate_rows("end-to-end", candidates, pairs, index, queries)
    assert (rows.place == -1).any()
    assert rows.label[rows.place == -1].all()
    flat = candidates.passages.ravel()
    found = rows.place >= 0
    np.testing.assert_array_equal(flat[rows.place[found]], rows.passage[found])
    ensemble = SVREnsemble(2, eta=1.0).fit(index, queries, relevant, candidates=candidates, features=features)
    support = ensemble.support_
    added = {
        (ensemble.support_query_ids_[q], ensemble.support_passage_ids_[p])
        for q, p in zip(support.query, support.passage, strict=True)
    } & {
        (str(q), index.passage_ids[int(p)].as_py())
        for q, p in zip(rows.query[~found], rows.passage[~found], strict=True)
    }
    assert added
    for q, p, root in zip(support.query, support.passage, support.features_root, strict=True):
        key = ensemble.support_query_ids_[q], ensemble.support_passage_ids_[p]
        assert root == (0 if key in added else 1)


def test_eta_adds_a_kernel_over_pair_features() -> None:
    """Every score against the sum over support rows of coef · (Kq·Kp + η·Ks), written out."""
    index, queries, relevant, candidates, features = candidates_with_features(1)
    eta = 0.6
    ensemble = SVREnsemble(3, eta=eta, feature_gamma=0.4).fit(
        index, queries, relevant, candidates=candidates, features=features
    )
    support, scaled = ensemble.support_, ensemble.features_(features)
    q, p = ensemble.spaces_.queries([queries]).dense, ensemble.spaces_.passages([index.vectors]).dense
    scores = ensemble.score_candidates(queries, candidates.passages, features)
    votes = ensemble.votes(queries, candidates.passages, features)
    for i in range(0, len(queries), 7):
        for j in range(3):
            kq = np.exp(-np.sum((q[i] - support.queries.dense) ** 2, axis=1))[support.query]
            kp = np.exp(-np.sum((p[candidates.passages[i, j]] - support.passages.dense) ** 2, axis=1))[support.passage]
            ks = np.exp(-np.sum((scaled[i, j] - support.features) ** 2, axis=1))
            share = support.coef * (kq * kp + np.sqrt(eta) * support.features_root * ks)
            bags = np.bincount(support.bag, share) + support.intercept
            assert scores[i, j] == pytest.approx(bags.mean(), abs=1e-5)
            assert votes[i, j] == (bags > 0.5).sum()


def test_evidence_finds_what_memory_cannot() -> None:
    """A feature that tells the relevant, on documents that no training query had: memory is blind, evidence is not."""
    index, queries, relevant = world(3, n_documents=80, n_queries=160)
    candidates = index.search(queries, 20)
    wanted = np.array([int(ids[0][1:]) for ids in relevant])
    telling = (index.doc_of[candidates.passages] == wanted[:, None]).astype(np.float32)
    features = np.stack([telling, np.zeros_like(telling)], axis=2) + np.random.default_rng(0).normal(
        scale=0.3, size=(*telling.shape, 2)
    ).astype(np.float32)
    train, new = wanted < 40, wanted >= 40
    taught = [ids for ids, chosen in zip(relevant, train, strict=True) if chosen]
    ids = [f"q{i}" for i in range(int(new.sum()))]

    def mrr(eta: float) -> float:
        ensemble = SVREnsemble(3, eta=eta).fit(
            index,
            queries[train],
            taught,
            candidates=Hits(candidates.passages[train], candidates.scores[train]),
            features=features[train],
        )
        pooled = Hits(candidates.passages[new], candidates.scores[new])
        run = ensemble.rank(queries[new], ids, candidates=pooled, features=features[new])
        ranks = [[doc for doc, _ in run[q]] for q in ids]
        return float(
            np.mean(
                [1 / (1 + r.index(f"d{d}")) if f"d{d}" in r else 0 for r, d in zip(ranks, wanted[new], strict=True)]
            )
        )

    assert mrr(1.0) > mrr(0.0) + 0.2


def test_blend_adds_evidence_by_what_was_found_out_of_bag() -> None:
    """The weight is the best of those tried, by the very MRR that can be recomputed; noise gets none or little."""
    index, queries, relevant = world(9, n_documents=40, n_queries=200)
    candidates = index.search(queries, 15)
    wanted = np.array([int(ids[0][1:]) for ids in relevant])
    noise = np.random.default_rng(0).normal(size=(*candidates.passages.shape, 2)).astype(np.float32)
    telling = noise + 3 * (index.doc_of[candidates.passages] == wanted[:, None])[:, :, None].astype(np.float32)
    found = {}
    for name, features in (("noise", noise), ("telling", telling)):
        ensemble = SVREnsemble(5, blend=True, blend_queries=None, oob_score=True)
        ensemble.fit(index, queries, relevant, candidates=candidates, features=features)
        blend = ensemble.blend_
        assert blend.mrr[0] == pytest.approx(ensemble.oob_mrr_)
        chosen = int(np.argmax(blend.mrr))
        assert (np.abs(blend.weights).max() == 0) == (chosen == 0)
        memory = ensemble.score_candidates(queries, candidates.passages)
        both = ensemble.score_candidates(queries, candidates.passages, features)
        np.testing.assert_allclose(both, memory + features @ blend.weights, atol=1e-5)
        why = ensemble.explain(
            queries[0], index.passage_ids[int(candidates.passages[0, 0])].as_py(), features=features[0, 0]
        )
        assert why.prediction == math.fsum([*(e.share for e in why.evidence), why.others, why.intercept, *why.blend])
        assert why.prediction == pytest.approx(both[0, 0], abs=1e-5)
        assert "pair feature 1" in str(why)
        found[name] = max(blend.mrr) - blend.mrr[0]
    assert found["telling"] > 0.2
    assert found["noise"] < 0.05
    sampled = SVREnsemble(5, blend=True, blend_queries=50)
    sampled.fit(index, queries, relevant, candidates=candidates, features=telling)
    assert sampled.blend_.mrr != blend.mrr
    assert not hasattr(sampled, "oob_score_")
    with pytest.raises(InputError, match="eta and blend need features of candidates: use fit"):
        SVREnsemble(2, blend=True).fit_rows(
            index, queries, CandidateRows(*np.zeros((2, 3), dtype=np.int32), np.ones(3))
        )


def test_features_are_checked() -> None:
    index, queries, relevant, candidates, features = candidates_with_features()
    ensemble = SVREnsemble(2, eta=1.0)
    with pytest.raises(InputError, match="eta > 0 and blend ask for features"):
        ensemble.fit(index, queries, relevant, candidates=candidates)
    with pytest.raises(InputError, match="features belong to candidates"):
        ensemble.fit(index, queries, relevant, features=features)
    with pytest.raises(InputError, match=r"features: expected shape \(40, 12\)"):
        ensemble.fit(index, queries, relevant, candidates=candidates, features=features[:, :3])
    broken = features.copy()
    broken[3, 2, 1] = np.nan
    with pytest.raises(InputError, match="features: NaN"):
        ensemble.fit(index, queries, relevant, candidates=candidates, features=broken)
    ensemble.fit(index, queries, relevant, candidates=candidates, features=features)
    with pytest.raises(InputError, match="trained with pair features, which must be given"):
        ensemble.rank(queries, [str(i) for i in range(40)], candidates=candidates)
    with pytest.raises(InputError, match="features: expected 2 a pair, found 1"):
        ensemble.score_candidates(queries, candidates.passages, features[:, :, :1])


# spaces ---------------------------------------------------------------------------------------------------


def test_a_second_space_multiplies_the_kernel() -> None:
    """Dense vectors and TF-IDF rows side by side are one space of both, columns scaled to their γ."""
    index, queries, relevant = world(4)
    wide = [
        sparse.random(n, 25, density=0.3, random_state=2, dtype=np.float32).tocsr() for n in (len(queries), len(index))
    ]
    two = SVREnsemble(2, k=10, tol=1e-5, gamma=[(1.0, 0.8), (0.5, 0.3)])
    two.fit(index, [queries, wide[0]], relevant, spaces=[wide[1]])
    passages = index.search(queries, 9).passages
    support = two.support_
    q = np.concatenate([queries, np.sqrt(0.5) * wide[0].toarray()], axis=1)
    p = np.concatenate([np.sqrt(0.8) * index.vectors, np.sqrt(0.3) * wide[1].toarray()], axis=1)
    by_id = {name: i for i, name in enumerate(index.passage_ids.to_pylist())}
    q_rows = q[[int(name) for name in two.support_query_ids_]][support.query]
    p_rows = p[[by_id[name] for name in two.support_passage_ids_]][support.passage]
    scores = two.score_candidates([queries, wide[0]], passages)
    for i in range(0, 40, 9):
        kq = np.exp(-np.sum((q[i] - q_rows) ** 2, axis=1))
        kp = np.exp(-np.sum((p[passages[i, 2]] - p_rows) ** 2, axis=1))
        assert scores[i, 2] == pytest.approx((support.coef @ (kq * kp)) / 2 + support.intercept.mean(), abs=1e-5)
    with pytest.raises(InputError, match="space 1: expected"):
        SVREnsemble(2).fit(index, [queries, wide[0]], relevant, spaces=[wide[1][:-1]])
    with pytest.raises(InputError, match="expected one matrix for each of 2 spaces, found 1"):
        SVREnsemble(2).fit(index, queries, relevant, spaces=[wide[1]])
