"""``haybale embed``."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from rich.console import Console

from haybale.analysis import guess_language
from haybale.cluster import on_cluster
from haybale.collections import Collection, open_collection, with_paragraphs
from haybale.collections.spool import first_passages
from haybale.embeddings import Chunking, EmbeddingStore, embed, embed_shards, find_encoder
from haybale.embeddings.find import LEXICAL
from haybale.errors import InputError

_DEFAULTS = {"pooling": "mean", "global_attention": "none", "max_length": None, "dtype": "float32"}


def run_embed(
    collection: str,
    out: str,
    encoder: str,
    *,
    layout: str | None,
    paragraphs: str | None,
    dtype: str,
    rows_per_chunk: int,
    shard: str | None,
    chunking: Chunking | None,
    lexical: dict[str, Any],
    neural: dict[str, Any],
    dask: str | None = None,
    shards: int | None = None,
) -> None:
    """Embed, and say on stderr what was done and how fast. ``lexical`` is for LSA and TF-IDF, ``neural`` for others.

    ``dask``: the scheduler of a cluster that embeds ``shards`` (None: one a worker) at once.
    """
    if shards is not None and dask is None:
        raise InputError("--shards asks for --dask; without a cluster, give each machine its own --shard i/n")
    if shard is not None and dask is not None:
        raise InputError("--shard is for one machine without --dask; give --shards with it")
    part = None if shard is None else shard_of(shard)
    source: str | Collection = collection
    if paragraphs is not None:  # whole documents are needed, so they are held in memory
        source = with_paragraphs(open_collection(collection, layout), paragraphs)
    if lexical["language"] is None and encoder in LEXICAL:
        lexical = lexical | {"language": guess_language(first_passages(source, 1000, layout))}
    # What was left as it is by default is not held against an encoder that knows nothing of it.
    given = {key: value for key, value in neural.items() if key not in _DEFAULTS or value != _DEFAULTS[key]}
    make = partial(find_encoder, encoder, **{**lexical, "language": lexical["language"] or "english"}, **given)
    console = Console(stderr=True, highlight=False)
    try:
        how: dict[str, Any] = {"layout": layout, "dtype": dtype, "rows_per_chunk": rows_per_chunk, "chunking": chunking}
        if dask is None:
            done = embed(source, make(), out, shard=part, **how)
        else:
            # A model is loaded by each worker; what has to be fitted is fitted here.
            maker = make() if encoder in LEXICAL else make
            with on_cluster(dask):
                done = embed_shards(source, maker, out, shards, **how)
    except KeyboardInterrupt:
        console.print("interrupted; what is written is kept, the same command goes on from there", soft_wrap=True)
        raise SystemExit(130) from None
    kept = f", {done.kept:,} were there" if done.kept else ""
    rates = f": {done.rates}" if done.passages else ""
    console.print(f"{done.passages:,} passages embedded in {done.seconds:.1f} s{kept}{rates}", soft_wrap=True)
    if part is None:
        console.print(repr(EmbeddingStore(out)), soft_wrap=True)
    else:
        console.print(f"shard {shard} of {out}; it can be read when all shards are there", soft_wrap=True)


def shard_of(text: str) -> tuple[int, int]:
    """``"2/8"`` as numbers.

    >>> shard_of("2/8")
    (2, 8)
    """
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match:
        raise InputError(f"shard must be i/n, such as 2/8, found {text!r}")
    return int(match[1]), int(match[2])
