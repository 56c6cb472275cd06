"""The benchmark of serving on a small collection, step by step in this process; its page, and that of commands."""

from __future__ import annotations

import doctest
import importlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from worlds import word_collection

from haybale.collections import Collection

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
RESULTS = BENCHMARKS / "results"


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def module(name: str) -> Any:
    return importlib.import_module(name)


def written(collection: Collection, folder: Path) -> Path:
    """The collection as a folder of Parquet files."""
    folder.mkdir()
    ids, passages = collection.doc_ids.to_pylist(), collection.passages
    columns = {"doc_id": [ids[number] for number in passages.doc_of], "text": passages.texts.to_pylist()}
    pq.write_table(pa.table(columns), folder / "passages.parquet")
    queries = collection.queries
    columns = {"query_id": queries.ids.to_pylist(), "text": queries.texts(range(len(queries)))}
    columns["own"] = [ids[number] if number >= 0 else None for number in queries.own.tolist()]
    pq.write_table(pa.table(columns), folder / "queries.parquet")
    frames = [collection.qrels_frame(split).assign(split=split) for split in collection.splits]
    pq.write_table(pa.concat_tables(map(pa.Table.from_pandas, frames)), folder / "qrels.parquet")
    return folder


@pytest.mark.filterwarnings("ignore")
def test_a_small_collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serving, pages = module("bench_serving"), module("serving_pages")
    monkeypatch.setattr(serving, "ADDED", 30)
    asked = []

    def ask(step: str, **given: Any) -> Any:
        asked.append(step)
        return json.loads(json.dumps(serving.STEPS[step](**json.loads(json.dumps(given, default=str)))))

    source = written(word_collection(), tmp_path / "words")
    record = serving.measured(str(source), tmp_path, 5, ask)
    assert set(asked) == set(serving.STEPS)
    assert record["collection"] == {"name": "words", "documents": 12, "passages": 24}
    assert record["disk"].keys() >= {"0/collection", "0/bm25-passage", "0/bm25-document", "0/passages", "0/documents"}
    assert sum(record["disk after adding"].values()) > sum(record["disk"].values())
    assert record["add"]["documents"] == 30
    for name in serving.RANKERS:
        found = record["rankers"][name]
        assert found["one by one"]["warm"]["queries"] == 4
        assert 0 < found["one by one"]["warm"]["median"] <= found["one by one"]["warm"]["p99"]
        assert found["at once"]["queries"] == 5
    grown, whole = (record["approximate"][what] for what in ("grown", "at once"))
    assert grown["documents"] == whole["documents"] == 12
    assert grown["rankers"]["bm25-doc"] == whole["rankers"]["bm25-doc"]
    text = pages.page({"words": record | {"provenance": "- made by a test"}})
    assert str(tmp_path) not in json.dumps(record)
    assert all(f"| `{name}` |" in text for name in serving.RANKERS)
    assert "- made by a test" in text


def test_copies_are_changed_and_the_same_each_time() -> None:
    serving, collection = module("bench_serving"), word_collection()
    made = serving.changed_copies(collection, 20)
    assert made == serving.changed_copies(collection, 20)
    assert len(made) == 20
    assert not set(made) & set(collection.doc_ids.to_pylist())
    texts = collection.passages.texts.to_pylist()
    known = [set(text.split()) for text in texts]
    for passages in made.values():
        for passage in passages:
            words = passage.split()
            nearest = max(known, key=lambda words, mine=set(words): len(words & mine))
            assert passage not in texts or len(words) == 0
            assert len(set(words) - nearest) <= serving.WORDS


def test_pages_say_what_was_measured() -> None:
    pages = module("serving_pages")
    if (RESULTS / "serving.json").exists():
        records = json.loads((RESULTS / "serving.json").read_text(encoding="utf-8"))
        assert (RESULTS / "serving.md").read_text(encoding="utf-8") == pages.page(records)
    assert doctest.testmod(pages) == (0, 1)


def test_the_page_of_whole_commands() -> None:
    page = module("compare_seconds").page
    found = json.loads((RESULTS / "compare-seconds.json").read_text(encoding="utf-8"))
    assert (RESULTS / "compare-seconds.md").read_text(encoding="utf-8") == page(found)
    work = {"work": {"a": "`a`", "b": "`b`"}, "machine": "one"}
    first = {"user": 8, "system": 2, "wall": 12.5, "peak": 1000}
    versions = {"old": {"a": first, "b": {"user": 1, "system": 1}}, "new": {"a": {"user": 4, "system": 1}}}
    assert page(work | {"versions": versions}).splitlines()[4:] == [
        "| | old: CPU s, user + system | s | peak, MB | new: CPU s, user + system | s | peak, MB | × CPU |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| `a` | 8 + 2 | 12.5 | 1,000 | 4 + 1 |  |  | 0.50 |",
        "| `b` | 1 + 1 |  |  |  |  |  |  |",
    ]
