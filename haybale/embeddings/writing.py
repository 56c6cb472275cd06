"""Write the vectors of a collection's passages into a resumable store."""

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
from haybale.embeddings.encoder import description_of, encode_texts, is_fitted
from haybale.embeddings.resumable_store import Settings, Shard, StoreWriter, shard_name, store_writer, to_stored
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

_CONSTRAINTS: dict[str, Constraints] = {
    "layout": TEXT_OR_NONE,
    "dtype": one_of(STORED),
    "rows_per_chunk": COUNT,
    "shard": [tuple, list, None],
    "chunking": [Chunking, None],
}


@dataclass(frozen=True)
class Embedded:
    """The report of one call: it embedded ``passages`` in ``seconds``; ``kept`` were in the store before.

    ``counts`` holds the numbers of ``texts``, ``tokens`` and ``truncated`` texts of a neural encoder.
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
    """Embed every passage of a collection into a store. The same call resumes after an interruption or damage.

    A chunk depends only on its own passages. So an interrupted store has the same bytes as an uninterrupted one, on the
    same machine with the same number of threads.

    Parameters
    ----------
    source, layout : str, Path or Collection; str, optional
        A collection, or a folder or name as in :func:`open_collection`. Only its documents are read.
    encoder : Encoder
        An encoder with ``dim`` and ``describe``. One that must be fitted is fitted on the passages and kept in the
        store.
    out : str or Path
        A local folder or an fsspec address.
    dtype : {"float32", "float16"}, default "float32"
        The type of the vectors on disk; float16 halves the store.
    rows_per_chunk : int, default 2048
        The number of passages in a chunk. An interruption loses at most one chunk.
    shard : (int, int), optional
        ``(i, n)``, with i from 1 to n, writes every n-th chunk to ``out/shard-i-of-n``. All shards need the same
        encoder.
    chunking : Chunking, optional
        Cuts passages into pieces of equal length. Default: passages are embedded whole.

    Returns
    -------
    Embedded

    Raises
    ------
    InputError
        A setting is out of range, the encoder's vectors are sparse, or the shard has no passages.
    VectorError
        The encoder returned vectors that are not finite or of another width.
    StoreError
        Another process writes the store; it was begun with other settings, library versions or input; the disk is full.
    OutputExistsError
        The folder holds something else.
    """
    check_parameters("embed", locals(), _CONSTRAINTS)
    in_shards = shard is not None and len(shard) == 2 and shard[1] > 1
    if shard and in_shards and not is_fitted(encoder) and not _has_encoder(out, shard):
        raise _not_fitted(encoder)  # before anything is written
    with store_writer(VectorChunks, out, shard, (PASSAGES,)) as writer:
        read = read_input(writer.files, writer.begun, source, layout, chunking, rows_per_chunk, writer.shard)
        if hasattr(encoder, "fit"):
            encoder = _fitted(encoder, writer)
        settings = {"input": read, "encoder": description_of(encoder), "dtype": dtype, "rows_per_chunk": rows_per_chunk}
        writer.begin(settings | {"digests": True})
        done = _embed_missing(writer, encoder)
    if truncated := done.counts["truncated"]:
        message = (
            f"{truncated} of {done.passages} passages are longer than the encoder's max_length and were truncated; "
            "cut them into pieces, see haybale.Chunking"
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
    """Read the whole input, write its passages unless they exist, and return its description.

    ``begun`` holds the settings that the store was begun with, if any. Raise :class:`StoreError` if the input has
    changed since.
    """
    i, n = shard
    is_written = bool(begun and files.is_file(PASSAGES))
    collection = read_documents(source, layout, warn=not is_written)  # warn of blank passages only when writing them
    with nullcontext() if is_written else files.whole(PASSAGES) as file:
        split = None if chunking is None else chunking.splitter()
        spooled = spool(collection, file, rows_per_chunk, (i - 1, n), split)
        then = begun["input"] if begun else {"sha256": spooled.sha256}
        if then["sha256"] != spooled.sha256:
            raise StoreError(
                f"{files}: the input has changed: expected the {then['passages']} passages that the store was begun "
                f"with, found {spooled.passages} or other texts; give a new folder"
            )
        if file is not None and not spooled.rows:
            raise InputError(f"{files}: shard {i} of {n} has no passages ({spooled.passages} in all); use fewer shards")
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
                warnings.simplefilter("ignore", TruncationWarning)  # embed() warns once, for all passages
                encoded = encode_texts(encoder, passages.texts(number))
            if sparse.issparse(encoded):
                raise InputError(f"{name} makes sparse vectors, but a store needs dense ones; use another encoder")
            return to_stored(check_vectors(encoded, name, chunks.dim), writer.settings["dtype"], "the vectors")  # type: ignore[no-any-return]

        def report(made: int, kept: int, seconds: float) -> Embedded:
            return Embedded(str(files), made, kept, seconds, counts)

        done: Embedded = chunks.fill(chunks.sizes, vectors, report, "embedding")
    return done


def _fitted(encoder: Any, writer: StoreWriter) -> Any:
    """Fit an encoder if needed, save it in the store, and return it; a resumed call loads the saved encoder."""
    check_storable(encoder)
    if writer.begun is not None and writer.files.exists(ENCODER):
        # If the caller fitted the encoder, its description is compared with the store's settings later.
        return encoder if is_fitted(encoder) else load_same_encoder(encoder, writer.files)
    if not is_fitted(encoder):
        if writer.shard[1] > 1:
            raise _not_fitted(encoder)
        with open_passages(writer.files) as passages:
            encoder.fit(passages)
    save_encoder(encoder, writer.files)
    return encoder


def _not_fitted(encoder: Any) -> InputError:
    return InputError(
        f"shards need the same fitted encoder, but this {type(encoder).__name__} is not fitted; fit it first, or embed "
        "without shards"
    )


def _has_encoder(out: str | Path, shard: Shard) -> bool:
    return StoreFiles(out).within(shard_name(*shard)).exists(ENCODER)
