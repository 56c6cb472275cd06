"""Errors that cross from one process to another."""

from __future__ import annotations

import copy
import pickle
import time

import joblib
import pytest

from haybale import errors
from haybale.cluster import spread
from haybale.errors import FileFormatError, HaybaleError, MissingExtraError, UnknownNameError

EVERY = [
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


@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
def test_every_error_can_be_pickled(error: HaybaleError) -> None:
    error.add_note("and more")
    for made in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(made) is type(error)
        assert (str(made), made.args, vars(made)) == (str(error), error.args, vars(error))


class _Unloadable(Exception):
    def __init__(self, one: str, other: str) -> None:
        super().__init__(one + other)


def fails(number: int) -> None:
    raise EVERY[number] if number < len(EVERY) else _Unloadable("a", "b")


@pytest.mark.parametrize("number", [0, 3])
def test_errors_of_another_process_are_raised_here(number: int) -> None:
    with joblib.parallel_config(backend="loky", n_jobs=2), pytest.raises(HaybaleError) as caught:
        list(spread(fails, [(number,)]))
    assert type(caught.value) is type(EVERY[number])
    assert str(caught.value) == str(EVERY[number])


def test_an_error_that_cannot_be_unpickled_is_not_a_dead_worker() -> None:
    with joblib.parallel_config(backend="loky", n_jobs=2), pytest.raises(Exception, match="failed to un-serialize"):
        list(spread(fails, [(len(EVERY),)]))


def test_an_error_while_results_are_read_is_all_that_is_said() -> None:
    """joblib would warn of tasks that were done in vain. Warnings are errors here."""
    results = spread(time.sleep, [(0.01,)] * 20, n_jobs=2)
    next(results)
    results.close()
