"""Code that takes CuPy arrays, against the same code on NumPy. Skipped where no CUDA device answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from haybale.ensemble.kernel import Points, kernel_tile
from haybale.retrieval import AGGREGATIONS, Hits, PassageIndex, Vectors, aggregate


def _cupy():
    cupy = pytest.importorskip("cupy")
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        pytest.skip("no CUDA device")
    return cupy


@pytest.mark.gpu
def test_kernel_tiles_are_those_of_numpy() -> None:
    cupy = _cupy()
    rng = np.random.default_rng(0)
    a, b = (0.1 * rng.normal(size=(n, 64)).astype(np.float32) for n in (300, 200))
    found = cupy.asnumpy(kernel_tile(Points(cupy.asarray(a)), Points(cupy.asarray(b))))
    np.testing.assert_allclose(found, kernel_tile(Points(a), Points(b)), atol=1e-5)


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("global_attention", ["none", "cls"])
def test_longformer_on_the_device(tmp_path: Path, global_attention: str) -> None:
    """float32 to 1e-4 of the CPU's hidden states; bfloat16 to a cosine of 0.999."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("sentence_transformers")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    from longformers import save_longformer, texts

    from haybale import LongformerEncoder

    folder = save_longformer(tmp_path / "model")
    of = texts([128, 3, 4, 5, 9, 12, 20, 21, 31, 64, 127, 90, 33])
    expected = LongformerEncoder(folder, device="cpu", global_attention=global_attention)
    found = LongformerEncoder(folder, device="cuda", global_attention=global_attention)
    for ours, theirs in zip(found.encode_tokens(of), expected.encode_tokens(of), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
    half = LongformerEncoder(folder, device="cuda", dtype="bfloat16", global_attention=global_attention)
    assert (half.encode(of) * expected.encode(of)).sum(axis=1).min() > 0.999


@pytest.mark.gpu
@pytest.mark.parametrize("name", AGGREGATIONS)
@pytest.mark.parametrize("occurrences", ["all", "best"])
def test_aggregations_on_the_device(name: str, occurrences: str) -> None:
    """Scores without vectors to the bit, those with vectors to 1e-6 of the largest."""
    cupy = _cupy()
    rng = np.random.default_rng(0)
    doc_of = np.repeat(np.arange(50), 8)
    vectors = rng.normal(size=(400, 16)).astype(np.float32)
    offsets = np.array([0, 5, 5, 12])
    paragraphs = rng.normal(size=(12, 16)).astype(np.float32)
    hits = PassageIndex(vectors).search(paragraphs, 100)
    expected = aggregate(hits, name, doc_of, offsets, vectors=Vectors(vectors, paragraphs), occurrences=occurrences)
    found = aggregate(
        Hits(cupy.asarray(hits.passages), cupy.asarray(hits.scores)),
        name,
        doc_of,
        offsets,
        vectors=Vectors(cupy.asarray(vectors), cupy.asarray(paragraphs)),
        occurrences=occurrences,
    )
    query, document, score = (cupy.asnumpy(column) for column in found)
    np.testing.assert_array_equal(query, expected[0])
    np.testing.assert_array_equal(document, expected[1])
    if AGGREGATIONS[name].vectors is None:
        np.testing.assert_array_equal(score, expected[2])
    else:
        np.testing.assert_allclose(score, expected[2], atol=1e-6 * np.abs(expected[2]).max())
