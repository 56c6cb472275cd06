"""Fixtures: a small collection in BEIR's layout and an engine of it, shared by all tests of the command line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.commands import word_folder

from haybale import Engine


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the collection."""
    return word_folder(tmp_path_factory.mktemp("cli") / "words")


@pytest.fixture(scope="session")
def built(data: Path) -> Path:
    """An engine that no test changes."""
    Engine.build(data, data.parent / "engine", language="english").prepare()
    return data.parent / "engine"


@pytest.fixture
def engine(built: Path, tmp_path: Path) -> Path:
    """A copy of the engine that the test may change."""
    return Path(shutil.copytree(built, tmp_path / "engine"))


@pytest.fixture
def document(tmp_path: Path) -> str:
    (tmp_path / "case.txt").write_text("rare3x and\ncommon1\n\nrare4x common2", encoding="utf-8")
    return str(tmp_path / "case.txt")
