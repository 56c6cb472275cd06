"""Embedding as a user does it: encoders by name, fitted encoders kept in the store, the command, compare on a store."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import haybale
from encoders import HashEncoder
from engines import tree

from haybale import Engine
from haybale.collections import Collection
from haybale.collections.spool import first_passages
from haybale.embeddings import (
    CachedEncoder,
    Chunking,
    EmbeddingStore,
    LSAEncoder,
    SentenceTransformerEncoder,
    TfidfEncoder,
    embed,
    make_encoder,
)
from haybale.embeddings.encoder import rebuild
from haybale.errors import InputError, StoreError, TruncationWarning
from haybale.evaluation import compare
from haybale.rankers import parse_all, set_all


def test_lsa_is_fitted_once_and_kept(toy: Collection, tmp_path: Path) -> None:
    done = embed(toy, LSAEncoder(4, min_df=1), tmp_path / "s", rows_per_chunk=4)
    assert (done.passages, done.kept) == (15, 0)
    store = EmbeddingStore(tmp_path / "s")
    texts = toy.passages.texts.to_pylist()
    fitted = LSAEncoder(4, min_df=1).fit(texts)
    np.testing.assert_allclose(store.vectors(), fitted.encode(texts), atol=1e-6)
    np.testing.assert_array_equal(store.encoder().encode(["barking dogs"]), fitted.encode(["barking dogs"]))
    before = tree(tmp_path / "s")
    (tmp_path / "s" / "vectors.zarr" / "c.2.0").unlink()
    embed(toy, LSAEncoder(4, min_df=1), tmp_path / "s", rows_per_chunk=4)  # not fitted anew: loaded
    embed(toy, fitted, tmp_path / "s", rows_per_chunk=4)
    assert tree(tmp_path / "s") == before
    with pytest.raises(StoreError, match="n_components': 3"):
        embed(toy, LSAEncoder(3, min_df=1), tmp_path / "s", rows_per_chunk=4)
    with pytest.raises(StoreError, match="begun with encoder fitted"):
        embed(toy, LSAEncoder(4, min_df=1).fit(texts[:9]), tmp_path / "s", rows_per_chunk=4)
    cached = CachedEncoder(store)
    np.testing.assert_array_equal(cached.encode(texts[3:5]), store.vectors()[3:5])
    assert cached.missed == 0


def test_an_encoder_whose_saving_was_cut_off(toy: Collection, tmp_path: Path) -> None:
    store = tmp_path / "s"
    (store / ".encoder.123").mkdir(parents=True)
    (store / "encoder").mkdir()
    (store / "passages.parquet").write_bytes(b"half")
    embed(toy, LSAEncoder(4, min_df=1), store)
    assert sorted(path.name for path in store.iterdir()) == [
        "encoder", "manifest.json", "passages.parquet", "vectors.zarr",
    ]  # fmt: skip


def test_shards_share_one_fitted_encoder(toy: Collection, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="shards need one fitted encoder"):
        embed(toy, LSAEncoder(4, min_df=1), tmp_path / "s", rows_per_chunk=2, shard=(1, 2))
    LSAEncoder(4, min_df=1).fit(toy.passages.texts.to_pylist()).save(tmp_path / "lsa")
    for i in (1, 2):
        embed(toy, make_encoder(str(tmp_path / "lsa")), tmp_path / "s", rows_per_chunk=2, shard=(i, 2))
    embed(toy, LSAEncoder(4, min_df=1), tmp_path / "whole", rows_per_chunk=2)
    np.testing.assert_array_equal(
        EmbeddingStore(tmp_path / "s").vectors(), EmbeddingStore(tmp_path / "whole").vectors()
    )


def test_a_remote_store_keeps_its_encoder(toy: Collection) -> None:
    embed(toy, LSAEncoder(4, min_df=1, char_ngrams=(2, 3)), "memory://fitted/store")
    store = EmbeddingStore("memory://fitted/store")
    texts = toy.passages.texts.to_pylist()
    np.testing.assert_array_equal(store.encoder().encode(texts), store.vectors())
    assert embed(toy, LSAEncoder(4, min_df=1, char_ngrams=(2, 3)), "memory://fitted/store").kept == 15


def test_sparse_vectors_are_not_stored(toy: Collection, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="TfidfEncoder makes sparse vectors, which a store does not hold"):
        embed(toy, TfidfEncoder(min_df=1), tmp_path / "s")


def test_encoders_by_name(tmp_path: Path) -> None:
    assert make_encoder("lsa", n_components=7, language="german").get_params()["n_components"] == 7
    assert isinstance(make_encoder("tfidf"), TfidfEncoder)
    with pytest.raises(InputError, match="'lsa' takes no pooling"):
        make_encoder("lsa", pooling="cls")
    with pytest.raises(InputError, match="'tfidf' takes no query_prompt"):
        make_encoder("tfidf", query_prompt="query: ")
    (tmp_path / "manifest.json").write_text('{"class": "Pickle"}')
    with pytest.raises(InputError, match="expected the manifest of a saved LSAEncoder or TfidfEncoder"):
        make_encoder(str(tmp_path))
    with pytest.raises(InputError, match="cannot load an encoder of class 'HashEncoder' by its description"):
        rebuild(HashEncoder().describe())


def test_the_first_passages_are_read_no_further(tmp_path: Path, toy: Collection) -> None:
    (tmp_path / "collection.tsv").write_text("a\tone\na\ttwo\nb\tthree\nb\n")  # the last line is broken
    assert first_passages(tmp_path, 3) == ["one", "two", "three"]
    assert len(first_passages(toy, 100)) == 15


@pytest.mark.filterwarnings("ignore:.* training queries for")
def test_compare_on_a_store_is_compare_without(toy: Collection, tmp_path: Path) -> None:
    rankers = set_all(parse_all("bm25,knn,svr,parm-rrf"), {"n_bags": 2})
    for chunking in (None, Chunking(3, 2)):
        out = tmp_path / f"s{chunking is None}"
        embed(toy, LSAEncoder(4), out, rows_per_chunk=4, chunking=chunking)
        stored = compare(Engine(toy, store=str(out)), rankers)
        plain = compare(Engine(toy, encoder="lsa", width=4, chunking=chunking), rankers)
        assert stored.facts["vectors"] == plain.facts["vectors"] == list(EmbeddingStore(out).shape)
        assert list(stored.runs) == list(plain.runs)
        for name, run in stored.runs.items():
            assert run.to_frame().equals(plain.runs[name].to_frame())
    with pytest.raises(InputError, match="a store says itself how its passages were cut"):
        Engine(toy, store=str(out), chunking=Chunking(3))


def test_the_command(tmp_path: Path) -> None:
    folder = tmp_path / "laws"
    folder.mkdir()
    lines = [f"d{i // 4}\tDie Berufung Nummer {i} ist nicht zulässig und das Gericht {i % 7}" for i in range(40)]
    (folder / "collection.tsv").write_text("\n".join(lines))
    command = ("embed", str(folder), "--out", str(tmp_path / "s"), "--width", "4", "--set", "rows_per_chunk=16")
    done = haybale(*command, "--dtype", "float16")
    assert done.returncode == 0, done.stderr
    assert "40 passages embedded in " in done.stderr
    assert "passages/s" in done.stderr
    assert "40 × 4 float16" in done.stderr
    assert "\x1b[" not in done.stderr
    manifest = json.loads((tmp_path / "s" / "manifest.json").read_text())
    assert manifest["encoder"]["parameters"]["language"] == "german"
    again = haybale(*command, "--dtype", "float16")
    assert re.match(r"0 passages embedded in \d\.\d s, 40 were there\n", again.stderr)
    other = haybale(*command)
    assert other.returncode == 2
    assert "begun with dtype 'float16', now it is 'float32'" in other.stderr
    bad = haybale(*command[:2], "--out", str(tmp_path / "t"), "--shard", "1of2")
    assert bad.stderr == "haybale: shard must be i/n, such as 2/8, found '1of2'\n"


def test_what_cannot_be_embedded(tmp_path: Path, here: Callable[..., tuple[int, str, str]]) -> None:
    (tmp_path / "collection.tsv").write_text("a\tone two\n")
    for arguments, message in [
        (("--set", "rows=3"), "unknown parameter 'rows'; known: unit, tokenizer, max_fit_texts, pooling, "),
        (("--set", "rows_per_chunk"), "--set takes name=value, found 'rows_per_chunk'"),
        (("--set", "rows_per_chunk=0"), "rows_per_chunk"),
        (("--set", "unit=tokens"), "--unit is of pieces: say how long with --pieces"),
        (("--pieces", "3", "--set", "unit=letters"), "unknown unit 'letters'"),
        (("--set", "pooling=cls"), "'lsa' takes no pooling"),
        (("--width", "0"), "Invalid value for '--width'"),
        (("--dtype", "int8"), "int8"),
        (("--shards", "2"), "--shards asks for --dask"),
    ]:
        status, shown, said = here("embed", str(tmp_path), "--out", str(tmp_path / "s"), *arguments)
        assert (status, shown) == (2, ""), arguments
        assert said.startswith("haybale: ")
        assert message in said, said
        assert said.count("\n") == 1
        assert not (tmp_path / "s").exists()


def test_an_interrupted_command_says_how_to_go_on(tmp_path: Path) -> None:
    lines = [f"d{i}\tword{i % 50} word{i % 7} word{i % 11}" for i in range(1500)]
    (tmp_path / "collection.tsv").write_text("\n".join(lines))
    # What runs in a shell's background inherits that interrupts are ignored.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "from haybale.cli import main; main()"
    command = ["embed", str(tmp_path), "--out", str(tmp_path / "s"), "--width", "4", "--set", "rows_per_chunk=1"]
    process = subprocess.Popen([sys.executable, "-c", code, *command], stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "s" / "vectors.zarr" / "c.5.0").exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert said == "interrupted; what is written is kept, the same command goes on from there\n"
    assert process.returncode == 130
    assert not (tmp_path / "s" / ".lock").exists()
    with pytest.raises(StoreError, match="not finished"):
        EmbeddingStore(tmp_path / "s")
    again = haybale(*command)
    assert " were there" in again.stderr
    assert len(EmbeddingStore(tmp_path / "s")) == 1500


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r'pip install "haybale\[neural\]"'):
        make_encoder("longformer:anything")


@pytest.mark.filterwarnings("default")
def test_neural_encoders_by_name_and_back(toy: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from longformers import save_longformer

    from haybale import LongformerEncoder

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = save_longformer(tmp_path / "model", attention_window=8)
    encoder = make_encoder(str(folder), passage_prompt="law: ", pooling="cls")
    assert isinstance(encoder, LongformerEncoder)
    done = embed(toy, encoder, tmp_path / "s", rows_per_chunk=4)
    assert done.counts.texts == 15
    assert done.counts.padding_waste == 0
    assert "tokens/s" in done.rates
    cutting = make_encoder(str(folder), max_length=4)
    with pytest.warns(TruncationWarning, match=r"^15 of 15 passages are longer than the encoder reads") as caught:
        embed(toy, cutting, tmp_path / "cut", rows_per_chunk=4)
    assert len([w for w in caught if issubclass(w.category, TruncationWarning)]) == 1
    (tmp_path / "collection.tsv").write_text("a\tw1 w2 w3 w4 w5\n")
    command = haybale(
        "embed", str(tmp_path), "--out", str(tmp_path / "p"), "--encoder", str(folder), "--device", "cpu",
        "--pieces", "2", "--set", "unit=tokens",
    )  # fmt: skip
    assert "3 passages embedded" in command.stderr  # in the tokens of the encoder
    assert EmbeddingStore(tmp_path / "p").texts().to_pylist() == ["w1 w2", "w3 w4", "w5"]
    store = EmbeddingStore(tmp_path / "s")
    back = store.encoder(device="cpu")
    assert isinstance(back, LongformerEncoder)
    np.testing.assert_array_equal(back.encode(["a cat"]), encoder.encode(["a cat"]))
    plain = make_encoder(f"sentence-transformers:{folder}", passage_prompt="law: ")
    assert isinstance(plain, SentenceTransformerEncoder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_allclose(
            plain.encode(["a cat"]), make_encoder(str(folder), passage_prompt="law: ").encode(["a cat"]), atol=1e-5
        )
    embed(toy, plain, tmp_path / "t")
    again = EmbeddingStore(tmp_path / "t").encoder(device="cpu")
    np.testing.assert_allclose(again.encode(["a cat"]), plain.encode(["a cat"]), atol=1e-6)
    save_longformer(folder, std=0.2, attention_window=8)  # other weights under the same name
    with pytest.raises(StoreError, match="is not the one it was"):
        store.encoder()
