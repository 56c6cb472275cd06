"""Longformer without padding against transformers' own LongformerModel, on random weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sentence_transformers")

from longformers import pooled, reference, save_longformer, texts

from haybale.embeddings import EncodeCounts, Encoder, LongformerEncoder, encode_queries

pytestmark = pytest.mark.filterwarnings("default")  # transformers and torch warn about themselves

# Around each window (reach 2, 5, 3) and beyond, unsorted, some equal.
LENGTHS = [128, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 20, 20, 31, 64, 127, 128, 90, 90, 33]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Models so small are faster without threads that wait for each other."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_longformer(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers of the published size: windows of 512."""
    sizes = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072, "num_hidden_layers": 2}
    return save_longformer(
        tmp_path_factory.mktemp("base"), std=0.05, attention_window=[512, 512], max_position_embeddings=1602, **sizes
    )


def apart(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    assert [a.shape for a in ours] == [b.shape for b in theirs]
    return max(float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True))


def least_cosine(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float((ours.astype(np.float64) * theirs).sum(1).min())


@pytest.mark.parametrize("global_attention", ["none", "cls"])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_hidden_states_and_vectors(folder: Path, global_attention: str, pooling: str) -> None:
    # A padding token inside a text takes no position; a word that is not known still has a vector.
    of = [*texts(LENGTHS), "w1 <pad> w2 w3", "unknown", "w0"]
    encoder = LongformerEncoder(folder, global_attention=global_attention, pooling=pooling, tokens_per_batch=300)
    assert isinstance(encoder, Encoder)
    expected = reference(folder, of, is_global=global_attention == "cls")
    assert apart(encoder.encode_tokens(of), expected) < 1e-5
    vectors = encoder.encode(of)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(of), encoder.dim)
    assert least_cosine(vectors, pooled(expected, pooling)) > 1 - 1e-6
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_window_and_global_attention_matter(folder: Path, tmp_path: Path) -> None:
    """With weights that do not look around, every route would pass the test above."""
    of = texts([60])
    wide = save_longformer(tmp_path / "wide", attention_window=[126, 126, 126])
    states = [
        LongformerEncoder(folder).encode_tokens(of),
        LongformerEncoder(folder, global_attention="cls").encode_tokens(of),
        LongformerEncoder(wide).encode_tokens(of),
    ]
    assert apart(states[0], states[1]) > 0.1
    assert apart(states[0], states[2]) > 0.1


@pytest.mark.parametrize("global_attention", ["none", "cls"])
def test_base_size(base: Path, global_attention: str) -> None:
    lengths = [1500, 3, 256, 257, 258, 512, 513, 258]
    of = texts(lengths)
    encoder = LongformerEncoder(base, global_attention=global_attention, tokens_per_batch=5000)
    expected = reference(base, of, is_global=global_attention == "cls")
    assert apart(encoder.encode_tokens(of), expected) < 1e-4
    assert least_cosine(encoder.encode(of), pooled(expected)) > 0.999999


@pytest.mark.parametrize("is_global", [False, True])
def test_rows_of_one_token_and_of_two(folder: Path, is_global: bool) -> None:
    """No text is so short once <s> and </s> are around it, but a tokenizer without them may say so."""
    import torch
    from transformers import LongformerModel

    encoder = LongformerEncoder(folder, global_attention="cls" if is_global else "none")
    rows = [np.array(row, dtype=np.int32) for row in ([7], [8, 9], list(range(5, 40)), [10])]
    with torch.inference_mode():
        found = encoder._hidden(rows).split([len(row) for row in rows])
        model = LongformerModel.from_pretrained(folder).eval()
        for row, ours in zip(rows, found, strict=True):
            mask = torch.tensor([[1] * len(row) + [0] * (-len(row) % 60)])
            ids = torch.full_like(mask, 1).index_copy(1, torch.arange(len(row)), torch.from_numpy(row)[None].long())
            first = torch.zeros_like(mask).index_fill(1, torch.tensor([0]), 1)
            given = {"attention_mask": mask, "global_attention_mask": first if is_global else None}
            expected = model(ids, **given).last_hidden_state[0, : len(row)]
            np.testing.assert_allclose(ours.numpy(), expected.numpy(), atol=1e-5)


@pytest.mark.parametrize("global_attention", ["none", "cls"])
def test_unequal_lengths_laid_side_by_side(
    folder: Path, global_attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a GPU does: padding inside attention, here of any texts at all."""
    from haybale.embeddings import longformer_model as model

    plain = model.attention_groups
    monkeypatch.setattr(model, "attention_groups", lambda lengths, _, device: plain(lengths, 0.9, device))
    monkeypatch.setitem(model.BLOCK, "cpu", 40)
    of = texts(LENGTHS)
    encoder = LongformerEncoder(folder, global_attention=global_attention, tokens_per_batch=500)
    assert apart(encoder.encode_tokens(of), reference(folder, of, is_global=global_attention == "cls")) < 1e-5


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(folder: Path, dtype: str) -> None:
    """16 bits hold 3 (float16) or 2 digits; ours may be no farther from the exact than theirs, give or take half."""
    of = texts(LENGTHS)
    exact = reference(folder, of)
    encoder = LongformerEncoder(folder, dtype=dtype)
    theirs = reference(folder, of, dtype=dtype)
    ours = encoder.encode_tokens(of)
    assert apart(ours, exact) < 1.5 * apart(theirs, exact)
    assert least_cosine(encoder.encode(of), pooled(exact)) > (0.999 if dtype == "bfloat16" else 0.99999)
    assert encoder.encode(of).dtype == np.float32
    assert encoder.describe()["dtype"] == dtype


def test_other_activation(tmp_path: Path) -> None:
    path = save_longformer(tmp_path / "tanh", hidden_act="gelu_new")
    of = texts([20, 9])
    assert apart(LongformerEncoder(path).encode_tokens(of), reference(path, of)) < 1e-5


def test_plain_linear_layers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The route of GPUs, and of a PyTorch without the operators of oneDNN."""
    from haybale.embeddings import longformer_model as linear

    monkeypatch.setattr(linear, "_has_onednn", lambda: False)
    of = texts(LENGTHS)
    assert apart(LongformerEncoder(folder).encode_tokens(of), reference(folder, of)) < 1e-5


def test_changed_weights_are_packed_anew(folder: Path) -> None:
    import torch

    encoder = LongformerEncoder(folder)
    before = encoder.encode(["w1 w2"])
    described = encoder.describe()
    with torch.no_grad():
        encoder.model.layers[0].up.weight.mul_(-1)
    assert not np.allclose(encoder.encode(["w1 w2"]), before, atol=1e-3)
    assert encoder.describe()["weights"] != described["weights"]


@pytest.mark.parametrize("budget", [1, 50, 10_000])
def test_no_text_depends_on_its_company(folder: Path, budget: int) -> None:
    of = texts(LENGTHS)
    alone = np.vstack([LongformerEncoder(folder).encode([text]) for text in of[:3]])
    vectors = LongformerEncoder(folder, tokens_per_batch=budget).encode(of)
    np.testing.assert_allclose(vectors, LongformerEncoder(folder).encode(of), atol=1e-6)
    np.testing.assert_allclose(vectors[:3], alone, atol=1e-6)


def test_texts_that_are_too_long_are_cut(folder: Path) -> None:
    encoder = LongformerEncoder(folder)
    assert encoder.max_length == 128
    of = texts([150, 128, 129, 10])
    with pytest.warns(UserWarning, match="^2 of 4 texts are longer than 128 tokens and were cut there$") as caught:
        vectors = encoder.encode(of)
    assert caught[0].filename == __file__
    cut = [" ".join(text.split()[:126]) for text in of]
    np.testing.assert_allclose(vectors, encoder.encode(cut), atol=1e-6)
    assert encoder.counts == EncodeCounts(texts=8, tokens=2 * (3 * 128 + 10), slots=2 * (3 * 128 + 10), truncated=2)
    assert encoder.counts.padding_waste == 0
    encoder.counts = EncodeCounts()
    with pytest.warns(UserWarning, match="^1 of 1 texts is longer than 10 tokens and was cut there$"):
        short = LongformerEncoder(folder, max_length=10).encode(of[:1])
    np.testing.assert_allclose(short, encoder.encode([" ".join(of[0].split()[:8])]), atol=1e-6)


def test_prompts(folder: Path) -> None:
    plain = LongformerEncoder(folder)
    encoder = LongformerEncoder(folder, query_prompt="w1 w2 ", passage_prompt="w3 ")
    np.testing.assert_array_equal(encoder.encode(["w9"]), plain.encode(["w3 w9"]))
    np.testing.assert_array_equal(encode_queries(encoder, ["w9"]), plain.encode(["w1 w2 w9"]))
    np.testing.assert_array_equal(plain.encode_queries(["w9"]), plain.encode(["w9"]))


def test_no_texts_and_no_normalisation(folder: Path) -> None:
    assert LongformerEncoder(folder).encode([]).shape == (0, 32)
    of = texts([9, 30])
    vectors = LongformerEncoder(folder, normalize=False).encode(of)
    expected = np.stack([states.mean(0) for states in reference(folder, of)])
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_training_reaches_every_weight(folder: Path) -> None:
    encoder = LongformerEncoder(folder, global_attention="cls").train()
    encoder.encode(["w1"])  # masks made while encoding serve training too
    assert encoder.training
    features = encoder.preprocess(texts([40, 7, 40]))
    encoder(features)["sentence_embedding"][:, 0].sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())
