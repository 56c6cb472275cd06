"""Aggregations and PARM on CuPy's arrays, against the same on NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cupy_double import HAS_CUDA
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parm_cases import Case, cases, options, pairs_of
from parm_oracle import NAMES

from haybale.device import to_numpy
from haybale.retrieval import AGGREGATIONS, Hits, Vectors, aggregate
from haybale.retrieval.aggregation import cuda_kernels


def there(cupy: Any, case: Case) -> dict[str, Any]:
    """The case's hits and vectors as CuPy's arrays."""
    vectors = Vectors(cupy.asarray(case.vectors.passages), cupy.asarray(case.vectors.paragraphs))
    return {"hits": Hits(cupy.asarray(case.hits.passages), cupy.asarray(case.hits.scores)), "vectors": vectors}


def assert_as_on_numpy(cupy: Any, name: str, case: Case, **chosen: Any) -> None:
    expected = case.aggregate(name, **chosen)
    on_device = there(cupy, case)
    found = aggregate(on_device["hits"], name, case.doc_of, case.offsets, vectors=on_device["vectors"], **chosen)
    assert all(isinstance(column, cupy.ndarray) for column in found)
    query, document, score = map(to_numpy, found)
    assert pairs_of((query, document)) == pairs_of(expected)
    assert [column.dtype for column in (query, document, score)] == [column.dtype for column in expected]
    if AGGREGATIONS[name].vectors is None:
        np.testing.assert_array_equal(score, expected[2])
    else:
        np.testing.assert_allclose(score, expected[2], rtol=0, atol=1e-6 * np.abs(expected[2]).max(initial=1e-30))


@pytest.fixture(autouse=True)
def few_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator makes a thread of Python's for each lane; how many there are changes the order of a sum only."""
    if not HAS_CUDA:
        monkeypatch.setattr(cuda_kernels, "LANES", 2)
        monkeypatch.setattr(cuda_kernels, "ENOUGH", 1)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_aggregations_are_those_of_numpy(data: st.DataObject, name: str, cupy: Any) -> None:
    """Scores without vectors to the bit, those with vectors to 1e-6 of the largest."""
    case = data.draw(cases(is_sparse=False))
    assert_as_on_numpy(cupy, name, case, **data.draw(options(case, code_variant=False)))
