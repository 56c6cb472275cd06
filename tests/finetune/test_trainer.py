"""Training tiny encoders: loss, learning, resuming, checkpoint selection, held-out queries and errors."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sentence_transformers")
pytest.importorskip("datasets")
pytest.importorskip("accelerate")

import torch
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformer
from support.damaged_folders import damaged_copies
from support.tiny_models import save_bi_encoder
from support.topics import topic_collection

from haybale import CollectionBuilder, Engine, SentenceTransformerEncoder, train_encoder, training_pairs
from haybale.embeddings.lineage import trained_queries
from haybale.errors import InputError, MissingExtraError, OutputExistsError, StoreError
from haybale.finetune import training_loop
from haybale.finetune.batches import plan_batches
from haybale.finetune.checkpoints import check_run, finish_checkpoint, last_checkpoint, read_before
from haybale.finetune.recipe import RECIPES, Recipe
from haybale.finetune.selection import Selection
from haybale.finetune.training_loop import _loss
from haybale.rankers import KNN, Training

pytestmark = [
    pytest.mark.filterwarnings("default"),  # transformers and torch warn about themselves
    pytest.mark.filterwarnings("ignore::haybale.errors.TruncationWarning"),
]
SMALL: dict[str, Any] = {"frozen_layers": 0, "batch_size": 16, "evaluations": 2, "learning_rate": 1e-3, "device": "cpu"}
RESUMED: dict[str, Any] = SMALL | {"evaluations": 6, "epochs": 2}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(topic_collection())


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_bi_encoder(tmp_path_factory.mktemp("bert"))


def weights(folder: Path) -> np.ndarray:
    tensors = [load_file(path) for path in sorted(folder.rglob("*.safetensors"))]
    return np.concatenate([each[name].ravel() for each in tensors for name in sorted(each)])


@pytest.mark.parametrize(("similarity", "scale"), [("cosine", 20.0), ("dot", 1.0)])
@pytest.mark.parametrize("mini_batch_size", [None, 3])
def test_the_loss_equals_numpy(
    engine: Engine, bert: str, similarity: str, scale: float, mini_batch_size: int | None
) -> None:
    """The loss in parts has the same gradients."""
    model = SentenceTransformer(bert, device="cpu")
    rows = training_pairs(engine).to_pylist()[:8]
    recipe = Recipe().changed(similarity=similarity, scale=scale, mini_batch_size=mini_batch_size)
    texts = [[row[name] for row in rows] for name in ("anchor", "positive", "negative")]
    vectors = [model.encode(column, normalize_embeddings=similarity == "cosine") for column in texts]
    scores = scale * vectors[0] @ np.concatenate(vectors[1:]).T.astype(np.float64)
    expected = np.mean(np.log(np.exp(scores).sum(axis=1)) - np.diag(scores[:, :8]))
    model.eval()

    def gradients(recipe: Recipe) -> list[np.ndarray]:
        model.zero_grad()
        value = _loss(model, recipe)([dict(model.preprocess(column)) for column in texts], torch.zeros(8))
        assert value.item() == pytest.approx(expected, rel=1e-4)
        value.backward()
        return [p.grad.numpy().copy() for p in model.parameters() if p.grad is not None]

    whole = gradients(Recipe().changed(similarity=similarity, scale=scale))
    for found, plain in zip(gradients(recipe), whole, strict=True):
        np.testing.assert_allclose(found, plain, atol=3e-4 * max(1e-3, np.abs(plain).max()))


def test_memorised_pairs_are_found(tmp_path: Path) -> None:
    """64 pairs of texts without a common word, judged as passages."""
    words = ["".join(each) for each in itertools.product("bcdf", "aeiou", "lmnprst")]
    builder = CollectionBuilder("pairs", language="english")
    for i in range(64):
        builder.add_document(f"d{i}", [f"{words[i]} {words[(i + 5) % 64]}"])
        builder.add_query(f"q{i}", [f"{words[64 + i]} {words[64 + (i + 9) % 64]}"], split="train")
    engine = Engine(builder.build())
    passages, queries = engine.collection.passages, engine.collection.queries.paragraphs.to_pylist()
    labels = pd.DataFrame({"query_id": [f"q{i}" for i in range(64)], "passage_id": passages.ids.to_pylist()})
    size = {"num_hidden_layers": 2, "hidden_size": 32, "initializer_range": 0.1}
    bert = save_bi_encoder(tmp_path / "bert", words, **size)
    settings: dict[str, Any] = {"batch_size": 64, "epochs": 40, "learning_rate": 0.01, "frozen_layers": 0}
    qrels = labels.assign(relevance=1)
    done = train_encoder(engine, bert, tmp_path / "out", None, qrels, held_out=0, device="cpu", **settings)
    assert (done.n_pairs, done.step) == (64, 40)
    assert done.history["loss"].iloc[-1] < 0.3 < 3 < done.history["loss"].iloc[1]

    def accuracy(folder: Path | str) -> float:
        model = SentenceTransformer(str(folder), device="cpu")
        cosines = model.encode(queries, normalize_embeddings=True)
        cosines = cosines @ model.encode(passages.texts.to_pylist(), normalize_embeddings=True).T
        return float((cosines.argmax(axis=1) == np.arange(64)).mean())

    assert accuracy(bert) < 0.2
    assert accuracy(tmp_path / "out") > 0.95


def train_until_killed(engine: Engine, bert: str, out: Path, **settings: Any) -> None:
    """Train in a process that kills itself when it begins its third checkpoint."""
    begun = set()

    def kill(event: str, args: tuple[Any, ...]) -> None:
        if event == "os.mkdir" and "checkpoint-" in str(args[0]):
            begun.add(str(args[0]))
            if len(begun) == 3:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(kill)
    train_encoder(engine, bert, out, **settings)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """With several threads, the order of floating-point sums differs from process to process."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_a_killed_training_resumes_and_gives_the_same_weights(engine: Engine, bert: str, tmp_path: Path) -> None:
    out, work = tmp_path / "out", tmp_path / "out.training"
    settings: dict[str, Any] = SMALL | {"evaluations": 9, "epochs": 3}
    # A forked process, since a new one takes ten times as long to import everything as to train.
    killed = multiprocessing.get_context("fork").Process(
        target=train_until_killed, args=(engine, bert, out), kwargs=settings
    )
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert len(list(work.glob("checkpoint-*/manifest.json"))) == 2
    assert not out.exists()
    with pytest.raises(StoreError, match=r"recipe \(epochs\)"):
        train_encoder(engine, bert, out, **settings | {"epochs": 2})
    with pytest.raises(StoreError, match=str(work)):
        train_encoder(engine, bert, out, **settings, random_state=1)
    (work / "checkpoint-9999").mkdir()  # incomplete
    resumed = train_encoder(engine, bert, out, **settings)
    whole = train_encoder(engine, bert, tmp_path / "whole", **settings)
    pd.testing.assert_frame_equal(resumed.history, whole.history)
    assert resumed.step == whole.step
    assert not work.exists()
    np.testing.assert_allclose(weights(out), weights(tmp_path / "whole"), atol=1e-3)
    with pytest.raises(OutputExistsError):
        train_encoder(engine, bert, out, **settings)


@pytest.fixture
def interrupted(engine: Engine, bert: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a training that was interrupted after its fourth checkpoint."""

    def finish(work: Path, step: int, best_step: int | None) -> None:
        finish_checkpoint(work, step, best_step)
        if len(done := [*done_steps, step]) == 4:
            raise KeyboardInterrupt
        done_steps[:] = done

    done_steps: list[int] = []
    monkeypatch.setattr(training_loop, "finish_checkpoint", finish)
    with pytest.raises(KeyboardInterrupt):
        train_encoder(engine, bert, tmp_path / "out", **RESUMED)
    monkeypatch.undo()
    return tmp_path / "out.training"


def refusal(work: Path, identity: dict[str, Any]) -> str:
    """Return the error with which a training refuses to resume; empty if it resumes."""
    try:
        check_run(work, identity)
        read_before(work)
        last_checkpoint(work)
    except StoreError as error:
        return str(error)
    return ""


@pytest.mark.usefixtures("one_thread")
@pytest.mark.thorough
def test_a_damaged_checkpoint_is_one_clear_error(engine: Engine, bert: str, interrupted: Path, tmp_path: Path) -> None:
    """A training resumes with the same weights or not at all, whatever happened to a file."""
    last, out, copy = last_checkpoint(interrupted), tmp_path / "copy", tmp_path / "copy.training"
    assert last is not None
    identity = json.loads((interrupted / "run.json").read_text())
    whole = train_encoder(engine, bert, tmp_path / "whole", **RESUMED)
    n_refused, resumed = 0, set()
    for what in damaged_copies(interrupted, copy):
        found = refusal(copy, identity)
        n_refused += bool(found)
        assert not found or str(copy) in found, what
        if not found:
            resumed.add(what)
        if what in (f"{last.name}/optimizer.pt: missing", f"{last.name}/rng_state.pth: half", "run.json: a folder"):
            with pytest.raises(StoreError, match=re.escape(str(copy))):
                train_encoder(engine, bert, out, **RESUMED)
    assert n_refused > 250
    # What is missing before the first step is made again. A checkpoint without its manifest is incomplete.
    again = {"before.json: missing", "run.json: missing"}
    incomplete = {f"{last.name}{what}" for what in (": empty", ": missing", "/manifest.json: missing")}
    assert again <= resumed
    best = json.loads((last / "trainer_state.json").read_text())["best_global_step"]
    used = (last.name, f"checkpoint-{best}", "run.json", "before.json")  # no other checkpoint is read
    assert {what for what in resumed if re.split("[:/]", what)[0] in used} <= again | incomplete
    for what in damaged_copies(interrupted, copy, lambda name: name in ("before.json", "run.json")):
        if what in again:
            found = train_encoder(engine, bert, out, **RESUMED)
            np.testing.assert_array_equal(weights(out), weights(tmp_path / "whole"), what)
            pd.testing.assert_frame_equal(found.history, whole.history)
            shutil.rmtree(out)
    for damaged in damaged_copies(interrupted, copy, lambda name: name == "run.json"):
        if damaged == "run.json: missing":  # the checkpoints still know which training they are of
            with pytest.raises(StoreError, match="another training"):
                train_encoder(engine, bert, out, **RESUMED | {"learning_rate": 2e-3})
    shutil.rmtree(copy)
    copy.write_text("a file")
    with pytest.raises(OutputExistsError, match=re.escape(str(copy))):
        train_encoder(engine, bert, out, **RESUMED)


def test_folds_and_held_out_queries(engine: Engine, bert: str, tmp_path: Path) -> None:
    collection = engine.collection
    train_ids = collection.queries.ids.take(collection.split("train").queries).to_pylist()
    left_out = []
    for fold in range(2):
        out = tmp_path / str(fold)
        done = train_encoder(engine, bert, out, fold=(fold, 2), **SMALL | {"evaluations": 1})
        report = json.loads((out / "training.json").read_text())
        assert not set(report["trained_on"]) & set(report["selected_on"])
        assert len(report["selected_on"]) >= 3  # a tenth of about 30 groups
        seen = {*report["trained_on"], *report["selected_on"]}
        left_out.append(set(train_ids) - seen)
        assert trained_queries(SentenceTransformerEncoder(str(out), device="cpu")) == seen
        assert report["pairs"] == done.n_pairs
        card = (out / "README.md").read_text()
        assert f"{done.n_pairs:,} pairs" in card
        assert f"after step {done.step}" in card
    judged = {query for query, ids in zip(train_ids, collection.relevant_ids("train"), strict=True) if ids}
    assert set.union(*left_out) >= judged
    assert sum(map(len, left_out)) == len(train_ids) + len(set(train_ids) - judged)
    own = dict(zip(collection.queries.ids.to_pylist(), collection.queries.own.tolist(), strict=True))
    for fold_ids in left_out:  # queries of one document are in one fold
        for query in fold_ids:
            assert all(other in fold_ids for other, of in own.items() if of == own[query] >= 0 and other in judged)


@pytest.mark.thorough
def test_the_best_checkpoint_is_saved(engine: Engine, bert: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = SMALL | {"evaluations": 5, "epochs": 4, "learning_rate": 0.02}
    done = train_encoder(engine, bert, tmp_path / "out", **settings)
    history = done.history.iloc[1:]
    best = (history["Recall@100"] + history["nDCG@10"] / 1000).idxmax()
    assert done.step == history["step"].loc[best]
    report = json.loads((tmp_path / "out" / "training.json").read_text())
    rows = engine.collection.query_numbers(sorted(report["selected_on"]))
    numbers = [list(engine.collection.split("train").queries).index(row) for row in rows]
    training = Training.of(engine)
    part = Training(training.batch.take(numbers), [training.relevant[row] for row in numbers])
    encoder = SentenceTransformerEncoder(str(tmp_path / "out"), device="cpu")
    found = Selection(part, 20_000, 0).evaluate(encoder)
    assert found["nDCG@10"] == pytest.approx(history["nDCG@10"].loc[best], abs=1e-6)
    assert encoder.model.max_seq_length == 64
    sample = Selection(part, 30, 0)
    assert sample.collection.n_documents < engine.collection.n_documents
    assert {doc for ids in part.relevant for doc in ids} <= set(sample.collection.doc_ids.to_pylist())


@pytest.mark.thorough
def test_frozen_layers_are_not_trained_and_adapters_are_merged(engine: Engine, tmp_path: Path) -> None:
    bert = save_bi_encoder(tmp_path / "bert", num_hidden_layers=2)
    before = load_file(Path(bert) / "model.safetensors")
    train_encoder(engine, bert, tmp_path / "frozen", **SMALL | {"frozen_layers": 1})
    for name in ("lora", "again"):  # adapters have the same initial weights
        train_encoder(engine, bert, tmp_path / name, **SMALL | {"lora_rank": 2})
    np.testing.assert_array_equal(weights(tmp_path / "lora"), weights(tmp_path / "again"))
    frozen, adapted = (load_file(tmp_path / name / "model.safetensors") for name in ("frozen", "lora"))
    assert before.keys() == frozen.keys() == adapted.keys()
    trained = {name for name in before if not np.array_equal(before[name], frozen[name])}
    assert trained
    assert all(name.startswith("encoder.layer.1.") for name in trained)
    changed = {name for name in before if not np.array_equal(before[name], adapted[name])}
    assert {name.rpartition(".")[2] for name in changed} == {"weight"}
    assert not any("embeddings" in name or "Norm" in name for name in changed)
    for name in changed:  # the difference has rank 2
        values = np.linalg.svd(adapted[name] - before[name], compute_uv=False)
        assert values[2:].max(initial=0) < 1e-5 < values[0]
    assert SentenceTransformer(str(tmp_path / "lora"), device="cpu").encode(["abc"]).shape == (1, 16)
    with pytest.raises(InputError, match=r"frozen_layers .* found 2"):
        train_encoder(engine, bert, tmp_path / "none", **SMALL | {"frozen_layers": 2})


@pytest.mark.thorough
def test_the_recipe_of_the_paper(engine: Engine, bert: str, tmp_path: Path) -> None:
    """Two towers with [CLS] pooling are trained, and engines use the right one for queries and passages."""
    parm = RECIPES["parm"]
    assert (parm.batch_size, parm.epochs, parm.learning_rate, parm.per_paragraph) == (22, 40, 2e-5, 20)
    assert (parm.towers, parm.pooling, parm.similarity) == (2, "cls", "dot")
    assert (parm.max_length, parm.max_grad_norm) == (256, 2)
    done = train_encoder(engine, bert, tmp_path / "out", recipe="parm", epochs=2, evaluations=2, warmup=2, device="cpu")
    assert list(done.history["step"]) == [0, done.history["step"].iloc[-1] // 2, done.history["step"].iloc[-1]]
    encoder = SentenceTransformerEncoder(str(tmp_path / "out"), device="cpu")
    text = ["abc def"]
    passage, query, start = encoder.encode(text), encoder.encode_queries(text), SentenceTransformer(bert, device="cpu")
    assert not np.allclose(passage, query, atol=1e-6)
    first = torch.nn.functional.normalize(start.encode(text, output_value="token_embeddings")[0][0], dim=0).numpy()
    for found in (passage, query):
        assert 0 < np.abs(found - first).max() < 0.1  # close to the common initial vector
    plain = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    np.testing.assert_allclose(plain.encode_query(text, normalize_embeddings=True), query, atol=1e-6)
    there = Engine(engine.collection, encoder=encoder)
    trained, ranker = sorted(trained_queries(encoder)), KNN().fit(there)
    assert len(ranker.rank("train")) >= len(trained) > 0
    for given in (ranker, KNN().fit(Engine(engine.collection, encoder=SentenceTransformerEncoder(plain)))):
        with pytest.raises(InputError, match=repr(trained[0])):
            given.out_of_fold(engine.collection.queries.take(engine.collection.query_numbers(trained)))
    train_encoder(there, str(tmp_path / "out"), tmp_path / "again", fold=(0, 2), **SMALL)
    assert sorted(json.loads((tmp_path / "again" / "training.json").read_text())["trained_on"]) == trained


def test_bad_input_is_refused(engine: Engine, bert: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    engine.encoder.save(tmp_path / "tfidf")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for settings, named in (
        ({"encoder": "tfidf"}, "'tfidf'"),
        ({"encoder": str(tmp_path / "tfidf")}, str(tmp_path)),
        ({"recipe": "huge"}, "'huge'.* small, gpu, parm"),
        ({"speed": 3}, "recipe 'speed'"),
        ({"epochs": 0}, "'epochs' parameter of Recipe"),
        ({"pairs": training_pairs(engine).drop_columns("group")}, "'group'"),
    ):
        with pytest.raises(InputError, match=named):
            train_encoder(engine, **{"encoder": bert, "out": out} | SMALL | settings)
    one = CollectionBuilder("one", language="english")
    one.add_document("a", ["dogs bark"])
    one.add_document("b", ["cats bark"])
    one.add_query("q", ["dogs"], split="train")
    one.add_judgement("train", "q", "a")
    alone = Engine(one.build(), encoder="lsa(n_components=1)")
    with pytest.raises(InputError, match="pairs"):
        train_encoder(alone, bert, out, match="bm25", **SMALL)
    assert not out.exists()
    assert not list(tmp_path.glob("*.training"))
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"haybale\[train\]"):
        train_encoder(engine, bert, out, **SMALL)


def test_the_plan_depends_on_the_random_state(engine: Engine) -> None:
    pairs = training_pairs(engine)
    assert plan_batches(pairs, 8, 2, 3) == plan_batches(pairs, 8, 2, 3) != plan_batches(pairs, 8, 2, 4)
