"""Texts to token numbers, and into batches of neighbours in length, each within a budget of tokens."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from haybale.errors import InputError, TruncationWarning
from haybale.extras import require
from haybale.machine import in_tiles
from haybale.progress import track

_TOKENISED = 4096  # texts tokenised at once: bounds the memory of the tokenizer's own objects

T = TypeVar("T")
Batch = NDArray[np.int64]  # numbers of texts


@dataclass(frozen=True)
class EncodeCounts:
    """What encoding has cost; an encoder adds to its ``counts``, and ``EncodeCounts()`` in their place begins anew.

    ``texts`` encoded; ``tokens`` they have, special ones included, after cutting; ``slots`` the model ran on,
    padding included; ``truncated`` texts that were longer than the model reads.

    >>> EncodeCounts(texts=2, tokens=30, slots=40) + EncodeCounts(texts=1, tokens=30, slots=40, truncated=1)
    EncodeCounts(texts=3, tokens=60, slots=80, truncated=1)
    """

    texts: int = 0
    tokens: int = 0
    slots: int = 0
    truncated: int = 0

    @property
    def padding_waste(self) -> float:
        """The share of the slots that held no token; 0 if nothing was computed."""
        return 1 - self.tokens / self.slots if self.slots else 0.0

    def __add__(self, other: EncodeCounts) -> EncodeCounts:
        return EncodeCounts(*map(sum, zip(astuple(self), astuple(other), strict=True)))


def check_texts(texts: Sequence[str]) -> Sequence[str]:
    """Refuse a single string in place of a sequence, and empty texts.

    >>> check_texts(["a", " "])
    Traceback (most recent call last):
    haybale.errors.InputError: text 1 of 2 is empty
    """
    if isinstance(texts, str):
        raise InputError("expected a sequence of texts, found a single string; put it in a list")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"text {i} of {len(texts)} is no string but {type(text).__name__}")
        if not text.strip():
            raise InputError(f"text {i} of {len(texts)} is empty")
    return texts


def token_rows(tokenizer: Any, texts: Sequence[str], limit: int) -> tuple[list[NDArray[np.int32]], int]:
    """The token numbers of each text, special tokens included, and how many texts were cut at ``limit`` tokens.

    ``tokenizer`` is a fast tokenizer of transformers.
    """
    rows: list[NDArray[np.int32]] = []
    truncated = 0
    for start in range(0, len(texts), _TOKENISED):
        # With the overflow asked for, a text gives one row for each piece: the first is the text cut, as
        # truncation alone would give it, and more than one means that it was cut.
        part = list(texts[start : start + _TOKENISED])
        pieces = tokenizer(part, truncation=True, max_length=limit, return_overflowing_tokens=True)
        of_text = np.asarray(pieces["overflow_to_sample_mapping"])
        first, counts = np.unique(of_text, return_index=True, return_counts=True)[1:]
        rows += [np.asarray(pieces["input_ids"][i], dtype=np.int32) for i in first]
        truncated += int(np.count_nonzero(counts > 1))
    return rows, truncated


def warn_truncated(truncated: int, texts: int, limit: int) -> None:
    """One warning for a call of ``encode``, aimed at the caller of the encoder."""
    if truncated:
        message = f"{truncated} of {texts} texts are longer than {limit} tokens and were cut there"
        warnings.warn(message, TruncationWarning, stacklevel=5)


def token_batches(lengths: Sequence[int] | Batch, budget: int, *, padded: bool = False) -> list[Batch]:
    """Every text once, longest first, in batches of at most ``budget`` tokens.

    ``lengths`` (n,) are token counts. With ``padded`` a batch costs its texts times its longest one, otherwise
    the sum of its lengths. A text beyond the budget is a batch of its own. Equal lengths keep their order.

    >>> token_batches([3, 9, 3, 2], budget=8)
    [array([1]), array([0, 2, 3])]
    >>> token_batches([3, 9, 3, 2], budget=8, padded=True)
    [array([1]), array([0, 2]), array([3])]
    """
    if budget < 1:
        raise InputError(f"the token budget of a batch must be at least 1, found {budget}")
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    batches: list[Batch] = []
    start, longest, used = 0, 0, 0
    for stop, length in enumerate(np.asarray(lengths, dtype=np.int64)[order].tolist()):
        cost = longest * (stop - start + 1) if padded else used + length
        if stop > start and cost > budget:
            batches.append(order[start:stop])
            start = stop
        if stop == start:
            longest, used = length, 0
        used += length
    return [*batches, order[start:]] if len(order) else batches


def in_batches(batches: Sequence[Batch], work: Callable[[Batch], T]) -> Iterator[tuple[Batch, T]]:
    """``(batch, work(batch))`` of each; where memory runs out a batch is halved, and those after it are cut as finely.

    :class:`DeviceError` where it runs out at a single text.

    >>> def work(batch):
    ...     if len(batch) > 2:
    ...         raise MemoryError
    ...     return len(batch)
    >>> [size for _, size in in_batches([np.arange(4), np.arange(4)], work)]
    [2, 2, 2, 2]
    """
    cut = 1.0
    for batch in track(batches, "encoding"):

        def one(tile: slice, batch: Batch = batch) -> tuple[Batch, T]:
            return batch[tile], work(batch[tile])

        sizes = []
        for part, done in in_tiles(len(batch), cut * len(batch), one, what="texts"):
            sizes.append(len(part))
            yield part, done
        cut = min(cut, sizes[max(0, len(sizes) - 2)] / len(batch))  # the last may be what was left


def weights_digest(module: Any) -> str:
    """SHA-256 over names, shapes, dtypes and values of a torch module's weights, in hexadecimal."""
    torch = require("torch", "neural")
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
