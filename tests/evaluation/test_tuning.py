"""Tuning of BM25: values against comparisons, the search of the grid, ties, cross-validation, samples, errors."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from support.worlds import backwards, word_collection

from haybale.collections import Collection, CollectionBuilder
from haybale.errors import InputError
from haybale.evaluation import Tuned, compare, evaluate, tune_bm25
from haybale.evaluation.tuning import TuningWarning, _cross_validated, _largest_gain
from haybale.rankers import BM25

pytestmark = pytest.mark.filterwarnings("ignore::haybale.evaluation.tuning.TuningWarning")


@pytest.fixture(scope="module")
def words() -> Collection:
    return word_collection(n_dev=40, n_documents=30)


@pytest.mark.parametrize(("unit", "ranker"), [("passage", "bm25"), ("document", "bm25-doc")])
def test_values_are_those_of_comparisons(words: Collection, unit: str, ranker: str) -> None:
    tuned = tune_bm25(words, unit, k1=(2.0, 0.6), b=(0.9, 0.3), k3=(None, 1), measure="MRR@10")
    pairs = [(0.6, 0.3), (0.6, 0.9), (2.0, 0.3), (2.0, 0.9)]
    k1, b, k3, _ = max(tuned.grid, key=lambda row: row[3])
    near = {(*pair, k3) for pair in pairs} | {(k1, b, 1), (k1, b, None)}
    assert {row[:3] for row in tuned.grid} >= near | {(2.0, 0.3, 1), (2.0, 0.3, None)}  # where the search starts
    assert tuned.grid == sorted(tuned.grid, key=lambda row: (row[:2], row[2] is None))
    for k1, b, k3, value in [*tuned.grid, (1.2, 0.75, BM25(unit).k3, tuned.default)]:
        found = compare(words, {ranker: BM25(unit, k1=k1, b=b, k3=k3)}, baseline=ranker).results
        assert value == pytest.approx(found.values[ranker]["MRR@10"].mean(), abs=1e-12)
    default, gain = compare(words, ranker, baseline=ranker).results.values[ranker]["MRR@10"], {}
    for k1, b, k3, _ in tuned.grid:
        found = compare(words, {ranker: BM25(unit, k1=k1, b=b, k3=k3)}, baseline=ranker).results
        gain[k1, b, k3] = found.values[ranker]["MRR@10"] - default
    lower = {each: values.mean() - values.sem() for each, values in gain.items()}
    assert lower[tuned.k1, tuned.b, tuned.k3] == pytest.approx(max(lower.values()), abs=1e-12)
    assert (tuned.k1, tuned.b, tuned.k3, tuned.value) in tuned.grid
    assert tuned.n_queries == found.n_queries
    assert tuned.to_dict()["grid"][0] == {"k1": 0.6, "b": 0.3, "k3": 1, "value": tuned.grid[0][3]}
    assert json.loads(json.dumps(tuned.to_dict()))["language"] == "english"


def test_the_order_of_documents_changes_nothing(words: Collection) -> None:
    grid: dict[str, Any] = {"k1": (0.6, 1.2, 4.5), "b": (0.3, 0.75), "k3": (None, 1), "measure": "MRR@10"}
    assert tune_bm25(words, **grid) == tune_bm25(backwards(words), **grid)


def test_the_best_two_have_no_untried_neighbour(words: Collection) -> None:
    xs, ys, zs = (0.1, 0.6, 1.2, 3.0, 6.0, 12.0), (0.1, 0.3, 0.5, 0.75, 0.9, 1.0), (0.0, 8.0)
    tuned = tune_bm25(words, k1=xs, b=ys, k3=zs, measure="MRR@10")
    tried = {row[:3] for row in tuned.grid}
    for k1, b, k3, _ in sorted(tuned.grid, key=lambda row: (-row[3], *row[:3]))[:2]:
        near = {(x, y, k3) for x in beside(xs, k1) for y in beside(ys, b)}
        assert near | {(k1, b, z) for z in zs} <= tried
    assert len(tried) < len(xs) * len(ys) * len(zs)


def beside(values: tuple[float, ...], value: float) -> tuple[float, ...]:
    place = values.index(value)
    return values[max(0, place - 1) : place + 2]


def test_of_equal_settings_the_smallest_is_chosen(toy: Collection) -> None:
    tuned = tune_bm25(toy, "document", k1=(3, 2), b=(0.9, 0.5))
    assert {value for *_, value in tuned.grid} == {1.0}
    assert (tuned.k1, tuned.b, tuned.k3, tuned.default) == (2.0, 0.5, 0.0, 1.0)
    assert tuned.options == "--set bm25-doc.k1=2 --set bm25-doc.b=0.5 --set bm25-doc.k3=0"


def planted(often: bool) -> Collection:
    """Return queries with one word nine times and another word once; documents with either word are relevant."""
    builder = CollectionBuilder("planted", language="english")
    for each in range(8):
        builder.add_document(f"rare{each}", [f"rare{each}x filler filler"])
        for copy in range(3):  # more documents, so a lower idf
            builder.add_document(f"common{each}-{copy}", [f"common{each}x filler filler"])
        builder.add_query(f"q{each}", [f"common{each}x " * 9 + f"rare{each}x"], split="dev")
        for copy in range(3) if often else ():
            builder.add_judgement("dev", f"q{each}", f"common{each}-{copy}", 1)
        if not often:
            builder.add_judgement("dev", f"q{each}", f"rare{each}", 1)
    return builder.build()


@pytest.mark.parametrize(("often", "k3"), [(True, 9.0), (False, 0.0)])
def test_a_planted_k3_is_found(often: bool, k3: float) -> None:
    tuned = tune_bm25(planted(often), k1=(1.2, 2), b=(0.5,), k3=(None, 0, 9), measure="MRR@10")
    assert (tuned.k3, tuned.value) == (k3, 1.0)
    assert tuned.default == (1.0 if often else 0.25)
    tried = {row[2]: row[3] for row in tuned.grid if row[0] == tuned.k1}
    assert tried == ({0.0: 0.5, 9.0: 1.0, None: 1.0} if often else {0.0: 1.0, 9.0: 0.25, None: 0.25})


def test_few_queries_give_the_defaults_or_a_warning(words: Collection) -> None:
    how: dict[str, Any] = {"measure": "MRR@10", "n_queries": 10}
    several = [tune_bm25(words, **how, random_state=seed) for seed in range(8)]
    assert all(tuned.value >= tuned.default for tuned in several)
    assert any(max(row[3] for row in tuned.grid) > tuned.value for tuned in several)  # best by chance, so not chosen
    doubtful = [tuned for tuned in several if tuned.value > tuned.default and tuned.interval[0] <= 0]  # type: ignore[index]
    assert doubtful, "no sample that warns"
    with pytest.warns(TuningWarning, match=r"10 queries, k1 .* MRR@10 [+-]0\.\d+ .*95 % "):
        tune_bm25(words, **how, random_state=several.index(doubtful[0]))


def test_the_gain_is_estimated_on_held_out_queries() -> None:
    """One setting is best on all queries of one document only; these are in one fold, so it has no held-out gain."""
    gains = np.zeros((3, 40))
    gains[1, :8] = 1.0
    gains[2] = 0.05
    groups = np.r_[np.zeros(8, dtype=int), np.arange(1, 33)]
    found = _cross_validated(gains, groups, 0)
    assert found is not None
    np.testing.assert_array_equal(found[:8], 0.05)  # the third setting is best without them
    assert _largest_gain(gains) == 1
    assert _cross_validated(gains, np.zeros(40, dtype=int), 0) is None
    assert _largest_gain(np.array([[0.0], [0.4]])) == 0  # one query has no standard error


def test_samples_of_queries(words: Collection) -> None:
    def draw(**how: Any) -> Tuned:
        return tune_bm25(words, k1=(1.2,), b=(0.75,), n_queries=9, measure="MAP", **how)

    assert draw() == draw()
    assert draw().n_queries == 9
    assert len({draw(random_state=seed).value for seed in range(4)}) > 1
    run = compare(words, "bm25").runs["bm25"]
    qrels = words.qrels_frame("dev")
    part = words.split("dev")
    judged = part.queries[np.isin(part.queries, part.relevant()[0])]
    chosen = np.random.default_rng(3).choice(judged, size=9, replace=False)
    ids = [words.queries.ids[int(i)].as_py() for i in chosen]
    expected = evaluate(run, qrels, ["MAP"]).loc[ids]["MAP"].mean()
    assert draw(random_state=3).value == pytest.approx(expected)
    whole = tune_bm25(words, k1=(1.2,), b=(0.75,), n_queries=10**6)
    assert whole == tune_bm25(words, k1=(1.2,), b=(0.75,))


def test_errors(toy: Collection) -> None:
    for how, named in [
        ({"split": "test"}, "toy 'test'"),
        ({"measure": "nDGC@10"}, "'nDGC@10'"),
        ({"unit": "chapter"}, "'chapter'"),
        ({"b": ()}, r"b=\(\)"),
        ({"k3": (-1.0,)}, "'k3' parameter of tune_bm25"),
        ({"n_queries": 0}, "'n_queries' parameter of tune_bm25"),
    ]:
        with pytest.raises(InputError, match=named):
            tune_bm25(toy, **how)  # type: ignore[arg-type]
    builder = CollectionBuilder("empty", language="english")
    builder.add_document("d", ["a dog"])
    builder.add_query("q", ["dog"], split="dev")
    builder.add_judgement("dev", "q", "d", 0)
    with pytest.raises(InputError, match="'dev'"):
        tune_bm25(builder.build())
