"""Engines and fitted rankers over the synthetic collection, which tests share and do not change."""

from __future__ import annotations

import pytest
from support.ranker_cases import ENCODERS, Fitted

from haybale import Engine
from haybale.collections import Collection
from haybale.rankers import Training, parse


@pytest.fixture(scope="package")
def engines(topics: Collection) -> dict[str, Engine]:
    return {name: Engine(topics, **settings) for name, settings in ENCODERS.items()}


@pytest.fixture(scope="package")
def fitted(engines: dict[str, Engine]) -> Fitted:
    training = {name: Training.of(engine) for name, engine in engines.items()}
    return lambda name, encoder="tfidf": parse(name).fitted(training[encoder])
