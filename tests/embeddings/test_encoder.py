"""The contract of encoders, encoder texts, and encoders loaded from engines, stores and folders."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from support.encoders import HashEncoder

from haybale import Engine
from haybale.collections import Collection
from haybale.embeddings import (
    EmbeddingStore,
    Encoder,
    LongformerEncoder,
    LSAEncoder,
    SentenceTransformerEncoder,
    TfidfEncoder,
    embed,
    encoder_maker,
    parse_encoder,
)
from haybale.embeddings.encoder import ENCODERS, encoder_text, rebuild
from haybale.errors import (
    FileFormatError,
    InputError,
    MissingExtraError,
    StoreError,
    TruncationWarning,
    UnknownNameError,
)


@pytest.fixture
def letters() -> Iterator[type[Encoder]]:
    """An encoder of another package, which is registered during one test."""

    class LetterFrequencies(Encoder):
        """Count some letters."""

        name = "letter-frequencies"
        dim = 3

        def __init__(self, which: str = "abc") -> None:
            self.which = which

        def encode(self, texts: Sequence[str]) -> np.ndarray:
            counts = [[text.count(letter) + 0.1 for letter in self.which] for text in texts]
            return np.array(counts, dtype=np.float32) / np.linalg.norm(counts, axis=1, keepdims=True)

    yield LetterFrequencies
    del ENCODERS._known["letter-frequencies"]


def test_a_registered_encoder_works_everywhere(letters: type[Encoder], toy: Collection, tmp_path: Path) -> None:
    """It can be written as an encoder text, and engines and stores can load it by their records."""
    assert "letter-frequencies" in ENCODERS
    engine = Engine.build(toy, tmp_path / "engine", encoder="letter-frequencies(which=xyz)").prepare()
    again = Engine.open(tmp_path / "engine")
    assert (again.encoder.which, again.id) == ("xyz", engine.id)
    np.testing.assert_array_equal(again.passages.vectors, engine.passages.vectors)
    Engine.build(toy, tmp_path / "object", encoder=letters("tea")).prepare()
    assert Engine.open(tmp_path / "object").encoder.which == "tea"
    embed(toy, letters("tea"), tmp_path / "store")
    assert EmbeddingStore(tmp_path / "store").encoder().which == "tea"


def test_bad_classes_are_refused() -> None:
    with pytest.raises(TypeError, match=r"Half .* encode"):
        type("Half", (Encoder,), {"name": "half"})
    with pytest.raises(InputError, match=r"'lsa' .*LSAEncoder"):
        type("Other", (LSAEncoder,), {"name": "lsa"})


def test_encoder_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_encoder(" lsa( 7, language=german )", language="english", device="cpu").get_params() == (
        LSAEncoder(7, language="german").get_params()
    )
    assert parse_encoder("tfidf(char_ngrams=[3,4])").char_ngrams == (3, 4)
    maker = encoder_maker("longformer:allenai/longformer-base-4096", device="cpu", language="german")
    assert (maker.func.name, maker.keywords) == (
        "longformer",
        {"model": "allenai/longformer-base-4096", "device": "cpu"},
    )
    assert encoder_maker("intfloat/e5-base").func is SentenceTransformerEncoder
    assert encoder_text("lsa") == "lsa"
    assert encoder_text("lsa(random_state=1,n_components=8)") == encoder_text("lsa(8,random_state=1)")
    (tmp_path / "model").mkdir()
    assert encoder_text("model") == str(tmp_path / "model")
    assert encoder_text("sentence-transformers('model',query_prompt='q: ')") == (
        f"sentence-transformers(model='{tmp_path}/model',query_prompt='q: ')"
    )
    TfidfEncoder(min_df=1).fit(["a dog"]).save("saved")
    assert parse_encoder("saved").vocabulary_ == {"dog": 0}
    assert encoder_text("saved") == str(tmp_path / "saved")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_text('{"class": "Pickle"}')
    for text, error, named in [
        ("", InputError, "found ''"),
        ("lsb(3)", UnknownNameError, "'lsb'.*lsa"),
        ("lsa(pooling=cls)", UnknownNameError, "lsa 'pooling'"),
        ("lsa(1,n_components=2)", InputError, "n_components"),
        ("lsa(min_df=2.5)", InputError, "'min_df' parameter of LSAEncoder"),
        ("lsa(3", InputError, r"'lsa\(3'"),
        ("longformer", InputError, "'model'"),
        ("other", FileFormatError, "'Pickle'"),
    ]:
        with pytest.raises(error, match=named):
            parse_encoder(text)
    with pytest.raises(InputError, match="'HashEncoder'"):
        rebuild(HashEncoder().describe(), "the store")


@pytest.mark.filterwarnings("default")
def test_neural_encoders_are_loaded_by_name(toy: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sentence_transformers")
    from support.longformers import save_longformer

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = save_longformer(tmp_path / "model", attention_window=8)
    encoder = parse_encoder(str(folder), passage_prompt="law: ", pooling="cls")
    done = embed(toy, encoder, tmp_path / "s", rows_per_chunk=4)
    assert done.counts["texts"] == 15
    assert "tokens/s" in done.rates
    with pytest.warns(TruncationWarning, match=r"^15 of 15 passages .*max_length") as caught:
        embed(toy, parse_encoder(f"longformer('{folder}',max_length=4)"), tmp_path / "cut", rows_per_chunk=4)
    assert len([w for w in caught if issubclass(w.category, TruncationWarning)]) == 1
    store = EmbeddingStore(tmp_path / "s")
    loaded = store.encoder()
    assert isinstance(loaded, LongformerEncoder)
    np.testing.assert_array_equal(loaded.encode(["a cat"]), encoder.encode(["a cat"]))
    plain = parse_encoder(f"sentence-transformers:{folder}", passage_prompt="law: ")
    assert isinstance(plain, SentenceTransformerEncoder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = parse_encoder(str(folder), passage_prompt="law: ").encode(["a cat"])
        np.testing.assert_allclose(plain.encode(["a cat"]), ours, atol=1e-5)
    embed(toy, plain, tmp_path / "t")
    again = EmbeddingStore(tmp_path / "t").encoder()
    np.testing.assert_allclose(again.encode(["a cat"]), plain.encode(["a cat"]), atol=1e-6)
    save_longformer(folder, std=0.2, attention_window=8)  # other weights under the same name
    with pytest.raises(StoreError, match=str(folder)):
        store.encoder()


def test_a_missing_extra_names_its_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
import sys
from haybale.embeddings.encoder import ENCODERS
assert {"longformer", "lsa", "sentence-transformers", "tfidf"} <= set(ENCODERS)
assert not {"torch", "transformers"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r'torch .* "haybale\[neural\]"'):
        parse_encoder("longformer:anything")
