"""Fixtures for the tests of paragraph pairs: an engine, and a tiny cross-encoder with random weights."""

from __future__ import annotations

import pytest
from support.tiny_models import save_cross_encoder

from haybale import Engine
from haybale.collections import Collection


@pytest.fixture(scope="module")
def engine(topics: Collection) -> Engine:
    return Engine(topics)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_cross_encoder(tmp_path_factory.mktemp("models") / "cross")
