"""A fixture for the tests of context rankers: a collection with sections and links."""

from __future__ import annotations

import pytest
from support.structured import structured_collection

from haybale.collections import Collection


@pytest.fixture(scope="module")
def structured() -> Collection:
    return structured_collection(5, n_documents=16, n_queries=20)
