"""``haybale embed``."""

from __future__ import annotations

import re

from rich.console import Console

from haybale.embeddings import Chunking, EmbeddingStore, embed
from haybale.errors import InputError


def run_embed(
    collection: str, layout: str | None, encoder: object, out: str, dtype: str, chunk_rows: int, shard: str | None,
    chunking: Chunking | None,
) -> None:  # fmt: skip
    """Embed, and say on stderr what was done and how fast."""
    done = embed(
        collection,
        encoder,
        out,
        layout=layout,
        dtype=dtype,
        rows_per_chunk=chunk_rows,
        shard=None if shard is None else shard_of(shard),
        chunking=chunking,
    )
    console = Console(stderr=True, highlight=False)
    kept = f", {done.kept:,} were there" if done.kept else ""
    console.print(f"{done.passages:,} passages embedded in {done.seconds:.1f} s{kept}: {done.rates}", soft_wrap=True)
    if shard is None:
        console.print(repr(EmbeddingStore(out)), soft_wrap=True)
    else:
        console.print(f"shard {shard} of {out}: readable when all shards are there", soft_wrap=True)


def shard_of(text: str) -> tuple[int, int]:
    """``"2/8"`` as (2, 8).

    >>> shard_of("2/8")
    (2, 8)
    """
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match:
        raise InputError(f"shard must be i/n, such as 2/8, found {text!r}")
    return int(match[1]), int(match[2])
