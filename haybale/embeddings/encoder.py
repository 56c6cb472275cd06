"""What an encoder is: texts in, L2-normalised float32 vectors out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from scipy import sparse

from haybale.device import Device, to_device
from haybale.errors import InputError
from haybale.vectors import Floats


@runtime_checkable
class Encoder(Protocol):
    """Anything with ``encode``; the rooms behind this one ask for nothing more."""

    def encode(self, texts: Sequence[str]) -> Floats:
        """(n,) texts to (n, d) float32, each row of length 1 (or 0, if no part of the text is known)."""
        ...


def encode_queries(encoder: Encoder, texts: Sequence[str]) -> Floats:
    """(n,) queries to (n, d): by the encoder's own ``encode_queries`` if it has one, else as passages are."""
    own = getattr(encoder, "encode_queries", None)
    return encoder.encode(texts) if own is None else own(texts)


def encode_on(encoder: Encoder, texts: Sequence[str], device: Device, *, queries: bool = False) -> Any:
    """(n,) passages, or queries, to (n, d) on ``device``: a NumPy or CuPy array, or CSR in main memory.

    An encoder on the device may say how it hands over what it made without a copy in main memory: ``encode_tensor``
    and, where it has an ``encode_queries``, ``encode_queries_tensor`` give tensors of torch.
    """
    own = "encode_queries_tensor" if queries and hasattr(encoder, "encode_queries") else "encode_tensor"
    if not device.is_cpu and hasattr(encoder, own):
        return to_device(getattr(encoder, own)(texts), device)
    vectors = encode_queries(encoder, texts) if queries else encoder.encode(texts)
    return vectors if sparse.issparse(vectors) else to_device(vectors, device)


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
