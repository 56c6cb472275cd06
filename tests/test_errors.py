"""Test that errors can be pickled and raised from worker processes."""

from __future__ import annotations

import copy
import pickle
import time

import joblib
import pytest

from haybale import errors
from haybale.cluster import spread
from haybale.errors import FileFormatError, HaybaleError, MissingExtraError, UnknownNameError

ERRORS = [
    FileFormatError("qrels.tsv", 3, "expected 2 columns"),
    FileFormatError("qrels.tsv", None, "expected 2 columns"),
    UnknownNameError("ranker", "bm26", ["bm25"]),
    MissingExtraError("torch", "neural"),
    MissingExtraError("zarr", None),
    *(
        kind("what is wrong")
        for kind in vars(errors).values()
        if isinstance(kind, type)
        and issubclass(kind, HaybaleError)
        and kind not in (FileFormatError, UnknownNameError, MissingExtraError)
    ),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_every_error_can_be_pickled(error: HaybaleError) -> None:
    error.add_note("and more")
    for copied in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(copied) is type(error)
        assert (str(copied), copied.args, vars(copied)) == (str(error), error.args, vars(error))


class _Unpicklable(Exception):
    def __init__(self, one: str, other: str) -> None:
        super().__init__(one + other)


def fail(number: int) -> None:
    raise ERRORS[number] if number < len(ERRORS) else _Unpicklable("a", "b")


@pytest.mark.parametrize("number", [0, 3])
def test_errors_of_worker_processes_are_raised(number: int) -> None:
    with joblib.parallel_config(backend="loky", n_jobs=2), pytest.raises(HaybaleError) as caught:
        list(spread(fail, [(number,)]))
    assert type(caught.value) is type(ERRORS[number])
    assert str(caught.value) == str(ERRORS[number])


def test_an_error_that_cannot_be_unpickled_does_not_count_as_a_lost_worker() -> None:
    with joblib.parallel_config(backend="loky", n_jobs=2), pytest.raises(Exception, match="failed to un-serialize"):
        list(spread(fail, [(len(ERRORS),)]))


def test_unread_results_cause_no_warning() -> None:
    """joblib would warn about results that nobody reads, and warnings are errors in these tests."""
    results = spread(time.sleep, [(0.01,)] * 20, n_jobs=2)
    next(results)
    results.close()
