"""The benchmark of protocols: what it counts, against slow ways and by hand."""

from __future__ import annotations

import importlib
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

from haybale import Engine, Hits, PassageIndex, SVREnsemble
from haybale.ensemble import CandidateRows, candidate_rows
from haybale.evaluation import classify_injected

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(BENCHMARKS)
    yield importlib.import_module("bench_protocols")
    for name in ("bench_protocols", "protocol_tables", "provenance"):
        del sys.modules[name]


@pytest.fixture(scope="module")
def small() -> tuple[PassageIndex, Any, Hits, tuple[Any, Any]]:
    """An index, queries, their five nearest passages, and two relevant documents each."""
    index, queries, relevant = world(n_documents=20, n_queries=12)
    wanted = sorted({(i, (int(ids[0][1:]) + more) % 20) for i, ids in enumerate(relevant) for more in (0, 7)})
    rows, documents = zip(*wanted, strict=True)
    return index, queries, index.search(queries, 5), (np.array(rows), np.array(documents))


def test_candidates(counts: Any, small: Any) -> None:
    index, queries, near, pairs = small
    rows = counts.candidates(near, pairs, counts.representatives("last", index, queries, pairs), index)
    expected = candidate_rows("injected", near, pairs, index, queries)
    for name in ("query", "passage", "label"):
        np.testing.assert_array_equal(getattr(rows, name), getattr(expected, name))
    relevant = set(zip(*pairs, strict=True))
    right = [(q, index.doc_of[p]) in relevant for q, p in zip(rows.query, rows.passage, strict=True)]
    assert counts.relevant_rows(rows.query, rows.passage, pairs, index).tolist() == right
    kept, apart = counts.held_back(rows, 0.3)
    assert len(kept) + len(apart) == len(rows)
    assert set(apart.query) & set(kept.query)


def test_representatives(counts: Any, small: Any) -> None:
    index, queries, _, pairs = small
    for choice in counts.CHOICES:
        passages = counts.representatives(choice, index, queries, pairs)
        np.testing.assert_array_equal(index.doc_of[passages], pairs[1])
    similarity = queries @ index.vectors.T
    for row, passage in zip(pairs[0], passages, strict=True):  # the last choice is the nearest
        document = index.doc_of == index.doc_of[passage]
        assert similarity[row, passage] == similarity[row][document].max()


def test_rules_against_loops(counts: Any, small: Any) -> None:
    index, queries, near, pairs = small
    rows = counts.candidates(near, pairs, counts.representatives("last", index, queries, pairs), index)
    passages, labels = rows.passage[[0, 0, 0, 1, 1]], np.array([1, 1, 0, 1, 0], dtype=np.int8)
    found = counts.rules(rows, near, index, CandidateRows(np.zeros(5, dtype=np.int32), passages, labels))
    listed = list(zip(rows.query, rows.passage, strict=True))
    for i, (query, passage) in enumerate(listed):
        assert found["everything"][i]
        assert found["last"][i] == (passage == np.flatnonzero(index.doc_of == index.doc_of[passage])[-1])
        assert found["seen"][i] == (passage == rows.passage[0])
        assert found["absent"][i] == (passage not in near.passages[query])
        assert found["absent or twice"][i] == (found["absent"][i] or listed.count((query, passage)) == 2)
    assert found["absent or twice"].sum() > found["absent"].sum()
    assert found["last"][rows.label > 0].all()


def test_decisions_by_hand(counts: Any) -> None:
    index = PassageIndex(np.eye(6, dtype=np.float32), np.array([0, 2, 4, 6]), doc_ids=["a", "b", "c"])
    near = Hits(np.array([[0, 1, 2], [5, 3, -1]]), np.array([[3, 2, 1], [2, 1, -np.inf]], dtype=np.float32))
    pairs = np.array([0, 0, 1]), np.array([0, 2, 1])  # a and c for the first query, b for the second
    found = counts.decisions(np.array([True, True, True, True, False]), near, pairs, index)
    assert found["precision"] == 2 / 4
    assert found["recall"] == 1 / 3  # a, once, though two of its passages are said
    assert found["f1"] == pytest.approx(2 * (1 / 2) * (1 / 3) / (1 / 2 + 1 / 3))
    assert (found["said a query"], found["queries answered"]) == (2.0, 1.0)
    assert set(counts.decisions(np.zeros(5, dtype=bool), near, pairs, index).values()) == {0.0}


def test_votes_and_curve(counts: Any, small: Any) -> None:
    index, queries, near, pairs = small
    rows = counts.candidates(near, pairs, counts.representatives("random", index, queries, pairs), index)
    ensemble = SVREnsemble.as_published(n_bags=4).fit_rows(index, queries, rows)
    key = counts.keys(rows.query, rows.passage, index)
    votes = counts.Votes("all", ensemble, queries, key)[key]
    for i in (0, 7, len(rows) - 1):
        alone = ensemble.votes(queries[rows.query[i]][None], np.array([[rows.passage[i]]]))
        assert votes[i] == alone[0, 0]
    points = counts.curve(votes, rows.label > 0)
    assert [point["votes"] for point in points] == list(counts.VOTES)
    assert all(a["recall"] >= b["recall"] for a, b in itertools.pairwise(points))


@pytest.mark.filterwarnings("ignore:.*bags have no relevant row")
def test_a_small_collection(counts: Any) -> None:
    engine = Engine(word_collection(), encoder="lsa", width=6)
    found = counts.compared(engine, "dev", 8000, n_bags=3, k=6)
    expected = asdict(classify_injected(engine, "dev", n_bags=3, k=6).figures)
    assert found["paper"]["injected"][0] == {"votes": 1} | expected
    assert found["choices"]["last"]["train and test"] == found["paper"]["injected"][0]
    assert found["rules"]["last"]["recall"] == found["rules"]["everything"]["recall"] == 1.0
    assert found["rules"]["absent"]["precision"] == 1.0
    assert all(point["recall"] <= found["everything"]["recall"] for point in found["decisions"])
    text = counts.page(json.loads(json.dumps(found)) | {"seconds": {}, "provenance": "- made by a test"})
    assert "{" not in text
    assert "- made by a test" in text
