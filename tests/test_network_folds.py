"""The networks of folds are trained by tasks: in other processes, and again only if they were not kept."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from support.engines import assert_same
from support.structured import structured_collection

from haybale import Engine, Run, resumable
from haybale.kept_results import KeptResults
from haybale.rankers import QueryBatch, Ranker, parse

pytest.importorskip("torch")

N_FOLDS = 5
LIM, PLI = "lim(bm25,epochs=2,n_documents=8)", "pli(bm25,epochs=2,n_seeds=1,n_documents=8)"
RANKERS = {LIM: 6, PLI: N_FOLDS}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    collection = structured_collection(5, n_documents=16, n_queries=20)
    return Engine.build(
        collection, tmp_path_factory.mktemp("folds") / "engine", encoder="lsa(n_components=8)"
    ).prepare()


def out_of_fold(ranker: Ranker) -> Run:
    engine: Engine = ranker.engine_
    training = engine.collection.queries.take(engine.collection.split("train").queries)
    return ranker.run(QueryBatch(engine, training), 100, out_of_fold=True)


@pytest.mark.usefixtures("new_workers")
@pytest.mark.thorough
def test_networks_of_other_processes_rank_as_those_of_this_one(engine: Engine) -> None:
    pairs = []
    for text in RANKERS:
        here = parse(text).fit(engine)
        with joblib.parallel_config(backend="loky", n_jobs=2):
            there = parse(text).fit(engine)
        pairs += [(here.rank("dev"), there.rank("dev")), (out_of_fold(here), out_of_fold(there))]
    for mine, theirs in pairs:
        assert mine.query_ids == theirs.query_ids
        for query in mine.query_ids:
            assert dict(theirs[query]) == pytest.approx(dict(mine[query]), abs=1e-4)


@pytest.mark.parametrize("text", [pytest.param(LIM, marks=pytest.mark.thorough), PLI])
def test_kept_networks_are_not_trained_again(text: str, engine: Engine, tmp_path: Path, monkeypatch: Any) -> None:
    put, left = KeptResults.put, [3]

    def put_some(self: KeptResults, key: str, arrays: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        put(self, key, arrays)

    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt), resumable(tmp_path / "kept"):
        patch.setattr(KeptResults, "put", put_some)
        parse(text).fit(engine)
    written: list[str] = []
    monkeypatch.setattr(KeptResults, "put", lambda self, key, arrays: written.append(key) or put(self, key, arrays))
    with resumable(tmp_path / "kept"):
        found = parse(text).fit(engine)
    assert len(written) == RANKERS[text] - 3
    assert_same(out_of_fold(found), out_of_fold(parse(text).fit(engine)))
    assert_same(found.rank("dev"), parse(text).fit(engine).rank("dev"))
    assert np.isfinite(found.rank("dev").coded()[-1]).all()
