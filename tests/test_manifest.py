"""Test tensors, tables and manifests on disk: round trips, reproducible bytes, and errors that name damaged files."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file

from haybale.errors import FileFormatError
from haybale.manifest import (
    check_files,
    mapped_tensors,
    read_manifest,
    read_table,
    verify_checksum,
    with_checksum,
    write_manifest,
    write_table,
    write_tensors,
)

KINDS = ["<f8", "<f4", "<f2", "<i8", "<i4", "<i2", "|i1", "<u8", "<u4", "<u2", "|u1", "|b1", ">i4"]
shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
arrays = st.tuples(st.sampled_from(KINDS), shapes).flatmap(lambda kind: hnp.arrays(np.dtype(kind[0]), kind[1]))
tensors = st.dictionaries(st.text(max_size=5).filter(lambda name: name != "__metadata__"), arrays, max_size=5)
reuse_folder = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@reuse_folder
@given(written=tensors)
def test_mapped_tensors_equal_the_written_ones(tmp_path: Path, written: dict[str, np.ndarray]) -> None:
    path = tmp_path / "t"
    write_tensors(path, written)
    mapped, loaded = mapped_tensors(path), load_file(path)
    assert mapped.keys() == loaded.keys() == written.keys()
    for name, array in written.items():
        assert mapped[name].shape == array.shape
        assert mapped[name].dtype == array.dtype.newbyteorder("<")
        assert mapped[name].flags.aligned
        assert not mapped[name].flags.writeable
        assert mapped[name].tobytes() == loaded[name].tobytes() == array.astype(mapped[name].dtype).tobytes()
    before = path.read_bytes()
    write_tensors(path, dict(reversed(written.items())))
    assert path.read_bytes() == before


def file_of(header: Any, content: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content


def one(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\xff" * 8, (20).to_bytes(8, "little") + b"{}"),
        *map(file_of, (b"{", b"\xff\xfe", b"[" * 100_000, [1], {"a": 1})),
        file_of(one("BF16", shape=[4]), b"8" * 8),
        *(file_of(one(shape=shape), b"8" * 8) for shape in ([-2], [2.0], 2, [3])),
        *(file_of(one(shape=shape, offsets=[0, 0])) for shape in ([0, 2**70], [0, 2**62, 2**62])),
        *(file_of(one(offsets=offsets), b"8" * 12) for offsets in ([0, 8, 9], [8, 0], [4, 12])),
        *(file_of(one(), b"8" * n) for n in (7, 9)),
        file_of(one() | {"b": one()["a"]}, b"8" * 16),
    ],
)
def test_invalid_safetensors_are_rejected(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t"
    path.write_bytes(content)
    for each in (path, tmp_path / "none"):
        with pytest.raises(FileFormatError, match=f"{each}: .*safetensors"):
            mapped_tensors(each)


@reuse_folder
@given(position=st.integers(0, 400), value=st.integers(0, 255), cut=st.integers(0, 400) | st.none())
def test_a_damaged_file_gives_arrays_within_the_file_or_an_error(
    tmp_path: Path, position: int, value: int, cut: int | None
) -> None:
    path = tmp_path / "t"
    write_tensors(path, {"first": np.arange(6.0), "second": np.ones((2, 3), dtype=np.float32)})
    content = bytearray(path.read_bytes())
    content[position % len(content)] = value
    path.write_bytes(content[:cut])
    try:
        found = mapped_tensors(path)
    except FileFormatError:
        return
    assert sum(array.nbytes for array in found.values()) <= len(content)
    for array in found.values():
        array.tobytes()  # reads every byte


SCHEMA = pa.schema([("id", pa.large_string()), ("n", pa.int64())])


@reuse_folder
@given(
    ids=st.lists(st.text(max_size=3), max_size=12),
    cuts=st.lists(st.integers(0, 12), max_size=4),
    rows=st.integers(1, 9),
)
def test_bytes_of_tables_do_not_depend_on_chunks(tmp_path: Path, ids: list[str], cuts: list[int], rows: int) -> None:
    table = pa.table({"id": ids, "n": list(range(len(ids)))}, schema=SCHEMA)
    ends = [0, *sorted(cuts), len(ids)]
    parts = [table.slice(a, max(0, b - a)) for a, b in pairwise(ends)]
    with patch("haybale.manifest._ROWS_PER_GROUP", rows):
        write_table(tmp_path / "whole", table)
        write_table(tmp_path / "parts", pa.concat_tables(parts))
    assert (tmp_path / "parts").read_bytes() == (tmp_path / "whole").read_bytes()
    assert read_table(tmp_path / "parts", SCHEMA).equals(table)


def test_invalid_tables_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1 or not")
    with pytest.raises(FileFormatError, match=r"t\.parquet: .*Parquet"):
        read_table(path, SCHEMA)
    for table, message in [
        (pa.table({"id": ["a"], "n": ["b"]}), r"id \(large_string\), n \(int64\)"),
        (pa.table({"id": ["a", None], "n": [1, 2]}, schema=SCHEMA), "'id'"),
    ]:
        write_table(path, table)
        with pytest.raises(FileFormatError, match=message):
            read_table(path, SCHEMA)


def test_changed_and_missing_files_are_named(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).write_text(name)
    write_manifest(tmp_path, {"format": "f"})
    manifest = read_manifest(tmp_path, "thing", {"format": "f"})
    check_files(tmp_path, manifest, ["a", "b"])
    (tmp_path / "a").write_text("other")
    with pytest.raises(FileFormatError, match=r"a: .*SHA-256"):
        check_files(tmp_path, manifest, ["a", "b"])
    (tmp_path / "a").unlink()
    with pytest.raises(FileFormatError, match="a: not found"):
        check_files(tmp_path, manifest, ["a", "b"])
    with pytest.raises(FileFormatError, match="'files' a; found a, b"):
        check_files(tmp_path, manifest, ["a"])


def test_a_wrong_checksum_is_an_error(tmp_path: Path) -> None:
    values = with_checksum({"format": "a thing", "version": 1, "n": 3})
    assert verify_checksum(tmp_path / "m.json", values) == {"format": "a thing", "version": 1, "n": 3}
    for changed in (values | {"n": 4}, values | {"more": 1}, values | {"sha256": "0" * 64}):
        with pytest.raises(FileFormatError, match=r"m\.json: .*SHA-256"):
            verify_checksum(tmp_path / "m.json", changed)
