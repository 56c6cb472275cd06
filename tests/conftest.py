"""Fixtures: the built-in collection, and a toy one small enough to check by hand."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from support.cupy_double import HAS_CUDA, installed
from support.ranker_cases import ENCODERS, Fitted
from support.topics import topic_collection

from haybale import Engine
from haybale.cli import main
from haybale.collections import Collection, CollectionBuilder, read_pydocs
from haybale.errors import MissingExtraError
from haybale.rankers import Training, parse

# The same examples every time, so that a failure is of the change before it; HYPOTHESIS_PROFILE=random draws others.
# A test that does not say how many it needs has 25 of these, or 100 others. No test fails because a machine is slow.
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("random"), derandomize=True, max_examples=25)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# Files for a type checker, for other Pythons, and of a package that is installed in a process of its own.
collect_ignore = ["support/typing", "smoke.py", "outside"]

# The files that take longest, the longest first. Processes take files in this order, so that none is left with one.
SLOWEST = ("test_docs.py", "test_types.py", "test_benchmarks.py", "test_cluster.py", "test_other_processors.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


# Modules and tests live until the end: garbage is not collected while they are made, and they are left out of later
# collections, also out of those that pytest makes at the end.
gc.disable()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)
    gc.enable()
    atexit.register(gc.unfreeze)  # some packages report what is left at the end as leaks


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """With ``-m gpu``, skip the files that need a package which is not installed: few of them have device tests."""
    report: Any = yield
    error = report.call.excinfo.value.__cause__ if report.failed else None
    if isinstance(error, ImportError) and collector.config.getoption("markexpr") == "gpu":
        report.outcome, report.longrepr = "skipped", (str(collector.path), 0, f"Skipped: {error}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A host with a GPU may have no more than the core needs (benchmarks/gpu.md): a device test then skips, by name."""
    try:
        return (yield)
    except MissingExtraError as error:
        if item.get_closest_marker("gpu") is None:
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def pydocs() -> Collection:
    return read_pydocs()


@pytest.fixture(scope="session")
def topics() -> Collection:
    """42 documents of ten topics, 60 training queries, 15 of dev and 15 of test; see :mod:`topics`."""
    return topic_collection()


@pytest.fixture(scope="session")
def engines(topics: Collection) -> dict[str, Engine]:
    """Engines over :func:`topics` by the name of their encoder, which no test changes."""
    return {name: Engine(topics, **settings) for name, settings in ENCODERS.items()}


@pytest.fixture(scope="session")
def fitted(engines: dict[str, Engine]) -> Fitted:
    """Return a fitted ranker by its text and the name of an encoder."""
    training = {name: Training.of(engine) for name, engine in engines.items()}
    return lambda name, encoder="tfidf": parse(name)._fitted_copy(training[encoder])


@pytest.fixture
def cupy_double() -> Iterator[Any]:
    """A strict stand-in for CuPy, with one device."""
    if HAS_CUDA:
        pytest.skip("a CUDA device is here, and CuPy itself: the tests marked gpu are the ones to run")
    with installed() as double:
        yield double


@pytest.fixture(params=["double", pytest.param("device", marks=pytest.mark.gpu)])
def cupy(request: pytest.FixtureRequest) -> Any:
    """CuPy: its double, and, where a CUDA device answers, itself. A test of it runs as both."""
    if request.param == "double":
        return request.getfixturevalue("cupy_double")
    if not HAS_CUDA:
        pytest.skip("no CUDA device")
    return __import__("cupy")


@pytest.fixture
def new_workers() -> Iterator[None]:
    """Stop joblib's worker processes of other tests, and later those of this one: a worker keeps what it began with."""
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown()
    yield
    get_reusable_executor().shutdown()


TOPICS = {
    "dogs": ["dogs bark at the gate", "a dog needs a lead", "puppies chew old shoes"],
    "cats": ["cats purr on the sofa", "a cat climbs the tree", "kittens chase the yarn"],
    "taxes": ["taxes are due in may", "the tax office sends a letter", "income is taxed twice"],
    "roads": ["roads need winter salt", "a road leads to the gate", "traffic on roads is slow"],
    "soup": ["soup needs salt and onions", "hot soup in winter", "the onions are old"],
}


@pytest.fixture
def toy() -> Collection:
    """Five documents of three passages; four queries each in train and dev, on the first four topics."""
    builder = CollectionBuilder("toy", language="english")
    for name, passages in TOPICS.items():
        builder.add_document(name, passages)
    asked = {"dogs": "barking dogs", "cats": "purring cat", "taxes": "tax letter", "roads": "winter roads"}
    for split in ("train", "dev"):
        for name, text in asked.items():
            own = "soup" if name == "roads" else None
            builder.add_query(f"{split}-{name}", [text, f"{text} again"], own=own, split=split)
            builder.add_judgement(split, f"{split}-{name}", name)
    return builder.build()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[Any, str, str]]:
    """The command line in this process: ``(exit status, stdout, stderr)``."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)

    def call(*arguments: str) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "argv", ["haybale", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        return left.value.code or 0, *capsys.readouterr()

    return call
