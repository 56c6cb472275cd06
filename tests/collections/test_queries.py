"""Test queries in any form: files, frames of every library, arguments of the command line, and invalid queries."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from haybale.collections import Collection, Queries
from haybale.collections.queries import queries_argument, queries_from
from haybale.errors import InputError
from haybale.frames import LIBRARIES, in_library

FRAME = pd.DataFrame({"query_id": ["a", "b"], "text": ["barking, dogs\n\nagain", 'the "tax"']}).assign(
    own=["dogs", None]
)
FILES = {
    "q.jsonl": '{"_id": "a", "text": "barking, dogs\\n\\nagain", "own": "dogs"}\n'
    '{"query_id": "b", "text": "the \\"tax\\""}',
    "q.csv": 'Query_ID,own,text,more\r\na,dogs,"barking, dogs\r\n\r\nagain",1\r\n\r\nb,,"the ""tax""",2\r\n',
    "short.csv": '\ufefftext,id,own\n"barking, dogs\n\nagain",a,dogs\n"the ""tax""",b,gone\n',
    "named.csv": 'query,_id,own\n"barking, dogs\n\nagain",a,dogs\n"the ""tax""",b,\n',
}


def content(queries: Queries) -> dict[str, tuple[list[str], int]]:
    parts = [queries.paragraphs_of(number) for number in range(len(queries))]
    return dict(zip(queries.ids.to_pylist(), zip(parts, queries.own.tolist(), strict=True), strict=True))


EXPECTED = {"a": (["barking, dogs", "again"], 0), "b": (['the "tax"'], -1)}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_files_of_several_queries(toy: Collection, tmp_path: Path, name: str, packed: bool) -> None:
    path, data = tmp_path / name, FILES[name].encode()
    if packed:
        path, data = tmp_path / f"{name}.gz", gzip.compress(data)
    path.write_bytes(data)
    assert queries_argument(str(path)) == path
    assert content(queries_from(toy, path)) == EXPECTED


@pytest.mark.parametrize(
    ("header", "is_header"),
    [
        ("query_id\ttext", True),
        ("_id\tquery", True),
        ("QID\tText", True),
        ("text\tquery_id", False),
        ("q\ttext", False),
    ],
)
def test_a_header_of_a_table_of_queries_is_no_query(
    toy: Collection, tmp_path: Path, header: str, is_header: bool
) -> None:
    path = tmp_path / "queries.tsv"
    path.write_text(f"{header}\nq1\twhich dogs?\n", encoding="utf-8")
    assert queries_from(toy, path).ids.to_pylist() == ([] if is_header else [header.split("\t")[0]]) + ["q1"]
    path.write_text(f"{header}\n", encoding="utf-8")
    if is_header:
        with pytest.raises(InputError, match="at least one query"):
            queries_from(toy, path)


@pytest.mark.parametrize("library", [library for library in LIBRARIES if library != "cudf"])
def test_frames_of_any_library(toy: Collection, library: str) -> None:
    assert content(queries_from(toy, in_library(FRAME, library))) == EXPECTED
    assert content(queries_from(toy, in_library(pd.DataFrame({"query_id": [7], "text": ["x"]}), library))) == {
        "7": (["x"], -1)
    }


def test_one_document_is_split(toy: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"one\r\ntwo\r\n\r\nthree"
    (tmp_path / "case.txt").write_bytes(data)
    (tmp_path / "case.md.gz").write_bytes(gzip.compress(data))
    for path, name in ((tmp_path / "case.txt", "case"), (tmp_path / "case.md.gz", "case.md"), (Path("-"), "stdin")):
        for how, parts in ((None, ["one two", "three"]), ("lines", ["one", "two", "three"])):
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
            assert content(queries_from(toy, path, how)) == {name: (parts, -1)}


def test_arguments_of_the_command_line(toy: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert queries_argument("-") == Path("-")
    for text in ("dev", "who pays in sect. 3.txt", "x" * 9999, "a\0b"):
        assert queries_argument(text) == text
    assert queries_from(toy, "dev").ids.to_pylist()[0] == "dev-dogs"
    for name in ("none.csv", "none.tsv.gz", "none.txt"):
        with pytest.raises(InputError, match=name):
            queries_argument(name)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("q.csv", "id,txt\n1,2\n", r"q\.csv, line 1: .*query_id.* id, txt"),
        ("q.csv", "", r"q\.csv, line 1: .*nothing"),
        ("q.csv", "id,text\n1\n", r"q\.csv, line 2: .*2.* 1"),
        ("q.csv", 'id,text\n1,"a" b\n', r"q\.csv, line 2: .*CSV"),
        ("q.csv", "id,text\n", r"q\.csv: .*query"),
        ("q.csv", "id,text\n1,a\n1,b\n", "query ids: '1'"),
        ("q.csv", "id,text\n1, \n", "query '1'"),
        ("q.txt", "1. \n", r"q\.txt: 'numbered'"),
        ("q.jsonl", '{"_id": "a", "text": "b"}\n{"_id": "c"}\n', r"q\.jsonl, line 2: .*text"),
        ("q.tsv", "a\n", r"q\.tsv, line 1"),
        ("q.tsv", "a\t\udcff\n", r"q\.tsv, line 1: .*UTF-8"),
    ],
)
def test_errors_name_the_file_line_and_value(
    toy: Collection, tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=message):
        queries_from(toy, tmp_path / name, "numbered" if name == "q.txt" else None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (FRAME[["query_id"]], "queries: .*column text"),
        (pd.concat([FRAME, FRAME], axis=1), "queries: .*column query_id.* 2"),
        (FRAME.assign(text=["x", None]), "queries: row 1 .*text"),
        (FRAME.assign(query_id=[0.5, 1]), "query ids: .*0.5"),
        ({1, 2}, "frame.* set"),
    ],
)
def test_invalid_frames_are_rejected(toy: Collection, given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        queries_from(toy, given)
    with pytest.raises(InputError, match="paragraphs='lines'"):
        queries_from(toy, given, "lines")
