"""``embed``: the passages of a collection to vectors on disk, chunk by chunk, through any number of interruptions."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from scipy import sparse

from haybale.collections import Collection
from haybale.collections.spool import PassageSpool, spool
from haybale.embeddings.chunking import Chunking
from haybale.embeddings.counts import EncodeCounts
from haybale.embeddings.store.chunks import Chunks
from haybale.embeddings.store.files import BUILDING, MANIFEST, PASSAGES, VECTORS, StoreFiles
from haybale.embeddings.store.fitted import fitted_encoder
from haybale.embeddings.store.lock import writer_lock
from haybale.embeddings.store.manifest import (
    DTYPES,
    FORMAT,
    VERSION,
    as_json,
    check_input,
    check_same,
    read_manifest,
    versions,
)
from haybale.embeddings.store.passages import open_passages
from haybale.errors import InputError, OutputExistsError, StoreError, TruncationWarning, UnknownNameError
from haybale.progress import track
from haybale.vectors import check_vectors


@dataclass(frozen=True)
class Embedded:
    """What one call did: ``passages`` in ``seconds`` of encoding and writing; ``kept`` were there before."""

    store: str
    passages: int
    kept: int
    seconds: float
    counts: EncodeCounts

    @property
    def rates(self) -> str:
        """Throughput in words.

        >>> Embedded("s", 200, 0, 2.0, EncodeCounts(texts=200, tokens=900, slots=1000)).rates
        '100 passages/s, 450 tokens/s, padding 10.0 %'
        """
        seconds = max(self.seconds, 1e-9)
        text = f"{self.passages / seconds:,.0f} passages/s"
        if self.counts.tokens:
            text += f", {self.counts.tokens / seconds:,.0f} tokens/s, padding {self.counts.padding_waste:.1%}"
        return text.replace("%", " %")


def embed(
    source: str | Path | Collection,
    encoder: Any,
    out: str | Path,
    *,
    layout: str | None = None,
    dtype: str = "float32",
    rows_per_chunk: int = 2048,
    shard: tuple[int, int] | None = None,
    chunking: Chunking | None = None,
) -> Embedded:
    """Embed every passage of a collection into a store; call it again after an interruption to go on.

    ``source`` is a collection, ``"pydocs"``, or a folder, which is streamed: memory does not grow with the texts.
    ``encoder`` has ``encode`` and ``describe``; one that has to be fitted is fitted on the passages and kept in the
    store. ``out`` is a local folder or an fsspec address. ``chunking`` cuts passages into pieces. ``shard=(i, n)``,
    i from 1, embeds every n-th chunk into ``out/shard-i-of-n``; the reader puts shards together, which must have
    been made with one and the same encoder.

    A chunk is computed from its own passages alone, so a store that was interrupted is the one that was not, byte
    for byte, on the same machine with the same number of threads. A damaged chunk of a finished store is computed
    anew. Errors: :class:`StoreError` for a second writer, other settings, library versions or input than the store
    was begun with, or a full disk; :class:`OutputExistsError` for a folder that holds something else.
    """
    if dtype not in DTYPES:
        raise UnknownNameError("dtype", dtype, DTYPES)
    if rows_per_chunk < 1:
        raise InputError(f"rows_per_chunk must be at least 1, found {rows_per_chunk}")
    files = StoreFiles(out)
    if shard is not None:
        if files.exists(MANIFEST) or files.exists(BUILDING):
            raise OutputExistsError(f"{files} holds a store without shards; give a new folder")
        files = StoreFiles(f"{str(out).rstrip('/')}/{shard_name(*shard)}")
    if not any(files.exists(name) for name in (MANIFEST, BUILDING, PASSAGES)):
        taken = [name for name in files.names() if not name.startswith(".") and not name.endswith(".partial")]
        if taken:
            raise OutputExistsError(f"{files} holds other files ({taken[0]}); give a new folder")
    job = _Job(source, layout, chunking, dtype, rows_per_chunk, shard or (1, 1))
    with writer_lock(files):
        try:
            return _embed(job, encoder, files)
        except OSError as error:
            if isinstance(error, StoreError | OutputExistsError) or error.errno is None:
                raise
            raise StoreError(f"{files}: {error.strerror}; what is written is kept, run it again to go on") from error


def shard_name(i: int, n: int) -> str:
    """The folder of shard i, from 1, of n within a store."""
    if not 1 <= i <= n:
        raise InputError(f"shard must be i/n with i from 1 to n, found {i}/{n}")
    return f"shard-{i}-of-{n}"


@dataclass(frozen=True)
class _Job:
    """What was asked for, but for the encoder and the place."""

    source: str | Path | Collection
    layout: str | None
    chunking: Chunking | None
    dtype: str
    rows_per_chunk: int
    shard: tuple[int, int]


def _embed(job: _Job, encoder: Any, files: StoreFiles) -> Embedded:
    begun = files.read_json(BUILDING) if files.exists(BUILDING) else None
    if files.exists(MANIFEST):
        begun = read_manifest(files)
    source = _read_input(job, files, begun)
    encoder = fitted_encoder(encoder, files, job.shard)
    settings = as_json(
        {
            "format": FORMAT,
            "version": VERSION,
            "input": source,
            "encoder": encoder.describe(),
            "dtype": job.dtype,
            "rows_per_chunk": job.rows_per_chunk,
            "shard": job.shard,
            "versions": versions(),
        }
    )
    if begun is None:
        files.write_json(BUILDING, settings)
    else:
        check_same(files, begun, settings)
    embedded = _fill(job, encoder, files)
    if not files.exists(MANIFEST):
        files.write_json(MANIFEST, settings)
    files.remove(BUILDING)
    return embedded


def _read_input(job: _Job, files: StoreFiles, begun: dict[str, Any] | None) -> dict[str, Any]:
    """Read the input whole, to know what it is and, the first time, to write the passages."""
    i, n = job.shard
    split = None if job.chunking is None else job.chunking.splitter()

    def read(file: BinaryIO | None) -> dict[str, Any]:
        spooled = spool(job.source, PassageSpool(file, job.rows_per_chunk, (i - 1, n), split), job.layout)
        found = {
            "name": job.source.name if isinstance(job.source, Collection) else str(job.source),
            "passages": spooled.passages,
            "documents": spooled.documents,
            "sha256": spooled.sha256,
            "chunking": None if job.chunking is None else job.chunking.describe(),
        }
        if begun is not None:
            check_input(files, begun, found)
        if file is not None and spooled.empty:
            warnings.warn(f"{spooled.empty} passages of only whitespace were left out", stacklevel=2)
        if file is not None and not spooled.rows:
            raise InputError(f"{files}: {spooled.passages} passages leave nothing for shard {i} of {n}")
        return found

    if begun is not None and files.exists(PASSAGES):
        return read(None)
    with files.whole(PASSAGES) as file:
        return read(file)


def _fill(job: _Job, encoder: Any, files: StoreFiles) -> Embedded:
    """Compute every chunk that is not there or is damaged."""
    if hasattr(encoder, "counts"):
        encoder.counts = EncodeCounts()
    passages = 0
    with open_passages(files) as source:
        if not files.exists(f"{VECTORS}/zarr.json"):
            files.remove(VECTORS)
            chunks = Chunks.create(files, len(source), encoder.width, job.rows_per_chunk, job.dtype)
        else:
            chunks = Chunks.open(files, writable=True)
        chunks.remove_unfinished()
        kept = {number for number in track(sorted(chunks.present()), "checking") if chunks.is_whole(number)}
        wanted = [number for number in range(len(chunks)) if number not in kept]
        done = sum(end - first for first, end in map(chunks.bounds, kept))
        start = time.perf_counter()

        def status() -> str:
            return Embedded(str(files), passages, done, time.perf_counter() - start, _counts(encoder)).rates

        for number in track(wanted, "embedding", status=status):
            texts = source.texts(number)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TruncationWarning)  # once, for all of them, below
                encoded, name = encoder.encode(texts), type(encoder).__name__
            if sparse.issparse(encoded):
                raise InputError(f"{name} makes sparse vectors, which a store does not hold")
            vectors = check_vectors(encoded, f"{name}.encode", chunks.width)
            if job.dtype == "float16" and np.abs(vectors).max(initial=0) > np.finfo(np.float16).max:
                raise InputError("the vectors have values beyond float16; store them as float32")
            chunks.write(number, vectors)
            passages += len(texts)
    truncated = _counts(encoder).truncated
    if truncated:
        message = f"{truncated} of {passages} passages are longer than the encoder reads and were cut: see Chunking"
        warnings.warn(message, TruncationWarning, stacklevel=4)
    return Embedded(str(files), passages, done, time.perf_counter() - start, _counts(encoder))


def _counts(encoder: Any) -> EncodeCounts:
    counts: EncodeCounts = getattr(encoder, "counts", EncodeCounts())
    return counts
