"""Features of candidates against loops over each query."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from haybale import Run
from haybale.rankers.models.candidate_features import candidate_feature_names, candidate_features


def random_run(seed: int, n_documents: int = 12) -> Run:
    rng = np.random.default_rng(seed)
    rows = [
        (f"q{query}", f"d{document}", float(np.round(rng.normal(), 1)))
        for query, n in enumerate(rng.integers(1, n_documents, size=6))
        for document in rng.permutation(n_documents)[:n]
    ]
    return Run.from_frame(pd.DataFrame(rows, columns=["query_id", "doc_id", "score"]))


def oracle(run: Run, parts: dict[str, Run], trained: list[str], query: str, row: int) -> list[float]:
    """Return the features of one candidate."""
    ranked = run[query]
    scores = [score for _, score in ranked]
    doc, score = ranked[row]

    def level(values: list[float], value: float) -> float:
        return (value - min(values)) / (max(values) - min(values)) if max(values) > min(values) else 1.0

    features = [
        score,
        level(scores, score),
        score - np.log(np.sum(np.exp(scores[:10]))),
        np.log(row + 1),
        1 / (row + 1),
        scores[0] - score,
        scores[max(0, row - 1)] - score,
        score - scores[min(len(scores) - 1, row + 1)],
        scores[0],
        scores[0] - scores[min(1, len(scores) - 1)],
    ]
    columns, reciprocals = [], []
    for name, part in parts.items():
        part_scores = dict(part[query])
        rank = list(part_scores).index(doc) + 1 if doc in part_scores else np.inf
        reciprocals.append(1 / rank)
        columns += [1 / rank, level(list(part_scores.values()), part_scores[doc]) if doc in part_scores else 0.0]
        columns += [part_scores.get(doc, 0.0)] if name in trained else []
    if parts:
        features += [np.mean(reciprocals), *(sum(value >= 1 / n for value in reciprocals) for n in (1, 3, 10))]
    return [*features, *columns]


@pytest.mark.parametrize("names", [[], ["one"], ["one", "two", "three"]])
def test_features_are_those_of_loops(names: list[str]) -> None:
    run, parts = random_run(0), {name: random_run(seed) for seed, name in enumerate(names, 1)}
    features = candidate_features(run, parts, ["two"])
    assert features.shape[1] == len(candidate_feature_names(names, ["two"]))
    expected = [oracle(run, parts, ["two"], query, row) for query in run.query_ids for row in range(len(run[query]))]
    assert features == pytest.approx(np.array(expected), abs=1e-12)


def test_features_do_not_depend_on_other_queries() -> None:
    run, parts = random_run(5), {"one": random_run(6)}
    whole = candidate_features(run, parts, ["one"])
    rows = run.coded()[0]
    for row, query in enumerate(run.query_ids):
        alone = candidate_features(run.take([query]), {"one": parts["one"].take([query])}, ["one"])
        assert (alone == whole[rows == row]).all()


def test_a_query_without_documents_has_no_candidates() -> None:
    table = pd.DataFrame({"query_id": ["q"], "doc_id": ["d"], "score": [1.0]})
    run = Run.joined([Run.from_frame(table), Run.from_numbers(["empty"], ["d"], *np.empty((2, 0), dtype=int), [])])
    assert len(candidate_features(run, {"same": run})) == 1
    nothing = run.take(["empty"])
    assert candidate_features(nothing, {"same": nothing}).shape == (0, len(candidate_feature_names(["same"])))
