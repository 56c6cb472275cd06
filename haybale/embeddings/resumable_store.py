"""A resumable store: numbered chunks in a folder, each with a digest, written by one process at a time.

manifest.json        the settings; written last, so a store with a manifest is complete
building.json        the settings while the store is being written
digests/0 …          SHA-256 of the settings, the chunk's number and its bytes, which detects a mistaken chunk
shard-1-of-2/ …      instead of the above: one such folder for each shard; shard i has every n-th chunk

:class:`~haybale.EmbeddingStore` and :class:`~haybale.InteractionStore` define what a chunk is, and add files of their
own.
"""

from __future__ import annotations

import hashlib
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from haybale.embeddings.store_files import BUILDING, MANIFEST, StoreFiles, as_json, writer_lock
from haybale.errors import InputError, OutputExistsError, StoreError
from haybale.manifest import check_kinds
from haybale.parameters import COUNT, check_parameters
from haybale.progress import track
from haybale.text_files import reading
from haybale.versions import versions_of

DIGESTS = "digests"
_SHARD_KIND = [range(1, 2**20)]  # for check_kinds: a list of numbers from 1
_LIBRARIES = ("haybale", "numpy", "scipy", "scikit-learn", "zarr", "torch", "transformers", "sentence-transformers")

Settings = dict[str, Any]
Shard = tuple[int, int]
T = TypeVar("T")


class Chunks(ABC, Generic[T]):
    """The numbered chunks of one shard. A subclass reads and writes a chunk; this class checks digests.

    Parameters
    ----------
    files : StoreFiles
        The folder of the shard.
    settings : dict
        The shard's manifest.

    Attributes
    ----------
    content, command : str
        What such a store holds (``"embeddings"``), and the command that writes it.
    entries : mapping
        The required entries of the manifest with their types, for :func:`~haybale.manifest.check_kinds`.
    folder : str
        The subfolder with the files of the chunks.
    """

    content: ClassVar[str]
    command: ClassVar[str]
    entries: ClassVar[Mapping[str, Any]]
    folder: ClassVar[str]

    def __init__(self, files: StoreFiles, settings: Settings) -> None:
        self.files, self.settings = files, settings

    @classmethod
    def head(cls) -> Settings:
        """Return the format and version that every manifest of such a store contains."""
        return {"format": f"haybale {cls.content}", "version": 1}

    @staticmethod
    @abstractmethod
    def shared(settings: Settings) -> Settings:
        """Return the settings that must be equal in all shards of a store, by name."""

    @classmethod
    def read_manifest(cls, files: StoreFiles) -> Settings:
        """Return the settings of a finished store or shard.

        Raise :class:`StoreError` if it is not finished, and :class:`InputError` if the folder is not such a store.
        """
        if not files.exists(MANIFEST):
            if files.exists(BUILDING):
                raise StoreError(
                    f"{files}: this store is not finished; run the same {cls.command} command again to go on"
                )
            raise InputError(f"{files}: expected a store of {cls.content}, found no {MANIFEST}")
        return cls.read_settings(files, MANIFEST)

    @classmethod
    def read_settings(cls, files: StoreFiles, name: str) -> Settings:
        """Return the settings in a file; raise :class:`InputError` if they are not those of such a store."""
        settings, head = files.read_json(name), cls.head()
        if not isinstance(settings, dict) or any(settings.get(key) != value for key, value in head.items()):
            expected = f"the manifest of a store of {cls.content}, version {head['version']}"
            raise InputError(f"{files.at(name)}: expected {expected}, found another file")
        check_kinds(files.at(name), settings, {**cls.entries, "shard": _SHARD_KIND})
        return settings

    @classmethod
    def open(cls, path: str | Path) -> list[Self]:
        """Open every shard of a store, in order; a store without shards counts as one shard.

        Raise :class:`StoreError` if shards are missing or do not belong together.
        """
        top = StoreFiles(path)
        with reading(path):
            files = [top.within(name) for name in top.names() if name.startswith("shard-")] or [top]
            opened = sorted(((shard, cls.read_manifest(shard)) for shard in files), key=lambda pair: pair[1]["shard"])
        shards, n = [settings["shard"] for _, settings in opened], len(opened)
        if shards != [[i, n] for i in range(1, n + 1)]:
            raise StoreError(f"{top}: expected every shard [i, n], with i from 1 to n, found {shards}")
        first = cls.shared(opened[0][1])
        for i, (_, settings) in enumerate(opened[1:], 2):
            for name, value in cls.shared(settings).items():
                if value != first[name]:
                    raise StoreError(
                        f"{top}: shard {i} has {name} {value!r}, expected {first[name]!r} as in shard 1; write it again"
                    )
        return [cls(files, settings) for files, settings in opened]

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def name_of(self, number: int) -> str:
        """Return the name of a chunk's file in ``folder``."""

    @abstractmethod
    def load(self, number: int) -> tuple[T, bytes]:
        """Return a chunk and the bytes that its digest covers; raise ValueError, RuntimeError or OSError if damaged."""

    @abstractmethod
    def save(self, number: int, chunk: T) -> bytes:
        """Write a chunk and return the bytes that its digest covers."""

    @abstractmethod
    def signature(self) -> bytes:
        """Return the settings that digests cover."""

    def read(self, number: int) -> T:
        """Return a chunk; raise :class:`StoreError` if it is missing or damaged, or its digest differs."""
        cause: Exception | None = None
        try:
            chunk, stored = self.load(number)
            if self.files.read(f"{DIGESTS}/{number}") == self._digest(number, stored):
                return chunk
        except (ValueError, RuntimeError, OSError) as error:
            cause = error
        file = self.files.at(f"{self.folder}/{self.name_of(number)}")
        raise StoreError(
            f"{file}: chunk {number} of {len(self)} is damaged ({cause or 'its digest differs'}); run the "
            f"{self.command} command again, which computes only missing and damaged chunks"
        ) from cause

    def write(self, number: int, chunk: T) -> None:
        """Write a chunk, then its digest, without which the chunk does not count as written."""
        self.files.write(f"{DIGESTS}/{number}", self._digest(number, self.save(number, chunk)))

    def fill(
        self, sizes: Sequence[int], make: Callable[[int], T], report: Callable[[int, int, float], Any], description: str
    ) -> Any:
        """Compute and write every chunk that is missing or damaged, and return the report.

        Parameters
        ----------
        sizes : sequence of int
            The number of items (passages, pairs) in each chunk.
        make : callable
            Takes the number of a chunk and returns the chunk.
        report : callable
            Takes the number of items computed, the number of items that were stored before, and the seconds. Returns a
            report with an attribute ``rates``, the throughput in words.
        description : str
            Describes the work beside the progress bar.
        """
        wanted, made = self.missing(), 0
        kept, start = sum(sizes) - sum(sizes[number] for number in wanted), time.perf_counter()

        def current_report() -> Any:
            return report(made, kept, time.perf_counter() - start)

        for number in track(wanted, description, status=lambda: str(current_report().rates)):
            self.write(number, make(number))
            made += sizes[number]
        return current_report()

    def make_folders(self) -> None:
        """Make the folders of chunks and digests; remove partial files that killed writers left in them."""
        for folder in (self.folder, DIGESTS):
            if self.files.is_file(folder):  # a damaged store has a file instead of the folder
                self.files.remove(folder)
            if folder != DIGESTS or self.signature() is not None:
                self.files.fs.makedirs(self.files.at(folder), exist_ok=True)
            for name in self.files.names(folder):
                if name.endswith(".partial"):
                    self.files.remove(f"{folder}/{name}")

    def missing(self) -> list[int]:
        """Return the numbers of missing or damaged chunks."""
        self.make_folders()
        present = set(self.files.names(self.folder))
        return [n for n in track(range(len(self)), "checking") if self.name_of(n) not in present or self._damaged(n)]

    def _damaged(self, number: int) -> bool:
        try:
            self.read(number)
        except StoreError:
            return True
        return False

    def _digest(self, number: int, stored: bytes) -> bytes:
        return hashlib.sha256(b"%b %d " % (self.signature(), number) + stored).hexdigest().encode()


class StoreWriter:
    """One shard of a store while it is being written.

    Attributes
    ----------
    files : StoreFiles
        The folder of the shard.
    shard : (int, int)
        The shard's number, counted from 1, and the number of shards.
    begun : dict or None
        The settings of the call that began the store; None for a new store.
    """

    def __init__(self, kind: type[Chunks[Any]], files: StoreFiles, shard: Shard) -> None:
        self.kind, self.files, self.shard = kind, files, shard
        self.begun: Settings | None = None
        if files.exists(MANIFEST):
            self.begun = kind.read_manifest(files)
        elif files.exists(BUILDING):
            self.begun = kind.read_settings(files, BUILDING)
        self.settings: Settings = {}

    def begin(self, settings: Settings) -> Settings:
        """Record the settings of a new store; raise :class:`StoreError` if it was begun with other settings."""
        manifest = self.kind.head() | settings | {"shard": self.shard, "versions": library_versions()}
        self.settings = as_json(manifest)
        if self.begun is None:
            self.files.write_json(BUILDING, self.settings)
        else:
            check_same(self.files, self.begun, self.settings)
        return self.settings


@contextmanager
def store_writer(
    kind: type[Chunks[Any]], out: str | Path, shard: Shard | None, more_files: tuple[str, ...] = ()
) -> Iterator[StoreWriter]:
    """Open a store, or one shard of it, for writing; it is finished if the block ends without an error.

    ``more_files`` are the names of files that a store may hold before its settings are recorded.
    """
    files = StoreFiles(out)
    if shard is not None:
        if len(shard) != 2:
            raise InputError(f"shard must be two numbers, i and n, found {shard!r}")
        if files.exists(MANIFEST) or files.exists(BUILDING):
            raise OutputExistsError(f"{files} already holds a store without shards; give a new folder")
        files = files.within(shard_name(*shard))
    if not any(files.exists(name) for name in (MANIFEST, BUILDING, *more_files)):
        taken = [name for name in files.names() if not name.startswith(".") and not name.endswith(".partial")]
        if taken:
            raise OutputExistsError(f"{files} already holds other files ({taken[0]}); give a new folder")
    try:
        with writer_lock(files):
            writer = StoreWriter(kind, files, shard or (1, 1))
            yield writer
            if not files.exists(MANIFEST):
                files.write_json(MANIFEST, writer.settings)
            files.remove(BUILDING)
    except OSError as error:
        if isinstance(error, StoreError | OutputExistsError) or error.errno is None:
            raise
        raise StoreError(
            f"{files}: the store is not finished ({error.strerror}); run it again, which keeps what is written"
        ) from error


def shard_name(i: int, n: int) -> str:
    """Return the folder name of shard ``i`` of ``n``; ``i`` counts from 1."""
    check_parameters("shard", {"i": i, "n": n}, {"i": COUNT, "n": COUNT})
    if i > n:
        raise InputError(f"shard must be i/n with i from 1 to n, found {i}/{n}")
    return f"shard-{i}-of-{n}"


def check_same(folder: StoreFiles | Path, begun: Any, now: Any, where: str = "") -> None:
    """Raise :class:`StoreError`, which names the first difference, if settings or library versions differ.

    The name of the input may differ, because its texts are compared.
    """
    if isinstance(begun, dict) and isinstance(now, dict):
        for key in sorted({*begun, *now} - ({"name"} if where == "input" else set())):
            check_same(folder, begun.get(key), now.get(key), f"{where} {key}".strip())
    elif begun != now:
        raise StoreError(
            f"{folder}: it was begun with {where} {begun!r}, now it is {now!r}; "
            "use the same as before, or give a new folder"
        )


def library_versions() -> dict[str, str]:
    """Return the versions of the installed libraries that may affect the stored numbers."""
    return {"python": platform.python_version()} | versions_of(_LIBRARIES)


def to_stored(values: Any, dtype: str, what: str) -> Any:
    """Convert float32 values to the type on disk; raise :class:`InputError` for values that float16 cannot hold."""
    if dtype == "float16" and np.abs(values).max(initial=0) > np.finfo(np.float16).max:
        raise InputError(f"{what} have values beyond float16, at most 65504; store them as float32")
    return values.astype(dtype, copy=False)
