"""Saved folders: a JSON manifest with the SHA-256 of every other file, tensors in safetensors, tables in Parquet.

A changed file is an error that names it. Nothing in a folder can be executed. The same content gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file

from haybale.errors import FileFormatError
from haybale.folders import write_json
from haybale.parallel import cpus
from haybale.text_files import parsed_json, reading

MANIFEST = "manifest.json"
Tensors = dict[str, NDArray[Any]]

_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
_NAMES = {kind: name for name, kind in _TYPES.items()}
MANY = range(1, 2**40)  # how many there can be of anything
_ALIGNED = 64  # bytes: the first tensor begins at a multiple, every other at one of its item's size
_ROWS = 2**17  # of a table, that are compressed and written at once
_CHANGED = "its content is not what was saved: the SHA-256 differs"


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest, with the version that writes it and the digests of all files that are in the folder.

    Of a folder in it, which must have a manifest itself, that stands for all.
    """
    paths = [path / MANIFEST if path.is_dir() else path for path in sorted(folder.iterdir())]
    files = {path.relative_to(folder).as_posix(): digest(path) for path in paths}
    write_json(folder / MANIFEST, with_checksum({**manifest, "haybale": version("haybale"), "files": files}))


def read_manifest(
    folder: Path,
    what: str,
    expected: dict[str, Any],
    kinds: Mapping[str, Any] | None = None,
    *,
    name: str = MANIFEST,
    unsigned: bool = True,
) -> dict[str, Any]:
    """The manifest of a saved ``what``, whose entries must have the ``expected`` values: format, version, kind.

    ``kinds``: of further entries, for :func:`check_kinds`. ``unsigned``: one without a digest of itself is read too,
    as 0.1 wrote it.
    """
    path = folder / name
    with reading(path):
        if not path.is_file():
            raise FileFormatError(path, None, f"not found: {folder} is no saved {what}")
        manifest = parsed_json(path, path.read_bytes())
    for entry, value in expected.items():
        found = manifest.get(entry) if isinstance(manifest, dict) else None
        if found != value:
            raise FileFormatError(path, None, f"expected {entry} {value!r}, found {found!r}")
    manifest = dict(manifest) if unsigned and "sha256" not in manifest else verify_checksum(path, manifest)
    check_kinds(path, manifest, kinds or {})
    return manifest


def check_kinds(path: Path | str, values: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """Refuse a manifest of which an entry is not what was declared, before anything is made of it.

    A kind is a type, None, a range of whole numbers, ``[kind]`` for a list, ``{name: kind}`` for an object with at
    least these entries, or a tuple of kinds, one of which it is.
    """
    for name, kind in kinds.items():
        if not _is(values.get(name), kind):
            shown = f"{values[name]!r:.60}" if name in values else "nothing"
            raise FileFormatError(path, None, f"entry {name!r} is not what belongs there: {shown}")


def _is(value: Any, kind: Any) -> bool:
    """
    >>> _is({"n": [1, 2]}, {"n": [range(3)]}), _is(True, range(3)), _is("x", (str, None)), _is(None, {})
    (True, False, True, False)
    """
    match kind:
        case tuple():
            return any(_is(value, each) for each in kind)
        case list():
            return isinstance(value, list) and all(_is(each, kind[0]) for each in value)
        case dict():
            return isinstance(value, dict) and all(_is(value.get(name), each) for name, each in kind.items())
        case range():
            return type(value) is int and value in kind
    return value is None if kind is None else type(value) is kind


def check_files(folder: Path, manifest: dict[str, Any], names: Iterable[str]) -> None:
    """The manifest must list just these files, and each must be what was written."""
    files, names = manifest.get("files"), sorted(names)
    if not isinstance(files, dict) or sorted(files) != names:
        raise FileFormatError(folder / MANIFEST, None, f"expected 'files' {', '.join(names)}")
    for name in names:
        if not (folder / name).is_file():
            raise FileFormatError(folder / name, None, "not found, the manifest lists it")
    with ThreadPoolExecutor(cpus()) as threads:
        list(threads.map(lambda name: check_file(folder / name, files[name]), names))


def check_file(path: Path, expected: str) -> None:
    """A file must have the digest of what was written."""
    if digest(path) != expected:
        raise FileFormatError(path, None, _CHANGED)


def check_all_files(folder: Path, manifest: dict[str, Any], name: str) -> None:
    """The same for all files that the manifest of that name lists, in subfolders too; one beside them is refused."""
    check_kinds(folder / name, manifest, {"files": dict})
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {name}
    for other in sorted(there - set(manifest["files"])):
        raise FileFormatError(folder / other, None, "the manifest does not list it")
    check_files(folder, manifest, manifest["files"])


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def with_checksum(values: dict[str, Any]) -> dict[str, Any]:
    """Add the entry ``sha256``: the checksum of the other values, as JSON without spaces.

    >>> with_checksum({"n": 1})
    {'n': 1, 'sha256': '2bfd14f43d17fc7cea24e0917a8879b4b2f880b8baeec1b9d90fbaad655e71bd'}
    """
    plain = {name: value for name, value in values.items() if name != "sha256"}
    text = json.dumps(plain, separators=(",", ":"))
    return plain | {"sha256": hashlib.sha256(text.encode()).hexdigest()}


def verify_checksum(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values that :func:`with_checksum` made, without the checksum; refuse values that it does not fit."""
    if with_checksum(values) != values:
        raise FileFormatError(path, None, _CHANGED)
    return {name: value for name, value in values.items() if name != "sha256"}


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
            little = tensor.astype(tensor.dtype.newbyteorder("<"), order="C", copy=False)
            file.write(little.reshape(-1).view(np.uint8).data)  # tofile says nothing of a disk that is full


def mapped_tensors(path: Path) -> Tensors:
    """The tensors of a safetensors file where they lie: arrays that cannot be written to, read as they are used.

    A file whose header is not sound, or names bytes that are not there, overlap or are left over, is refused; values
    are not looked at.
    """
    try:
        with safe_open(path, framework="numpy"):  # which checks the header against the size of the file
            pass
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        content = np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))[8 + length :]
        return {
            name: content[slice(*entry["data_offsets"])].view(_TYPES[entry["dtype"]]).reshape(entry["shape"])
            for name, entry in header.items()
        }
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise FileFormatError(path, None, f"expected safetensors: {error}") from None


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table as Parquet, the same bytes however its columns lie in memory."""
    with pq.ParquetWriter(path, table.schema, compression="lz4", use_dictionary=False) as writer:
        for start in range(0, len(table), _ROWS):
            writer.write_table(table.slice(start, _ROWS).combine_chunks(), row_group_size=_ROWS)


def read_table(path: Path, schema: pa.Schema, columns: Sequence[str] | None = None) -> pa.Table:
    """A table of Parquet, which must have just these columns, without missing values; or some columns of it."""
    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            found = file.schema_arrow
            # A column is most of a file: others would wait for it.
            table = file.read(columns, use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise FileFormatError(path, None, f"expected Parquet: {error}") from None
    if not found.equals(schema):
        columns = ", ".join(f"{field.name} ({field.type})" for field in schema)
        raise FileFormatError(path, None, f"expected columns {columns}")
    if any(column.null_count for column in table.columns):
        raise FileFormatError(path, None, "expected a value in every row and column")
    return table
