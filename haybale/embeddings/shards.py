"""``embed_shards``: write a store in shards, one task each, in threads, processes or on a cluster."""

from __future__ import annotations

import copy
import os
import re
import threading
import time
import warnings
from collections import Counter
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import uuid4

from haybale.cluster import count_jobs, shares_memory, spread
from haybale.collections import Collection
from haybale.embeddings.chunking import Chunking
from haybale.embeddings.encoder import encoder_maker, is_fitted, parse_encoder
from haybale.embeddings.resumable_store import Shard, check_unsharded, shard_name
from haybale.embeddings.store import (
    ENCODER,
    check_storable,
    load_encoder,
    load_same_encoder,
    open_passages,
    save_encoder,
)
from haybale.embeddings.store_files import LOCK, MANIFEST, StoreFiles, writer_lock
from haybale.embeddings.writing import Embedded, embed, read_input
from haybale.errors import StoreError
from haybale.parameters import COUNT_OR_NONE, N_JOBS, check_parameters

PATIENCE = 60.0  # seconds in which a task of an earlier call, whose driver or connection is gone, may finish


def embed_shards(
    source: str | Path | Collection,
    encoder: Any,
    out: str | Path,
    n_shards: int | None = None,
    *,
    layout: str | None = None,
    dtype: str = "float32",
    rows_per_chunk: int = 2048,
    chunking: Chunking | None = None,
    n_jobs: int | None = None,
) -> Embedded:
    """Embed every passage of a collection into ``out/shard-i-of-n``. After an interruption, the same call goes on.

    Each shard is one joblib task, ``embed(…, shard=(i, n))``. Tasks run in threads by default, and in processes or on a
    Dask cluster under ``joblib.parallel_config`` or :func:`~haybale.cluster.on_cluster`.

    Parameters
    ----------
    source, out, layout, dtype, rows_per_chunk, chunking : optional but for the first two
        As of :func:`embed`. Every worker must reach ``out``, and ``source`` if it is a folder.
    encoder : Encoder, str or callable
        An encoder that has to be fitted is fitted once, here, and kept in ``out``. One that is ready is pickled. For a
        model that each worker should load itself, give a name or a function that makes it, such as
        ``encoder_maker(name, device="cuda")``; each thread of a worker calls it once.
    n_shards : int, optional
        Default: the number that ``out`` was begun with, or the number of tasks that run at once.
    n_jobs : int, optional
        As in joblib.

    Returns
    -------
    Embedded
        The sum over all tasks; ``seconds`` are those of this call. Errors: as of :func:`embed`, and ``ClusterError``.
    """
    check_parameters("embed_shards", locals(), {"n_shards": COUNT_OR_NONE, "n_jobs": N_JOBS})
    files = StoreFiles(out)
    top = (
        StoreFiles(os.path.abspath(files.root)) if files.is_local else files
    )  # workers may have another working directory
    n = _count_shards(top, n_shards, n_jobs)
    where = str(Path(source).absolute()) if isinstance(source, str | Path) and Path(source).is_dir() else source
    options = {"layout": layout, "dtype": dtype, "rows_per_chunk": rows_per_chunk, "chunking": chunking}
    encoder = _portable(encoder, where, top, options)
    start = time.perf_counter()
    call, collect = uuid4().hex, not shares_memory()
    tasks = [(where, encoder, call, str(top), (i, n), options, collect) for i in range(1, n + 1)]
    parts, said = zip(*spread(embed_shard, tasks, n_jobs, "embedding shards"), strict=True)
    for category, message in dict.fromkeys(chain.from_iterable(said)):  # several shards may give the same warning
        warnings.warn(message, category, stacklevel=2)
    passages, kept = sum(part.passages for part in parts), sum(part.kept for part in parts)
    counts = sum((part.counts for part in parts), Counter[str]())
    return Embedded(str(out), passages, kept, time.perf_counter() - start, counts)


def embed_shard(
    source: str | Path | Collection,
    encoder: Any,
    call: str,
    out: str,
    shard: Shard,
    options: dict[str, Any],
    collect: bool,
) -> tuple[Embedded, list[tuple[type[Warning], str]]]:
    """Embed one shard, in any process. ``call`` identifies the call of :func:`embed_shards` that this serves.

    With ``collect``, warnings are returned instead of shown.
    """
    made = copy.copy(_made(encoder, call))  # with counts of its own
    if not collect:
        return embed(source, made, out, shard=shard, **options), []
    _wait_for_writer(StoreFiles(out).within(shard_name(*shard)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        done = embed(source, made, out, shard=shard, **options)
    return done, [(warning.category, str(warning.message)) for warning in caught]


def _wait_for_writer(files: StoreFiles) -> None:
    """Return when no process writes, or after :data:`PATIENCE`: taking the lock then raises and names the writer."""
    deadline = time.monotonic() + PATIENCE
    while files.exists(LOCK) and time.monotonic() < deadline:
        try:
            with writer_lock(files):
                return
        except StoreError:
            time.sleep(0.2)


_here = threading.local()  # an encoder is not shared by threads


def _made(encoder: Any, call: str) -> Any:
    """Return the encoder, or make it from its name or function, once for each call in this thread."""
    if hasattr(encoder, "encode") and not isinstance(encoder, str):  # a string has encode, too
        return encoder
    if getattr(_here, "call", None) != call:
        _here.encoder = parse_encoder(encoder) if isinstance(encoder, str) else encoder()
        _here.call = call
    return _here.encoder


def _count_shards(top: StoreFiles, n_shards: int | None, n_jobs: int | None) -> int:
    check_unsharded(top)
    found = {int(match[1]) for name in top.names() if (match := re.fullmatch(r"shard-\d+-of-(\d+)", name))}
    n = n_shards or max(found, default=count_jobs(n_jobs))
    if found - {n}:
        raise StoreError(f"{top}: this store was begun with {max(found)} shards, now it is {n}; give a new folder")
    return n


def _portable(encoder: Any, source: str | Path | Collection, top: StoreFiles, options: dict[str, Any]) -> Any:
    """Return what workers make the encoder from. One that has to be fitted is fitted here, kept, and loaded by them."""
    made = encoder_maker(encoder) if isinstance(encoder, str) else encoder
    if hasattr(getattr(made, "func", None), "fit"):
        made = made()
    if not hasattr(made, "fit"):
        return encoder
    check_storable(made)
    if is_fitted(made):
        return encoder
    with writer_lock(top):
        if top.exists(f"{ENCODER}/{MANIFEST}"):
            load_same_encoder(made, top)
        else:
            files = top.within(".fitting")
            files.fs.makedirs(files.root, exist_ok=True)
            try:
                read_input(files, None, source, options["layout"], options["chunking"], options["rows_per_chunk"])
                with open_passages(files) as passages:
                    made.fit(passages)
            finally:
                top.remove(".fitting")
            save_encoder(made, top)
    return partial(_load, str(top))


def _load(address: str) -> Any:
    return load_encoder(StoreFiles(address))
