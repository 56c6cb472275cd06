"""Similar training queries: rankings against a dictionary oracle, explanations, and errors of saved pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from support.ranker_cases import ENCODERS, Fitted

from haybale import Engine, SimilarQueries
from haybale.collections import Collection
from haybale.errors import FileFormatError
from haybale.manifest import mapped_tensors, write_tensors
from haybale.rankers import QueryBatch


def oracle(ranker: Any, batch: QueryBatch, relevant: list[list[str]], leave_out: bool) -> dict[str, dict[str, float]]:
    """Return the score of each document by query; cosines are rounded to float32 as in an index."""
    training = QueryBatch(batch.engine, batch.engine.collection.queries.take(range(len(relevant))))
    vectors = [np.asarray(v.todense() if sparse.issparse(v) else v) for v in (training.vectors, batch.vectors)]
    rows, queries = (v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-30) for v in vectors)
    groups, doc_ids = training.queries.groups, batch.engine.collection.doc_ids.to_pylist()
    found = {}
    for place, query in enumerate(batch.ids):
        cosines = (rows @ queries[place]).astype(np.float32)
        others = groups != groups[training.ids.index(query)] if leave_out else np.ones(len(rows), dtype=bool)
        nearest = sorted(np.flatnonzero(others & (cosines > 0)), key=lambda row: (-cosines[row], row))[: ranker.k]
        scores: dict[str, float] = {}
        for row in nearest:
            for doc_id in set(relevant[row]):
                scores[doc_id] = scores.get(doc_id, 0.0) + float(cosines[row]) ** ranker.power
        own = int(batch.own[place])
        found[query] = {doc: score for doc, score in scores.items() if own < 0 or doc != doc_ids[own]}
    return found


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize(("k", "power"), [(1, 1.0), (7, 2.5), (500, 0.0)])
def test_scores_are_the_oracles(fitted: Fitted, topics: Collection, encoder: str, k: int, power: float) -> None:
    """Out of fold, a training query and others from the same document are no neighbours."""
    ranker = fitted(f"knn-queries(k={k},power={power})", encoder)
    engine, relevant = ranker.engine_, topics.relevant_ids("train")
    for split in ("dev", "train"):
        batch = QueryBatch(engine, topics.queries.take(topics.split(split).queries))
        run = ranker.run(batch, 1000, out_of_fold=split == "train")
        expected = oracle(ranker, batch, relevant, split == "train")
        for query in run.query_ids:
            assert dict(run[query]) == pytest.approx(expected[query], rel=1e-5, abs=1e-6)
    groups = topics.queries.groups[topics.split("train").queries]
    assert len(np.unique(groups)) < len(groups)
    assert run != ranker.run(batch, 1000)


def test_shares_name_training_queries(fitted: Fitted, topics: Collection) -> None:
    ranker = fitted("knn-queries(k=7)", "tfidf")
    relevant = dict(zip(ranker.query_ids_, topics.relevant_ids("train"), strict=True))
    for query in topics.queries.texts(topics.split("dev").queries[:4]):
        for doc_id, _ in ranker.rank([query])["0"][:3]:
            names = [share.what.split()[2] for share in ranker.explain([query], doc_id).shares]
            assert len(names) == len(set(names)) <= 7
            assert all(doc_id in relevant[name] for name in names)


@pytest.mark.parametrize("harm", [{"documents": [0, 99]}, {"documents": [-1, 0]}, {"offsets": [0, 2, 1]}])
def test_invalid_saved_pairs(topics: Collection, tmp_path: Path, harm: dict[str, list[int]]) -> None:
    engine, opened = Engine(topics), SimilarQueries()
    SimilarQueries().fit(engine).save_state(tmp_path)
    opened.load_state(tmp_path, {}, engine)
    assert not opened.relevant_.flags.writeable, "the pairs are memory-mapped"
    path = tmp_path / "neighbours" / "relevant.safetensors"
    tensors = {name: array.copy() for name, array in mapped_tensors(path).items()}
    for name, values in harm.items():
        tensors[name][: len(values)] = values
    write_tensors(path, tensors)
    with pytest.raises(FileFormatError, match=path.name):
        SimilarQueries().load_state(tmp_path, {}, engine)
