"""The contract of rankers is small and documented, and ranking many queries returns the runs of each ranker."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from numpy.typing import NDArray
from support.topics import topic_collection

from haybale import Engine, parse, resumable
from haybale.engine.workers import Workers, sendable_engine
from haybale.rankers import QueryBatch, Ranker
from haybale.ranking.contract import RankerContract
from haybale.ranking.runs import runs_of
from haybale.search import query_batch
from haybale.search.encoded_queries import encode_block

DEFINED = {"rank_batch", "explain_document", "fit_batch", "out_of_fold_batch", "save_state", "load_state"}
CALLED = {"run", "explained"}
OF_USERS = {"nested", "learned_from"}  # methods that callers of a ranker use


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder = tmp_path_factory.mktemp("contract") / "engine"
    return Engine.build(topic_collection(), folder, encoder="lsa(n_components=4)").prepare()


def test_the_contract_is_documented() -> None:
    methods = {name for name, value in vars(RankerContract).items() if inspect.isfunction(value) and name[0] != "_"}
    assert methods - OF_USERS == DEFINED
    documentation = inspect.getdoc(Ranker) or ""
    for name in DEFINED | CALLED:
        assert f":meth:`{name}`" in documentation
        assert inspect.getdoc(getattr(Ranker, name))


def test_runs_are_returned_in_the_order_of_the_rankers(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal rankers share a run, whether queries are ranked at once, in blocks, or in other processes."""
    names = ("bm25", "knn-queries", "rrf(bm25,knn)", "bm25", "learned(bm25,svr-memory(n_bags=3))")
    rankers = [parse(name).fit(engine) for name in names]
    queries = engine.collection.queries.take(engine.collection.split("train").queries)
    for out_of_fold in (False, True):
        expected = [ranker.run(QueryBatch(engine, queries, "train"), 20, out_of_fold=out_of_fold) for ranker in rankers]
        with monkeypatch.context() as patch:
            patch.setattr(query_batch, "BLOCK", 3)
            patch.setattr("haybale.engine.workers._MAX_QUERIES_PER_BLOCK", 3)
            with resumable(tmp_path / "tasks"):
                batch = QueryBatch(engine, queries, "train")
                assert runs_of(rankers, batch, 20, out_of_fold=out_of_fold) == expected
                assert any((tmp_path / "tasks").iterdir())
            with joblib.parallel_config(backend="loky", n_jobs=2):
                batch = QueryBatch(engine, queries, "train")
                assert runs_of(rankers, batch, 20, out_of_fold=out_of_fold) == expected


def test_tasks_run_where_the_engine_can_be_opened(engine: Engine, tmp_path: Path) -> None:
    """Other processes open the engine of a folder; what only this process has stays here."""
    in_memory = Engine(topic_collection(), encoder="lsa(n_components=4)")
    view = engine.within(engine.collection.doc_ids.to_pylist()[:5])
    texts = [(["a text", "another"],), (["a third"],)]

    def vectors(where: Engine) -> NDArray[Any]:
        results = Workers(where).run(encode_block, [sendable_engine(where)], texts, lambda: texts, "encoding")
        return np.concatenate([arrays["vectors"] for arrays in results])

    assert not any(Workers(where).divide for where in (engine, in_memory, view))
    with joblib.parallel_config(backend="loky", n_jobs=2):
        assert Workers(engine).address == engine.address
        assert Workers(engine).count() == 2
        for where in (in_memory, view):
            assert (Workers(where).address, Workers(where).divide, Workers(where).count()) == (None, False, 1)
        encoded = [vectors(where) for where in (engine, in_memory, view)]
    for where, array in zip((engine, in_memory, view), encoded, strict=True):
        np.testing.assert_allclose(array, where.encoder.encode(["a text", "another", "a third"]), rtol=1e-6)
    with resumable(tmp_path / "tasks"):
        assert [Workers(where).divide for where in (engine, in_memory, view)] == [True, False, True]
