"""``haybale embed``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from haybale.analysis import guess_language
from haybale.cli.arguments import chunking_of, values_of
from haybale.cli.output import resumable, say
from haybale.cluster import on_cluster
from haybale.collections import Collection, open_collection, with_paragraphs
from haybale.collections.open import read_documents
from haybale.embeddings import EmbeddingStore, embed, embed_shards, make_encoder
from haybale.embeddings.encoder import LEXICAL, model_name
from haybale.errors import InputError, UnknownNameError

_FIT_TEXTS = 250_000  # passages that LSA is fitted on, at most
_OF_PIECES = ("unit", "tokenizer")  # what --set may name, besides rows_per_chunk of the store
_OF_ENCODERS = ("max_fit_texts", "pooling", "max_length", "precision")


def run_embed(
    collection: str,
    out: str,
    encoder: str,
    *,
    layout: str | None,
    paragraphs: str | None,
    pieces: int | None,
    stride: int | None,
    shard: str | None,
    shards: int | None,
    dask: str | None,
    store: dict[str, Any],
    lexical: dict[str, Any],
    neural: dict[str, Any],
    values: Sequence[str] | None,
) -> None:
    """Embed, and say on stderr what was done and how fast.

    ``lexical`` is for LSA, ``neural`` for others, ``values`` for either, the pieces or the store.
    ``dask``: the scheduler of a cluster that embeds ``shards`` (None: one a worker) at once.
    """
    if shards is not None and dask is None:
        raise InputError("--shards asks for --dask; without a cluster, give each machine its own --shard i/n")
    if shard is not None and dask is not None:
        raise InputError("--shard is for one machine without --dask; give --shards with it")
    part = None if shard is None else shard_of(shard)
    given = values_of(values)
    known = (*_OF_PIECES, *_OF_ENCODERS, "rows_per_chunk")
    for name in given:
        if name not in known:
            raise UnknownNameError("parameter", name, known)
    cut, model = ({name: given.pop(name) for name in names if name in given} for names in (_OF_PIECES, _OF_ENCODERS))
    if "precision" in model:
        model["dtype"] = model.pop("precision")
    if cut.get("unit") == "tokens" and "tokenizer" not in cut and encoder not in LEXICAL:
        cut["tokenizer"] = model_name(encoder)
    how: dict[str, Any] = {"layout": layout, "chunking": chunking_of(pieces, stride, **cut), **store, **given}
    source: str | Collection = collection
    if paragraphs is not None:
        source = with_paragraphs(open_collection(collection, layout), paragraphs)
    if encoder in LEXICAL and "language" not in lexical:
        texts = read_documents(source, layout, warn=False).passages.texts[:1000]
        lexical = lexical | {"language": guess_language(texts.to_pylist())}
    make = partial(make_encoder, encoder, **{"max_fit_texts": _FIT_TEXTS, **lexical, **neural, **model})
    with resumable():
        if dask is None:
            done = embed(source, make(), out, shard=part, **how)
        else:
            # A model is loaded by each worker; what has to be fitted is fitted here.
            maker = make() if encoder in LEXICAL else make
            with on_cluster(dask):
                done = embed_shards(source, maker, out, shards, **how)
    kept = f", {done.kept:,} were there" if done.kept else ""
    rates = f": {done.rates}" if done.passages else ""
    say(f"{done.passages:,} passages embedded in {done.seconds:.1f} s{kept}{rates}")
    if part is None:
        say(repr(EmbeddingStore(out)))
    else:
        say(f"shard {shard} of {out}; it can be read when all shards are there")


def shard_of(text: str) -> tuple[int, int]:
    """``"2/8"`` as numbers.

    >>> shard_of("2/8")
    (2, 8)
    """
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match:
        raise InputError(f"shard must be i/n, such as 2/8, found {text!r}")
    return int(match[1]), int(match[2])
