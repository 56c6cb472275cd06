"""A resumable store of interactions.

manifest.json, building.json, digests/, shard-1-of-2/ …    as in every :mod:`~haybale.embeddings.resumable_store`;
                     here ``digests`` also has the SHA-256 of the first two files below
blocks.parquet       ``Interactions.blocks``, with the chunk of each block
padding.safetensors  the vector of a missing pair
chunks/0 …           safetensors: ``values``, ``paragraphs`` and ``passages`` of whole blocks
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError
from safetensors.numpy import load, save

from haybale.collections import Queries
from haybale.embeddings.resumable_store import DIGESTS, Chunks, Settings, Shard, store_writer, to_stored
from haybale.engine import Engine
from haybale.errors import InputError, StoreError
from haybale.pairs.interactions import Interactions, Reading
from haybale.pairs.pair_encoders import PairEncoder
from haybale.parameters import COUNT, Constraints, check_parameters, one_of
from haybale.progress import track
from haybale.retrieval import Run
from haybale.vectors import STORED, Floats

BLOCKS, PADDING = "blocks.parquet", "padding.safetensors"
_COLUMNS = ("query_id", "doc_id", "rank", "score", "level", "rows", "passages", "cut", "texts", "chunk")
T = TypeVar("T")
_RANGES: dict[str, Constraints] = {"dtype": one_of(STORED), "pairs_per_chunk": COUNT, "shard": [tuple, list, None]}


@dataclass(frozen=True)
class Interacted:
    """Result of :func:`interact`: it encoded ``pairs`` in ``seconds``; ``kept`` pairs were in the store before."""

    store: str
    blocks: int
    pairs: int
    kept: int
    seconds: float

    @property
    def rates(self) -> str:
        """The throughput as text.

        >>> Interacted("s", 3, 300, 0, 2.0).rates
        '150 pairs/s'
        """
        return f"{self.pairs / max(self.seconds, 1e-9):,.0f} pairs/s" if self.pairs else ""


class InteractionChunks(Chunks[bytes]):
    """The chunks of a shard, each a safetensors file."""

    content, command, folder = "interactions", "interactions", "chunks"
    entries: ClassVar = {"settings": dict, "blocks": str, "dtype": str, "chunks": range(1, 2**40)}

    @staticmethod
    def shared(settings: Settings) -> Settings:
        return {name: settings[name] for name in ("settings", "blocks", "dtype")}

    def __len__(self) -> int:
        return int(self.settings["chunks"])

    def name_of(self, number: int) -> str:
        return str(number)

    def load(self, number: int) -> tuple[bytes, bytes]:
        content = self.files.read(f"{self.folder}/{number}")
        return content, content

    def save(self, number: int, chunk: bytes) -> bytes:
        self.files.write(f"{self.folder}/{number}", chunk)
        return chunk

    def save_file(self, name: str, content: bytes) -> None:
        """Write a file that is not a chunk, then its SHA-256, without which it does not count as written."""
        self.files.write(name, content)
        self.files.write(f"{DIGESTS}/{name}", _sha256(content))

    def is_saved(self, name: str) -> bool:
        """Return whether :meth:`save_file` wrote a file, and it is not damaged."""
        try:
            return self.files.read(f"{DIGESTS}/{name}") == _sha256(self.files.read(name))
        except OSError:
            return False

    def load_file(self, name: str, parse: Callable[[bytes], T]) -> T:
        """Return the parsed content of a file; raise :class:`StoreError` if it is missing or damaged."""
        cause: Exception | None = None
        try:
            content = self.files.read(name)
            if self.files.read(f"{DIGESTS}/{name}") == _sha256(content):
                return parse(content)
        except (OSError, ValueError, KeyError, SafetensorError, pa.ArrowException) as error:
            cause = error
        raise StoreError(
            f"{self.files.at(name)}: this file is missing or damaged ({cause or 'its checksum differs'}); run the "
            "interactions command again, which keeps what is written"
        ) from cause

    def signature(self) -> bytes:
        return json.dumps(self.settings, sort_keys=True).encode()


def interact(
    engine: Engine,
    queries: Queries,
    run: Run,
    pairs: PairEncoder,
    out: str | Path,
    *,
    k: int = 50,
    n: int | None = None,
    m: int | None = None,
    select: str = "first",
    dtype: str = "float16",
    pairs_per_chunk: int = 4096,
    shard: Shard | None = None,
) -> Interacted:
    """Encode the pairs of a :class:`Reading` into a store. After an interruption, the same call resumes.

    A resumed store has the same bytes as one that was never interrupted, as with :func:`~haybale.embed`.

    Parameters
    ----------
    engine, queries, run, pairs, k, n, m, select : as for :class:`Reading`
    out : str or Path
        A local folder or an fsspec address.
    dtype : {"float16", "float32"}, default "float16"
        Type of the values on disk.
    pairs_per_chunk : int, default 4096
        Approximate pairs of a chunk, which holds whole blocks. An interruption costs at most one chunk.
    shard : (int, int), optional
        ``(i, n)``, i from 1, writes every n-th chunk to ``out/shard-i-of-n``, for one of n machines.

    Raises
    ------
    StoreError
        Another process writes the store, or it was begun with other settings, library versions or input.
    OutputExistsError
        The folder holds something else.
    InputError
        As for :class:`Reading`; or a value is NaN or beyond the range of float16.
    """
    check_parameters("interact", {"dtype": dtype, "pairs_per_chunk": pairs_per_chunk, "shard": shard}, _RANGES)
    with store_writer(InteractionChunks, out, shard) as writer:
        files, (part, parts) = writer.files, writer.shard
        reading = Reading(engine, queries, run, pairs, k=k, n=n, m=m, select=select)
        chunks = reading.chunks(pairs_per_chunk)
        mine = chunks[part - 1 :: parts]
        if not mine:
            raise InputError(
                f"{files}: shard {part} of {parts} must be at most the number of chunks, found {len(chunks)}"
            )
        read_settings = {"settings": reading.settings, "blocks": _blocks_digest(reading.blocks), "dtype": dtype}
        settings = writer.begin(read_settings | {"chunks": len(mine), "pairs_per_chunk": pairs_per_chunk})
        store = InteractionChunks(files, settings)
        store.make_folders()
        if not store.is_saved(BLOCKS):
            blocks = reading.blocks.iloc[np.concatenate(mine)].reset_index(drop=True)
            blocks["chunk"] = np.repeat(np.arange(len(mine)), [len(chunk) for chunk in mine])
            file = pa.BufferOutputStream()
            pq.write_table(pa.Table.from_pandas(blocks, preserve_index=False), file, compression="lz4")
            store.save_file(BLOCKS, file.getvalue().to_pybytes())
        if not store.is_saved(PADDING):
            store.save_file(PADDING, save({"padding": reading.padding}))

        def content(number: int) -> bytes:
            encoded = reading.read(mine[number])
            values = to_stored(encoded.values, dtype, "the interactions")
            return bytes(save({"values": values, "paragraphs": encoded.paragraphs, "passages": encoded.passages}))

        def report(made: int, kept: int, seconds: float) -> Interacted:
            return Interacted(str(files), sum(map(len, mine)), made, kept, seconds)

        sizes = [int(reading.n_pairs[chunk].sum()) for chunk in mine]
        done: Interacted = store.fill(sizes, content, report, "reading pairs")
    return done


def _blocks_digest(blocks: pd.DataFrame) -> str:
    """Return a digest of the whole run and all its texts, the same in every shard."""
    rows = blocks[["query_id", "doc_id", "score", "texts"]].itertuples(index=False)
    return hashlib.sha256(json.dumps([list(row) for row in rows]).encode()).hexdigest()


def _parsed_blocks(content: bytes) -> pd.DataFrame:
    return pq.read_table(pa.BufferReader(content)).to_pandas()[list(_COLUMNS)]  # type: ignore[no-any-return]


def _sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


class InteractionStore:
    """The interactions that :func:`interact` wrote.

    Parameters
    ----------
    path : str or Path
        A local folder or an fsspec address of a store, with all of its shards.

    Attributes
    ----------
    blocks : frame
        As in :class:`Interactions`, in the order of the run, with the ``chunk`` and ``shard`` of each block.
    settings : dict
        Settings of the pair encoder and the reading.
    padding : (d,) float32
        The vector of a missing pair.

    Raises
    ------
    InputError
        The folder is not a store of interactions.
    StoreError
        The store is not finished, its shards have different settings, or it is damaged. Chunks are verified when they
        are read.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self._shards = InteractionChunks.open(path)
        first = self._shards[0]
        self.settings: Settings = first.settings["settings"]
        self.padding: Floats = first.load_file(PADDING, lambda content: load(content)["padding"])
        tables = (shard.load_file(BLOCKS, _parsed_blocks) for shard in self._shards)
        parts = [blocks.assign(shard=shard) for shard, blocks in enumerate(tables)]
        blocks = pd.concat(parts).assign(turn=lambda table: table["chunk"] * len(parts) + table["shard"])
        self.blocks = blocks.sort_values("turn", kind="stable").drop(columns="turn").reset_index(drop=True)
        if _blocks_digest(self.blocks) != first.settings["blocks"]:
            raise StoreError(f"{path}: {BLOCKS} does not match its checksum; remove it and run the command again")

    def __len__(self) -> int:
        return len(self.blocks)

    def __repr__(self) -> str:
        rows = int(self.blocks["rows"].sum())
        return f"InteractionStore {self.path!r}: {len(self):,} blocks, {rows:,} × {len(self.padding)}"

    def read(self, numbers: Any = None) -> Interactions:
        """Return the blocks with these numbers, in this order, or all; reads only the chunks that hold them."""
        wanted = np.arange(len(self)) if numbers is None else np.asarray(numbers, dtype=np.int64)
        by_chunk: dict[Any, Any] = self.blocks.iloc[wanted].groupby(["shard", "chunk"], sort=True).indices
        number_in_chunk = self.blocks.groupby(["shard", "chunk"]).cumcount().to_numpy()
        parts = [
            self._chunk(int(shard), int(chunk)).take(number_in_chunk[wanted[at]])
            for (shard, chunk), at in track(by_chunk.items(), "reading interactions")
        ]
        return Interactions.joined(parts).take(np.argsort(np.concatenate([*by_chunk.values()]), kind="stable"))

    def _chunk(self, shard: int, chunk: int) -> Interactions:
        tensors = load(self._shards[shard].read(chunk))
        blocks = self.blocks[(self.blocks["shard"] == shard) & (self.blocks["chunk"] == chunk)]
        plain = blocks.drop(columns=["shard", "chunk"]).reset_index(drop=True)
        return Interactions(plain, **tensors, padding=self.padding, settings=self.settings)
