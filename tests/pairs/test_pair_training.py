"""Stage 1: a transformer learns to classify pairs, and the queries that it was trained on are recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from haybale import BM25, PLI, CrossEncoder, CrossPairs, Engine, train_pair_encoder
from haybale.collections import Collection
from haybale.errors import InputError, OutputExistsError

pytest.importorskip("sentence_transformers")
pytestmark = [
    pytest.mark.filterwarnings("default"),  # transformers and torch warn about themselves
    pytest.mark.filterwarnings("ignore::haybale.rankers.EmptyRankingWarning"),
]


def planted(n: int, seed: int = 0) -> pd.DataFrame:
    """Return pairs; the second paragraph of a positive pair contains an x."""
    rng = np.random.default_rng(seed)

    def text(mark: str) -> str:
        words = rng.choice(list("abcdefgh"), size=int(rng.integers(2, 9))).tolist()
        words.insert(int(rng.integers(len(words) + 1)), mark)
        return " ".join(words)

    rows = [(text("q"), text("x"), text("y"), i // 4, f"t{i // 2}") for i in range(n)]
    return pd.DataFrame(rows, columns=["anchor", "positive", "negative", "group", "query_id"])


HOW: dict[str, Any] = {"learning_rate": 0.01, "epochs": 4, "batch_size": 16, "device": "cpu"}


@pytest.mark.thorough
def test_a_planted_mark_is_learned(model: str, tmp_path: Path) -> None:
    """Check the pooler, the score, both libraries, and that training is deterministic."""
    from sentence_transformers import CrossEncoder as SentenceCrossEncoder

    table = pa.Table.from_pandas(planted(120))
    done = train_pair_encoder(model, table, tmp_path / "a", **HOW)
    assert done.f1[-1] > 0.95
    assert done.losses[-1] < 0.8 * done.losses[0]
    assert done.pairs + 24 == 240
    train_pair_encoder(model, table, tmp_path / "b", **HOW)
    files = {path.name for path in (tmp_path / "a").iterdir()}
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    texts, which = ["q a b", "a x c", "a y c"], np.array([[0, 1], [0, 2]])
    found = CrossPairs(tmp_path / "a", read="score", device="cpu").encode(texts, texts, which)[:, 0]
    assert found[0] > 0.5 > found[1]
    library = SentenceCrossEncoder(str(tmp_path / "a"), device="cpu")
    np.testing.assert_allclose(library.predict([(texts[i], texts[j]) for i, j in which]), found, atol=1e-5)
    poolers = [CrossPairs(name, device="cpu").encode(texts, texts, which) for name in (model, tmp_path / "a")]
    assert np.abs(poolers[0] - poolers[1]).max() > 0.01
    lineage = json.loads((tmp_path / "a" / "training.json").read_text())
    assert len(lineage["trained_on"]) == 54  # of 60 queries in 30 groups, three groups were held out
    assert lineage["pairs"] == done.pairs


def test_frozen_layers_are_not_trained(model: str, tmp_path: Path) -> None:
    from transformers import AutoModel

    train_pair_encoder(model, planted(20), tmp_path / "a", frozen_layers=1, held_out=0, **HOW)
    before, after = (AutoModel.from_pretrained(name).state_dict() for name in (model, tmp_path / "a"))
    moved = {name for name in before if not np.array_equal(before[name].numpy(), after[name].numpy())}
    assert moved == {"pooler.dense.weight", "pooler.dense.bias"}
    with pytest.raises(InputError, match=r"frozen_layers .* 1 .* 2"):
        train_pair_encoder(model, planted(20), tmp_path / "b", frozen_layers=2, **HOW)


def test_a_model_does_not_score_the_queries_that_it_was_trained_on(
    model: str, topics: Collection, tmp_path: Path
) -> None:
    pairs = planted(60).assign(group=np.arange(60) % 12, query_id=[f"train{i % 12}" for i in range(60)])
    how = {**HOW, "epochs": 1, "held_out": 0}
    train_pair_encoder(model, pairs, tmp_path / "all", **how)
    train_pair_encoder(model, pairs[pairs["group"] >= 6], tmp_path / "half", **how)
    engine, (whole, half) = Engine(topics), (str(tmp_path / "all"), str(tmp_path / "half"))
    small: dict[str, Any] = {"n_documents": 3, "n_pairs": 2, "device": "cpu"}
    ranker = CrossEncoder(BM25(), whole, folds=(half,), **small).fit(engine)
    assert ranker.needs_training
    assert ranker.encoder_queries == {f"train{i}" for i in range(6, 12)}
    assert ranker.learned_from() == {f"train{i}" for i in range(12)}
    queries = topics.queries.take(topics.query_numbers(["train1", "train2", "train40"]))
    found, first, second = (
        each.out_of_fold(queries) if each is ranker else each.rank(queries)
        for each in (ranker, *(CrossEncoder(BM25(), name, **small).fit(engine) for name in (whole, half)))
    )
    assert found["train1"] == second["train1"] != first["train1"]
    assert found["train40"] == first["train40"]
    with pytest.raises(InputError, match="'train7'"):
        ranker.out_of_fold(topics.queries.take(topics.query_numbers(["train7"])))
    train_pair_encoder(whole, pairs[pairs["group"] >= 6], tmp_path / "again", **how)  # on fewer queries
    assert CrossEncoder(BM25(), str(tmp_path / "again"), **small).fit(engine).encoder_queries == ranker.learned_from()
    with pytest.raises(InputError, match="'train1'"):
        CrossEncoder(BM25(), whole, **small).fit(engine).out_of_fold(queries)
    pli = PLI(BM25("document"), whole, epochs=1, n_seeds=1, hidden=4, n=1, m=1, n_documents=4, device="cpu").fit(engine)
    assert pli.network_.n_queries_ <= 60 - 12
    assert pli.encoder_queries <= pli.learned_from()


def test_what_is_refused(model: str, tmp_path: Path) -> None:
    table = planted(8)
    for broken, message in (
        (table.drop(columns="negative"), "'negative'"),
        (table.drop(columns="group"), "group"),
        (table.assign(negative=" "), "empty"),
        (table.head(0), "row"),
        (table.assign(negative=table["positive"]), "one class"),
    ):
        with pytest.raises(InputError, match=message):
            train_pair_encoder(model, broken, tmp_path / "out", **HOW)
    with pytest.raises(InputError, match="learning_rate"):
        train_pair_encoder(model, table, tmp_path / "out", **(HOW | {"learning_rate": 1e17}))
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").touch()
    with pytest.raises(OutputExistsError):
        train_pair_encoder(model, table, tmp_path / "out", **HOW)
    for wrong in ({"epochs": 0}, {"learning_rate": 0}, {"held_out": 2}, {"precision": "int8"}):
        with pytest.raises(InputError, match=f"'{next(iter(wrong))}' parameter of train_pair_encoder"):
            train_pair_encoder(model, table, tmp_path / "new", **wrong)
