"""The Longformer on a GPU against the CPU. Skipped if there is no CUDA device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")
def test_longformer_on_the_device(tmp_path: Path) -> None:
    """Hidden states in float32 differ by at most 1e-4; vectors in bfloat16 have a cosine above 0.999."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("sentence_transformers")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    from support.longformers import hidden, save_longformer, texts

    from haybale import LongformerEncoder

    folder = save_longformer(tmp_path / "model")
    of = texts([128, 3, 4, 5, 9, 12, 20, 21, 31, 64, 127, 90, 33])
    expected = LongformerEncoder(folder, device="cpu")
    found = LongformerEncoder(folder, device="cuda")
    for ours, theirs in zip(hidden(found, of), hidden(expected, of), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
    half = LongformerEncoder(folder, device="cuda", dtype="bfloat16")
    assert (half.encode(of) * expected.encode(of)).sum(axis=1).min() > 0.999
