"""``embed``: the passages of a collection to vectors on disk, chunk by chunk, through any number of interruptions."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from scipy import sparse

from haybale.collections import Collection
from haybale.collections.spool import PassageSpool, Spooled, spool
from haybale.embeddings.chunking import Chunking
from haybale.embeddings.counts import EncodeCounts
from haybale.embeddings.store.chunks import Chunks
from haybale.embeddings.store.files import BUILDING, MANIFEST, PASSAGES, VECTORS, StoreFiles
from haybale.embeddings.store.fitted import fitted_encoder
from haybale.embeddings.store.lock import writer_lock
from haybale.embeddings.store.manifest import DTYPES, FORMAT, VERSION, as_json, check_same, read_manifest, versions
from haybale.errors import InputError, OutputExistsError, StoreError, UnknownNameError
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
    files = StoreFiles(out if shard is None else f"{str(out).rstrip('/')}/{_shard_name(*shard)}")
    if not any(files.exists(name) for name in (MANIFEST, BUILDING, PASSAGES)):
        taken = [name for name in files.names() if not name.startswith(".") and not name.endswith(".partial")]
        if taken:
            raise OutputExistsError(f"{files} holds other files ({taken[0]}); give a new folder")
    with writer_lock(files):
        try:
            return _embed(source, encoder, files, layout, dtype, rows_per_chunk, shard or (1, 1), chunking)
        except OSError as error:
            if isinstance(error, StoreError | OutputExistsError) or error.errno is None:
                raise
            raise StoreError(f"{files}: {error.strerror}; what is written is kept, run it again to go on") from error


def _embed(
    source: str | Path | Collection,
    encoder: Any,
    files: StoreFiles,
    layout: str | None,
    dtype: str,
    rows_per_chunk: int,
    shard: tuple[int, int],
    chunking: Chunking | None,
) -> Embedded:
    begun = files.read_json(BUILDING) if files.exists(BUILDING) else None
    if files.exists(MANIFEST):
        begun = read_manifest(files)
    spooled = _spooled(source, files, layout, rows_per_chunk, shard, chunking, write=begun is None)
    encoder = fitted_encoder(encoder, files, shard)
    settings = {
        "format": FORMAT,
        "version": VERSION,
        "input": {
            "name": source.name if isinstance(source, Collection) else str(source),
            "passages": spooled.passages,
            "documents": spooled.documents,
            "sha256": spooled.sha256,
            "chunking": None if chunking is None else chunking.describe(),
        },
        "encoder": encoder.describe(),
        "dtype": dtype,
        "rows_per_chunk": rows_per_chunk,
        "shard": list(shard),
        "versions": versions(),
    }
    settings = as_json(settings)
    if begun is not None:
        check_same(files, begun, settings)
    else:
        files.write_json(BUILDING, settings)
    embedded = _fill(files, encoder, dtype, rows_per_chunk)
    if not files.exists(MANIFEST):
        files.write_json(MANIFEST, settings)
    files.remove(BUILDING)
    return embedded


def _shard_name(i: int, n: int) -> str:
    if not 1 <= i <= n:
        raise InputError(f"shard must be i/n with i from 1 to n, found {i}/{n}")
    return f"shard-{i}-of-{n}"


def _spooled(
    source: str | Path | Collection,
    files: StoreFiles,
    layout: str | None,
    rows_per_chunk: int,
    shard: tuple[int, int],
    chunking: Chunking | None,
    write: bool,
) -> Spooled:
    """Read the input whole, to hash it and, the first time, to write the passages."""
    at, split = (shard[0] - 1, shard[1]), None if chunking is None else chunking.splitter()
    if not write:
        return spool(source, PassageSpool(None, rows_per_chunk, at, split), layout)
    with files.whole(PASSAGES) as file:
        spooled = spool(source, PassageSpool(file, rows_per_chunk, at, split), layout)
        if not spooled.rows:
            raise InputError(f"{files}: {spooled.passages} passages leave nothing for shard {shard[0]} of {shard[1]}")
    if spooled.empty:
        warnings.warn(f"{spooled.empty} passages of only whitespace were left out", stacklevel=2)
    return spooled


def _fill(files: StoreFiles, encoder: Any, dtype: str, rows_per_chunk: int) -> Embedded:
    """Compute every chunk that is not there or is damaged."""
    if hasattr(encoder, "counts"):
        encoder.counts = EncodeCounts()
    start, passages = time.perf_counter(), 0
    with files.fs.open(files.at(PASSAGES), "rb") as file:
        parquet = pq.ParquetFile(file)
        rows = parquet.metadata.num_rows
        if not files.exists(f"{VECTORS}/zarr.json"):
            files.remove(VECTORS)
            chunks = Chunks.create(files, rows, encoder.width, rows_per_chunk, dtype)
        else:
            chunks = Chunks.open(files, writable=True)
        chunks.remove_unfinished()
        kept = {number for number in track(sorted(chunks.present()), "checking") if chunks.is_whole(number)}
        wanted = [number for number in range(len(chunks)) if number not in kept]
        done = sum(end - first for first, end in map(chunks.bounds, kept))

        def status() -> str:
            return Embedded(str(files), passages, done, time.perf_counter() - start, _counts(encoder)).rates

        for number in track(wanted, "embedding", status=status):
            texts = parquet.read_row_group(number, columns=["text"]).column("text").to_pylist()
            encoded, name = encoder.encode(texts), type(encoder).__name__
            if sparse.issparse(encoded):
                raise InputError(f"{name} makes sparse vectors, which a store does not hold")
            vectors = check_vectors(encoded, f"{name}.encode", chunks.width)
            if dtype == "float16" and np.abs(vectors).max(initial=0) > np.finfo(np.float16).max:
                raise InputError("the vectors have values beyond float16; store them as float32")
            chunks.write(number, vectors)
            passages += len(texts)
    return Embedded(str(files), passages, done, time.perf_counter() - start, _counts(encoder))


def _counts(encoder: Any) -> EncodeCounts:
    counts: EncodeCounts = getattr(encoder, "counts", EncodeCounts())
    return counts
