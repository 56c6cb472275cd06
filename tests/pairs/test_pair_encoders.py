"""Pair encoders against transformers and sentence-transformers, one pair at a time; and errors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiny_models import SIZES, WORDS, save_bi_encoder, save_cross_encoder

from haybale import CrossPairs, Engine, LSAEncoder, PairEncoder, TfidfEncoder, TokenPairs, VectorPairs
from haybale.errors import DeviceError, InputError, MissingExtraError, UnknownNameError, VectorError
from haybale.pairs.pair_encoders import longest_first

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")
pytestmark = pytest.mark.filterwarnings("default")  # transformers and torch warn about themselves

# Words are letters here, so that a text has as many tokens as it has letters.
TEXTS = ["a", "b c", "a b c d e f g", " ".join("qrstuvwxyz" * 3), " ".join("abcdefghij" * 60), "zebra", "c b"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Save a cross-encoder with 512 usable positions."""
    folder = save_cross_encoder(tmp_path_factory.mktemp("models") / "cross")
    transformers.BertTokenizer.from_pretrained(folder, model_max_length=512).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def library(model: str) -> tuple[Any, Any]:
    return transformers.AutoModel.from_pretrained(model).eval(), transformers.AutoTokenizer.from_pretrained(model)


def all_pairs(n: int) -> np.ndarray:
    return np.stack(np.divmod(np.arange(n * n), n), axis=1)


@pytest.mark.parametrize("read", ["pooler", "cls"])
@pytest.mark.parametrize("max_length", [8, 31, 512])
def test_vectors_are_those_of_transformers(model: str, library: tuple[Any, Any], read: str, max_length: int) -> None:
    """Check pairs of 5 to 512 tokens, with several batch sizes."""
    network, tokenizer = library
    which = all_pairs(len(TEXTS))
    expected = []
    for i, j in which:
        inputs = tokenizer(TEXTS[i], TEXTS[j], truncation="longest_first", max_length=max_length, return_tensors="pt")
        with torch.inference_mode():
            out = network(**inputs)
        expected.append((out.pooler_output if read == "pooler" else out.last_hidden_state[:, 0])[0].numpy())
    for budget in (None, 1, 700):
        pairs = CrossPairs(model, read=read, max_length=max_length, batch_tokens=budget, device="cpu")
        assert isinstance(pairs, PairEncoder)
        found = pairs.encode(TEXTS, TEXTS, which)
        assert (found.shape, found.dtype) == ((len(which), pairs.dim), np.float32)
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_scores_are_those_of_sentence_transformers(model: str, tmp_path: Path) -> None:
    """Check the default sigmoid, and an activation that was saved with the model."""
    which = all_pairs(len(TEXTS))
    plain = sentence_transformers.CrossEncoder(model, device="cpu", activation_fn=torch.nn.Identity())
    plain.save_pretrained(str(tmp_path / "plain"), create_model_card=False)
    for name in (model, str(tmp_path / "plain")):
        expected = sentence_transformers.CrossEncoder(name, device="cpu").predict(
            [(TEXTS[i], TEXTS[j]) for i, j in which]
        )
        pairs = CrossPairs(name, read="score", max_length=512, device="cpu")
        np.testing.assert_allclose(pairs.encode(TEXTS, TEXTS, which)[:, 0], expected, atol=1e-5)


@pytest.fixture(scope="module")
def twins(model: str) -> list[CrossPairs]:
    return [CrossPairs(model, max_length=20, batch_tokens=1, device="cpu") for _ in range(2)]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=30), st.integers(1, 400))
@settings(max_examples=25, deadline=None)
def test_pairs_in_any_order_with_any_repetition(
    twins: list[CrossPairs], which: list[tuple[int, int]], budget: int
) -> None:
    """The vector of a pair does not depend on other pairs, and equal pairs are encoded once."""
    pairs, alone = twins
    pairs.batch_tokens = budget
    count, forward = 0, CrossPairs._forward

    def counted(inputs: dict[str, Any]) -> Any:
        nonlocal count
        count += len(inputs["input_ids"])
        return forward(pairs, inputs)

    pairs._forward = counted  # type: ignore[method-assign]
    found = pairs.encode(TEXTS, TEXTS, np.array(which))
    np.testing.assert_allclose(found, alone.encode(TEXTS, TEXTS, np.array(which)), atol=1e-5)
    assert count == len(set(which))


@given(st.integers(1, 40), st.integers(1, 40), st.integers(5, 40))
@settings(max_examples=200, deadline=None)
def test_the_longer_side_is_cut(library: tuple[Any, Any], first: int, second: int, length: int) -> None:
    found = library[1]("a " * first, "b " * second, truncation="longest_first", max_length=length)
    sides = found.sequence_ids()
    kept = longest_first(np.array([first]), np.array([second]), length - 3)[0]
    assert (sides.count(0), sides.count(1)) == tuple(kept)


def test_padding_is_the_vector_of_padding_tokens(model: str, library: tuple[Any, Any]) -> None:
    zeros = torch.zeros((1, 24), dtype=torch.long)
    with torch.inference_mode():
        expected = library[0](input_ids=zeros, attention_mask=zeros, token_type_ids=zeros).pooler_output[0].numpy()
    found = CrossPairs(model, max_length=24, device="cpu").padding()
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.linalg.norm(found) > 0.1


def test_bfloat16_changes_the_vectors_little(model: str) -> None:
    which = all_pairs(4)
    exact, rough = (CrossPairs(model, precision=name, device="cpu") for name in ("float32", "bfloat16"))
    difference = np.abs(exact.encode(TEXTS, TEXTS, which) - rough.encode(TEXTS, TEXTS, which)).max()
    assert 0 < difference < 0.1
    assert exact.describe() != rough.describe()


@pytest.fixture(scope="module")
def distil(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Save a model without a pooler and without token types."""
    folder = tmp_path_factory.mktemp("models") / "distil"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    config = transformers.DistilBertConfig(vocab_size=len(WORDS), dim=16, n_layers=1, n_heads=2, hidden_dim=32)
    transformers.DistilBertModel(config).save_pretrained(folder)
    transformers.DistilBertTokenizer(str(folder / "vocab.txt"), model_max_length=64).save_pretrained(folder)
    return str(folder)


def test_without_token_types(distil: str) -> None:
    network, tokenizer = (
        transformers.AutoModel.from_pretrained(distil).eval(),
        transformers.AutoTokenizer.from_pretrained(distil),
    )
    assert "token_type_ids" not in tokenizer("a", "b")
    with torch.inference_mode():
        expected = network(**tokenizer("a b", "c", return_tensors="pt")).last_hidden_state[0, 0].numpy()
    found = CrossPairs(distil, read="cls", device="cpu").encode(["a b"], ["c"], np.array([[0, 0]]))
    np.testing.assert_allclose(found[0], expected, atol=1e-5)


def test_products_of_vectors() -> None:
    texts = ["dogs bark", "cats meow", "dogs and cats", "a dog barks", "cats do meow"]
    encoder = LSAEncoder(2, min_df=1).fit(texts)
    which = np.array([[0, 1], [2, 0], [0, 1]])
    pairs = VectorPairs(encoder)
    vectors = encoder.encode(texts)
    np.testing.assert_allclose(pairs.encode(texts, texts, which), vectors[which[:, 0]] * vectors[which[:, 1]])
    assert (pairs.padding() == np.zeros(2)).all()
    engine = Engine({f"d{i}": text for i, text in enumerate(texts)}, encoder=encoder, language="english")
    stored = VectorPairs(engine.prepare().encoder, engine)
    engine.encoder.encode = lambda texts: vectors[[1] * len(texts)]  # for texts that the engine does not have
    np.testing.assert_allclose(stored.encode(["else"], texts, np.array([[0, 3]])), vectors[1:2] * vectors[3:4])
    with pytest.raises(InputError, match="TfidfEncoder"):
        VectorPairs(TfidfEncoder(min_df=1).fit(texts))


def test_token_pairs_equal_the_maxsim_of_sentence_transformers(tmp_path: Path) -> None:
    """The score is divided by the number of query tokens. Other text models use their token vectors."""
    name = save_bi_encoder(tmp_path / "bi")
    pairs, which = TokenPairs(name, device="cpu"), all_pairs(3)
    tokens = [
        each.numpy() / np.linalg.norm(each.numpy(), axis=1, keepdims=True)
        for each in sentence_transformers.SentenceTransformer(name, device="cpu").encode(
            TEXTS[:3], output_value="token_embeddings", convert_to_numpy=False
        )
    ]
    expected = [(tokens[i] @ tokens[j].T).max(axis=1).mean() for i, j in which]
    np.testing.assert_allclose(pairs.encode(TEXTS, TEXTS, which)[:, 0], expected, atol=1e-5)
    saved = sentence_transformers.MultiVectorEncoder(name, device="cpu")
    saved.save(str(tmp_path / "late"))
    late = TokenPairs(tmp_path / "late", device="cpu")
    queries, documents = saved.encode_query(TEXTS[:3]), saved.encode_document(TEXTS[:3])
    sums = (
        sentence_transformers.util.maxsim(queries, documents).numpy()
        / np.array([len(each) for each in queries])[:, None]
    )
    np.testing.assert_allclose(late.encode(TEXTS, TEXTS, which)[:, 0], sums.ravel(), atol=1e-5)


def test_without_cuda_or_the_extra(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for made in (lambda: CrossPairs(model, device="cuda"), lambda: TokenPairs(model, device="cuda:1")):
        with pytest.raises(DeviceError, match="CUDA"):
            made()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"haybale\[neural\]"):
        CrossPairs(model)


def test_what_is_refused(model: str, distil: str, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    for make in (CrossPairs, TokenPairs):
        with pytest.raises(InputError, match="nothing"):
            make(tmp_path / "nothing")
    with pytest.raises(InputError, match=r'pooler.*read="cls"'):
        CrossPairs(distil)
    with pytest.raises(InputError, match=r"max_length .*512.*600"):
        CrossPairs(model, max_length=600)
    for wrong in ({"read": "mean"}, {"max_length": 7}, {"precision": "int8"}, {"batch_tokens": 0}):
        with pytest.raises(InputError, match=f"'{next(iter(wrong))}' parameter of CrossPairs"):
            CrossPairs(model, **wrong)
    pairs = CrossPairs(model, device="cpu")
    with pytest.raises(InputError, match="text 1 of 2"):
        pairs.encode(["a", " "], ["b"], np.array([[0, 0]]))
    with pytest.raises(InputError, match="string"):
        pairs.encode("a", ["b"], np.array([[0, 0]]))
    without = tmp_path / "without"
    transformers.BertModel(transformers.BertConfig(vocab_size=3, **SIZES)).save_pretrained(without)
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "[PAD]": 2}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", pad_token="[PAD]").save_pretrained(
        without
    )
    with pytest.raises(InputError, match="separator"):
        CrossPairs(without)
    base = save_bi_encoder(tmp_path / "base")
    with pytest.raises(InputError, match=r"cross-encoder.*classifier"):
        CrossPairs(base, read="score", device="cpu")
    with pytest.raises(UnknownNameError, match="'gpu'"):
        CrossPairs(model, device="gpu")
    pairs.model.get_input_embeddings().weight.data[:] = float("nan")
    with pytest.raises(VectorError, match="output of"):
        pairs.encode(["a"], ["b"], np.array([[0, 0]]))
