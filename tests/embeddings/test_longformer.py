"""The Longformer without padding against transformers' LongformerModel, with random weights; checkpoint folders."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sentence_transformers")

import torch
from support.longformers import hidden, pooled, reference, save_longformer, texts

from haybale.embeddings import Encoder, LongformerEncoder
from haybale.embeddings.networks import longformer_model
from haybale.errors import InputError, TruncationWarning

pytestmark = pytest.mark.filterwarnings("default")  # transformers and torch warn about themselves

# Unsorted lengths within and beyond each window (reach 2, 5, 3), some of them equal.
LENGTHS = [128, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 20, 20, 31, 64, 127, 128, 90, 90, 33]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small models are faster with one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_longformer(tmp_path_factory.mktemp("tiny"))


def largest_difference(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    assert [a.shape for a in ours] == [b.shape for b in theirs]
    return max(float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True))


def smallest_cosine(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float((ours.astype(np.float64) * theirs).sum(1).min())


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_hidden_states_and_vectors(folder: Path, pooling: str) -> None:
    # A padding token inside a text has no position; an unknown word still has a vector.
    of = [*texts(LENGTHS), "w1 <pad> w2 w3", "unknown", "w0"]
    encoder = LongformerEncoder(folder, pooling=pooling, tokens_per_batch=300)
    assert isinstance(encoder, Encoder)
    expected = reference(folder, of)
    assert largest_difference(hidden(encoder, of), expected) < 1e-5
    vectors = encoder.encode(of)
    assert (vectors.dtype, vectors.shape) == (np.float32, (len(of), encoder.dim))
    assert smallest_cosine(vectors, pooled(expected, pooling)) > 1 - 1e-6
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_the_window_matters(folder: Path, tmp_path: Path) -> None:
    """If attention had no effect with these weights, the test above would prove nothing."""
    of = texts([60])
    wide = save_longformer(tmp_path / "wide", attention_window=[126, 126, 126])
    assert largest_difference(hidden(LongformerEncoder(folder), of), hidden(LongformerEncoder(wide), of)) > 0.1


@pytest.mark.thorough
def test_base_size(tmp_path: Path) -> None:
    """Two layers of the published size, with windows of 512."""
    sizes = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072, "num_hidden_layers": 2}
    base = save_longformer(tmp_path, std=0.05, attention_window=[512, 512], max_position_embeddings=1602, **sizes)
    of = texts([1500, 3, 256, 257, 258, 513, 258])
    assert largest_difference(hidden(LongformerEncoder(base), of), reference(base, of)) < 1e-4


def test_plain_layers_and_small_blocks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linear layers without oneDNN, as on a GPU, and several blocks of attention in a text."""
    monkeypatch.setitem(longformer_model.BLOCK, "cpu", 40)
    monkeypatch.setattr(longformer_model, "_has_onednn", lambda: False)
    of = texts(LENGTHS)
    assert largest_difference(hidden(LongformerEncoder(folder), of), reference(folder, of)) < 1e-5


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(folder: Path, dtype: str) -> None:
    """The error against float32 must be at most 1.5 times that of transformers in the same dtype."""
    of = texts(LENGTHS)
    exact, theirs = reference(folder, of), reference(folder, of, dtype=dtype)
    encoder = LongformerEncoder(folder, dtype=dtype)
    assert largest_difference(hidden(encoder, of), exact) < 1.5 * largest_difference(theirs, exact)
    assert smallest_cosine(encoder.encode(of), pooled(exact)) > (0.999 if dtype == "bfloat16" else 0.99999)
    assert (encoder.encode(of).dtype, encoder.describe()["dtype"]) == (np.float32, dtype)


def test_folders_with_a_head_or_of_sentence_transformers(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    of = texts([3, 9, 100, 40, 9])
    head = save_longformer(tmp_path / "head", head="LongformerForSequenceClassification")
    assert largest_difference(hidden(LongformerEncoder(head), of), reference(head, of)) < 1e-5
    plain = save_longformer(tmp_path / "plain", attention_window=[8, 8, 8])  # the library needs equal windows
    modules = [Transformer(str(plain)), Pooling(32, "mean"), Normalize()]
    model = SentenceTransformer(modules=modules, device="cpu")
    model.save(str(tmp_path / "saved"), create_model_card=False)
    encoder = LongformerEncoder(tmp_path / "saved")
    np.testing.assert_allclose(encoder.encode(of), model.encode(of), atol=1e-5)
    assert encoder.describe()["weights"] == LongformerEncoder(plain).describe()["weights"]


def test_long_texts_are_truncated(folder: Path) -> None:
    encoder = LongformerEncoder(folder)
    of = texts([150, 128, 129, 10])
    with pytest.warns(TruncationWarning, match=r"^2 of 4 texts .* 128 tokens") as caught:
        vectors = encoder.encode(of)
    assert caught[0].filename == __file__
    cut = [" ".join(text.split()[:126]) for text in of]
    np.testing.assert_allclose(vectors, encoder.encode(cut), atol=1e-6)
    assert encoder.counts == {"texts": 8, "tokens": 2 * (3 * 128 + 10), "truncated": 2}
    with pytest.warns(TruncationWarning, match=r"^1 of 1 texts .* 10 tokens"):
        short = LongformerEncoder(folder, max_length=10).encode(of[:1])
    np.testing.assert_allclose(short, encoder.encode([" ".join(of[0].split()[:8])]), atol=1e-6)


def test_prompts_and_description(folder: Path) -> None:
    plain = LongformerEncoder(folder)
    encoder = LongformerEncoder(folder, query_prompt="w1 w2 ", passage_prompt="w3 ")
    np.testing.assert_array_equal(encoder.encode(["w9"]), plain.encode(["w3 w9"]))
    np.testing.assert_array_equal(encoder.encode_queries(["w9"]), plain.encode(["w1 w2 w9"]))
    assert plain.encode([]).shape == (0, 32)
    described = json.loads(json.dumps(encoder.describe()))
    assert len(described.pop("weights")) == 64
    assert described == {
        "class": "LongformerEncoder", "model": str(folder), "pooling": "mean", "normalize": True, "dtype": "float32",
        "global_attention": "none", "max_length": 128, "query_prompt": "w1 w2 ", "passage_prompt": "w3 ", "width": 32,
    }  # fmt: skip


def test_bad_settings(folder: Path) -> None:
    for name, value in (("pooling", "max"), ("dtype", "int8"), ("max_length", True), ("tokens_per_batch", 0)):
        with pytest.raises(InputError, match=f"'{name}' parameter of LongformerEncoder"):
            LongformerEncoder(folder, **{name: value})
    for length in (2, 129):
        with pytest.raises(InputError, match=f"max_length .* 3 and 128, found {length}"):
            LongformerEncoder(folder, max_length=length)


def test_bad_checkpoints_are_refused(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.numpy import load_file, save_file

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # the environment variable was read earlier

    def copy(name: str, **settings: object) -> Path:
        shutil.copytree(folder, tmp_path / name)
        config = json.loads((tmp_path / name / "config.json").read_text())
        (tmp_path / name / "config.json").write_text(json.dumps(config | settings))
        return tmp_path / name

    part, empty, wordless = copy("part"), copy("empty"), copy("wordless")
    weights = load_file(part / "model.safetensors")
    del weights["embeddings.word_embeddings.weight"]
    save_file(weights, part / "model.safetensors", metadata={"format": "pt"})
    (empty / "model.safetensors").unlink()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (wordless / name).unlink()
    for path, named in [
        ("no/such-model", "'no/such-model'"),
        (tmp_path / "nothing" / "at" / "all", "nothing"),
        (copy("other", model_type="roberta"), "model_type 'longformer' .*'roberta'"),
        (copy("odd", attention_window=[4, 5, 6]), r"attention_window .*\[4, 5, 6\]"),
        (copy("shape", intermediate_size=65), "shape"),
        (copy("more", num_hidden_layers=4, attention_window=[8] * 4), "22 missing"),
        (copy("less", num_hidden_layers=2, attention_window=[8] * 2), "22 unexpected"),
        (part, r"1 missing \['embeddings.word_embeddings.weight'\]"),
        (empty, "empty"),
        (wordless, "tokenizer.json"),
    ]:
        with pytest.raises(InputError, match=named):
            LongformerEncoder(path)


def test_a_model_made_in_inference_mode_encodes(folder: Path) -> None:
    of = texts(LENGTHS)
    expected = LongformerEncoder(folder).encode(of)
    with torch.inference_mode():
        found = LongformerEncoder(folder).encode(of)
    np.testing.assert_array_equal(found, expected)
