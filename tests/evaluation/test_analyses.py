"""Recall curves against ir_measures, found sets and paragraph relations against loops."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haybale.errors import InputError
from haybale.evaluation import evaluate, found_sets, paragraph_relations, recall_curves
from haybale.retrieval import Hits, Run


def run_of(*ranked: tuple[str, str]) -> Run:
    """A run with these pairs, the first of each query first."""
    rows = [(query, doc, -float(place)) for place, (query, doc) in enumerate(ranked)]
    return Run.from_frame(pd.DataFrame(rows, columns=["query_id", "doc_id", "score"]))


def qrels_of(*pairs: tuple[str, str, int]) -> pd.DataFrame:
    return pd.DataFrame(pairs, columns=["query_id", "doc_id", "relevance"])


pair = st.tuples(st.sampled_from([f"q{i}" for i in range(4)]), st.sampled_from([f"d{i}" for i in range(8)]))
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


@settings(max_examples=50, deadline=None)
@given(one=runs, other=runs, qrels=judgements, depth=st.integers(1, 6))
def test_found_sets_are_those_of_a_loop(one: Run, other: Run, qrels: pd.DataFrame, depth: int) -> None:
    expected = []
    for query, doc, _ in qrels[qrels["relevance"] > 0].itertuples(index=False):
        ranked = [[d for d, _ in run[query]][:depth] if query in run.query_ids else [] for run in (one, other)]
        places = [docs.index(doc) + 1 if doc in docs else None for docs in ranked]
        a, b = (place is not None for place in places)
        expected.append((query, doc, "both" if a and b else "a" if a else "b" if b else "none", *places))
    pairs = found_sets(one, other, qrels, depth)
    assert list(pairs.columns) == ["query_id", "doc_id", "found_by", "rank_a", "rank_b"]
    found = pairs.astype(object).where(pairs.notna(), None)
    assert list(found.itertuples(index=False, name=None)) == expected
    with pytest.raises(InputError, match="'k' parameter of found_sets"):
        found_sets(one, other, qrels, 0)


def offsets_of(lengths: list[int]) -> np.ndarray:
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_paragraph_relations_are_those_of_three_loops(data: st.DataObject) -> None:
    """Queries and documents of 0 to 5 paragraphs, random hits with padding, relevant pairs that may repeat."""
    lengths = st.lists(st.integers(0, 5), min_size=1, max_size=5).filter(any)
    offsets, doc_offsets = offsets_of(data.draw(lengths)), offsets_of(data.draw(lengths))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    n, k, size = int(doc_offsets[-1]), data.draw(st.integers(0, 6)), data.draw(st.integers(1, 6))
    passages = np.full((offsets[-1], k), -1)
    for row in passages:
        filled = rng.integers(0, min(n, k) + 1)
        row[:filled] = rng.permutation(n)[:filled]
    hits = Hits(passages, np.zeros(passages.shape, dtype=np.float32))
    n_pairs = data.draw(st.integers(0, 10))
    relevant = rng.integers(0, len(offsets) - 1, n_pairs), rng.integers(0, len(doc_offsets) - 1, n_pairs)
    names = [
        [*map(str, range(min(m, size))), *(["later"] if m > size else [])]
        for m in (np.diff(each).max() for each in (offsets, doc_offsets))
    ]
    counts, pairs = np.zeros((2, *map(len, names)), dtype=np.int64)
    for query, document in set(zip(relevant[0].tolist(), relevant[1].tolist(), strict=True)):
        for i, row in enumerate(range(*offsets[query : query + 2])):
            for j, passage in enumerate(range(*doc_offsets[document : document + 2])):
                pairs[min(i, size), min(j, size)] += 1
                counts[min(i, size), min(j, size)] += passage in passages[row].tolist()
    found = paragraph_relations(hits, offsets, doc_offsets, relevant, size=size)
    for frame, expected in zip(found, (counts, pairs), strict=True):
        pd.testing.assert_frame_equal(frame, pd.DataFrame(expected, *names), check_names=False)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"size": 0}, "'size' parameter of paragraph_relations"),
        ({"offsets": np.array([0, 1])}, "offsets must rise from 0 to the number of rows of hits"),
        ({"doc_offsets": np.array([0, 3, 2])}, "doc_offsets must rise from 0"),
        ({"doc_offsets": np.array([0, 1, 2])}, "hits: passage 2 is not among the 2 there are"),
        ({"relevant": (np.array([1]), np.array([0]))}, "query row 1 is not among the 1 there are"),
        ({"relevant": (np.array([0]), np.array([-1]))}, "document -1 is not among the 2 there are"),
    ],
)
def test_what_does_not_fit_together_is_refused(wrong: dict[str, object], message: str) -> None:
    hits = Hits(np.array([[0, 2], [1, -1]]), np.zeros((2, 2), dtype=np.float32))
    right = {
        "offsets": np.array([0, 2]),
        "doc_offsets": np.array([0, 2, 3]),
        "relevant": (np.array([0]), np.array([0])),
    }
    with pytest.raises(InputError, match=message):
        paragraph_relations(hits, **{**right, **wrong})  # type: ignore[arg-type]
