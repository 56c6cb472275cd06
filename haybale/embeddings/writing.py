"""``embed``: the passages of a collection to vectors on disk, chunk by chunk, through any number of interruptions."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import socket
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from haybale.collections import Collection
from haybale.collections.open import read_documents
from haybale.collections.spool import spool
from haybale.embeddings.chunking import Chunking
from haybale.embeddings.store import (
    BUILDING,
    DIGESTS,
    ENCODER,
    FORMAT,
    MANIFEST,
    PASSAGES,
    VECTORS,
    VERSION,
    Chunks,
    StoreFiles,
    as_json,
    open_passages,
)
from haybale.embeddings.tfidf import TfidfEncoder
from haybale.errors import InputError, OutputExistsError, StoreError, TruncationWarning
from haybale.parameters import COUNT, TEXT_OR_NONE, Constraints, check_parameters, one_of
from haybale.progress import track
from haybale.vectors import STORED, check_vectors

LOCK = ".lock"
_RANGES: dict[str, Constraints] = {
    "layout": TEXT_OR_NONE,
    "dtype": one_of(STORED),
    "rows_per_chunk": COUNT,
    "shard": [tuple, list, None],
    "chunking": [Chunking, None],
}
_LIBRARIES = ("haybale", "numpy", "scipy", "scikit-learn", "zarr", "torch", "transformers", "sentence-transformers")


@dataclass(frozen=True)
class Embedded:
    """What one call did: ``passages`` in ``seconds`` of encoding and writing; ``kept`` were there before.

    ``counts`` of ``texts``, ``tokens`` and ``truncated`` texts are a neural encoder's.
    """

    store: str
    passages: int
    kept: int
    seconds: float
    counts: Counter[str]

    @property
    def rates(self) -> str:
        """Throughput in words.

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
    shard: tuple[int, int] | None = None,
    chunking: Chunking | None = None,
) -> Embedded:
    """Embed every passage of a collection into a store; call it again after an interruption, or damage, to go on.

    A chunk is computed from its own passages alone, so a store that was interrupted is the one that was not, byte
    for byte, on the same machine with the same number of threads.

    Parameters
    ----------
    source, layout : str, Path or Collection; str, optional
        A folder, or what :func:`open_collection` knows, of which the documents alone are read.
    encoder : Encoder
        With ``dim`` and ``describe``; one that is to be fitted is fitted on the passages and kept in the store.
    out : str or Path
        A local folder or an fsspec address.
    dtype : {"float32", "float16"}, default "float32"
        Of the vectors on disk.
    rows_per_chunk : int, default 2048
    shard : (int, int), optional
        ``(i, n)``, i from 1: every n-th chunk, into ``out/shard-i-of-n``; all shards are of one and the same encoder.
    chunking : Chunking, optional
        Cuts passages into pieces.

    Raises
    ------
    StoreError
        For a second writer, other settings, library versions or input than the store was begun with, or a full disk.
    OutputExistsError
        For a folder that holds something else.
    """
    check_parameters("embed", locals(), _RANGES)
    files, (i, n) = shard_of(out, shard)
    check_ours(files, (MANIFEST, BUILDING, PASSAGES))
    with goes_on(files), writer_lock(files):
        begun = files.read_json(BUILDING) if files.exists(BUILDING) else None
        begun = files.manifest() if files.exists(MANIFEST) else begun
        found = read_input(files, begun, source, layout, chunking, rows_per_chunk, (i, n))
        if hasattr(encoder, "fit"):
            encoder = _fitted(encoder, files, begun is not None, n)
        settings = {"format": FORMAT, "version": VERSION, "input": found, "encoder": encoder.describe()}
        settings |= {"dtype": dtype, "rows_per_chunk": rows_per_chunk, "shard": (i, n), "versions": versions_here()}
        if begun is None or begun.get("digests"):
            settings["digests"] = True
        settings = as_json(settings)
        if begun is None:
            files.write_json(BUILDING, settings)
        else:
            check_same(files, begun, settings)
        done = _fill(files, encoder, settings)
        if not files.exists(MANIFEST):
            files.write_json(MANIFEST, settings)
        files.remove(BUILDING)
        return done


def check_ours(files: StoreFiles, names: tuple[str, ...]) -> None:
    """Refuse a folder that holds something else than a store, which has one of these files."""
    if not any(files.exists(name) for name in names):
        taken = [name for name in files.names() if not name.startswith(".") and not name.endswith(".partial")]
        if taken:
            raise OutputExistsError(f"{files} holds other files ({taken[0]}); give a new folder")


@contextmanager
def goes_on(files: StoreFiles) -> Iterator[None]:
    """What a disk refuses, as an error that says how a store is gone on with."""
    try:
        yield
    except OSError as error:
        if isinstance(error, StoreError | OutputExistsError) or error.errno is None:
            raise
        raise StoreError(f"{files}: {error.strerror}; what is written is kept, run it again to go on") from error


def shard_of(out: str | Path, shard: tuple[int, int] | None) -> tuple[StoreFiles, tuple[int, int]]:
    """The files of one shard of a store that is written, and which of how many it is; None: of the whole."""
    files = StoreFiles(out)
    if shard is None:
        return files, (1, 1)
    if len(shard) != 2:
        raise InputError(f"shard must be two numbers, i and n, found {shard!r}")
    check_no_store(files)
    return files.within(shard_name(*shard)), shard


def check_no_store(files: StoreFiles) -> None:
    """Refuse, for shards, a folder that holds a store without."""
    if files.exists(MANIFEST) or files.exists(BUILDING):
        raise OutputExistsError(f"{files} holds a store without shards; give a new folder")


def shard_name(i: int, n: int) -> str:
    """The folder of shard i, from 1, of n within a store."""
    check_parameters("shard", {"i": i, "n": n}, {"i": COUNT, "n": COUNT})
    if i > n:
        raise InputError(f"shard must be i/n with i from 1 to n, found {i}/{n}")
    return f"shard-{i}-of-{n}"


def read_input(
    files: StoreFiles,
    begun: dict[str, Any] | None,
    source: str | Path | Collection,
    layout: str | None,
    chunking: Chunking | None,
    rows_per_chunk: int,
    shard: tuple[int, int] = (1, 1),
) -> dict[str, Any]:
    """Read the input whole, to know what it is, and write the passages where they are not there.

    ``begun``: the settings that the store was begun with, whose input this must be.
    """
    i, n = shard
    known = bool(begun and files.exists(PASSAGES))
    collection = read_documents(source, layout, warn=not known)  # of blank passages, when they are written
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


def check_same(files: StoreFiles, begun: Any, now: Any, where: str = "") -> None:
    """Refuse to go on with another encoder, other settings or library versions, naming the first of them."""
    if isinstance(begun, dict) and isinstance(now, dict):
        for key in sorted({*begun, *now} - {"name"}):
            check_same(files, begun.get(key), now.get(key), f"{where} {key}".strip())
    elif begun != now:
        raise StoreError(
            f"{files}: this store was begun with {where} {begun!r}, now it is {now!r}; "
            "give the same settings or a new folder"
        )


def versions_here() -> dict[str, str]:
    """Versions of what the vectors may depend on, where it is installed."""
    found = {"python": platform.python_version()}
    for library in _LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            found[library] = version(library)
    return found


def _fill(files: StoreFiles, encoder: Any, settings: dict[str, Any]) -> Embedded:
    """Compute every chunk that is not there or is damaged."""
    counts = Counter[str]()
    if hasattr(encoder, "counts"):
        encoder.counts = counts
    name, passages, start = f"{type(encoder).__name__}.encode", 0, time.perf_counter()
    with open_passages(files) as source:
        if files.exists(f"{VECTORS}/zarr.json"):
            chunks = Chunks(files, settings, writable=True)
        else:
            files.remove(VECTORS)
            chunks = Chunks.create(files, settings, len(source), encoder.dim)
        if settings.get("digests"):
            files.fs.makedirs(files.at(DIGESTS), exist_ok=True)
        there = set(files.names(VECTORS))
        for folder in (VECTORS, DIGESTS):
            for partial in (each for each in files.names(folder) if each.endswith(".partial")):  # of a killed writer
                files.remove(f"{folder}/{partial}")
        kept, wanted = 0, []
        for number in track(range(len(chunks)), "checking"):
            try:
                if f"c.{number}.0" not in there:
                    raise StoreError("missing")
                kept += len(chunks.read(number))
            except StoreError:
                wanted.append(number)
        start = time.perf_counter()

        def done() -> Embedded:
            return Embedded(str(files), passages, kept, time.perf_counter() - start, counts)

        for number in track(wanted, "embedding", status=lambda: done().rates):
            texts = source.texts(number)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TruncationWarning)  # once, for all of them, below
                encoded = encoder.encode(texts)
            if sparse.issparse(encoded):
                raise InputError(f"{name} makes sparse vectors, which a store does not hold")
            vectors = check_vectors(encoded, name, chunks.dim)
            if settings["dtype"] == "float16" and np.abs(vectors).max(initial=0) > np.finfo(np.float16).max:
                raise InputError("the vectors have values beyond float16; store them as float32")
            chunks.write(number, vectors)
            passages += len(texts)
    if truncated := counts["truncated"]:
        message = f"{truncated} of {passages} passages are longer than the encoder reads and were cut: see Chunking"
        warnings.warn(message, TruncationWarning, stacklevel=3)
    return done()


def _fitted(encoder: Any, files: StoreFiles, begun: bool, n_shards: int) -> Any:
    """``encoder``, fitted: by an earlier call (then it is loaded), by the caller, or here, on the store's passages."""
    check_storable(encoder)
    if begun and files.exists(ENCODER):  # of one that is given, the manifest says if the store was begun with it
        return encoder if is_fitted(encoder) else same_fitted(encoder, files)
    if not is_fitted(encoder):
        if n_shards > 1:
            raise InputError(
                f"shards need one fitted encoder, or their vectors would not fit together: fit and save one first, or "
                f"embed without shards; found a {type(encoder).__name__} that is not fitted"
            )
        with open_passages(files) as passages:
            encoder.fit(passages)
    save_fitted(encoder, files)
    return encoder


def same_fitted(encoder: Any, files: StoreFiles) -> Any:
    """The encoder that a store keeps, which must have the class and settings of this one."""
    found = files.fitted_encoder()
    then, now = ({"class": type(each).__name__, **each.get_params()} for each in (found, encoder))
    check_same(files, then, now, "the encoder")
    return found


def save_fitted(encoder: Any, files: StoreFiles) -> None:
    """Save a fitted encoder into a store, its manifest last."""
    for name in files.names():
        if name == ENCODER or name.startswith(f".{ENCODER}."):  # from a call that was killed
            files.remove(name)
    if files.is_local:
        encoder.save(Path(files.at(ENCODER)))
        return
    with tempfile.TemporaryDirectory() as folder:
        encoder.save(Path(folder, ENCODER))
        for path in sorted(Path(folder, ENCODER).iterdir(), key=lambda path: path.name == MANIFEST):
            files.fs.put_file(str(path), files.at(f"{ENCODER}/{path.name}"))


def is_fitted(encoder: Any) -> bool:
    """Whether an encoder that can be fitted has been."""
    try:
        check_is_fitted(encoder)
    except NotFittedError:
        return False
    return True


def check_storable(encoder: Any) -> None:
    """Refuse, before the work, an encoder whose vectors are sparse."""
    if isinstance(encoder, TfidfEncoder):
        raise InputError("TfidfEncoder makes sparse vectors, which a store does not hold: save the encoder instead")


@contextmanager
def writer_lock(files: StoreFiles) -> Iterator[None]:
    """Hold a folder for writing, or raise :class:`~haybale.errors.StoreError` and name who does.

    On a local disk the lock dies with its process; elsewhere it is a file that names its owner.
    """
    files.fs.makedirs(files.root, exist_ok=True)
    owner = json.dumps({"host": socket.gethostname(), "process": os.getpid()}).encode()
    try:
        with _flock(files, owner) if files.is_local else _lock_file(files, owner):
            yield
    except BaseException:
        if files.is_local and not files.names():  # nothing was written
            os.rmdir(files.root)
        raise


def _refuse(files: StoreFiles, owner: bytes, hint: str = "") -> StoreError:
    who = "another process"
    with contextlib.suppress(ValueError, KeyError, TypeError):
        held = json.loads(owner)
        who = f"process {held['process']} on {held['host']}"
    return StoreError(f"{files}: {who} is writing this store{hint}")


@contextmanager
def _flock(files: StoreFiles, owner: bytes) -> Iterator[None]:
    import fcntl  # POSIX; held by the kernel, so a killed writer holds nothing

    path = Path(files.at(LOCK))
    while True:
        with path.open("a+b", buffering=0) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise _refuse(files, file.read(1000)) from None
            # The writer before us removes the file when it leaves: a lock on a removed file keeps nobody out.
            if not path.exists() or os.fstat(file.fileno()).st_ino != path.stat().st_ino:
                continue
            try:
                file.truncate(0)
                file.write(owner)
                yield
            finally:
                path.unlink(missing_ok=True)
            return


@contextmanager
def _lock_file(files: StoreFiles, owner: bytes) -> Iterator[None]:
    path = files.at(LOCK)
    if files.exists(LOCK):
        raise _refuse(files, files.fs.cat_file(path), f"; if it no longer runs, remove {path}")
    files.fs.pipe_file(path, owner)
    # Object stores have no exclusive create that all of them share; the last of two that came at once keeps it.
    if (found := files.fs.cat_file(path)) != owner:
        raise _refuse(files, found)
    try:
        yield
    finally:
        files.remove(LOCK)
