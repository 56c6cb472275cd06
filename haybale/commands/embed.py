"""``haybale embed``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import haybale
from haybale.cli import options
from haybale.cli.application import MORE, command
from haybale.cli.options import ENCODER, MACHINE, RESULTS, VECTORS, chunking_of, given, option
from haybale.cli.resuming import explain_interrupt
from haybale.cli.terminal import note
from haybale.cli.values import parse_part, parse_values
from haybale.errors import UnknownNameError

if TYPE_CHECKING:
    from haybale import Collection, Encoder

_MAX_FIT_TEXTS = 250_000  # passages that LSA is fitted on
_SET_PARAMETERS = ("unit", "tokenizer", "rows_per_chunk")  # the parameters that --set takes


@command(MORE)
def embed(
    collection: options.Source,
    out: Annotated[str, option("The store: a folder or an fsspec address; an unfinished one is continued.", RESULTS)],
    dtype: Annotated[
        str | None, option("The type of stored values: float32 or float16. Default: float32.", RESULTS)
    ] = None,
    encoder: Annotated[str | None, option(f"{ENCODER} Default: lsa.", VECTORS)] = None,
    set_values: Annotated[
        list[str] | None,
        option("NAME=VALUE sets unit (words or tokens), tokenizer or rows_per_chunk. Repeatable.", VECTORS, "--set"),
    ] = None,
    layout: options.Layout = None,
    language: options.Language = None,
    paragraphs: options.Paragraphs = None,
    pieces: options.Pieces = None,
    stride: options.Stride = None,
    device: Annotated[
        str | None, option("The device of a neural encoder: auto, cpu or cuda. Default: auto.", MACHINE)
    ] = None,
    shard: Annotated[
        str | None, option("Embed part i of n (i/n, such as 2/8) on this machine. Default: everything.", MACHINE)
    ] = None,
) -> None:
    """Embed the passages of a collection into a store, for index --store and compare --store.

    The store is written chunk by chunk. After an interruption, the same command continues the work.
    """
    from haybale.collections import with_paragraphs
    from haybale.embeddings import encoder_maker
    from haybale.embeddings.store_files import LOCK, StoreFiles
    from haybale.folders import check_file
    from haybale.parameters import COUNT, check_parameters

    part = parse_part("shard", shard, "2/8")
    maker = partial(encoder_maker, encoder or "lsa", **given(device=device, max_fit_texts=_MAX_FIT_TEXTS))
    values = parse_values(set_values, rankers=False)
    for name in values:
        if name not in _SET_PARAMETERS:
            raise UnknownNameError("parameter", name, _SET_PARAMETERS)
    check_parameters("haybale embed", values, {"rows_per_chunk": COUNT})
    rows_per_chunk = values.pop("rows_per_chunk", None)
    model = maker().keywords.get("model")
    if values.get("unit") == "tokens" and model is not None:
        values.setdefault("tokenizer", str(model))
    chunking = chunking_of(pieces, stride, **values)
    how = given(layout=layout, chunking=chunking, dtype=dtype, rows_per_chunk=rows_per_chunk)
    if (files := StoreFiles(out)).is_local:
        check_file(Path(files.at(LOCK)))
    source: str | Collection = collection
    if paragraphs is not None:
        source = with_paragraphs(haybale.open_collection(collection, layout), paragraphs)
    make = _with_language(maker, language, source, layout)
    with explain_interrupt():
        done = haybale.embed(source, make(), out, shard=part, **how)
    kept = f", {done.kept:,} were in the store already" if done.kept else ""
    rates = f": {done.rates}" if done.passages else ""
    note(f"{done.passages:,} passages embedded in {done.seconds:.1f} s{kept}{rates}")
    if part is None:
        note(repr(haybale.EmbeddingStore(out)))
    else:
        note(f"Saved shard {shard} of {out}. The store can be read when all shards are written.")


def _with_language(
    maker: Callable[..., partial[Encoder]], language: str | None, source: str | Collection, layout: str | None
) -> partial[Encoder]:
    """Return a function that makes the encoder.

    An encoder that is fitted to texts gets the given language, or the one that is detected in the documents.
    """
    from haybale.analysis import Analyzer, guess_language
    from haybale.collections.open import read_documents

    make = maker(**given(language=language))
    if hasattr(make.func, "fit") and "language" not in make.keywords:
        texts = read_documents(source, layout, warn=False).passages.texts[:1000]
        make = maker(language=guess_language(texts.to_pylist()))
    if make.keywords.get("language") is not None:
        Analyzer(make.keywords["language"])  # raises an error for an unknown language
    return make
