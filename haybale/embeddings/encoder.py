"""What an encoder is: texts in, L2-normalised float32 vectors out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

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
