"""Interactions on disk: made chunk by chunk, through any number of interruptions, and read back.

manifest.json        what the interactions are; written last, so a store that has one is whole
building.json        the same while it is being written
blocks.parquet       the blocks: query, candidate, rank and score in the run, rows, a digest of their texts
padding.safetensors  what a missing pair would be
chunks/0 …           safetensors: max-pooled rows, their paragraphs, the passages that won; whole blocks
digests/0 …          SHA-256 of the store's settings, a chunk's number and its bytes
shard-1-of-2/ …      or, in place of all that, one such folder a machine
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError
from safetensors.numpy import load, save

from haybale.collections import Queries
from haybale.embeddings.store import BUILDING, DIGESTS, MANIFEST, StoreFiles, as_json, finished_manifest
from haybale.embeddings.writing import (
    check_ours,
    check_same,
    goes_on,
    shard_of,
    versions_here,
    writer_lock,
)
from haybale.engine import Engine
from haybale.errors import InputError, StoreError
from haybale.pairs.interactions import Interactions, Reading
from haybale.pairs.pair_encoders import PairEncoder
from haybale.parameters import COUNT, Constraints, check_parameters, one_of
from haybale.progress import track
from haybale.retrieval import Run
from haybale.vectors import STORED

FORMAT, VERSION = "haybale interactions", 1
BLOCKS, PADDING, CHUNKS = "blocks.parquet", "padding.safetensors", "chunks"
_KINDS = {"settings": dict, "blocks": str, "dtype": str, "chunks": range(1, 2**40), "shard": [range(1, 2**20)]}
_RANGES: dict[str, Constraints] = {"dtype": one_of(STORED), "pairs_per_chunk": COUNT, "shard": [tuple, list, None]}
_LARGEST = float(np.finfo(np.float16).max)


@dataclass(frozen=True)
class Interacted:
    """What one call did: ``pairs`` read in ``seconds``; ``kept`` pairs were there before, of ``blocks`` in all."""

    store: str
    blocks: int
    pairs: int
    kept: int
    seconds: float

    @property
    def rates(self) -> str:
        """Throughput in words.

        >>> Interacted("s", 3, 300, 0, 2.0).rates
        '150 pairs/s'
        """
        return f"{self.pairs / max(self.seconds, 1e-9):,.0f} pairs/s" if self.pairs else ""


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
    shard: tuple[int, int] | None = None,
) -> Interacted:
    """Read the paragraphs of queries with those of their candidates into a store; the same call again goes on.

    A chunk is made of its own pairs alone, so a store that was interrupted is the one that was not, byte for byte, on
    the same machine with the same number of threads.

    Parameters
    ----------
    engine, queries, run, pairs, k, n, m, select : optional but for the first four
        As of :class:`Reading`.
    out : str or Path
        A local folder or an fsspec address.
    dtype : {"float16", "float32"}, default "float16"
        Of the rows on disk; what float16 does not hold is refused.
    pairs_per_chunk : int, default 4096
        Whole blocks of about so many pairs are a chunk, and a chunk is what an interruption costs.
    shard : (int, int), optional
        ``(i, n)``, i from 1: every n-th chunk, into ``out/shard-i-of-n``, for one of n machines.

    Raises
    ------
    StoreError
        For a second writer, other settings, library versions, run or texts than the store was begun with, a full disk.
    OutputExistsError
        For a folder that holds something else.
    InputError
        As of :class:`Reading`; NaN, or values beyond float16.
    """
    check_parameters("interact", {"dtype": dtype, "pairs_per_chunk": pairs_per_chunk, "shard": shard}, _RANGES)
    files, (part, parts) = shard_of(out, shard)
    check_ours(files, (MANIFEST, BUILDING))
    reading = Reading(engine, queries, run, pairs, k=k, n=n, m=m, select=select)
    with goes_on(files), writer_lock(files):
        chunks = reading.chunks(pairs_per_chunk)
        mine = chunks[part - 1 :: parts]
        if not mine:
            raise InputError(f"{files}: {len(chunks)} chunks leave nothing for shard {part} of {parts}")
        settings = as_json(
            {
                "format": FORMAT,
                "version": VERSION,
                "settings": reading.settings,
                "blocks": _blocks_digest(reading.blocks),
                "dtype": dtype,
                "chunks": len(mine),
                "pairs_per_chunk": pairs_per_chunk,
                "shard": (part, parts),
                "versions": versions_here(),
            }
        )
        if files.exists(MANIFEST) or files.exists(BUILDING):
            check_same(files, files.read_json(MANIFEST if files.exists(MANIFEST) else BUILDING), settings)
        else:
            files.write_json(BUILDING, settings)
        _write_rest(files, reading, np.concatenate(mine), mine)
        done = _fill(files, reading, mine, settings)
        if not files.exists(MANIFEST):
            files.write_json(MANIFEST, settings)
        files.remove(BUILDING)
        return done


def _blocks_digest(blocks: pd.DataFrame) -> str:
    """Of the run and of all texts, whichever shard has them."""
    columns = blocks[["query_id", "doc_id", "score", "texts"]].itertuples(index=False)
    return hashlib.sha256(json.dumps([list(each) for each in columns]).encode()).hexdigest()


def _write_rest(files: StoreFiles, reading: Reading, numbers: Any, chunks: list[Any]) -> None:
    """What is there beside the chunks, where it is not yet: blocks of this shard with their chunks, and the padding."""
    if not files.exists(BLOCKS):
        blocks = reading.blocks.iloc[numbers].reset_index(drop=True)
        blocks["chunk"] = np.repeat(np.arange(len(chunks)), [len(chunk) for chunk in chunks])
        with files.whole(BLOCKS) as file:
            pq.write_table(pa.Table.from_pandas(blocks, preserve_index=False), file, compression="lz4")
    if not files.exists(PADDING):
        with files.whole(PADDING) as file:
            file.write(save({"padding": reading.padding}))


def _fill(files: StoreFiles, reading: Reading, chunks: list[Any], settings: dict[str, Any]) -> Interacted:
    """Make every chunk that is not there or is damaged."""
    for folder in (CHUNKS, DIGESTS):
        files.fs.makedirs(files.at(folder), exist_ok=True)
        for partial in (each for each in files.names(folder) if each.endswith(".partial")):  # of a killed writer
            files.remove(f"{folder}/{partial}")
    sizes = [int(reading.n_pairs[chunk].sum()) for chunk in chunks]
    there, wanted = set(files.names(DIGESTS)), []
    for number in track(range(len(chunks)), "checking"):
        try:
            if str(number) not in there:
                raise StoreError("missing")
            _read(files, settings, number)
        except StoreError:
            wanted.append(number)
    made, kept, start = 0, sum(sizes) - sum(sizes[number] for number in wanted), time.perf_counter()

    def done() -> Interacted:
        blocks = sum(map(len, chunks))
        return Interacted(str(files), blocks, made, kept, time.perf_counter() - start)

    for number in track(wanted, "reading pairs", status=lambda: done().rates):
        found = reading.read(chunks[number])
        values = found.values
        if settings["dtype"] == "float16" and np.abs(values).max(initial=0) > _LARGEST:
            raise InputError("the interactions have values beyond float16; store them as float32")
        parts = {"values": values.astype(settings["dtype"]), "paragraphs": found.paragraphs, "passages": found.passages}
        content = save(parts)
        for folder, what in ((CHUNKS, content), (DIGESTS, _digest(settings, number, content))):
            with files.whole(f"{folder}/{number}") as file:
                file.write(what)
        made += sizes[number]
    return done()


def _digest(settings: dict[str, Any], number: int, content: bytes) -> bytes:
    head = json.dumps(settings, sort_keys=True).encode() + b" %d " % number
    return hashlib.sha256(head + content).hexdigest().encode()


def _read(files: StoreFiles, settings: dict[str, Any], number: int) -> dict[str, Any]:
    """The tensors of one chunk; one that is lost, changed, or another store's raises."""
    name = f"{CHUNKS}/{number}"
    try:
        content = files.fs.cat_file(files.at(name))
        if files.fs.cat_file(files.at(f"{DIGESTS}/{number}")) != _digest(settings, number, content):
            raise ValueError("its content is not what was written here")
        return dict(load(content))
    except (OSError, ValueError, SafetensorError) as error:
        raise StoreError(
            f"{files.at(name)}: chunk {number} of {settings['chunks']} is damaged ({error}); run the same command "
            "again to make it anew: nothing else will be"
        ) from error


class InteractionStore:
    """The interactions that :func:`interact` wrote.

    Parameters
    ----------
    path : str or Path
        A local folder or fsspec address: a store, or the folder of all its shards.

    Attributes
    ----------
    blocks : frame
        As of :class:`Interactions`, in the order of the run, with the ``chunk`` and ``shard`` of each.
    settings : dict
        Of the pair encoder and of what is read.

    Raises
    ------
    StoreError
        For a store that is not finished, shards that do not belong together, a damaged chunk (when it is read).
    """

    def __init__(self, path: str | Path) -> None:
        self.path, top = str(path), StoreFiles(path)
        files = [top.within(name) for name in top.names() if name.startswith("shard-")] or [top]
        found = sorted(((_manifest(each), each) for each in files), key=lambda pair: pair[0]["shard"])
        self._manifests, self._files = [manifest for manifest, _ in found], [each for _, each in found]
        first, n = self._manifests[0], len(found)
        if [manifest["shard"] for manifest in self._manifests] != [[i, n] for i in range(1, n + 1)]:
            raise StoreError(f"{path}: expected {first['shard'][1]} shards, found {n}")
        for manifest in self._manifests[1:]:
            for key in ("settings", "blocks", "dtype"):
                if manifest[key] != first[key]:
                    raise StoreError(f"{path}: shards 1 and {manifest['shard'][0]} do not belong together: other {key}")
        self.settings: dict[str, Any] = first["settings"]
        self.padding = load(self._files[0].fs.cat_file(self._files[0].at(PADDING)))["padding"]
        parts = []
        for shard, each in enumerate(self._files):
            with each.fs.open(each.at(BLOCKS), "rb") as file:
                part = pq.read_table(file).to_pandas()
            parts.append(part.assign(shard=shard, turn=part["chunk"] * n + shard))
        self.blocks = pd.concat(parts).sort_values("turn", kind="stable").drop(columns="turn").reset_index(drop=True)
        if _blocks_digest(self.blocks) != first["blocks"]:
            raise StoreError(f"{path}: {BLOCKS} is damaged; remove it and run the same command again")

    def __len__(self) -> int:
        return len(self.blocks)

    def __repr__(self) -> str:
        rows = int(self.blocks["rows"].sum())
        return f"InteractionStore {self.path!r}: {len(self):,} blocks, {rows:,} × {len(self.padding)}"

    def read(self, numbers: Any = None) -> Interactions:
        """Some blocks by number, or all, in this order; only the chunks that hold them are read."""
        wanted = np.arange(len(self)) if numbers is None else np.asarray(numbers, dtype=np.int64)
        of_chunk = self.blocks.iloc[wanted].groupby(["shard", "chunk"], sort=True).indices
        place = self.blocks.groupby(["shard", "chunk"]).cumcount().to_numpy()  # of each block in its chunk
        parts = [
            self._chunk(int(shard), int(chunk)).take(place[wanted[at]])
            for (shard, chunk), at in track(of_chunk.items(), "reading interactions")
        ]
        return Interactions.joined(parts).take(np.argsort(np.concatenate([*of_chunk.values()]), kind="stable"))

    def _chunk(self, shard: int, chunk: int) -> Interactions:
        tensors = _read(self._files[shard], self._manifests[shard], chunk)
        blocks = self.blocks[(self.blocks["shard"] == shard) & (self.blocks["chunk"] == chunk)]
        plain = blocks.drop(columns=["shard", "chunk"]).reset_index(drop=True)
        return Interactions(plain, **tensors, padding=self.padding, settings=self.settings)


def _manifest(files: StoreFiles) -> dict[str, Any]:
    """The manifest of a finished store (or shard), checked for kind and version."""
    unfinished = "these interactions are not finished; run the same command again to go on"
    return finished_manifest(files, "interactions", unfinished, (FORMAT, VERSION), _KINDS)
