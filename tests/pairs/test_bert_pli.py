"""BERT-PLI: its formulas in NumPy, the padding of the paper, and planted signals that it must learn."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score
from support.tiny_models import save_cross_encoder

from haybale import BERTPLI, PLI, CrossPairs, Engine, Interactions, Reading, Run
from haybale.collections import CollectionBuilder
from haybale.errors import FileFormatError, InputError, NotFittedError
from haybale.pairs.bert_pli import PAPER, _loss, softmax
from haybale.pairs.interactions import levels

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("default")  # torch warns about itself

D, N, M = 6, 5, 3


def noisy_blocks(
    n_queries: int = 40, k: int = 8, seed: int = 0, planted: float = 3.0
) -> tuple[Interactions, dict[str, Any]]:
    """Return blocks of noise in which one row of each relevant document has a planted signal, and the judgements."""
    rng = np.random.default_rng(seed)
    blocks, values, relevant = [], [], {}
    for query in range(n_queries):
        good = set(rng.choice(k, size=2, replace=False).tolist())
        relevant[f"q{query}"] = [f"d{document}" for document in good]
        for document in range(k):
            rows = int(rng.integers(1, N + 1))
            x = rng.normal(size=(rows, D)).astype(np.float32) * 0.5
            if document in good:
                x[rng.integers(rows), :3] += planted
            values.append(x)
            blocks.append(
                (f"q{query}", f"d{document}", document + 1, -float(document), rows, int(rng.integers(1, M + 1)))
            )
    frame = pd.DataFrame(blocks, columns=["query_id", "doc_id", "rank", "score", "rows", "passages"])
    frame.insert(4, "level", levels(frame["query_id"], frame["score"]))
    count = int(frame["rows"].sum())
    settings = {"pairs": {"class": "none"}, "n": N, "m": M, "select": "first"}
    numbers = np.zeros(count, dtype=np.int32)
    padding = np.linspace(-0.2, 0.3, D, dtype=np.float32)
    return Interactions(frame, np.concatenate(values), numbers, numbers, padding, settings), relevant


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def oracle(model: BERTPLI, x: np.ndarray, level: float) -> float:
    """Return the score of rows x (t, d) by the formulas."""
    scores = []
    for network in model._networks:
        state = {name: value.double().numpy() for name, value in network.state_dict().items()}
        wi, wh = state["rnn.weight_ih_l0"], state["rnn.weight_hh_l0"]
        bi, bh = state["rnn.bias_ih_l0"], state["rnn.bias_hh_l0"]
        h = c = np.zeros(model.hidden)
        hidden = []
        for row in x:
            a, b = wi @ row + bi, wh @ h + bh
            if model.cell == "gru":
                (ar, az, an), (br, bz, bn) = np.split(a, 3), np.split(b, 3)
                r, z = sigmoid(ar + br), sigmoid(az + bz)
                h = (1 - z) * np.tanh(an + r * bn) + z * h
            else:
                i, f, g, o = np.split(a + b, 4)
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
                h = sigmoid(o) * np.tanh(c)
            hidden.append(h)
        H = np.array(hidden)
        u = state["attention.weight"] @ H.max(axis=0) + state["attention.bias"]
        alpha = softmax(H @ u)
        logits = state["final.weight"] @ (alpha @ H) + state["final.bias"]
        scores.append(logits[1] - logits[0] + (state["first_stage.weight"][0, 0] * level if model.residual else 0))
    return float(np.mean(scores))


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("variant", ["masked", "paper"])
def test_scores_by_the_formulas(cell: str, variant: str) -> None:
    data, relevant = noisy_blocks(n_queries=6)
    how = {"cell": cell, "variant": variant, "hidden": 7, "epochs": 2, "n_seeds": 2, "learning_rate": 0.01}
    model = BERTPLI(**how).fit(data, relevant)
    found = model.score(data)
    for number, block in enumerate(data.blocks.to_dict("records")):
        x = data.values[data.offsets[number] : data.offsets[number + 1]].astype(float)
        if variant == "masked":
            x = (x - model.mean_) * model.scale_
        else:  # as if the missing paragraphs were padding
            x = np.maximum(x, data.padding) if block["passages"] < M else x
            x = np.concatenate([x, np.repeat(data.padding[None].astype(float), N - len(x), axis=0)])
        assert found[number] == pytest.approx(oracle(model, x, block["level"]), abs=1e-4)


def test_the_paper_variant_equals_padded_paragraphs(tmp_path: Path) -> None:
    """Encode all N × M pairs as the authors do, missing ones as [PAD] only; then apply maximum, GRU and attention."""
    name = save_cross_encoder(tmp_path / "model")
    builder = CollectionBuilder("few", language="english")
    for doc, passages in {"d0": ["a b", "c d e", "q"], "d1": ["f g"], "d2": ["h", "i j k"]}.items():
        builder.add_document(doc, passages)
    queries = {"q0": ["a b c"], "q1": ["f", "g h i", "j"]}
    for query, paragraphs in queries.items():
        builder.add_query(query, paragraphs, split="train")
        builder.add_judgement("train", query, f"d{query[1]}")
    collection = builder.build()
    ranked = [(query, doc, 1.0) for query in queries for doc in ("d0", "d1", "d2")]
    run = Run.from_frame(pd.DataFrame(ranked, columns=["query_id", "doc_id", "score"]))
    pairs = CrossPairs(name, max_length=16, device="cpu")
    data = Reading(Engine(collection), collection.queries, run, pairs, n=2, m=2).all()
    model = BERTPLI(**{**PAPER, "epochs": 3, "hidden": 5}).fit(data, {"q0": ["d0"], "q1": ["d1"]})
    assert model.threshold_ == 0.0
    network, tokenizer = pairs.model, pairs.tokenizer
    texts = {"d0": ["a b", "c d e"], "d1": ["f g"], "d2": ["h", "i j k"]}
    for number, block in enumerate(data.blocks.to_dict("records")):
        rows = []
        for i in range(2):
            vectors = []
            for j in range(2):
                query, document = queries[block["query_id"]], texts[block["doc_id"]]
                if i < len(query) and j < len(document):
                    inputs = tokenizer(query[i], document[j], truncation="longest_first", max_length=16)
                    inputs = {key: torch.tensor([value]) for key, value in inputs.items()}
                else:
                    keys = ("input_ids", "attention_mask", "token_type_ids")
                    inputs = {key: torch.zeros((1, 16), dtype=torch.long) for key in keys}
                with torch.inference_mode():
                    vectors.append(network(**inputs).pooler_output[0].numpy())
            rows.append(np.max(vectors, axis=0))
        assert model.score(data)[number] == pytest.approx(oracle(model, np.array(rows, dtype=float), 0), abs=1e-4)


@pytest.mark.parametrize("settings", [{"loss": "binary"}, {}, {"residual": False, "cell": "lstm"}])
def test_a_planted_signal_is_learned(settings: dict[str, Any]) -> None:
    (train, relevant), (test, wanted) = noisy_blocks(seed=1), noisy_blocks(seed=2)
    model = BERTPLI(hidden=16, epochs=12, n_seeds=1, learning_rate=0.01, **settings).fit(train, relevant)
    pairs = zip(test.blocks["query_id"], test.blocks["doc_id"], strict=True)
    labels = [document in wanted[query] for query, document in pairs]
    assert f1_score(labels, model.decide(test)) >= 0.95
    assert model.losses_[0][-1] < model.losses_[0][0] / 2


def test_without_a_signal_the_first_stage_decides() -> None:
    """Training starts from the scores of the first stage."""
    data, _ = noisy_blocks(n_queries=60, planted=0.0)
    relevant = {f"q{i}": ["d0", "d1"] for i in range(60)}
    model = BERTPLI(hidden=4, epochs=2, n_seeds=1).fit(data, relevant)
    by_query = [model.score(data)[at] for at in data.blocks.groupby("query_id", sort=False).indices.values()]
    assert all(set(np.argsort(-scores)[:2]) == {0, 1} for scores in by_query)


def test_the_listwise_loss_by_hand() -> None:
    logits = torch.stack([torch.zeros(5), torch.tensor([1.0, 2.0, 0.5, 0.0, 3.0])], dim=1)
    found = _loss(torch, logits, np.array([True, False, True, False, True]), [3, 2])
    a, b = np.exp([1.0, 2.0, 0.5]), np.exp([0.0, 3.0])
    expected = (-np.log((a[0] + a[2]) / a.sum()) - np.log(b[1] / b.sum())) / 2
    assert float(found) == pytest.approx(expected, abs=1e-6)


def test_shares_sum_to_the_score_and_seeds_to_the_mean() -> None:
    data, relevant = noisy_blocks(n_queries=8)
    for settings in ({}, {"variant": "paper", "residual": False, "loss": "binary"}):
        model = BERTPLI(hidden=8, epochs=2, n_seeds=2, **settings).fit(data, relevant)
        scores = model.score(data)
        np.testing.assert_allclose(model.scores_by_seed(data).mean(axis=0), scores)
        assert np.abs(np.diff(model.scores_by_seed(data), axis=0)).max() > 1e-6
        for number in (0, 9, 30):
            of_first, rows = model.shares(data.take([number]))
            assert len(rows) == data.blocks["rows"][number] + 1
            assert of_first.sum() + rows.sum() == pytest.approx(scores[number], abs=1e-5)
            assert (rows[-1] == 0) == (model.variant == "masked" or data.blocks["rows"][number] == N)


def test_training_is_deterministic_and_models_are_saved(tmp_path: Path) -> None:
    data, relevant = noisy_blocks(n_queries=8)
    for place, settings in enumerate(({}, {"variant": "paper", "cell": "lstm"})):
        model = BERTPLI(hidden=8, epochs=2, n_seeds=2, **settings).fit(data, relevant)
        again = BERTPLI(hidden=8, epochs=2, n_seeds=2, **settings).fit(data, relevant)
        np.testing.assert_array_equal(model.score(data), again.score(data))
        model.save(tmp_path / f"{place}a")
        again.save(tmp_path / f"{place}b")
        for path in (tmp_path / f"{place}a").iterdir():
            assert path.read_bytes() == (tmp_path / f"{place}b" / path.name).read_bytes()
        opened = BERTPLI.load(tmp_path / f"{place}a")
        assert opened.get_params() == model.get_params()
        np.testing.assert_array_equal(opened.score(data), model.score(data))
        assert opened.threshold_ == model.threshold_
    path = tmp_path / "0a" / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    with pytest.raises(FileFormatError, match="SHA-256"):
        BERTPLI.load(tmp_path / "0a")


def test_what_is_refused() -> None:
    data, relevant = noisy_blocks(n_queries=8)
    with pytest.raises(NotFittedError):
        BERTPLI().score(data)
    for judged, message in (
        ({"other": ["d1"]}, "'relevant'"),
        ({f"q{i}": ["d99"] for i in range(8)}, "64 candidates of 8 judged queries"),
        ({f"q{i}": [f"d{j}" for j in range(8)] for i in range(8)}, "64 relevant"),
        ({"q0": [f"d{j}" for j in range(8)], "q1": ["d99"]}, "loss="),
    ):
        with pytest.raises(InputError, match=message):
            BERTPLI().fit(data, judged)
    model = BERTPLI(hidden=4, epochs=1, n_seeds=1).fit(data, relevant)
    with pytest.raises(InputError, match="pairs"):
        model.score(replace(data, settings=data.settings | {"pairs": {"class": "other"}}))
    for wrong in ({"cell": "rnn"}, {"hidden": 0}, {"variant": "plain"}, {"learning_rate": 0}, {"residual": 1.5}):
        with pytest.raises(InputError, match=f"'{next(iter(wrong))}' parameter of BERTPLI"):
            BERTPLI(**wrong).fit(data, relevant)
    with pytest.raises(InputError, match="learning_rate"):
        BERTPLI(epochs=1, n_seeds=1).fit(replace(data, values=data.values * np.nan), relevant)


@pytest.mark.parametrize("loss", ["listwise", "binary"])
def test_held_out_queries_choose_the_epoch(loss: str) -> None:
    """With steps that are far too large, the initial weights, which follow the first stage, are kept."""
    data, _ = noisy_blocks(n_queries=30, planted=0.0)
    rng = np.random.default_rng(0)
    relevant = {
        f"q{i}": [f"d{rng.choice(8, p=np.exp(-np.arange(8)) / np.exp(-np.arange(8)).sum())}"] for i in range(30)
    }
    model = BERTPLI(hidden=4, epochs=3, n_seeds=2, learning_rate=5.0, loss=loss).fit(data, relevant)
    for of_seed in model.held_out_losses_:
        assert len(of_seed) == 4
        assert of_seed[0] == min(of_seed)
    level = data.blocks["level"].to_numpy()
    slope = np.polyfit(level, model.score(data), 1)
    assert slope[0] > 0.5
    np.testing.assert_allclose(model.score(data), np.polyval(slope, level), atol=1e-5)
    last = BERTPLI(hidden=4, epochs=3, n_seeds=1, learning_rate=5.0, loss=loss, held_out=0.0).fit(data, relevant)
    assert last.held_out_losses_ == [[]]
    assert np.abs(last.score(data) - np.polyval(slope, level)).max() > 0.1


def test_the_ranker_has_the_defaults_of_its_network() -> None:
    network, ranker = (inspect.signature(kind).parameters for kind in (BERTPLI, PLI))
    assert {name: ranker[name].default for name in network} == {name: network[name].default for name in network}
