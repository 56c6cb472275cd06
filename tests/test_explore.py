"""The exploration of the ensemble: every variation is one change, and the script writes what it measured."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from worlds import word_collection

from haybale.collections import Collection
from haybale.ensemble import SVREnsemble
from haybale.experiments import Settings
from haybale.experiments.document_ensemble import SEARCHES, SPARSE_GAMMA
from haybale.experiments.rankers import run_of
from haybale.experiments.workbench import TRAIN_SAMPLE
from haybale.retrieval import Run

MODULES = ("explore_variations", "explore_fits", "explore_measures", "explore_ensemble", "provenance")


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A script by its name; what they import is forgotten afterwards."""
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "benchmarks")
    yield lambda name: importlib.import_module(f"explore_{name}")
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def words() -> Collection:
    return word_collection(n_train=80, n_dev=12, n_documents=30)


def test_every_variation_is_one_change(scripts: Any) -> None:
    variations = scripts("variations")
    rows = variations.VARIATIONS
    assert len({(row.group, row.label) for row in rows}) == len(rows)
    assert len({repr({**vars(row), "group": "", "label": ""}) for row in [variations.DEFAULT, *rows]}) == len(rows) + 1
    assert set(SEARCHES) == set(variations.SEARCHES)
    defaults = SVREnsemble().get_params() | {"gamma": SPARSE_GAMMA}
    for row in rows:
        ensemble = SVREnsemble(**row.parameters)
        ensemble._validate_params()
        if row.space == "tfidf" and row.ranker == "svr-doc":
            assert all(value != defaults[name] for name, value in row.parameters.items()), row
        assert set(row.searches) <= set(SEARCHES)
    settings = Settings()
    assert settings.train_document_candidates == variations.TAUGHT
    assert settings.document_candidates == variations.RANKED


def test_the_first_row_is_the_ranker(scripts: Any, words: Collection) -> None:
    fits, variations = scripts("fits"), scripts("variations")
    benches = fits.Benches(words, Settings(n_jobs=1, train_document_candidates=fits.DEEPEST))
    runs, _ = fits.runs_of(benches, variations.DEFAULT)
    other = fits.Benches(words, Settings(n_jobs=1))
    for part in (TRAIN_SAMPLE, "dev"):
        expected = run_of(other.tfidf, "svr-doc", part)
        assert runs[part].query_ids == expected.query_ids
        assert any(expected[query] for query in expected.query_ids)
        for query in expected.query_ids:
            assert [doc for doc, _ in runs[part][query]] == [doc for doc, _ in expected[query]]


def test_without_intercepts_the_order_is_the_same(scripts: Any, words: Collection) -> None:
    fits, variations = scripts("fits"), scripts("variations")
    benches = fits.Benches(words, Settings(n_jobs=1, train_document_candidates=fits.DEEPEST))
    wide = {"gamma": (2.0, 2.5)}  # nothing is near float32's limits
    with_them, _ = fits.runs_of(benches, variations.Variation("", "", wide))
    without, _ = fits.runs_of(benches, variations.Variation("", "", wide, intercepts=False))
    for part in (TRAIN_SAMPLE, "dev"):
        for query in with_them[part].query_ids:
            a, b = with_them[part][query], without[part][query]
            shift = a[0][1] - dict(b)[a[0][0]]
            assert dict(a) == pytest.approx({doc: score + shift for doc, score in b}, abs=1e-6)


def test_fewer_queries_and_pairs_both_ways(scripts: Any, words: Collection) -> None:
    fits, variations = scripts("fits"), scripts("variations")
    bench = fits.Benches(words, Settings(n_jobs=1, train_document_candidates=fits.DEEPEST)).tfidf
    half = variations.Variation("", "", {"n_bags": 5}, share=0.5)
    candidates = fits.taught(bench, half)
    ensemble = fits.fitted(bench, half, [bench], candidates)
    assert ensemble.seen_.any(axis=1).sum() == 40
    np.testing.assert_array_equal(ensemble.seen_.any(axis=1), (candidates.passages >= 0).any(axis=1))
    both = variations.Variation("", "", {"n_bags": 5}, symmetric=True)
    ensemble = fits.fitted(bench, both, [bench], fits.taught(bench, both))
    own = bench.own("train")
    numbers = [words.document_numbers(ids) for ids in words.relevant_ids("train")]
    pairs = [(q, d) for q, each in enumerate(numbers) for d in each if d != own[q]]
    place = {d: 80 + i for i, d in enumerate(sorted({d for _, d in pairs}))}
    assert len(ensemble.seen_) == 80 + len(place)
    # A bag that was taught the document as a query was taught this query as its document.
    assert all((ensemble.seen_[place[d]] <= ensemble.seen_[q]).all() for q, d in pairs)
    assert any(ensemble.seen_[place[d]].any() for _, d in pairs)
    assert fits.ranked(bench, both, [bench], ensemble, "dev").query_ids == bench.query_ids("dev")
    # None of the documents drawn at random is the query's own.
    drawn = fits.at_random(bench, candidates)
    assert ((drawn.passages >= 0).sum(axis=1) == (candidates.passages >= 0).sum(axis=1)).all()
    assert not (drawn.passages == own[:, None]).any()


def test_scores_are_rescaled_and_rankings_are_not(scripts: Any) -> None:
    measures = scripts("measures")
    columns = {"query_id": ["q", "q", "r"], "doc_id": ["a", "b", "a"], "score": [-2.0, -4.0, 0.5]}
    run = Run.from_frame(pd.DataFrame(columns))
    assert measures.rescaled(run, "divided")["q"] == [("a", -1.0), ("b", -2.0)]
    assert measures.rescaled(run, "divided")["r"] == [("a", 1.0)]
    assert measures.rescaled(run, "centred")["q"] == [("a", 1.0), ("b", -1.0)]
    assert measures.rescaled(run, "level") is run


def test_the_script_measures_and_writes(scripts: Any, words: Collection, tmp_path: Path) -> None:
    explore, variations = scripts("ensemble"), scripts("variations")
    rows = [
        variations.Variation("C", "10", {"C": 10.0}),
        variations.Variation("bags", "nearest", {"strategy": "regions", "n_bags": 5, "routes": 2}),
    ]
    explore.explore(explore.fewer(words, 60), rows, tmp_path, "python explore")
    page = json.loads((tmp_path / "explore-words.json").read_text(encoding="utf-8"))
    assert page["counts"]["train"] == 60
    assert [row["group"] for row in page["rows"]] == [variations.DEFAULT.group, "C", "bags"]
    for row in page["rows"][:2]:
        assert {*explore.COLUMNS} - {"memory MRR@10, none seen", "fused MRR@10, none seen"} <= {*row}
    assert page["rows"][2].keys().isdisjoint({"out of bag MRR@10", "fused MRR@10"})
    bench = scripts("fits").Benches(explore.fewer(words, 60), Settings(n_jobs=1)).tfidf
    expected = scripts("measures").measured(bench, run_of(bench, "svr-doc", "dev"), "dev")["MRR@10"].mean()
    assert page["rows"][0]["memory MRR@10"] == pytest.approx(expected)
    text = (tmp_path / "explore-words.md").read_text(encoding="utf-8")
    assert "| C | 10 |" in text
    assert all(f"`{name}`" in text for name in explore.REFERENCES)


def test_what_differs(scripts: Any) -> None:
    measures = scripts("measures")
    assert measures.differs(np.array([1.0, 0.9, 1.0, 0.8]), np.zeros(4))
    assert not measures.differs(np.array([1.0, -1.0, 1.0, -0.9]), np.zeros(4))


def test_the_pages_are_what_the_script_makes(scripts: Any) -> None:
    explore = scripts("ensemble")
    found = sorted((Path(__file__).parent.parent / "benchmarks" / "results").glob("explore-*.json"))
    assert found
    for path in found:
        page = json.loads(path.read_text(encoding="utf-8"))
        assert path.with_suffix(".md").read_text(encoding="utf-8") == explore.text_of(page), path.name
        assert "with changes" not in page["provenance"]
        assert "not run" in explore.left_out(page | {"rows": page["rows"][:1]}).values()
