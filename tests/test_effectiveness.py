"""The effectiveness benchmark: groups of queries, a run on a small collection, pages that say what was measured."""

from __future__ import annotations

import gzip
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds import word_collection

from haybale.rankers import Learned, parse

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
RESULTS = BENCHMARKS / "results"


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def module(name: str) -> Any:
    return importlib.import_module(name)


def records() -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("effectiveness-*.json"))]


def test_the_best_ranker_is_the_default_one() -> None:
    assert parse(module("effectiveness").BEST).nested() == Learned().nested()


def test_groups_by_relevant_documents() -> None:
    collection = word_collection()
    groups = module("strata").by_relevant(collection, "dev")
    known = {doc for ids in collection.relevant_ids("train") for doc in ids}
    for row, ids in enumerate(collection.relevant_ids("dev")):
        seen = sum(doc in known for doc in ids)
        expected = "all seen" if seen == len(ids) else "some seen" if seen else "none seen"
        assert [name for name, members in groups.items() if members[row]] == [expected]


def test_groups_by_source(tmp_path: Path) -> None:
    lines = {"train": ["1\t0\tA\t1", "2\t9\tB\t2"], "dev": ["3\t0\tA\t1", "4\t0\tA\t7", "5\t0\tC\t1", '6\t0\t"B\t2']}
    (tmp_path / "queries").mkdir()
    for split, rows in lines.items():
        with gzip.open(tmp_path / "queries" / f"source.{split}.tsv.gz", "wt") as file:
            file.write("\n".join(rows) + "\n")
    groups = module("strata").by_source(tmp_path, ["5", "3", "4", "6"], "dev")
    assert {name: members.tolist() for name, members in groups.items()} == {
        "citing norm seen": [False, True, False, False],
        "citing law seen, norm not": [False, False, True, False],
        "citing law not seen": [True, False, False, True],
    }
    assert module("strata").by_source(tmp_path, ["5"], "test") == {}


@pytest.mark.parametrize("record", records(), ids=lambda record: record["collection"]["name"])
def test_pages_say_what_was_measured(record: dict[str, Any]) -> None:
    pages = module("effectiveness_pages")
    name = record["collection"]["name"]
    assert (RESULTS / f"effectiveness-{name}.md").read_text(encoding="utf-8") == pages.page(record)
    for split, rankers in record["rankers"].items():
        assert record["baseline"] in rankers, split
        assert not rankers[record["baseline"]]["against_baseline"]
        groups = record["strata"][split]
        counted = sum(groups[group]["queries"] for group in ("all seen", "some seen", "none seen"))
        assert counted == record["n_queries"][split]
        for ranker, values in groups["all seen"]["rankers"].items():  # a mean of groups is the mean of all
            parts = [groups[group] for group in ("all seen", "some seen", "none seen") if groups[group]["queries"]]
            total = sum(part["queries"] * part["rankers"][ranker]["MRR@10"] for part in parts)
            assert total / counted == pytest.approx(rankers[ranker]["measures"]["MRR@10"]), (ranker, values)


def test_the_readme_has_the_summary() -> None:
    pages = module("effectiveness_pages")
    whole = pages.summary(records())
    assert (RESULTS / "effectiveness.md").read_text(encoding="utf-8") == whole
    readme = (BENCHMARKS.parent / "README.md").read_text(encoding="utf-8")
    lines = [line for line in whole.split("Recall@100:")[0].splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(records())
    assert "\n".join(lines) in readme


def test_the_benchmark_on_a_small_collection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    effectiveness, pages = module("effectiveness"), module("effectiveness_pages")
    words = word_collection()
    test = type(words.splits["dev"])(**(vars(words.splits["dev"]) | {"name": "test"}))
    whole = type(words)(**{**vars(words), "splits": {**words.splits, "test": test}})
    monkeypatch.setattr(effectiveness, "open_collection", lambda name: whole)
    small = {"n_bags": 12, "n_jobs": 1, "n_train": 4, "n_candidates": 5}
    record = effectiveness.measured(str(tmp_path), tmp_path / "runs", width=6, values=small)
    assert record["rankers"]["dev"].keys() == record["rankers"]["test"].keys()
    # dev and test are the same queries here, and no ranker may tell them apart.
    for ranker, values in record["rankers"]["dev"].items():
        assert values["measures"] == record["rankers"]["test"][ranker]["measures"], ranker
    assert [row["cold"] for row in record["cold"]] == list(effectiveness.COLD)
    at_default = next(row for row in record["cold"] if row["cold"] == 0.3)
    assert at_default["MRR@10"] == pytest.approx(record["rankers"]["dev"][record["best"]]["measures"]["MRR@10"])
    weights = record["facts"][record["best"]]
    assert {"training queries", "of them new", "cold", "bm25 rank", "bm25-doc level", "svr-doc score"} <= weights.keys()
    assert np.isfinite(record["seconds"]["all"])
    text = pages.page(json.loads(json.dumps(record)))
    assert "| **best** |" in text
    assert str(tmp_path) not in text
    assert (tmp_path / "runs" / "words" / "bm25.trec").is_file()
    assert all("bags have no relevant row" in str(found.message) for found in recwarn.list)
    assert "effectiveness" in sys.modules
