"""A comparison on a device is the comparison on the CPU: every room on CuPy arrays, one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from haybale.collections import Collection
from haybale.errors import DeviceError, InputError
from haybale.experiments import Settings, compare

RANKERS = (
    "bm25",
    "knn",
    "knn-firstp",
    "knn-doc",
    "svr",
    "svr-blend",
    "parm-rrf",
    "parm-vrrf",
    "parm-vmax",
    "rrf(knn,svr)",
)


def settings(**changes: Any) -> Settings:
    given: dict[str, Any] = {"rankers": RANKERS, "width": 8, "ensemble": {"n_bags": 2}, "n_jobs": 1}
    return Settings(**(given | changes))


@pytest.mark.filterwarnings("ignore:.* bags have no relevant row")
def test_all_rankers_on_a_device(toy: Collection, cupy: Any) -> None:
    """Scores to 1e-4 (the ensemble's) of the CPU's; the same documents for every query."""
    expected = compare(toy, settings()).runs
    found = compare(toy, settings(device="cuda")).runs
    assert found.keys() == expected.keys()
    for name, run in found.items():
        left, right = (
            frame.sort_values(["query_id", "doc_id"]) for frame in (run.to_frame(), expected[name].to_frame())
        )
        assert left["doc_id"].tolist() == right["doc_id"].tolist(), name
        np.testing.assert_allclose(left["score"], right["score"], atol=1e-4, err_msg=name)


def test_what_a_device_does_is_said(toy: Collection, cupy: Any) -> None:
    facts = compare(toy, settings(rankers=("knn",), device="cuda")).facts
    assert facts["index"]["device"] == "cuda:0"
    assert facts["index"]["backend"] in ("cupy", "cuvs", "faiss-gpu")
    assert compare(toy, settings(rankers=("knn",))).facts["index"] == {"device": "cpu", "backend": "faiss"}


def test_what_a_device_does_not_do(toy: Collection, cupy: Any) -> None:
    with pytest.raises(InputError, match="tfidf makes sparse vectors, which stay on the CPU, found device 'cuda'"):
        compare(toy, settings(encoder="tfidf", rankers=("knn",), baseline="knn", device="cuda"))
    with pytest.raises(DeviceError, match="device 'cuda:7' does not exist"):
        compare(toy, settings(rankers=("bm25", "knn"), device="cuda:7"))
