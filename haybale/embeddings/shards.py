"""Write an embedding store in shards, one task each, in threads, in processes or on a cluster."""

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

PATIENCE = 60.0  # seconds to wait for a task of an earlier call that lost its driver or connection


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
    """Embed every passage of a collection into ``out/shard-i-of-n``. After an interruption, the same call resumes.

    Each shard is one joblib task, ``embed(…, shard=(i, n))``. Tasks run in threads by default, and in processes or on a
    Dask cluster under ``joblib.parallel_config`` or :func:`~haybale.cluster.on_cluster`.

    Parameters
    ----------
    source, out, layout, dtype, rows_per_chunk, chunking : optional except the first two
        As in :func:`embed`. Every worker must reach ``out``, and ``source`` if it is a folder.
    encoder : Encoder, str or callable
        An encoder that must be fitted is fitted once, by this call, and kept in ``out``. A ready encoder is pickled. To
        let each worker load a model itself, give a name, or a function that makes the encoder, such as
        ``encoder_maker(name, device="cuda")``; each thread of a worker calls it once.
    n_shards : int, optional
        Default: the number that ``out`` was begun with, or the number of tasks that run at once.
    n_jobs : int, optional
        As in joblib.

    Returns
    -------
    Embedded
        The sums over all tasks; ``seconds`` is the time of this call.

    Raises
    ------
    ClusterError
        A worker of the cluster was lost. All other errors are those of :func:`embed`.
    """
    check_parameters("embed_shards", locals(), {"n_shards": COUNT_OR_NONE, "n_jobs": N_JOBS})
    files = StoreFiles(out)
    # Workers may have another working directory, so all paths are absolute.
    top = StoreFiles(os.path.abspath(files.root)) if files.is_local else files
    n = _count_shards(top, n_shards, n_jobs)
    where = str(Path(source).absolute()) if isinstance(source, str | Path) and Path(source).is_dir() else source
    options = {"layout": layout, "dtype": dtype, "rows_per_chunk": rows_per_chunk, "chunking": chunking}
    encoder = _portable(encoder, where, top, options)
    start = time.perf_counter()
    call, collect = uuid4().hex, not shares_memory()
    tasks = [(where, encoder, call, str(top), (i, n), options, collect) for i in range(1, n + 1)]
    parts, caught = zip(*spread(embed_shard, tasks, n_jobs, "embedding shards"), strict=True)
    for category, message in dict.fromkeys(chain.from_iterable(caught)):  # several shards may give the same warning
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
    """Embed one shard in the current process. ``call`` identifies the call of :func:`embed_shards` it belongs to.

    If ``collect``, return the warnings instead of showing them.
    """
    own = copy.copy(encoder_of_thread(encoder, call))  # a copy, which has its own counts
    if not collect:
        return embed(source, own, out, shard=shard, **options), []
    _wait_for_writer(StoreFiles(out).within(shard_name(*shard)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        done = embed(source, own, out, shard=shard, **options)
    return done, [(warning.category, str(warning.message)) for warning in caught]


def _wait_for_writer(files: StoreFiles) -> None:
    """Wait until no other process writes, at most :data:`PATIENCE` seconds. ``embed`` then raises and names it."""
    deadline = time.monotonic() + PATIENCE
    while files.exists(LOCK) and time.monotonic() < deadline:
        try:
            with writer_lock(files):
                return
        except StoreError:
            time.sleep(0.2)


_thread = threading.local()  # threads do not share an encoder


def encoder_of_thread(encoder: Any, call: str) -> Any:
    """Return the encoder, or make it from its name or function, once for each call in this thread."""
    if hasattr(encoder, "encode") and not isinstance(encoder, str):  # str has a method ``encode``, too
        return encoder
    if getattr(_thread, "call", None) != call:
        _thread.encoder = parse_encoder(encoder) if isinstance(encoder, str) else encoder()
        _thread.call = call
    return _thread.encoder


def _count_shards(top: StoreFiles, n_shards: int | None, n_jobs: int | None) -> int:
    check_unsharded(top)
    found = {int(match[1]) for name in top.names() if (match := re.fullmatch(r"shard-\d+-of-(\d+)", name))}
    n = n_shards or max(found, default=count_jobs(n_jobs))
    if found - {n}:
        raise StoreError(f"{top}: expected {max(found)} shards, as the store was begun with, found n_shards={n}")
    return n


def _portable(encoder: Any, source: str | Path | Collection, top: StoreFiles, options: dict[str, Any]) -> Any:
    """Return what workers make the encoder from. One that must be fitted is fitted here and saved for them to load."""
    candidate = encoder_maker(encoder) if isinstance(encoder, str) else encoder
    if hasattr(getattr(candidate, "func", None), "fit"):
        candidate = candidate()
    if not hasattr(candidate, "fit"):
        return encoder
    check_storable(candidate)
    if is_fitted(candidate):
        return encoder
    with writer_lock(top):
        if top.exists(f"{ENCODER}/{MANIFEST}"):
            load_same_encoder(candidate, top)
        else:
            files = top.within(".fitting")
            files.fs.makedirs(files.root, exist_ok=True)
            try:
                read_input(files, None, source, options["layout"], options["chunking"], options["rows_per_chunk"])
                with open_passages(files) as passages:
                    candidate.fit(passages)
            finally:
                top.remove(".fitting")
            save_encoder(candidate, top)
    return partial(load_encoder, top)
