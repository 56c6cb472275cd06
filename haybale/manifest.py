"""Read and write saved folders: a JSON manifest with the SHA-256 of every file, safetensors files and Parquet tables.

A file that has changed raises an error that names it. Loading a folder executes nothing. Equal content gives equal
bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file

from haybale.errors import FileFormatError, StoreError
from haybale.folders import write_json
from haybale.parallel import cpus
from haybale.text_files import parsed_json, read_bytes, reading, refuse_too_many_open_files
from haybale.versions import __version__

MANIFEST = "manifest.json"
Tensors = dict[str, NDArray[Any]]

_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
_DTYPE_NAMES = {kind: name for name, kind in _DTYPES.items()}
MANY = range(1, 2**40)  # the kind of a count above 0
_ALIGNMENT_BYTES = 64  # of the first tensor in its file; other tensors are aligned to the size of their items
_MAX_READ_BYTES = 2**18  # a smaller table is read as a whole, a larger one is mapped to memory
_ROWS_PER_GROUP = 2**17  # rows of a Parquet row group, which are compressed together
_CHANGED_MESSAGE = "its content is not what was saved: the SHA-256 differs; restore the file or save it again"


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest, with the version of haybale and the SHA-256 of every file in the folder.

    A subfolder must have a manifest, whose SHA-256 represents all files of the subfolder.
    """
    paths = [path / MANIFEST if path.is_dir() else path for path in sorted(folder.iterdir())]
    files = {path.relative_to(folder).as_posix(): digest(path) for path in paths}
    write_json(folder / MANIFEST, with_checksum({**manifest, "haybale": __version__, "files": files}))


def read_manifest(
    folder: Path,
    what: str,
    expected: dict[str, Any],
    kinds: Mapping[str, Any] | None = None,
    *,
    name: str = MANIFEST,
) -> dict[str, Any]:
    """Read and check the manifest of a saved ``what``; its entries must have the ``expected`` values.

    ``kinds`` are the kinds of further entries, see :func:`check_kinds`.
    """
    return verified_manifest(folder / name, manifest_bytes(folder, what, name), expected, kinds)


def manifest_bytes(folder: Path, what: str, name: str = MANIFEST) -> bytes:
    """Return the content of the manifest of a saved ``what``; it is not checked."""
    path = folder / name
    with reading(path):
        if not path.is_file():
            raise FileFormatError(path, None, f"not found: {folder} is not a saved {what}; give the folder of one")
        return read_bytes(path)


def verified_manifest(
    path: Path, content: bytes, expected: dict[str, Any], kinds: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the manifest that a file contains; check it like :func:`read_manifest`."""
    manifest = parsed_json(path, content)
    for entry, value in expected.items():
        saved_value = manifest.get(entry) if isinstance(manifest, dict) else None
        if saved_value != value:
            raise FileFormatError(path, None, f"expected {entry} {value!r}, found {saved_value!r}")
    manifest = verify_checksum(path, manifest)
    check_kinds(path, manifest, kinds or {})
    return manifest


def check_kinds(path: Path | str, values: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """Check the kinds of the entries of a manifest.

    A kind is a type, None, a range of integers, ``[kind]`` for a list, ``{name: kind}`` for an object with at least
    these entries, or a tuple of alternative kinds.
    """
    for name, kind in kinds.items():
        if not _is_kind(values.get(name), kind):
            shown = f"{values[name]!r:.60}" if name in values else "nothing"
            message = f"entry {name!r} must have the type that was saved, found {shown}; restore the file"
            raise FileFormatError(path, None, message)


def _is_kind(value: Any, kind: Any) -> bool:
    """Return whether a value is of a kind.

    >>> _is_kind({"n": [1, 2]}, {"n": [range(3)]}), _is_kind(True, range(3)), _is_kind("x", (str, None))
    (True, False, True)
    """
    match kind:
        case tuple():
            return any(_is_kind(value, alternative) for alternative in kind)
        case list():
            return isinstance(value, list) and all(_is_kind(member, kind[0]) for member in value)
        case dict():
            return isinstance(value, dict) and all(
                _is_kind(value.get(name), entry_kind) for name, entry_kind in kind.items()
            )
        case range():
            return type(value) is int and value in kind
    return value is None if kind is None else type(value) is kind


def check_files(folder: Path, manifest: dict[str, Any], names: Iterable[str]) -> None:
    """Check that the manifest lists exactly these files, and that their SHA-256 is as listed."""
    files, names = manifest.get("files"), sorted(names)
    if not isinstance(files, dict) or sorted(files) != names:
        listed = ", ".join(sorted(files)) if isinstance(files, dict) else repr(files)
        raise FileFormatError(folder / MANIFEST, None, f"expected 'files' {', '.join(names)}; found {listed}")
    for name in names:
        if not (folder / name).is_file():
            raise FileFormatError(folder / name, None, f"not found, but {MANIFEST!r} lists it; copy the file back")
    with ThreadPoolExecutor(cpus()) as threads:
        list(threads.map(lambda name: check_file(folder / name, files[name]), names))


def check_file(path: Path, expected: str) -> None:
    """Check that a file has the expected SHA-256."""
    if digest(path) != expected:
        raise FileFormatError(path, None, _CHANGED_MESSAGE)


def check_all_files(folder: Path, manifest: dict[str, Any], name: str) -> None:
    """Check all files that the manifest ``name`` lists, also in subfolders; a file that is not listed is an error."""
    check_kinds(folder / name, manifest, {"files": dict})
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {name}
    for other in sorted(present - set(manifest["files"])):
        raise FileFormatError(folder / other, None, f"{name!r} does not list this file; remove it")
    check_files(folder, manifest, manifest["files"])


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def with_checksum(values: dict[str, Any]) -> dict[str, Any]:
    """Add the entry ``sha256``: the SHA-256 of the other values, as JSON without spaces.

    >>> with_checksum({"n": 1})
    {'n': 1, 'sha256': '2bfd14f43d17fc7cea24e0917a8879b4b2f880b8baeec1b9d90fbaad655e71bd'}
    """
    plain = {name: value for name, value in values.items() if name != "sha256"}
    text = json.dumps(plain, separators=(",", ":"))
    return plain | {"sha256": hashlib.sha256(text.encode()).hexdigest()}


def verify_checksum(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values without the checksum of :func:`with_checksum`; a wrong checksum is an error."""
    if with_checksum(values) != values:
        raise FileFormatError(path, None, _CHANGED_MESSAGE)
    return {name: value for name, value in values.items() if name != "sha256"}


def read_tensors(path: Path) -> Tensors:
    """Return the tensors of a safetensors file."""
    _check_can_be_opened(path)
    try:
        return dict(load_file(path))
    except SafetensorError as error:
        raise FileFormatError(path, None, f"expected safetensors, found a damaged file ({error})") from None


def write_tensors(path: Path, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Write a safetensors file without copying tensors; equal tensors give equal bytes.

    Tensors are ordered by the size of their items, the widest first, and then by name.
    """
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    entries, end = {}, 0
    for name in order:
        start, end = end, end + tensors[name].nbytes
        kind = _DTYPE_NAMES[tensors[name].dtype.newbyteorder("<").str]
        entries[name] = {"dtype": kind, "shape": list(tensors[name].shape), "data_offsets": [start, end]}
    header = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-(8 + len(header)) % _ALIGNMENT_BYTES)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for name in order:
            tensor = tensors[name]
            little = tensor.astype(tensor.dtype.newbyteorder("<"), order="C", copy=False)
            file.write(little.reshape(-1).view(np.uint8).data)  # tofile would not report that the disk is full


def mapped_tensors(path: Path) -> Tensors:
    """Return the tensors of a safetensors file as memory-mapped, read-only arrays.

    An invalid header, or tensors that overlap or do not fill the file, raise :class:`FileFormatError`. The values of
    the tensors are not checked.
    """
    try:
        _check_can_be_opened(path)
        with safe_open(path, framework="numpy"):  # checks the header against the size of the file
            pass
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        content = np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))[8 + length :]
        return {
            name: content[slice(*entry["data_offsets"])].view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
            for name, entry in header.items()
        }
    except StoreError:
        raise
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        refuse_too_many_open_files(path, error)
        raise FileFormatError(path, None, f"expected safetensors, found a damaged file ({error})") from None


def _check_can_be_opened(path: Path) -> None:
    """Raise StoreError if too many files are open; safetensors would say that there is no such file."""
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        refuse_too_many_open_files(path, error)


def _is_mapped(path: Path) -> bool:
    """Return whether a table is mapped to memory; small ones are read, since each mapped one stays open."""
    return path.stat().st_size > _MAX_READ_BYTES


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table as Parquet; the bytes do not depend on how its columns are chunked in memory."""
    with pq.ParquetWriter(path, table.schema, compression="lz4", use_dictionary=False) as writer:
        for start in range(0, len(table), _ROWS_PER_GROUP):
            writer.write_table(table.slice(start, _ROWS_PER_GROUP).combine_chunks(), row_group_size=_ROWS_PER_GROUP)


def read_any_table(path: Path) -> pa.Table:
    """Read a Parquet table with any columns."""
    try:
        with pq.ParquetFile(path, memory_map=_is_mapped(path)) as file:  # pq.read_table would import pandas
            return file.read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        refuse_too_many_open_files(path, error)
        raise FileFormatError(path, None, f"expected Parquet, found a damaged file ({error})") from None


def read_rows(path: Path, first: int, end: int, columns: Sequence[str]) -> pa.Table:
    """Read the rows ``first:end`` of some columns of a Parquet table; only the row groups that have them are read."""
    try:
        with pq.ParquetFile(path, memory_map=_is_mapped(path)) as file:
            counts = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
            starts = np.concatenate([[0], np.cumsum(counts)])
            groups = [n for n in range(len(counts)) if starts[n] < end and starts[n + 1] > first]
            table = file.read_row_groups(groups, columns, use_threads=False)
            return table.slice(first - int(starts[groups[0]]) if groups else 0, end - first)
    except (pa.ArrowException, OSError) as error:
        refuse_too_many_open_files(path, error)
        raise FileFormatError(path, None, f"expected Parquet, found a damaged file ({error})") from None


def read_table(path: Path, schema: pa.Schema, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a Parquet table, or some of its columns; the file must have the given schema and no missing values."""
    try:
        with pq.ParquetFile(path, memory_map=_is_mapped(path)) as file:
            file_schema = file.schema_arrow
            # Threads do not help, because one column makes up most of a file.
            table = file.read(columns, use_threads=False)
    except (pa.ArrowException, OSError) as error:
        refuse_too_many_open_files(path, error)
        raise FileFormatError(path, None, f"expected Parquet, found a damaged file ({error})") from None
    if not file_schema.equals(schema):
        expected, actual = (
            ", ".join(f"{field.name} ({field.type})" for field in side) for side in (schema, file_schema)
        )
        raise FileFormatError(path, None, f"expected columns {expected}; found {actual}")
    for name, column in zip(table.column_names, table.columns, strict=True):
        if column.null_count:
            raise FileFormatError(path, None, f"column {name!r} must have a value in every row, found nulls")
    return table
