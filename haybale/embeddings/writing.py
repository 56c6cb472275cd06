"""``embed``: write the vectors of a collection's passages into a resumable store."""

from __future__ import annotations

import warnings
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy import sparse

from haybale.collections import Collection
from haybale.collections.open import read_documents
from haybale.collections.spool import spool
from haybale.embeddings.chunking import Chunking
from haybale.embeddings.encoder import is_fitted
from haybale.embeddings.resumable_store import Settings, Shard, StoreWriter, store_writer, to_stored
from haybale.embeddings.store import (
    ENCODER,
    PASSAGES,
    VectorChunks,
    check_storable,
    load_same_encoder,
    open_passages,
    save_encoder,
)
from haybale.embeddings.store_files import StoreFiles
from haybale.errors import InputError, StoreError, TruncationWarning
from haybale.parameters import COUNT, TEXT_OR_NONE, Constraints, check_parameters, one_of
from haybale.vectors import STORED, Floats, check_vectors

_RANGES: dict[str, Constraints] = {
    "layout": TEXT_OR_NONE,
    "dtype": one_of(STORED),
    "rows_per_chunk": COUNT,
    "shard": [tuple, list, None],
    "chunking": [Chunking, None],
}


@dataclass(frozen=True)
class Embedded:
    """What one call did: it embedded ``passages`` in ``seconds``; ``kept`` were in the store before.

    ``counts`` has the ``texts``, ``tokens`` and ``truncated`` texts of a neural encoder.
    """

    store: str
    passages: int
    kept: int
    seconds: float
    counts: Counter[str]

    @property
    def rates(self) -> str:
        """The throughput in words.

        >>> Embedded("s", 200, 0, 2.0, Counter(tokens=900)).rates
        '100 passages/s, 450 tokens/s'
        """
        rates = {"passages": self.passages, "tokens": self.counts["tokens"]}
        return ", ".join(f"{n / max(self.seconds, 1e-9):,.0f} {what}/s" for what, n in rates.items() if n)


def embed(
    source: str | Path | Collection,
    encoder: Any,
    out: str | Path,
    *,
    layout: str | None = None,
    dtype: str = "float32",
    rows_per_chunk: int = 2048,
    shard: Shard | None = None,
    chunking: Chunking | None = None,
) -> Embedded:
    """Embed every passage of a collection into a store. After an interruption or damage, the same call goes on.

    A chunk is computed from its own passages only. So a store that was interrupted has the same bytes as one that was
    not, on the same machine with the same number of threads.

    Parameters
    ----------
    source, layout : str, Path or Collection; str, optional
        A folder, or what else :func:`open_collection` takes. Only its documents are read.
    encoder : Encoder
        With ``dim`` and ``describe``. One that has to be fitted is fitted on the passages and kept in the store.
    out : str or Path
        A local folder or an fsspec address.
    dtype : {"float32", "float16"}, default "float32"
        Type of the vectors on disk.
    rows_per_chunk : int, default 2048
        Passages of a chunk. An interruption costs at most one chunk.
    shard : (int, int), optional
        ``(i, n)``, i from 1: write every n-th chunk, into ``out/shard-i-of-n``. All shards need the same encoder.
    chunking : Chunking, optional
        Cuts passages into pieces.

    Raises
    ------
    StoreError
        Another process writes the store; it was begun with other settings, library versions or input; the disk is full.
    OutputExistsError
        The folder holds something else.
    """
    check_parameters("embed", locals(), _RANGES)
    with store_writer(VectorChunks, out, shard, (PASSAGES,)) as writer:
        found = read_input(writer.files, writer.begun, source, layout, chunking, rows_per_chunk, writer.shard)
        if hasattr(encoder, "fit"):
            encoder = _fitted(encoder, writer)
        settings = {"input": found, "encoder": encoder.describe(), "dtype": dtype, "rows_per_chunk": rows_per_chunk}
        if writer.begun is None or writer.begun.get("digests"):  # stores of an earlier version have none
            settings["digests"] = True
        writer.begin(settings)
        done = _embed_missing(writer, encoder)
    if truncated := done.counts["truncated"]:
        message = (
            f"{truncated} of {done.passages} passages are longer than the encoder reads and were cut; see Chunking"
        )
        warnings.warn(message, TruncationWarning, stacklevel=2)
    return done


def read_input(
    files: StoreFiles,
    begun: Settings | None,
    source: str | Path | Collection,
    layout: str | None,
    chunking: Chunking | None,
    rows_per_chunk: int,
    shard: Shard = (1, 1),
) -> dict[str, Any]:
    """Read all of the input, write its passages unless they exist, and return its description.

    ``begun`` are the settings that the store was begun with; the input must be the same.
    """
    i, n = shard
    known = bool(begun and files.exists(PASSAGES))
    collection = read_documents(source, layout, warn=not known)  # of blank passages only when they are written
    with nullcontext() if known else files.whole(PASSAGES) as file:
        split = None if chunking is None else chunking.splitter()
        spooled = spool(collection, file, rows_per_chunk, (i - 1, n), split)
        then = begun["input"] if begun else {"sha256": spooled.sha256}
        if then["sha256"] != spooled.sha256:
            raise StoreError(
                f"{files}: the input has changed since this store was begun with {then['passages']} passages, now "
                f"{spooled.passages} or other texts; give the old input or a new folder"
            )
        if file is not None and not spooled.rows:
            raise InputError(f"{files}: {spooled.passages} passages leave nothing for shard {i} of {n}")
    return {
        "name": source.name if isinstance(source, Collection) else str(source),
        "passages": spooled.passages,
        "documents": collection.n_documents,
        "sha256": spooled.sha256,
        "chunking": None if chunking is None else chunking.describe(),
    }


def _embed_missing(writer: StoreWriter, encoder: Any) -> Embedded:
    counts = Counter[str]()
    if hasattr(encoder, "counts"):
        encoder.counts = counts
    name, files = f"{type(encoder).__name__}.encode", writer.files
    with open_passages(files) as passages:
        chunks = VectorChunks.create(files, writer.settings, len(passages), encoder.dim)

        def vectors(number: int) -> Floats:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TruncationWarning)  # embed warns once, for all passages
                encoded = encoder.encode(passages.texts(number))
            if sparse.issparse(encoded):
                raise InputError(f"{name} makes sparse vectors, which a store does not hold")
            return to_stored(check_vectors(encoded, name, chunks.dim), writer.settings["dtype"], "the vectors")  # type: ignore[no-any-return]

        def report(made: int, kept: int, seconds: float) -> Embedded:
            return Embedded(str(files), made, kept, seconds, counts)

        done: Embedded = chunks.fill(chunks.sizes, vectors, report, "embedding")
    return done


def _fitted(encoder: Any, writer: StoreWriter) -> Any:
    """Return the encoder fitted by the caller, by an earlier call, or here on the store's passages; keep it there."""
    check_storable(encoder)
    if writer.begun is not None and writer.files.exists(ENCODER):
        # The settings tell whether an encoder that the caller fitted is the one that the store was begun with.
        return encoder if is_fitted(encoder) else load_same_encoder(encoder, writer.files)
    if not is_fitted(encoder):
        if writer.shard[1] > 1:
            raise InputError(
                f"shards need one fitted encoder, or their vectors would not fit together: fit and save one first, or "
                f"embed without shards; found a {type(encoder).__name__} that is not fitted"
            )
        with open_passages(writer.files) as passages:
            encoder.fit(passages)
    save_encoder(encoder, writer.files)
    return encoder
