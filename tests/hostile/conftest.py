"""The target of the attacks, made once; its folder is the working directory meanwhile."""

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
