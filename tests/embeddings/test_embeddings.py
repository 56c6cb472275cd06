"""Encoders: terms, LSA against a plain computation, sentence-transformers on a tiny model with random weights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

import haybale.extras
from haybale.analysis import Analyzer, guess_language
from haybale.collections import Collection
from haybale.embeddings import Encoder, LSAEncoder, SentenceTransformerEncoder
from haybale.errors import InputError, MissingExtraError, UnknownNameError
from haybale.vectors import check_vectors

TEXTS = [
    "dogs bark at cats",
    "cats meow",
    "a dog and a cat",
    "the dogs bark loudly",
    "cats do meow and purr",
    "barking",
]


def test_terms_are_the_same_in_every_process() -> None:
    code = "from haybale.analysis import Analyzer; print(Analyzer('german')(['Die Häuser brennen', 'ein Haus brennt']))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": s}
        ).stdout
        for s in ("1", "2", "3")
    }
    assert len(outputs) == 1


def test_a_vocabulary_is_not_grown() -> None:
    analyzer = Analyzer("english")
    vocabulary = analyzer(["dogs bark"]).vocabulary
    assert analyzer(["dogs meow"], vocabulary) == ([[0]], {"dog": 0, "bark": 1})


def test_languages() -> None:
    assert guess_language(["The appeal against a judgment is not allowed."]) == "english"
    with pytest.raises(UnknownNameError, match="known: english, german"):
        Analyzer("klingon")


def test_lsa_is_tfidf_and_svd() -> None:
    """The obvious way: scikit-learn's vectoriser and exact SVD, compared through cosines (signs are free)."""
    encoder = LSAEncoder(3, min_df=2, n_iter=7).fit(TEXTS)
    analyzer = Analyzer("english")
    vectorizer = TfidfVectorizer(analyzer=analyzer.terms, min_df=2, sublinear_tf=True)
    expected = TruncatedSVD(3, algorithm="arpack", random_state=0).fit_transform(vectorizer.fit_transform(TEXTS))
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    vectors = encoder.encode(TEXTS)
    np.testing.assert_allclose(vectors @ vectors.T, expected @ expected.T, atol=1e-5)


def test_lsa_vectors(pydocs: Collection) -> None:
    texts = pydocs.passages.texts[:2000].to_pylist()
    encoder = LSAEncoder(64).fit(texts)
    assert isinstance(encoder, Encoder)
    vectors = encoder.encode(texts)
    assert vectors.shape == (2000, 64)
    assert vectors.dtype == np.float32
    lengths = np.linalg.norm(vectors, axis=1)
    assert np.all((np.abs(lengths - 1) < 1e-5) | (lengths == 0))
    np.testing.assert_array_equal(vectors, LSAEncoder(64).fit(texts).encode(texts))
    np.testing.assert_allclose(vectors[:7], encoder.encode(texts[:7]), atol=1e-6)  # no text depends on its company
    assert not encoder.encode(["zzzz qqqq"]).any()  # nothing known: near nothing


def test_lsa_width_is_cut_to_what_the_texts_allow() -> None:
    assert LSAEncoder(500).fit(TEXTS).encode(TEXTS).shape[1] <= len(TEXTS)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (["a b", ""], "text 1 of 2 is empty"),
        (["x", " \n"], "text 1 of 2 is empty"),
        ("one", "single string"),
        ([3], "int"),
    ],
)
def test_bad_texts_are_refused(bad: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LSAEncoder(2).fit(TEXTS).encode(bad)


def test_lsa_refuses_what_it_cannot_fit() -> None:
    with pytest.raises(InputError, match="no texts"):
        LSAEncoder().fit([])
    with pytest.raises(InputError, match="no term occurs in 2 or more of the 2 texts"):
        LSAEncoder().fit(["alpha", "beta"])
    with pytest.raises(InputError, match="n_components"):
        LSAEncoder(0).fit(TEXTS)


def test_vectors_keep_their_library_and_width() -> None:
    checked = check_vectors(np.ones((2, 3), dtype=np.float64), "queries", width=3)
    assert checked.dtype == np.float32
    with pytest.raises(ValueError, match=r"row 1 has NaN or infinity"):
        check_vectors([[1.0, 2.0], [np.inf, 0.0]], "queries")
    with pytest.raises(ValueError, match="two-dimensional"):
        check_vectors([1.0, 2.0], "queries")


def test_a_missing_extra_names_its_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError, match=r'pip install "haybale\[neural\]"'):
        SentenceTransformerEncoder("some/model")


def test_a_broken_install_is_not_called_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_installed.py").write_text("import a_module_that_is_not_there")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there") as caught:
        haybale.extras.require("half_installed", "neural")
    assert not isinstance(caught.value, MissingExtraError)


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved sentence-transformers model: a two-layer BERT of width 16 with random weights."""
    pytest.importorskip("sentence_transformers")
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizer

    folder = tmp_path_factory.mktemp("model")
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *"abcdefghijklmnopqrstuvwxyz",
        *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"),
    ]
    (folder / "vocab.txt").write_text("\n".join(words))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    BertModel(config).save_pretrained(folder / "bert")
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder / "bert")
    transformer = Transformer(str(folder / "bert"))
    SentenceTransformer(modules=[transformer, Pooling(16, "mean")]).save(str(folder / "saved"))
    return folder / "saved"


@pytest.mark.filterwarnings("default")  # transformers and torch warn about themselves
def test_sentence_transformer_from_a_local_folder(tiny_model: Path) -> None:
    encoder = SentenceTransformerEncoder(tiny_model, batch_size=2, device="cpu")
    assert isinstance(encoder, Encoder)
    vectors = encoder.encode(TEXTS)
    assert vectors.shape == (6, 16)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(vectors[3:4], encoder.encode(TEXTS[3:4]), atol=1e-5)  # batching changes nothing
    assert not np.allclose(vectors[0], vectors[1])
    raw = encoder.model.encode(TEXTS[:1])
    np.testing.assert_allclose(vectors[:1], raw / np.linalg.norm(raw), atol=1e-5)
    with pytest.raises(InputError, match="text 0 of 1 is empty"):
        encoder.encode([""])


@pytest.mark.filterwarnings("default")
def test_a_model_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sentence_transformers")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match="cannot load the sentence-transformers model"):
        SentenceTransformerEncoder(str(tmp_path / "nothing" / "here"))
