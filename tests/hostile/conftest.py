"""The fixture of the target of the attacks, whose folder is the working directory during the tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hostile.target import Target


@pytest.fixture(scope="package")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    before = os.getcwd()
    yield Target(tmp_path_factory.mktemp("hostile"))
    os.chdir(before)
