"""A comparison on a device is the comparison on the CPU: every room on CuPy arrays, one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from haybale import Engine, TfidfEncoder
from haybale.collections import Collection
from haybale.errors import DeviceError
from haybale.evaluation import Outcome, compare
from haybale.rankers import parse_all, set_all

RANKERS = "bm25,knn-doc,svr-doc,parm-rrf,parm-vrrf,parm-vmax,rrf(knn,svr)"
DENSE = {"encoder": "lsa", "n_components": 8}
SPARSE = {"encoder": TfidfEncoder(min_df=1)}


def compared(collection: Collection, rankers: str = RANKERS, **settings: Any) -> tuple[Engine, Outcome]:
    engine = Engine(collection, **(DENSE | settings))
    values = {"n_bags": 2, "n_jobs": 1} if "svr" in rankers else {}
    return engine, compare(engine, set_all(parse_all(rankers), values))


@pytest.mark.filterwarnings("ignore:.* bags have no relevant row")
@pytest.mark.filterwarnings("ignore:.* training queries for")
@pytest.mark.parametrize("vectors", [DENSE, SPARSE], ids=["dense", "sparse"])
def test_all_rankers_on_a_device(toy: Collection, cupy: Any, vectors: dict[str, Any]) -> None:
    """Scores to 1e-4 (the ensemble's) of the CPU's; the same documents for every query."""
    expected = compared(toy, **vectors)[1].runs
    engine, outcome = compared(toy, device="cuda", **vectors)
    assert not engine.passages.device.is_cpu
    assert not engine.documents.device.is_cpu
    found = outcome.runs
    assert found.keys() == expected.keys()
    assert len(found) == len(parse_all(RANKERS))
    for name, run in found.items():
        left, right = (
            frame.sort_values(["query_id", "doc_id"]) for frame in (run.to_frame(), expected[name].to_frame())
        )
        assert left["doc_id"].tolist() == right["doc_id"].tolist(), name
        np.testing.assert_allclose(left["score"], right["score"], atol=1e-4, err_msg=name)


def test_where_the_vectors_are(toy: Collection, cupy: Any) -> None:
    engine, outcome = compared(toy, "knn", device="cuda")
    assert str(engine.passages.device) == "cuda:0"
    assert outcome.facts["vectors"] == [15, 8]
    assert str(compared(toy, "knn")[0].passages.device) == "cpu"


def test_what_a_device_does_not_do(toy: Collection, cupy: Any) -> None:
    with pytest.raises(DeviceError, match="device 'cuda:7' does not exist"):
        Engine(toy, encoder="lsa", device="cuda:7")
