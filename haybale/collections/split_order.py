"""The order splits are listed in."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def in_usual_order(splits: dict[str, T]) -> dict[str, T]:
    """Train, dev and test first, then others by name.

    >>> list(in_usual_order({"test": 1, "old": 2, "new": 3, "train": 4}))
    ['train', 'test', 'new', 'old']
    """
    usual = [split for split in ("train", "dev", "test") if split in splits]
    return {split: splits[split] for split in usual + sorted(splits.keys() - set(usual))}
