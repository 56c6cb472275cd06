"""The benchmark of protocols: its counts against slow ones, its files and its page against what was measured."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds import word_collection, world

from haybale.engine import Engine
from haybale.ensemble import CandidateRows, SVREnsemble, candidate_rows
from haybale.evaluation import classify_injected
from haybale.retrieval import Hits, PassageIndex

ROOT = Path(__file__).parent.parent
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("protocols-*.json"))


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A script of benchmarks/ by its name; what they import is forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    yield lambda name: importlib.import_module(name)
    for name in set(sys.modules) - before:
        if name.startswith(("bench_protocols", "protocol_", "provenance")):
            del sys.modules[name]


@pytest.fixture
def figures(scripts: Any) -> Any:
    return scripts("protocol_figures")


# counts ---------------------------------------------------------------------------------------------------


def small() -> tuple[PassageIndex, Any, Hits, tuple[Any, Any]]:
    """An index, queries, their five nearest passages, and two relevant documents each."""
    index, queries, relevant = world(n_documents=20, n_queries=12)
    near = index.search(queries, 5)
    wanted = sorted({(i, (int(ids[0][1:]) + more) % 20) for i, ids in enumerate(relevant) for more in (0, 7)})
    rows, documents = zip(*wanted, strict=True)
    return index, queries, near, (np.array(rows), np.array(documents))


def test_injected_candidates_are_those_of_the_protocol(figures: Any) -> None:
    index, queries, near, pairs = small()
    found = figures.candidates(near, pairs, figures.representatives("last", index, queries, pairs), index)
    relevant = [[f"d{d}" for d in pairs[1][pairs[0] == row]] for row in range(len(queries))]
    expected = candidate_rows("injected", near, relevant, index, queries)
    for name in ("query", "passage", "label", "place"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    true = figures.candidates(near, pairs, index.doc_offsets[pairs[1] + 1] - 1, index, true_labels=True)
    relevant = set(zip(*pairs, strict=True))
    assert true.label.tolist() == [
        (q, index.doc_of[p]) in relevant for q, p in zip(true.query, true.passage, strict=True)
    ]
    assert true.label.sum() > found.label.sum()


def test_representatives(figures: Any) -> None:
    index, queries, _, pairs = small()
    for choice in figures.CHOICES:
        passages = figures.representatives(choice, index, queries, pairs)
        np.testing.assert_array_equal(index.doc_of[passages], pairs[1])
    similarity = queries @ index.vectors.T
    for row, passage in zip(pairs[0], passages, strict=True):  # the last choice is the nearest
        document = index.doc_of == index.doc_of[passage]
        assert similarity[row, passage] == similarity[row][document].max()
    with pytest.raises(ValueError, match="expected one of last, random, nearest, found 'first'"):
        figures.representatives("first", index, queries, pairs)


def test_rules_against_loops(figures: Any) -> None:
    index, queries, near, pairs = small()
    injected = figures.representatives("last", index, queries, pairs)
    rows = figures.candidates(near, pairs, injected, index)
    seen = CandidateRows(
        np.zeros(5, dtype=np.int32), rows.passage[[0, 0, 0, 1, 1]], np.array([1, 1, 0, 1, 0], dtype=np.int8)
    )
    found = figures.rules(rows, near, index, seen)
    listed = list(zip(rows.query, rows.passage, strict=True))
    for i, (query, passage) in enumerate(listed):
        document = index.doc_of[passage]
        assert found["everything"][i]
        assert found["last"][i] == (passage == np.flatnonzero(index.doc_of == document)[-1])
        assert found["seen"][i] == (passage == rows.passage[0])
        assert found["absent"][i] == (passage not in near.passages[query])
        assert found["absent or twice"][i] == (found["absent"][i] or listed.count((query, passage)) == 2)
    assert found["absent or twice"].sum() > found["absent"].sum()
    assert found["last"][rows.label > 0].all()


def test_decisions_by_hand(figures: Any) -> None:
    index = PassageIndex(np.eye(6, dtype=np.float32), np.array([0, 2, 4, 6]), doc_ids=["a", "b", "c"])
    near = Hits(np.array([[0, 1, 2], [5, 3, -1]]), np.array([[3, 2, 1], [2, 1, -np.inf]], dtype=np.float32))
    pairs = np.array([0, 0, 1]), np.array([0, 2, 1])  # a and c for the first query, b for the second
    said = np.array([True, True, True, True, False])
    found = figures.decisions(said, near, pairs, index)
    assert found["precision"] == 2 / 4
    assert found["recall"] == 1 / 3  # a, once, though two of its passages are said
    assert found["f1"] == pytest.approx(2 * (1 / 2) * (1 / 3) / (1 / 2 + 1 / 3))
    assert found["said a query"] == 2.0
    assert found["queries answered"] == 1.0
    assert set(figures.decisions(np.zeros(5, dtype=bool), near, pairs, index).values()) == {0.0}


def test_votes_and_curve(figures: Any) -> None:
    index, queries, near, pairs = small()
    rows = figures.candidates(near, pairs, figures.representatives("random", index, queries, pairs), index)
    ensemble = SVREnsemble.as_published(n_bags=4).fit_rows(index, queries, rows)
    key = figures.keys(rows.query, rows.passage, index)
    votes = figures.Votes(ensemble, queries, key)[key]
    for i in (0, 7, len(rows) - 1):
        alone = ensemble.votes(queries[rows.query[i]][None], np.array([[rows.passage[i]]]))
        assert votes[i] == alone[0, 0]
    points = figures.curve(votes, rows.label > 0)
    assert [point["votes"] for point in points] == list(figures.VOTES)
    assert all(a["recall"] >= b["recall"] for a, b in itertools.pairwise(points))


def test_rows_held_back(figures: Any) -> None:
    index, _, near, pairs = small()
    rows = figures.candidates(near, pairs, index.doc_offsets[pairs[1]], index)
    kept, apart = figures.held_back(rows, 0.3)
    assert len(kept) + len(apart) == len(rows)
    assert set(apart.query) & set(kept.query)
    assert len(apart)


# the whole ------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*bags have no relevant row")
def test_a_small_collection(scripts: Any) -> None:
    engine = Engine(word_collection(), encoder="lsa", width=6)
    found = scripts("bench_protocols").compared(engine, "dev", 8000, n_bags=3, k=6)
    expected = asdict(classify_injected(engine, "dev", n_bags=3, k=6).figures)
    assert found["paper"]["injected"][0] == {"votes": 1} | expected
    assert found["choices"]["last"]["train and test"] == found["paper"]["injected"][0]
    assert found["rules"]["last"]["recall"] == found["rules"]["everything"]["recall"] == 1.0
    assert found["rules"]["absent"]["precision"] == 1.0
    ceiling = found["everything"]["recall"]
    assert all(point["recall"] <= ceiling for point in found["decisions"])
    assert set(found["rankings"]) == set(scripts("protocol_tables").RANKINGS)
    json.dumps(found)
    text = scripts("protocol_tables").page(found | {"provenance": "- made by a test"})
    assert "{" not in text
    assert "- made by a test" in text


@pytest.mark.parametrize("source", RESULTS, ids=lambda path: path.stem)
def test_result_files(source: Path, scripts: Any) -> None:
    found = json.loads(source.read_text(encoding="utf-8"))
    page = scripts("protocol_tables").page(found)
    assert page == source.with_suffix(".md").read_text(encoding="utf-8")
    assert "with changes" not in found["provenance"]


def test_the_page_is_what_the_script_makes(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("protocols", ROOT / "docs" / "protocols.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.make(tmp_path)
    page = (tmp_path / "protocols.md").read_text(encoding="utf-8")
    assert page == (ROOT / "docs" / "protocols.md").read_text(encoding="utf-8")
    assert "{" not in page
