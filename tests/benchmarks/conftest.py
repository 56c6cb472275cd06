"""Fixtures: a script of benchmarks/, a small collection for it, and what it writes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.worlds import word_collection

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SPLITS = (("train", "train"), ("dev", "dev"), ("dev", "test"))


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """A script of benchmarks/ by its name; they are forgotten afterwards."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    yield importlib.import_module
    for path in BENCHMARKS.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collection of words as a folder of Parquet files; its test queries are those of dev."""
    folder = tmp_path_factory.mktemp("words") / "words"
    folder.mkdir()
    collection = word_collection()
    ids, passages, queries = collection.doc_ids.to_pylist(), collection.passages, collection.queries
    qrels = pd.concat([collection.qrels_frame(of).assign(split=name) for of, name in SPLITS])
    frames = {
        "passages": {"doc_id": [ids[number] for number in passages.doc_of], "text": passages.texts.to_pylist()},
        "queries": {"query_id": queries.ids.to_pylist(), "text": queries.texts(range(len(queries)))},
        "qrels": qrels.to_dict("list"),
    }
    for name, columns in frames.items():
        pd.DataFrame(columns).to_parquet(folder / f"{name}.parquet")
    return folder


@pytest.fixture
def ran(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What a script writes into its results; its constants may be changed before."""

    def run(name: str, page: str, *arguments: str, **constants: Any) -> str:
        module = script(name)
        for constant, value in constants.items():
            monkeypatch.setattr(module, constant, value)
        monkeypatch.setattr(sys, "argv", [name, *arguments, "--results", str(tmp_path)])
        module.main()
        return (tmp_path / page).read_text(encoding="utf-8")

    return run
