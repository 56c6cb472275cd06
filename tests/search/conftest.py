"""Fixtures: engines over the synthetic collection."""

from __future__ import annotations

import pytest
from support.ranker_cases import ENCODERS, Fitted

from haybale import Engine
from haybale.collections import Collection
from haybale.rankers import Training, parse


@pytest.fixture(scope="package")
def fitted(topics: Collection) -> Fitted:
    training = {name: Training.of(Engine(topics, **settings)) for name, settings in ENCODERS.items()}
    return lambda name, encoder="tfidf": parse(name).fitted(training[encoder])
