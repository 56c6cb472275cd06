"""Encoders by name, and back from what one said of itself; extras that are missing."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from support.encoders import HashEncoder

import haybale.embeddings
from haybale.collections import Collection
from haybale.embeddings import EmbeddingStore, SentenceTransformerEncoder, TfidfEncoder, embed, make_encoder
from haybale.embeddings.encoder import rebuild
from haybale.errors import InputError, MissingExtraError, StoreError, TruncationWarning


def test_lexical_encoders_by_name(tmp_path: Path) -> None:
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
        rebuild(HashEncoder().describe(), "the store")


@pytest.mark.filterwarnings("default")
def test_neural_encoders_by_name_and_back(toy: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sentence_transformers")
    from support.longformers import save_longformer

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = save_longformer(tmp_path / "model", attention_window=8)
    encoder = make_encoder(str(folder), passage_prompt="law: ", pooling="cls")
    done = embed(toy, encoder, tmp_path / "s", rows_per_chunk=4)
    assert done.counts["texts"] == 15
    assert "tokens/s" in done.rates
    with pytest.warns(TruncationWarning, match=r"^15 of 15 passages are longer than the encoder reads") as caught:
        embed(toy, make_encoder(str(folder), max_length=4), tmp_path / "cut", rows_per_chunk=4)
    assert len([w for w in caught if issubclass(w.category, TruncationWarning)]) == 1
    store = EmbeddingStore(tmp_path / "s")
    back = store.encoder()
    assert isinstance(back, haybale.embeddings.LongformerEncoder)
    np.testing.assert_array_equal(back.encode(["a cat"]), encoder.encode(["a cat"]))
    plain = make_encoder(f"sentence-transformers:{folder}", passage_prompt="law: ")
    assert isinstance(plain, SentenceTransformerEncoder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = make_encoder(str(folder), passage_prompt="law: ").encode(["a cat"])
        np.testing.assert_allclose(plain.encode(["a cat"]), ours, atol=1e-5)
    embed(toy, plain, tmp_path / "t")
    again = EmbeddingStore(tmp_path / "t").encoder()
    np.testing.assert_allclose(again.encode(["a cat"]), plain.encode(["a cat"]), atol=1e-6)
    save_longformer(folder, std=0.2, attention_window=8)  # other weights under the same name
    with pytest.raises(StoreError, match="is not the one it was"):
        store.encoder()


def test_a_missing_extra_names_its_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys, haybale, haybale.embeddings; assert not {'torch', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="has no attribute 'ShortformerEncoder'"):
        _ = haybale.embeddings.ShortformerEncoder
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r'torch is not installed; pip install "haybale\[neural\]"'):
        make_encoder("longformer:anything")
    with pytest.raises(MissingExtraError, match="torch is not installed"):
        _ = haybale.embeddings.LongformerEncoder
