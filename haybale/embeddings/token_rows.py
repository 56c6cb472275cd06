"""Texts to token numbers, once and without padding; texts beyond the limit are cut and counted."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.errors import TruncationWarning

_CHUNK = 4096  # texts tokenised at once: bounds the memory of the tokenizer's own objects


def token_rows(tokenizer: Any, texts: Sequence[str], limit: int) -> tuple[list[NDArray[np.int32]], int]:
    """The token numbers of each text, special tokens included, and how many texts were cut at ``limit`` tokens.

    ``tokenizer`` is a fast tokenizer of transformers.
    """
    rows: list[NDArray[np.int32]] = []
    truncated = 0
    for start in range(0, len(texts), _CHUNK):
        chunk = list(texts[start : start + _CHUNK])
        # With the overflow asked for, a text gives one row for each piece: the first is the text cut, as
        # truncation alone would give it, and more than one means that it was cut.
        pieces = tokenizer(chunk, truncation=True, max_length=limit, return_overflowing_tokens=True)
        of_text = np.asarray(pieces["overflow_to_sample_mapping"])
        first, counts = np.unique(of_text, return_index=True, return_counts=True)[1:]
        rows += [np.asarray(pieces["input_ids"][i], dtype=np.int32) for i in first]
        truncated += int(np.count_nonzero(counts > 1))
    return rows, truncated


def warn_truncated(truncated: int, texts: int, limit: int) -> None:
    """One warning for a call of ``encode``, aimed at the caller of the encoder."""
    if truncated:
        verb = "is" if truncated == 1 else "are"
        was = "was" if truncated == 1 else "were"
        warnings.warn(
            f"{truncated} of {texts} texts {verb} longer than {limit} tokens and {was} cut there",
            TruncationWarning,
            stacklevel=5,
        )
