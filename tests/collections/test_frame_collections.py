"""Large files as columns: what the fast readers give is what the line reader gives; Parquet collections."""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cudf_double
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_frames import JUDGED, PASSAGES, QUERIES, same_collection

from haybale.collections import Collection, CollectionBuilder, collection_from_frames, open_collection, tables
from haybale.collections import parquet as parquet_layout
from haybale.collections.gerdalir import add_gerdalir_documents
from haybale.collections.spool import PassageSpool, spool
from haybale.collections.tables import Unfit, find_cudf, is_blank, read_blocks, read_with_cudf, readers
from haybale.device import CPU, Device
from haybale.errors import FileFormatError, InputError


@pytest.fixture
def cudf() -> Iterator[Any]:
    with cudf_double.installed() as double:
        yield double


@pytest.fixture
def on_device(cudf: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """cuDF and a device, worth their while for any file."""
    monkeypatch.setattr(tables, "find_device", lambda name: Device("cuda"))
    monkeypatch.setattr(tables, "WORTH_A_DEVICE", 0)
    return cudf


def by_lines(folder: Path) -> Collection:
    builder = CollectionBuilder(folder.name)
    add_gerdalir_documents(builder, folder)
    return _built(builder)


def by_columns(folder: Path, columns: Iterator[tuple[pa.Array, pa.Array]]) -> Collection:
    builder = CollectionBuilder(folder.name)
    for doc_ids, texts in columns:
        builder.add_passages(doc_ids, texts)
    return _built(builder)


def _built(builder: CollectionBuilder) -> Collection:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return builder.build()


def both_ways(path: Path) -> dict[str, Callable[[], Iterator[tuple[pa.Array, pa.Array]]]]:
    ways = {"blocks": lambda: read_blocks(path)}
    if path.suffix != ".gz":
        ways["cudf"] = lambda: read_with_cudf(path, cudf_double.module(), block=16)
    return ways


GOOD = {
    "plain": "1\tErster Absatz.\n2\tAnderer Text.\n1\tNachzügler.\n",
    "quotes": '1\t"ganz zitiert"\n"2"\tein " allein\n3\t"\n4\t""\n5\t\'x\'\n',
    "tabs": "1\tA\tB\t\tC\t\n2\t\tx\n",
    "carriage returns": "1\ta\rb\r\n2\tc\r\r\n3\t\r\r\nx\r\ty\n\r\n\r\r\n",
    "empty": "1\t\n2\ta\n\t\n\tb\n \t \n \tc\n3\t\t\t\n",
    "whitespace": "1\t \u00a0\u2003\n2\t\x1c\x1d\x1e\x1f\x0b\x0c\n3\t\x85\n4\t\u200b\n5\ta\n\u00a0\t\u00a0\n\x1f\n \n",
    "byte order mark": "\ufeff1\ta\ufeff\n\ufeff2\tb\n",
    "no last newline": "1\ta\n2\tb",
    "no last newline but a return": "1\ta\n2\tb\r",
    "other breaks": "1\ta\u2028b\u2029c\x0bd\x0ce\x85f\n2\tx\x00y\n",
    "null words": "NA\tNaN\nnull\tNone\n#1\t# no comment\n",
    "all planes": "ä\t😀€\u0800\n\U0010ffff\t\ud7ff\n",
    "escapes": "1\ta\\tb\\\n2\t\\N\n",
    "one line": "1\ta",
    "long": "".join(f"{i % 7}\t{'wort ' * (i % 40)}{i}\n" for i in range(500)),
}


@pytest.mark.parametrize("block", [5, 64, 2**22])
@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD.keys())
def test_columns_are_those_of_the_lines(
    tmp_path: Path, text: str, zipped: bool, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "BLOCK", block)
    path = tmp_path / ("collection.tsv.gz" if zipped else "collection.tsv")
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    expected = by_lines(tmp_path)
    for read in both_ways(path).values():
        same_collection(by_columns(tmp_path, read()), expected)


ALPHABET = st.sampled_from(
    ["a", "ß", "1", "\t", "\t", "\n", "\n", "\r", " ", '"', "\u00a0", "\x1c", "\ufeff", ",", "😀"]
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.lists(ALPHABET, max_size=40).map("".join), block=st.integers(1, 50))
def test_any_text_is_read_as_by_lines_or_left_to_them(tmp_path: Path, text: str, block: int) -> None:
    path = tmp_path / "collection.tsv"
    path.write_bytes(text.encode())
    try:
        expected = by_lines(tmp_path)
    except InputError as error:
        expected = None
        unfit = isinstance(error, FileFormatError)  # else it is the builder that refuses an empty collection
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "BLOCK", block)
        for read in both_ways(path).values():
            if expected is not None:
                same_collection(by_columns(tmp_path, read()), expected)
            else:
                with pytest.raises(Unfit if unfit else InputError):
                    by_columns(tmp_path, read())


BAD = {
    "a line without a tab": b"1\tgut\nohne Tabulator\n2\tx\n",
    "the last line without a tab": b"1\tgut\nohne",
    "latin-1": "1\tgut\n2\tMünze\n".encode("latin-1"),
    "latin-1 in an id": "1\tgut\nMünze\t2\n".encode("latin-1"),
    "latin-1 in a line without a tab": b"1\tgut\n\xa0\n",
    "a surrogate": b"1\tgut\n2\t\xed\xa0\x80\n",
    "an overlong form": b"1\tgut\n2\t\xc0\xaf\n",
    "beyond Unicode": b"1\tgut\n2\t\xf4\x90\x80\x80\n",
    "cut in a character": b"1\tgut\n2\t\xe2\x82",
}


@pytest.mark.parametrize("device", [False, True])
@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_what_the_fast_readers_do_not_take_the_line_reader_names(
    tmp_path: Path, data: bytes, device: bool, request: pytest.FixtureRequest
) -> None:
    if device:
        request.getfixturevalue("on_device")
    path = tmp_path / "collection.tsv"
    path.write_bytes(data)
    for read in both_ways(path).values():
        with pytest.raises(Unfit):
            list(read())
    with pytest.raises(FileFormatError, match=r"collection\.tsv, line \d") as caught:
        open_collection(tmp_path)
    with pytest.raises(FileFormatError) as expected:
        by_lines(tmp_path)
    assert str(caught.value) == str(expected.value)


@pytest.mark.parametrize("keep", [0.5, -1])
def test_damaged_gzip_files_are_left_to_the_line_reader(tmp_path: Path, keep: float) -> None:
    text = "".join(f"{i}\t{np.random.default_rng(i).bytes(30).hex()}\n" for i in range(500))
    whole = gzip.compress(text.encode())
    data = whole[: int(len(whole) * keep)] if keep > 0 else whole[:200] + b"\xff" * 40 + whole[240:]
    path = tmp_path / "collection.tsv.gz"
    path.write_bytes(data)
    with pytest.raises(Unfit):
        list(read_blocks(path))
    with pytest.raises(FileFormatError, match=r"collection\.tsv\.gz, line \d+"):
        open_collection(tmp_path)


def test_blank_is_what_python_calls_blank() -> None:
    characters = [chr(i) for i in [*range(0xD800), *range(0xE000, 0x11000)]]
    expected = [not character.strip() for character in characters]
    assert is_blank(pa.array(characters, type=pa.large_string())).tolist() == expected


def gerdalir(folder: Path, lines: int = 50) -> Path:
    for name, text in {
        "collection.tsv": "".join(f"{i % 9}\tText {i}\n" for i in range(lines)),
        "queries/queries.test.tsv": "7\tFrage\n",
        "qrels/qrels.test.tsv": "7\t1\n",
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_cudf_reads_what_is_worth_it_and_only_there(tmp_path: Path, cudf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = gerdalir(tmp_path) / "collection.tsv"
    zipped = tmp_path / "collection.tsv.gz"
    zipped.write_bytes(b"")
    monkeypatch.setattr(tables, "find_device", lambda name: CPU)
    assert find_cudf(2**40) is None
    monkeypatch.setattr(tables, "find_device", lambda name: Device("cuda"))
    assert find_cudf(2**20) is None
    assert find_cudf(2**40) is cudf
    assert len(readers(path)) == 1
    monkeypatch.setattr(tables, "WORTH_A_DEVICE", 0)
    assert [len(readers(file)) for file in (path, zipped)] == [2, 1]
    monkeypatch.setitem(__import__("sys").modules, "cudf", None)
    assert find_cudf(2**40) is None


def test_a_collection_by_cudf_is_that_without(tmp_path: Path, on_device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = gerdalir(tmp_path)
    asked = []
    monkeypatch.setattr(on_device, "read_text", lambda *a, **k: asked.append(k) or cudf_double.read_text(*a, **k))
    found = open_collection(folder)
    assert len(asked) == 1
    monkeypatch.setattr(tables, "WORTH_A_DEVICE", 2**40)
    same_collection(found, open_collection(folder))
    assert len(asked) == 1


@pytest.mark.parametrize("failure", ["raises", "loses a line"])
def test_where_cudf_fails_the_file_is_read_without(
    tmp_path: Path, on_device: Any, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    folder = gerdalir(tmp_path)

    def read_text(*args: Any, **kwargs: Any) -> Any:
        if failure == "raises":
            raise MemoryError("std::bad_alloc")
        return cudf_double.Series(cudf_double.read_text(*args, **kwargs)._values[:-1])

    monkeypatch.setattr(on_device, "read_text", read_text)
    with pytest.raises(Unfit):
        list(read_with_cudf(folder / "collection.tsv", on_device))
    assert open_collection(folder).n_passages == 50


def test_many_passages_at_once_are_those_added_one_by_one() -> None:
    """In any mixture of the two."""
    rng = np.random.default_rng(0)
    one, other = CollectionBuilder("c"), CollectionBuilder("c")
    for part in range(6):
        doc_ids = rng.choice([f"d{i}" for i in range(12)], size=int(rng.integers(0, 20))).tolist()
        texts = rng.choice(["a", "b", " ", "\u00a0"], size=len(doc_ids)).tolist()
        if part % 2:
            one.add_passages(*(pa.array(column, type=pa.large_string()) for column in (doc_ids, texts)))
        for builder in [other] if part % 2 else [one, other]:
            for doc_id, text in zip(doc_ids, texts, strict=True):
                number = builder.document_number(doc_id)
                builder.add_passage(builder.add_document(doc_id) if number is None else number, text)
    for builder in (one, other):
        builder.add_query("q", ["a"], own="d3", split="test")
        builder.add_judgement("test", "q", "d4")
    same_collection(_built(one), _built(other))


# Parquet ------------------------------------------------------------------------------------------------


def parquet(folder: Path, **replaced: Any) -> Path:
    frames = {"passages": PASSAGES, "queries": QUERIES, "qrels": JUDGED} | replaced
    for name, frame in frames.items():
        table = frame if isinstance(frame, pa.Table) else pa.Table.from_pandas(frame)
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=3)
    return folder


@pytest.mark.parametrize("device", [False, True])
@pytest.mark.filterwarnings("ignore:.*of only whitespace")
def test_a_folder_of_parquet_files_is_the_collection_of_their_frames(
    tmp_path: Path, device: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    if device:
        cudf = request.getfixturevalue("on_device")
        monkeypatch.setattr(
            cudf, "read_parquet", lambda *a, **k: asked.append(k["row_groups"]) or cudf_double.read_parquet(*a, **k)
        )
    expected = collection_from_frames(tmp_path.name, PASSAGES, QUERIES, JUDGED)
    same_collection(open_collection(parquet(tmp_path)), expected)
    assert asked == ([[0], [1]] if device else [])
    given = PASSAGES.assign(passage_id=list("pqrs"), more=1)
    found = open_collection(parquet(tmp_path, passages=given))
    assert found.passages.ids.to_pylist() == ["p", "s", "q"]


def test_where_cudf_cannot_read_a_row_group_pyarrow_does(
    tmp_path: Path, on_device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("CUDF failure")

    monkeypatch.setattr(on_device, "read_parquet", fails)
    with pytest.warns(UserWarning, match="1 passages"):
        assert open_collection(parquet(tmp_path)).n_passages == 3


@pytest.mark.parametrize("layout", [gerdalir, parquet])
def test_passages_are_streamed_and_the_same(tmp_path: Path, layout: Callable[[Path], Path]) -> None:
    folder = layout(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        collection = open_collection(folder)
    file = tmp_path / "spooled"
    with open(file, "wb") as out:
        done = spool(folder, PassageSpool(out, rows_per_group=4))
    rows = pq.read_table(file).to_pydict()
    assert sorted(zip(rows["passage_id"], rows["text"], strict=True)) == sorted(
        zip(collection.passages.ids.to_pylist(), collection.passages.texts.to_pylist(), strict=True)
    )
    assert (done.passages, done.documents) == (collection.n_passages, collection.n_documents)


def test_streamed_passages_are_checked_as_well(tmp_path: Path) -> None:
    twice = pd.DataFrame({"doc_id": ["a"] * 5, "text": "x", "passage_id": ["p", "q", "r", "s", "q"]})
    message = r"passages\.parquet: row 4: duplicate passage id 'q'"
    for read in (open_collection, lambda folder: spool(folder, PassageSpool(None, 10))):
        with pytest.raises(FileFormatError, match=message):
            read(parquet(tmp_path, passages=twice))


WRONG = {
    r"passages\.parquet: row 3, column text: expected a string, found nothing": {
        "passages": PASSAGES.assign(text=["a", "b", "c", None])
    },
    r"passages\.parquet: expected a column text; found doc_id": {"passages": PASSAGES[["doc_id"]]},
    r"passages\.parquet: column doc_id: expected strings, found double": {"passages": PASSAGES.assign(doc_id=0.5)},
    r"passages\.parquet: column text: expected UTF-8 text": {
        "passages": pa.table(
            {
                "doc_id": ["a"],
                "text": pa.array([b"\xff"]).view(pa.string()),
            }
        )
    },
    r"queries\.parquet: row 1: duplicate query id 'x'": {"queries": QUERIES.assign(query_id=["x", "x", "z"])},
    r"queries\.parquet: expected a column text; found query_id": {"queries": QUERIES[["query_id"]]},
    r"qrels\.parquet: row 1: qrels of dev names document 'none'": {
        "qrels": pd.DataFrame({"query_id": ["x", "x"], "doc_id": ["a", "none"]})
    },
    r"qrels\.parquet: row 0, column split: expected a string, found nothing": {
        "qrels": JUDGED.assign(split=[None, "dev"])
    },
}


@pytest.mark.parametrize("message", WRONG)
@pytest.mark.filterwarnings("ignore:.*of only whitespace")
def test_bad_parquet_files_are_refused_by_file_row_and_column(tmp_path: Path, message: str) -> None:
    with pytest.raises(FileFormatError, match=message):
        open_collection(parquet(tmp_path, **WRONG[message]))


def test_missing_and_damaged_parquet_files_are_named(tmp_path: Path) -> None:
    parquet(tmp_path)
    path = tmp_path / "passages.parquet"
    path.write_bytes(b"no Parquet")
    with pytest.raises(FileFormatError, match=r"passages\.parquet: expected Parquet"):
        open_collection(tmp_path)
    (parquet(tmp_path) / "qrels.parquet").unlink()
    with pytest.raises(InputError, match=r"expected a file qrels\.parquet"):
        open_collection(tmp_path)


def test_a_row_group_that_is_damaged_is_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    passages = pd.DataFrame({"doc_id": "a", "text": [rng.bytes(500).hex() for _ in range(6)]})
    path = parquet(tmp_path, passages=passages) / "passages.parquet"
    start = pq.ParquetFile(path).metadata.row_group(1).column(1).dictionary_page_offset
    data = bytearray(path.read_bytes())
    data[start : start + 60] = b"\xff" * 60
    path.write_bytes(data)
    with pytest.raises(FileFormatError, match=r"passages\.parquet: row group 1 cannot be read"):
        list(parquet_layout.passage_tables(path))
