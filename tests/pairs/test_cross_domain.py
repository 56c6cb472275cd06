"""The cross-domain experiment: measures by hand, training candidates, and networks that transfer between domains."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.tiny_models import save_cross_encoder

from haybale import CollectionBuilder, Engine, Run, parse
from haybale.collections import Collection
from haybale.errors import InputError

pytest.importorskip("sentence_transformers")
pytestmark = pytest.mark.filterwarnings("default")  # torch warns about itself
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "papers" / "cross_domain.py"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def domain(script: dict[str, Any], run: Run, relevant: dict[str, list[str]]) -> Any:
    return script["Domain"]("made", None, None, run, run, relevant)


def run_of(ranked: dict[str, list[str]]) -> Run:
    rows = [(query, doc, -float(place)) for query, docs in ranked.items() for place, doc in enumerate(docs)]
    return Run.from_frame(pd.DataFrame(rows, columns=["query_id", "doc_id", "score"]))


def test_micro_measures_by_hand(script: dict[str, Any]) -> None:
    """The recall counts relevant documents that were never retrieved."""
    row_of, by_rank, micro = script["_row"], script["_by_rank"], script["micro"]
    run = run_of({"a": ["1", "2", "3"], "b": ["4", "5"]})
    found = domain(script, run, {"a": ["1", "3", "lost", "lost too"], "b": ["5"]})
    row = row_of("first stage", None, found, [by_rank(run, 2)], None)
    assert (row["precision"], row["recall"]) == (2 / 4, 2 / 5)
    assert row["f1"] == pytest.approx(2 * 0.5 * 0.4 / 0.9)
    assert script["_f1_of_queries"](by_rank(run, 2), found) == pytest.approx([2 * 1 / (2 + 4), 2 * 1 / (2 + 1)])
    nothing = pd.DataFrame({"query_id": [], "doc_id": []})
    assert script["_f1_of_queries"](nothing, found).tolist() == [0, 0]
    assert micro(0, 0, 5) == script["Micro"](0.0, 0.0, 0.0)
    of_seeds = row_of(
        "R1", "gru", found, [by_rank(run, 1), by_rank(run, 3)], script["_f1_of_queries"](by_rank(run, 2), found)
    )
    one, three = micro(2, 1, 5), micro(5, 3, 5)
    assert of_seeds["f1"] == pytest.approx((one.f1 + three.f1) / 2)
    assert of_seeds["f1_sd"] == pytest.approx(np.std([one.f1, three.f1], ddof=1))
    assert (of_seeds["f1_min"], of_seeds["f1_max"]) == (min(one.f1, three.f1), max(one.f1, three.f1))


def test_relevant_documents_are_added_to_training_candidates(script: dict[str, Any]) -> None:
    run = run_of({"a": ["1", "2", "3", "4", "5"], "b": ["6", "7", "8", "9", "1"]})
    found = script["with_relevant"](run, {"a": ["3", "lost"], "b": ["6"]}, 4, np.random.default_rng(0))
    assert {"3", "lost"} <= set(dict(found["a"]))
    assert "6" in dict(found["b"])
    for query in ("a", "b"):
        assert len(found[query]) == 4
        assert set(dict(found[query])) - {"lost"} <= set(dict(run[query]))
    assert found["a"][0][1] == 0.0 or dict(found["a"])["3"] == -2.0


class Overlap:
    """Encodes a pair as the share of common words, whether the second text has the mark, and noise from its length."""

    dim = 3

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def encode(self, firsts: Any, seconds: Any, which: Any) -> np.ndarray:
        found = []
        for i, j in which.tolist():
            one, two = set(firsts[i].split()), set(seconds[j].split())
            found.append((len(one & two) / len(one), self.mark in two, len(seconds[j]) % 7 / 7))
        return np.array(found, dtype=np.float32)

    def padding(self) -> np.ndarray:
        return np.zeros(3, dtype=np.float32)

    def describe(self) -> dict[str, Any]:
        return {"class": "Overlap", "mark": self.mark, "width": 3}


def marked(name: str, seed: int) -> Collection:
    """Return documents about six topics; the relevant ones are those about the query's topic that have the mark."""
    rng, builder = np.random.default_rng(seed), CollectionBuilder(name, language="english")
    topics, marks = rng.integers(6, size=48), rng.random(48) < 0.3
    for number, (topic, mark) in enumerate(zip(topics, marks, strict=True)):
        words = [f"topic{topic}", *(f"word{i}" for i in rng.integers(30, size=6)), *(["mark"] if mark else [])]
        builder.add_document(f"{name}{number}", [" ".join(words), f"more of topic{topic}"])
    for split, count in (("train", 40), ("test", 20)):
        for i in range(count):
            topic = int(rng.integers(6))
            query = f"{split}{i}"
            builder.add_query(query, [f"what of topic{topic} word{rng.integers(30)}"], split=split)
            for number in np.flatnonzero((topics == topic) & marks):
                builder.add_judgement(split, query, f"{name}{number}")
    return builder.build()


@pytest.mark.thorough
def test_six_results_on_two_domains(script: dict[str, Any], tmp_path: Path) -> None:
    """The pair vectors show relevance, so the networks of each domain find the relevant documents of both."""
    cross_domain = script["cross_domain"]
    engines = [Engine(marked(name, seed)) for name, seed in (("a", 0), ("b", 1))]
    ranker = parse("bm25-doc(k1=0.9,b=0.4)")
    domains = [
        script["Domain"].of(engine, ranker.clone(), k=10, k_train=10, n_train=30, n_test=15) for engine in engines
    ]
    assert [len(each.test.query_ids) for each in domains] == [15, 15]
    encoders = [Overlap("mark"), Overlap("mark"), Overlap("nothing")]
    how: dict[str, Any] = {"n": 2, "m": 2, "n_seeds": 2, "epochs": 12, "learning_rate": 0.03, "hidden": 6}
    how |= {"cells": ("gru",)}
    table = cross_domain(domains, encoders, tmp_path / "out", **how)
    assert table["result"].tolist()[:2] == ["first stage"] * 2
    assert len(table) == 2 + 2 * 6
    assert len(list((tmp_path / "out").iterdir())) == 8  # the pairs of two equal encoders are encoded once
    by = table.set_index(["test", "cell", "result"])
    for name in ("a", "b"):
        first = by.loc[(name, "", "first stage"), "f1"]
        for result in ("R1", "R2", "R3", "R4"):
            assert by.loc[(name, "gru", result), "f1"] > first + 0.1
        for result in ("R5", "R6"):  # the pair encoder that does not see the mark
            assert by.loc[(name, "gru", result), "f1"] < by.loc[(name, "gru", "R1"), "f1"] - 0.1
    assert (by["f1_min"] <= by["f1"] + 1e-12).all()
    assert by.loc[("a", "gru", "R1"), "p_t"] < 0.05
    again = cross_domain(domains, encoders, tmp_path / "out", **how)
    pd.testing.assert_frame_equal(again, table)
    text = script["cross_domain_table"](table, ["a", "b"])
    assert text.count("\n") == 2 + 6
    assert f"{by.loc[('a', 'gru', 'R1'), 'f1']:.3f}†" in text


def test_the_script_writes_and_prints_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, engine, out = save_cross_encoder(tmp_path / "model"), tmp_path / "engine", tmp_path / "out"
    Engine.build(marked("a", 0), engine)
    command = f"x {engine} {engine} --model {model} --out {out} --k 4 --n 2 --m 1 --max-length 16 --seeds 2 --epochs 1"
    monkeypatch.setattr(sys, "argv", [*command.split(), "--n-train", "10", "--n-test", "5", "--device", "cpu"])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.count("| R6 |") == 2
    assert (out / "results.md").read_text() == printed
    found = json.loads((out / "results.json").read_text())
    assert len(found["rows"]) == 2 * 13
    assert found["settings"]["seeds"] == 2


def test_own_documents_are_neither_added_nor_counted(script: dict[str, Any]) -> None:
    """Ranking never finds them."""
    builder = CollectionBuilder("a", language="english")
    for number in range(6):
        builder.add_document(f"d{number}", [f"all about topic{number % 3} and word{number}"])
    for split in ("train", "test"):
        for number in range(4):
            builder.add_query(f"{split}{number}", [f"topic{number % 3}"], own=f"d{number}", split=split)
            for doc in (f"d{number}", f"d{(number + 3) % 6}") if number else (f"d{number}",):
                builder.add_judgement(split, f"{split}{number}", doc)
    for add_relevant in (False, True):
        found = script["Domain"].of(Engine(builder.build()), parse("bm25"), k=3, k_train=3, add_relevant=add_relevant)
        assert found.test.query_ids == ["test1", "test2", "test3"]  # nothing else is relevant to test0
        assert found.relevant["train1"] == ["d4"]
        assert "d1" not in dict(found.train["train1"])
        row = script["_row"]("first stage", None, found, [script["_by_rank"](found.test, 1)], None)
        assert row["recall"] == 1


def test_queries_that_a_pair_encoder_was_trained_on(script: dict[str, Any], tmp_path: Path) -> None:
    domains = [domain(script, run_of({f"{split}{i}": ["1"] for i in range(4)}), {}) for split in ("train", "train")]
    domains = [script["replace"](each, test=run_of({"test0": ["1"]})) for each in domains]

    def encoders(*trained: list[str]) -> list[Any]:
        made = []
        for number, queries in enumerate(trained):
            folder = tmp_path / str(number)
            folder.mkdir(exist_ok=True)
            (folder / "training.json").write_text(json.dumps({"trained_on": queries, "selected_on": []}))
            made.append(SimpleNamespace(name=str(folder)))
        return made

    first, second = script["without_seen"](domains, encoders([], ["train0", "train3"], ["train1"]))
    assert first.train.query_ids == ["train1", "train2"]
    assert second.train.query_ids == ["train0", "train2", "train3"]
    first, second = script["without_seen"](domains, encoders(["train2"], [], ["test1"]))
    assert first.train.query_ids == second.train.query_ids == ["train0", "train1", "train3"]
    with pytest.raises(InputError, match="'test0'"):
        script["without_seen"](domains, encoders([], [], ["test0"]))
    with pytest.raises(InputError, match="found none"):
        script["cross_domain"](domains, encoders([], [f"train{i}" for i in range(4)], []), tmp_path / "out")


def test_what_is_refused(script: dict[str, Any], tmp_path: Path) -> None:
    engine = Engine(marked("a", 0))
    with pytest.raises(InputError, match="tested on another"):
        script["Domain"].of(engine, parse("bm25"), split="train")
    with pytest.raises(InputError, match="2 domains and 3 encoders, found 1 and 0"):
        script["cross_domain"]([domain(script, run_of({"a": ["1"]}), {})], [], tmp_path)
