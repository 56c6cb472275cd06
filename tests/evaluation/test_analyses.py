"""Recall curves against ir_measures, found sets and paragraph relations against loops; and their figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haybale.collections import Collection
from haybale.errors import InputError
from haybale.evaluation import (
    evaluate,
    found_sets,
    found_table,
    paragraph_relations,
    plot_recall,
    recall_curves,
)
from haybale.retrieval import Hits, Run

QUERIES, DOCUMENTS = [f"q{i}" for i in range(4)], [f"d{i}" for i in range(8)]


def run_of(*ranked: tuple[str, str]) -> Run:
    """A run with these pairs, the first of each query first."""
    rows = [(query, doc, -float(place)) for place, (query, doc) in enumerate(ranked)]
    return Run.from_frame(pd.DataFrame(rows, columns=["query_id", "doc_id", "score"]))


def qrels_of(*pairs: tuple[str, str, int]) -> pd.DataFrame:
    return pd.DataFrame(pairs, columns=["query_id", "doc_id", "relevance"])


pair = st.tuples(st.sampled_from(QUERIES), st.sampled_from(DOCUMENTS))
runs = st.lists(pair, unique=True, max_size=30).map(lambda pairs: run_of(*pairs))
judgements = (
    st.dictionaries(pair, st.integers(0, 2), min_size=1)
    .filter(lambda grades: any(grades.values()))
    .map(lambda grades: qrels_of(*((q, d, g) for (q, d), g in grades.items())))
)


@settings(max_examples=50, deadline=None)
@given(one=runs, other=runs, qrels=judgements)
def test_recall_curves_are_ir_measures_recall(one: Run, other: Run, qrels: pd.DataFrame) -> None:
    cutoffs = [7, 1, 2, 3, 5]
    frame = recall_curves({"one": one, "other": other}, qrels, cutoffs)
    assert frame.index.tolist() == sorted(cutoffs)
    for name, run in (("one", one), ("other", other)):
        expected = evaluate(run, qrels, [f"Recall@{k}" for k in sorted(cutoffs)]).mean().to_numpy()
        np.testing.assert_allclose(frame[name].to_numpy(), expected, atol=1e-12)


def test_default_cutoffs_go_as_far_as_the_deepest_run() -> None:
    qrels = qrels_of(("a", "x30", 1), ("b", "x0", 1))
    shallow, deep = (run_of(*(("a", f"x{i}") for i in range(n))) for n in (3, 49))
    assert recall_curves({"s": shallow}, qrels).index.tolist() == [1, 2]
    assert recall_curves({"s": shallow, "d": deep}, qrels).index.tolist() == [1, 2, 5, 10, 20]
    assert recall_curves({"e": Run.from_numbers(["a"], [], [], [], [])}, qrels)["e"].to_dict() == {1: 0.0}
    assert recall_curves({"d": deep}, qrels, [50])["d"].to_dict() == {50: 0.5}  # b is not in the run: 0
    for those, judged, cutoffs, message in [
        ({}, qrels, None, "no run"),
        ({"d": deep}, qrels, [], "cut-offs must be 1 or more"),
        ({"d": deep}, qrels, [0, 5], "cut-offs must be 1 or more"),
        ({"d": deep}, qrels_of(("a", "x", 0)), None, "no relevant document"),
    ]:
        with pytest.raises(InputError, match=message):
            recall_curves(those, judged, cutoffs)


def test_the_figures(tmp_path: Path) -> None:
    """The same bytes whenever the same is drawn."""
    run = run_of(*(("a", f"x{i}") for i in range(12)))
    frame = recall_curves({"bm25": run, "parm": run}, qrels_of(("a", "x3", 1)))
    figure, _ = [plot_recall(frame, tmp_path / name) for name in ("1.svg", "2.svg")]
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("cut-off", "recall")
    assert [line.get_ydata().tolist() for line in axes.get_lines()] == [[0, 0, 1, 1]] * 2
    found = paragraph_relations(**SMALL)  # type: ignore[arg-type]
    figure, _ = [found.plot(tmp_path / name, title="BM25") for name in ("3.svg", "4.svg")]
    axes, bar = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("paragraph of a relevant document", "paragraph of the query")
    assert (axes.get_title(), bar.get_ylabel()) == ("BM25", "hits")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "1"]
    assert axes.get_images()[0].get_array().tolist() == [[1, 0], [0, 1]]
    assert found.plot(normalize=True).axes[1].get_ylabel() == "share retrieved"
    files = [(tmp_path / f"{number}.svg").read_bytes() for number in (1, 2, 3, 4)]
    assert files[0] == files[1] != files[2] == files[3]


@settings(max_examples=50, deadline=None)
@given(one=runs, other=runs, qrels=judgements, depth=st.integers(1, 6))
def test_found_sets_are_those_of_a_loop(one: Run, other: Run, qrels: pd.DataFrame, depth: int) -> None:
    sets = found_sets(one, other, qrels, depth)
    expected = []
    for query, doc, grade in qrels.itertuples(index=False):
        if grade <= 0:
            continue
        places = []
        for run in (one, other):
            ranked = [d for d, _ in run[query]][:depth] if query in run.query_ids else []
            places.append(ranked.index(doc) + 1 if doc in ranked else None)
        a, b = (place is not None for place in places)
        expected.append((query, doc, "both" if a and b else "a" if a else "b" if b else "none", *places))
    found = sets.pairs.astype(object).where(sets.pairs.notna(), None)
    assert list(found.columns) == ["query_id", "doc_id", "found_by", "rank_a", "rank_b"]
    assert list(found.itertuples(index=False, name=None)) == expected
    assert sum(sets.counts.values()) == len(expected)
    assert sets.counts["a"] == sum(row[2] == "a" for row in expected)
    with pytest.raises(InputError, match="k must be 1 or more; found 0"):
        found_sets(one, other, qrels, 0)


def test_the_table_of_found_sets() -> None:
    qrels = qrels_of(*(("q", f"d{i}", 1) for i in range(7)), ("q", "d7", 0))
    parm = run_of(*(("q", f"d{i}") for i in range(4)))
    doc = run_of(("q", "d3"), ("q", "d4"), ("q", "d7"))
    both = {"deep": found_sets(parm, doc, qrels), "shallow": found_sets(parm, doc, qrels, 1)}
    assert found_table(both, ("PARM", "Doc")).splitlines() == [
        "| | deep | shallow |",
        "| --- | ---: | ---: |",
        "| relevant | 7 | 7 |",
        "| PARM | 4 | 1 |",
        "| Doc | 2 | 1 |",
        "| PARM ∩ Doc | 1 | 0 |",
        "| PARM ∖ Doc | 3 | 1 |",
        "| Doc ∖ PARM | 1 | 1 |",
    ]


def offsets_of(lengths: list[int]) -> np.ndarray:
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Hits, np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray], int]:
    """Queries and documents of 0 to 5 paragraphs, random hits with padding, relevant pairs that may repeat."""
    lengths = st.lists(st.integers(0, 5), min_size=1, max_size=5).filter(any)
    offsets, doc_offsets = offsets_of(draw(lengths)), offsets_of(draw(lengths))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    n, k = int(doc_offsets[-1]), draw(st.integers(0, 6))
    passages = np.full((offsets[-1], k), -1)
    for row in passages:
        filled = rng.integers(0, min(n, k) + 1)
        row[:filled] = rng.permutation(n)[:filled]
    hits = Hits(passages, np.zeros(passages.shape, dtype=np.float32))
    n_pairs = draw(st.integers(0, 10))
    relevant = rng.integers(0, len(offsets) - 1, n_pairs), rng.integers(0, len(doc_offsets) - 1, n_pairs)
    return hits, offsets, doc_offsets, relevant, draw(st.integers(1, 6))


@settings(max_examples=150, deadline=None)
@given(world=worlds())
def test_paragraph_relations_are_those_of_three_loops(
    world: tuple[Hits, np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray], int],
) -> None:
    hits, offsets, doc_offsets, relevant, size = world
    names = [
        [*map(str, range(min(n, size))), *(["later"] if n > size else [])]
        for n in (np.diff(each).max() for each in (offsets, doc_offsets))
    ]
    counts, pairs = np.zeros((2, *map(len, names)), dtype=np.int64)
    for query, document in set(zip(relevant[0].tolist(), relevant[1].tolist(), strict=True)):
        for i, row in enumerate(range(*offsets[query : query + 2])):
            for j, passage in enumerate(range(*doc_offsets[document : document + 2])):
                pairs[min(i, size), min(j, size)] += 1
                counts[min(i, size), min(j, size)] += passage in hits.passages[row].tolist()
    found = paragraph_relations(hits, offsets, doc_offsets, relevant, size=size)
    assert [found.rows, found.columns] == names
    assert found.counts.dtype == found.pairs.dtype == np.int64
    np.testing.assert_array_equal(found.counts, counts)
    np.testing.assert_array_equal(found.pairs, pairs)
    rates = found.to_frame(normalize=True).to_numpy()
    np.testing.assert_array_equal(np.isnan(rates), pairs == 0)
    np.testing.assert_allclose(rates[pairs > 0], counts[pairs > 0] / pairs[pairs > 0])


def test_a_split_has_what_paragraph_relations_read(toy: Collection) -> None:
    """Two paragraphs a query; every query's first finds its document's first and last passage, its second none."""
    part = toy.split("dev")
    paragraphs = np.concatenate([np.arange(*toy.queries.offsets[q : q + 2]) for q in part.queries])
    assert len(paragraphs) == 8
    wanted = dict(zip(*part.relevant_rows(), strict=True))
    passages = np.full((8, 2), -1)
    for query in range(4):
        start, end = toy.passages.doc_offsets[wanted[query] : wanted[query] + 2]
        passages[2 * query] = start, end - 1
    hits = Hits(passages, np.zeros((8, 2), dtype=np.float32))
    found = paragraph_relations(hits, np.arange(0, 9, 2), toy.passages.doc_offsets, part.relevant_rows())
    assert found.counts.tolist() == [[4, 0, 4], [0, 0, 0]]
    assert found.rates.tolist() == [[1, 0, 1], [0, 0, 0]]


SMALL = {
    "hits": Hits(np.array([[0, 2], [1, -1]]), np.zeros((2, 2), dtype=np.float32)),
    "offsets": np.array([0, 2]),
    "doc_offsets": np.array([0, 2, 3]),
    "relevant": (np.array([0]), np.array([0])),
}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"size": 0}, "size must be 1 or more; found 0"),
        ({"offsets": np.array([0, 1])}, "offsets must rise from 0 to the number of rows of hits, 2"),
        ({"doc_offsets": np.array([0, 3, 2])}, "doc_offsets must rise from 0"),
        ({"doc_offsets": np.array([0, 1, 2])}, "hits: passage 2 is not among the 2 there are"),
        ({"relevant": (np.array([1]), np.array([0]))}, "query row 1 is not among the 1 there are"),
        ({"relevant": (np.array([0]), np.array([-1]))}, "document -1 is not among the 2 there are"),
    ],
)
def test_what_does_not_fit_together_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        paragraph_relations(**{**SMALL, **wrong})  # type: ignore[arg-type]
