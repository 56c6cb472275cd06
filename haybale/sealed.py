"""Folders of what is saved: a manifest in JSON with the SHA-256 of every other file, tensors, and tables in Parquet.

What is read is what was written, or an error names the file that is not. Nothing in it could be executed. The same
content gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from haybale.errors import FileFormatError
from haybale.folders import write_json
from haybale.machine import cpus

MANIFEST = "manifest.json"
Tensors = dict[str, NDArray[Any]]

_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
_NAMES = {kind: name for name, kind in _TYPES.items()}
_LONGEST_HEADER = 100_000_000  # bytes, as the safetensors library has it
_ALIGNED = 64  # bytes: the first tensor begins at a multiple, every other at one of its item's size
_ROWS = 2**17  # of a table, that are compressed and written at once


def seal(folder: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest, with the version that wrote it and the digests of all files that are in the folder.

    Of a folder in it, which must be sealed itself, the manifest stands for all.
    """
    paths = [path / MANIFEST if path.is_dir() else path for path in sorted(folder.iterdir())]
    files = {path.relative_to(folder).as_posix(): digest(path) for path in paths}
    write_json(folder / MANIFEST, signed({**manifest, "haybale": version("haybale"), "files": files}))


def read_manifest(folder: Path, what: str, expected: dict[str, Any]) -> dict[str, Any]:
    """The manifest of a saved ``what``, whose entries must have the ``expected`` values: format, version, kind."""
    path = folder / MANIFEST
    if not path.is_file():
        raise FileFormatError(path, None, f"not found: {folder} is no saved {what}")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FileFormatError(path, None, f"expected JSON: {error}") from None
    for name, value in expected.items():
        found = manifest.get(name) if isinstance(manifest, dict) else None
        if found != value:
            raise FileFormatError(path, None, f"expected {name} {value!r}, found {found!r}")
    return check_signed(path, manifest) if "sha256" in manifest else dict(manifest)  # 0.1 did not sign


def check_files(folder: Path, manifest: dict[str, Any], names: Iterable[str], *, verify: bool = True) -> None:
    """The manifest must list just these files, and each must be what was written.

    Without ``verify`` they must only be there: their digests, for which all of every file is read, are not computed.
    """
    files, names = manifest.get("files"), sorted(names)
    if not isinstance(files, dict) or sorted(files) != names:
        raise FileFormatError(folder / MANIFEST, None, f"expected 'files' {', '.join(names)}")
    for name in names:
        if not (folder / name).is_file():
            raise FileFormatError(folder / name, None, "not found, the manifest lists it")
    if verify:
        with ThreadPoolExecutor(cpus()) as threads:
            found = list(threads.map(digest, [folder / name for name in names]))
        for name, value in zip(names, found, strict=True):
            if value != files[name]:
                raise FileFormatError(folder / name, None, "its content is not what was saved: the SHA-256 differs")


def read_tensors(path: Path) -> Tensors:
    """The tensors of a safetensors file."""
    try:
        return dict(load_file(path))
    except SafetensorError as error:
        raise FileFormatError(path, None, f"expected safetensors: {error}") from None


def write_tensors(path: Path, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Write a safetensors file, the same bytes for the same tensors, without a copy of any in memory.

    The widest types come first, among them they go by name.
    """
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    entries, end = {}, 0
    for name in order:
        start, end = end, end + tensors[name].nbytes
        kind = _NAMES[tensors[name].dtype.newbyteorder("<").str]
        entries[name] = {"dtype": kind, "shape": list(tensors[name].shape), "data_offsets": [start, end]}
    header = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-(8 + len(header)) % _ALIGNED)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for name in order:
            tensor = tensors[name]
            tensor.astype(tensor.dtype.newbyteorder("<"), order="C", copy=False).tofile(file)


def mapped_tensors(path: Path) -> Tensors:
    """The tensors of a safetensors file where they lie: arrays that cannot be written to, read as they are used.

    Parameters
    ----------
    path
        The file: 8 bytes with the length of a JSON header, little-endian, the header, the tensors.

    Returns
    -------
    dict
        Arrays by name, of the types and shapes in the header, all in one memory map of the file.

    Raises
    ------
    FileFormatError
        For a file whose header is not of that form, or names bytes that are not there, overlap or are left over.
        Values are not looked at.
    """
    start, size, header = _header(path)
    entries = {name: _entry(path, name, entry) for name, entry in header.items()}
    end = 0
    for first, last, _, _ in sorted(entries.values(), key=lambda entry: entry[:2]):
        if first != end:
            _refuse(path, f"tensors must follow one another, found one at byte {first} after byte {end}")
        end = last
    if end != size - start:
        _refuse(path, f"the tensors end at byte {end} of {size - start}")
    content = np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))[start:]
    return {name: content[first:last].view(kind).reshape(shape) for name, (first, last, kind, shape) in entries.items()}


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table as Parquet, the same bytes however its columns lie in memory."""
    with pq.ParquetWriter(path, table.schema, compression="lz4", use_dictionary=False) as writer:
        for start in range(0, len(table), _ROWS):
            writer.write_table(table.slice(start, _ROWS).combine_chunks(), row_group_size=_ROWS)


def read_table(path: Path, schema: pa.Schema) -> pa.Table:
    """A table of Parquet, which must have just these columns, without missing values."""
    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            table = file.read(use_threads=False)  # a column is most of a file: others would wait for it
    except (pa.ArrowException, OSError) as error:
        raise FileFormatError(path, None, f"expected Parquet: {error}") from None
    if not table.schema.equals(schema):
        columns = ", ".join(f"{field.name} ({field.type})" for field in schema)
        raise FileFormatError(path, None, f"expected columns {columns}")
    if any(column.null_count for column in table.columns):
        raise FileFormatError(path, None, "expected a value in every row and column")
    return table


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def signed(values: dict[str, Any]) -> dict[str, Any]:
    """Values for a JSON file that says itself, last, what its SHA-256 is: of the values, as JSON without spaces.

    >>> signed({"n": 1})
    {'n': 1, 'sha256': '2bfd14f43d17fc7cea24e0917a8879b4b2f880b8baeec1b9d90fbaad655e71bd'}
    """
    plain = {name: value for name, value in values.items() if name != "sha256"}
    text = json.dumps(plain, separators=(",", ":"))
    return plain | {"sha256": hashlib.sha256(text.encode()).hexdigest()}


def check_signed(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """The values of a file that were :func:`signed`, without the digest; others are refused."""
    if signed(values) != values:
        raise FileFormatError(path, None, "its content is not what was saved: the SHA-256 differs")
    return {name: value for name, value in values.items() if name != "sha256"}


# the header of safetensors ------------------------------------------------------------------------------------


def _header(path: Path) -> tuple[int, int, dict[str, Any]]:
    """``(first byte of the tensors, size of the file, entries by name)``."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, _LONGEST_HEADER):
                _refuse(path, f"a file of {size} bytes has no header of {length}")
            header = json.loads(file.read(length).decode(), object_pairs_hook=lambda pairs: _once(path, pairs))
    except FileFormatError:
        raise
    except OSError as error:
        _refuse(path, error.strerror or str(error))
    except (ValueError, RecursionError) as error:
        _refuse(path, f"the header is no JSON: {error}")
    if not isinstance(header, dict):
        _refuse(path, "the header is no JSON object")
    header.pop("__metadata__", None)
    return 8 + length, size, header


def _once(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        _refuse(path, "a name stands twice in the header")
    return found


def _entry(path: Path, name: str, entry: Any) -> tuple[int, int, str, tuple[int, ...]]:
    """``(first byte, byte after the last, type, shape)`` of a tensor."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        _refuse(path, f"tensor {name!r}: expected dtype, shape and data_offsets")
    shape, offsets = entry["shape"], entry["data_offsets"]
    for numbers in (shape, offsets):
        if not isinstance(numbers, list) or not all(type(number) is int and number >= 0 for number in numbers):
            _refuse(path, f"tensor {name!r}: expected whole numbers from 0 on, found {numbers!r}")
    kind = _TYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if kind is None:
        _refuse(path, f"tensor {name!r}: expected a type of {', '.join(_TYPES)}, found {entry['dtype']!r}")
    n_bytes = math.prod(shape) * np.dtype(kind).itemsize
    no_array = len(shape) > 32 or math.prod(max(1, side) for side in shape) >= 2**48
    if no_array or len(offsets) != 2 or offsets[1] - offsets[0] != n_bytes:
        _refuse(path, f"tensor {name!r}: {n_bytes} bytes of shape {shape} do not fit data_offsets {offsets}")
    return offsets[0], offsets[1], kind, tuple(shape)


def _refuse(path: Path, message: str) -> NoReturn:
    raise FileFormatError(path, None, f"expected safetensors: {message}")
