"""Large tab-separated files as Arrow columns, block by block, without a Python object a line.

The same lines as :func:`~haybale.collections.lines.read_tsv` reads, to the byte: only a newline ends one, blank ones
are skipped, nothing is quoted, the second column holds further tabs. That is why no CSV reader is used: pyarrow's ends
a line at a lone carriage return, and pyarrow's and cuDF's have another idea of further columns. With cuDF and a CUDA
device lines are found and cut there; else with NumPy. What a file has that they do not take, such as a line without a
tab, makes them raise :class:`Unfit`: the line reader is then asked, which names the line.
"""

from __future__ import annotations

import codecs
import gzip
import importlib
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from haybale.device import find_device

BLOCK = 2**22  # bytes cut at once: what the processor's caches hold
DEVICE_BLOCK = 2**28  # bytes, likewise, on a device
WORTH_A_DEVICE = 2**28  # bytes: to import cuDF takes seconds
Columns = tuple[pa.Array, pa.Array]  # ids and texts, (n,) large_string each


class Unfit(Exception):
    """The file is for the line reader."""


def find_cudf(size: int) -> ModuleType | None:
    """cuDF, if it is installed, a CUDA device answers, and ``size``, in bytes, is worth the import."""
    if size < WORTH_A_DEVICE or find_device("auto").is_cpu:
        return None
    try:
        return importlib.import_module("cudf")
    except ImportError:
        return None


def readers(path: Path) -> list[Callable[[], Iterator[Columns]]]:
    """The ways to read a file of two columns, to be tried in this order; each raises :class:`Unfit` where it cannot.

    Blocks that were read before it was raised are to be thrown away.
    """
    ways = [lambda: read_blocks(path)]
    cudf = None if path.suffix == ".gz" else find_cudf(path.stat().st_size)
    return ways if cudf is None else [lambda: read_with_cudf(path, cudf), *ways]


def read_blocks(path: Path) -> Iterator[Columns]:
    """The columns of each block of a file, plain or ``.gz``."""
    rest, first = b"", True
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            while data := file.read(BLOCK):
                end = data.rfind(b"\n") + 1
                if not end:
                    rest += data
                    continue
                yield _split(rest + data[:end], first)
                rest, first = data[end:], False
    except (EOFError, OSError, zlib.error) as error:  # cut off, damaged, gone
        raise Unfit from error
    if rest:
        yield _split(rest, first)


def _split(block: bytes, first: bool) -> Columns:
    """Whole lines at their first tabs; the first block may begin with a byte order mark."""
    block = block.removeprefix(codecs.BOM_UTF8) if first else block
    data = np.frombuffer(block, dtype=np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    if not block.endswith(b"\n"):
        ends = np.append(ends, len(block))
    starts = np.concatenate(([0], ends[:-1] + 1))
    tabs = np.append(np.flatnonzero(data == ord("\t")), len(block))
    tabs = tabs[np.searchsorted(tabs, starts)]
    cut = tabs < ends
    for line in np.flatnonzero(~cut):
        _skip(block[starts[line] : ends[line]])
    starts, tabs, ends = starts[cut], tabs[cut], ends[cut]
    while len(trailing := np.flatnonzero(data[ends - 1] == ord("\r"))):  # never beyond the tab
        ends[trailing] -= 1
    # As one array of strings: id, tab, text, line end, id, tab …
    offsets = np.stack([starts, tabs, tabs + 1, ends], axis=1).ravel()
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(block)]
    pieces = pa.Array.from_buffers(pa.large_string(), max(0, len(offsets) - 1), buffers)
    return _checked(*(pieces.take(pa.array(np.arange(part, len(offsets), 4))) for part in (0, 2)))


def read_with_cudf(path: Path, cudf: Any, block: int = DEVICE_BLOCK) -> Iterator[Columns]:
    """The columns of each block of a plain file, by cuDF: lines that begin in it."""
    size, seen = path.stat().st_size, 0
    for offset in range(0, size, block):
        try:
            there = (offset, min(block, size - offset))
            lines = cudf.read_text(str(path), delimiter="\n", byte_range=there, strip_delimiters=True)
            if not len(lines):
                continue
            seen += int(lines.str.byte_count().sum()) + len(lines)
            parts = lines.str.rstrip("\r").str.partition("\t")
            ids, tabs, texts = (parts[part].to_arrow().cast(pa.large_string()) for part in range(3))
        except Exception as error:  # memory, a driver, a kind of file: the next way does without cuDF
            raise Unfit from error
        if offset == 0 and ids[0].as_py().startswith("\ufeff"):
            ids = pa.concat_arrays([pa.array([ids[0].as_py()[1:]], type=pa.large_string()), ids[1:]])
        cut = pc.equal(tabs, "\t")
        for line in ids.filter(pc.invert(cut)):
            _skip(line.as_buffer().to_pybytes())
        yield _checked(ids.filter(cut), texts.filter(cut))
    if seen not in (size, size + 1):  # every byte belongs to a line or ends one, the last but perhaps
        raise Unfit


def _skip(line: bytes) -> None:
    """A line without a tab: a blank one is skipped."""
    try:
        blank = not line.decode().strip()
    except UnicodeDecodeError as error:
        raise Unfit from error
    if not blank:
        raise Unfit


def _checked(ids: pa.Array, texts: pa.Array) -> Columns:
    """The columns, known to be UTF-8, without lines that are blank but for their tabs."""
    try:
        ids.validate(full=True)
        texts.validate(full=True)
    except pa.ArrowInvalid as error:
        raise Unfit from error
    blank = is_blank(texts)
    if blank.any():
        rows = np.flatnonzero(blank)
        kept = np.ones(len(ids), dtype=np.bool_)
        kept[rows[is_blank(ids.take(pa.array(rows)))]] = False
        ids, texts = ids.filter(pa.array(kept)), texts.filter(pa.array(kept))
    return ids, texts


def is_blank(texts: pa.Array) -> np.ndarray:
    """(n,) whether each string is empty or of only whitespace, as Python sees it.

    >>> is_blank(pa.array(["a", " \\u00a0", ""], type=pa.large_string()))
    array([False,  True,  True])
    """
    blank: np.ndarray = np.logical_not(pc.match_substring_regex(texts, "[!-~]").to_numpy(zero_copy_only=False))
    for row in np.flatnonzero(blank):
        blank[row] = not texts[row].as_py().strip()
    return blank
