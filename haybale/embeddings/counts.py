"""What encoding has cost: texts, tokens, the token slots that were computed for them, texts that were cut."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EncodeCounts:
    """Sums over calls of ``encode``; an encoder adds to its ``counts``, assigning ``EncodeCounts()`` begins anew.

    ``texts`` encoded; ``tokens`` they have, special ones included, after cutting; ``slots`` the model ran on,
    padding included; ``truncated`` texts that were longer than the model reads.

    >>> EncodeCounts(texts=2, tokens=30, slots=40) + EncodeCounts(texts=1, tokens=30, slots=40, truncated=1)
    EncodeCounts(texts=3, tokens=60, slots=80, truncated=1)
    >>> EncodeCounts(texts=2, tokens=30, slots=40).padding_waste
    0.25
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
        return EncodeCounts(
            self.texts + other.texts,
            self.tokens + other.tokens,
            self.slots + other.slots,
            self.truncated + other.truncated,
        )
