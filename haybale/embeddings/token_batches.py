"""Tokenise texts, and encode them in batches of similar length within a budget of tokens."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.embeddings.counting import strings
from haybale.errors import InputError, TruncationWarning
from haybale.normalisation import normalise
from haybale.parallel import iter_blocks
from haybale.progress import track
from haybale.vectors import Floats

_TEXTS_PER_CALL = 4096  # texts tokenised at once; it bounds the memory of the tokenizer's objects

Batch = NDArray[np.int64]  # numbers of texts


def check_texts(texts: Sequence[str]) -> list[str]:
    """Return the texts, normalised; raise :class:`InputError` for a single string, an empty text or another type.

    >>> check_texts(["a", " "])
    Traceback (most recent call last):
    haybale.errors.InputError: text 1 of 2 is empty; remove it, or give at least one word
    """
    for i, text in enumerate(strings(texts)):
        if not text.strip():
            raise InputError(f"text {i} of {len(texts)} is empty; remove it, or give at least one word")
    return [normalise(text) for text in texts]


def token_rows(tokenizer: Any, texts: Sequence[str], limit: int) -> tuple[list[NDArray[np.int32]], int]:
    """Return the token numbers of each text, with special tokens, and the number of texts truncated at ``limit``.

    ``tokenizer`` is a fast tokenizer of transformers. One :class:`TruncationWarning` for all texts points to the caller
    of the encoder.
    """
    rows: list[NDArray[np.int32]] = []
    truncated = 0
    for start in range(0, len(texts), _TEXTS_PER_CALL):
        encoded = tokenizer(list(texts[start : start + _TEXTS_PER_CALL]), truncation=True, max_length=limit)
        rows += [np.asarray(row, dtype=np.int32) for row in encoded["input_ids"]]
        truncated += sum(bool(encoding.overflowing) for encoding in encoded.encodings)
    if truncated:
        message = f"{truncated} of {len(texts)} texts are longer than {limit} tokens and were truncated; shorten them"
        warnings.warn(message, TruncationWarning, stacklevel=4)
    return rows, truncated


def token_batches(lengths: Sequence[int], budget: int) -> list[Batch]:
    """Return batches of at most ``budget`` tokens, longest texts first; a longer text is a batch of its own.

    >>> token_batches([3, 9, 3, 2], budget=8)
    [array([1]), array([0, 2, 3])]
    """
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    starts, used = [0], 0
    for position, number in enumerate(order):
        used += lengths[number]
        if used > budget and position > starts[-1]:
            starts.append(position)
            used = lengths[number]
    return np.split(order, starts[1:]) if len(order) else []


def encode_batches(batches: Sequence[Batch], work: Callable[[Batch], Any], dim: int) -> Floats:
    """Return the vectors (n, dim) float32 that ``work`` computes for each batch, in the order of the texts.

    A batch that does not fit into memory is halved until it does; raise :class:`DeviceError` if one text does not fit.

    >>> def work(batch):
    ...     if len(batch) > 2:
    ...         raise MemoryError
    ...     return np.full((len(batch), 1), len(batch))
    >>> encode_batches([np.arange(4), np.array([4])], work, 1)[:, 0]
    array([2., 2., 2., 2., 1.], dtype=float32)
    """
    out = np.empty((sum(map(len, batches)), dim), dtype=np.float32)
    for batch in track(batches, "encoding"):

        def encode_part(part: slice, batch: Batch = batch) -> tuple[Batch, Any]:
            return batch[part], work(batch[part])

        for numbers, vectors in iter_blocks(len(batch), len(batch), encode_part, what="texts"):
            out[numbers] = vectors
    return out
