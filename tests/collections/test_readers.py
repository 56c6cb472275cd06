"""Test the layouts, plain and gzipped; errors name the file, the line and the invalid value."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.layouts import beir, gerdalir, put, structured

from haybale import Engine
from haybale.collections import (
    Collection,
    CollectionBuilder,
    FolderReader,
    Reader,
    open_collection,
    read_qrels,
    read_trec_run,
)  # fmt: skip
from haybale.collections.open import read_documents
from haybale.collections.spool import spool
from haybale.errors import FileFormatError, InputError, UnknownNameError


@pytest.mark.parametrize("zipped", [False, True])
def test_gerdalir_groups_passages_by_document(tmp_path: Path, zipped: bool) -> None:
    collection = open_collection(gerdalir(tmp_path, zipped))
    assert collection.doc_ids.to_pylist() == ["1", "2"]
    texts = ["Erster Absatz.", "Zweiter\tAbsatz.", "Nachzügler.", "Anderer Text."]
    assert collection.passages.texts.to_pylist() == texts
    assert collection.passages.ids.to_pylist() == ["1:0", "1:1", "1:2", "2:0"]
    assert collection.passages.doc_of.tolist() == [0, 0, 0, 1]
    assert list(collection.splits) == ["train", "dev"]
    assert collection.qrels_frame("dev").to_numpy().tolist() == [["8", "2", 1], ["9", "1", 1], ["9", "2", 1]]
    assert collection.relevant_ids("dev") == [["2"], ["1", "2"]]


@pytest.mark.filterwarnings("default:.* judgements")
def test_missing_judgements(tmp_path: Path, here: Callable[..., tuple[int, str, str]]) -> None:
    folder = gerdalir(tmp_path)
    put(folder / "qrels/qrels.dev.tsv", "8\t2\n8\t99\n9\t98\n")
    with pytest.raises(FileFormatError, match=r"line 2: .*'99'.*missing_judgements='skip'"):
        open_collection(folder)
    with pytest.warns(UserWarning, match=r"2 of \d+ judgements"):
        collection = open_collection(folder, missing_judgements="skip")
    assert collection.qrels_frame("dev").to_numpy().tolist() == [["8", "2", 1]]
    assert collection.split("dev").queries.tolist() == [collection.queries.ids.index(each).as_py() for each in "89"]
    with pytest.raises(InputError, match="missing_judgements"):
        open_collection(folder, missing_judgements="drop")
    options = ("--layout", "gerdalir", "--missing-judgements", "skip")
    status, _, error = here("index", str(folder), "--out", str(tmp_path / "engine"), *options)
    assert status == 0, error
    assert Engine.open(tmp_path / "engine").collection.n_documents == 2


@pytest.mark.parametrize("zipped", [False, True])
def test_beir_lines_are_paragraphs_and_queries_have_own_documents(tmp_path: Path, zipped: bool) -> None:
    collection = open_collection(beir(tmp_path, zipped))
    assert collection.passages.texts.to_pylist() == ["Title\nFirst paragraph.", "Second paragraph.", "Only paragraph."]
    assert collection.queries.paragraphs_of(0) == ["one line", "another line"]
    assert collection.queries.texts([1]) == ["elsewhere"]
    assert collection.queries.own.tolist() == [1, -1, -1]
    assert collection.split("dev").queries.tolist() == [0, 1]
    assert collection.relevant_ids("dev") == [["d1"], ["d2"]]
    assert collection.document_texts() == ["Title\nFirst paragraph.\nSecond paragraph.", "Only paragraph."]
    assert collection.document_numbers(["d2", "d1"]).tolist() == [1, 0]
    with pytest.raises(InputError, match="unknown query id 'zz'"):
        collection.query_numbers(["q1", "zz"])
    with pytest.raises(UnknownNameError, match=r"'test'.* dev"):
        collection.split("test")


@pytest.mark.parametrize("zipped", [False, True])
def test_structured_keeps_sections_and_links(tmp_path: Path, zipped: bool) -> None:
    collection = open_collection(structured(tmp_path, zipped))
    sections, links = collection.sections, collection.links
    assert sections is not None
    assert links is not None
    assert collection.passages.ids.to_pylist() == ["a/p0", "a/p1", "b/p0"]  # sorted by the field "order"
    assert collection.passages.sections is not None
    assert collection.passages.sections.tolist() == [0, 1, 2]
    assert sections.parents.tolist() == [-1, 0, -1]
    assert sections.titles.to_pylist() == ["", "Intro", ""]
    assert [links.internal.tolist(), links.passage_to_document.tolist()] == [[[1, 0]], [[0, 1]]]
    assert links.section_to_document.tolist() == [[1, 1]]
    assert collection.doc_titles.to_pylist() == ["A", "B"]


@pytest.mark.parametrize("layout", [gerdalir, beir, structured])
def test_documents_without_queries_and_their_passages_in_a_file(tmp_path: Path, layout: Callable[[Path], Path]) -> None:
    folder = layout(tmp_path / "c")
    whole, collection = open_collection(folder), read_documents(folder)
    assert (whole.n_queries > 0, collection.n_queries) == (True, 0)
    assert collection.passages.ids.equals(whole.passages.ids)
    found: list[Any] = []
    for shard in ((0, 1), (0, 2), (1, 2)):
        with open(tmp_path / "spooled", "wb") as out:
            done = spool(collection, out, 2, shard)
        rows = pq.read_table(tmp_path / "spooled").to_pydict()
        found.append(list(zip(*rows.values(), strict=True)))
        assert (done.passages, done.rows) == (collection.n_passages, len(found[-1]))
        assert done.sha256 == spool(collection, None, 5).sha256
    passages, doc_ids = collection.passages, collection.doc_ids.to_pylist()
    documents = [doc_ids[document] for document in passages.doc_of]
    assert found[0] == list(zip(passages.ids.to_pylist(), documents, passages.texts.to_pylist(), strict=True))
    assert found[1] + found[2] == found[0][:2] + found[0][4:] + found[0][2:4]


def passage(passage_id: str, section: str, **fields: Any) -> dict[str, Any]:
    return {"id": passage_id, "section": section, "text": "x"} | fields


INVALID: dict[str, tuple[Callable[..., Path], dict[str, Any], str]] = {
    "a line without a tab": (gerdalir, {"collection.tsv": "1\tGut.\nohne\n"}, r"collection\.tsv, line 2: .*found 1"),
    "qrels with an unknown document": (gerdalir, {"qrels/qrels.dev.tsv": "8\t2\n8\t99\n"}, r"dev\.tsv, line 2: .*'99'"),
    "qrels with an unknown query": (gerdalir, {"qrels/qrels.dev.tsv": "6\t2\n"}, r"line 1: .*'6'"),
    "an empty collection": (gerdalir, {"collection.tsv": "\n"}, r"empty"),
    "two grades for a pair": (beir, {"qrels/dev.tsv": "q1\td1\t1\nq1\td1\t2\n"}, r"line 2: .*both 1 and 2"),
    "a grade that is not a number": (beir, {"qrels/dev.tsv": "q1\td1\thigh\n"}, r"line 1: .*'high'"),
    "a lone surrogate": (beir, {"corpus.jsonl": '{"_id": "d", "text": "a\\ud800"}'}, r"line 1: .*'\\ud800'"),
    "an id that is not a string": (beir, {"corpus.jsonl": '{"_id": 1, "text": "a"}'}, r"field '_id', found int"),
    "a duplicate document": (beir, {"corpus.jsonl": '{"_id": "d", "text": "a"}\n' * 2}, r"line 2: .*'d'"),
    "a duplicate passage id": (
        structured,
        {"passages": [passage("p", "a/0", order=order) for order in (0, 1)]},
        r"line 1: .*'p'",
    ),
    "a passage in an unknown section": (structured, {"passages": [passage("p", "z", order=0)]}, r"section.*'z'"),
    "a passage without order": (structured, {"passages": [passage("p", "a/0")]}, r"'order'"),
    "a link to an unknown document": (structured, {"external": [["a/p0", "zz"]]}, r"line 1: .*'zz'"),
    "links that are not pairs": (structured, {"external": [["a/p0"]]}, r"'external'"),
}


@pytest.mark.parametrize(("layout", "changes", "message"), INVALID.values(), ids=INVALID.keys())
def test_errors_name_the_file_and_line(tmp_path: Path, layout, changes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_collection(layout(tmp_path, **changes))


def naive(text: str) -> Collection:
    """Read ``collection.tsv`` line by line, as its format specifies."""
    builder = CollectionBuilder("c")
    for line in text.removeprefix("\ufeff").split("\n"):
        if line.strip():
            doc_id, passage = line.rstrip("\r").split("\t", 1)
            number = builder.document_number(doc_id)
            builder.add_passage(builder.add_document(doc_id) if number is None else number, passage)
    return builder.build()


ALPHABET = st.sampled_from([*'aß1 \t\t\n\n\r",', "\u00a0", "\x1c", "\u2028", "\x85", "\ufeff", "😀"])


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(text=st.lists(ALPHABET, max_size=40).map("".join))
def test_any_text_is_read_line_by_line_or_rejected(tmp_path: Path, text: str) -> None:
    """Only a newline ends a line, and quotes have no meaning."""
    put(tmp_path / "collection.tsv", text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = naive(text)
        except ValueError:  # a line without a tab, or no passage
            with pytest.raises(InputError, match=r"line \d+: .*2 tab|empty"):
                open_collection(tmp_path)
        else:
            assert open_collection(tmp_path).digest() == expected.digest()


@pytest.mark.parametrize(
    "data",
    ["1\tgut\n2\tMünze\n".encode("latin-1"), b"1\tx\n2\t\xed\xa0\x80\n", b"1\tx\n2\t\xf4\x90\x80\x80\n", b"1\t\xe2"],
)
def test_invalid_utf8_is_rejected(tmp_path: Path, data: bytes) -> None:
    (gerdalir(tmp_path) / "collection.tsv").write_bytes(data)
    with pytest.raises(FileFormatError, match=r"collection\.tsv, line \d: .*UTF-8"):
        open_collection(tmp_path)


def test_damaged_gzip_files_are_rejected_with_the_line(tmp_path: Path) -> None:
    folder = gerdalir(tmp_path, zipped=True)
    rng = np.random.default_rng(0)
    lines = "".join(f"{i}\t{' '.join(map(str, rng.integers(1_000_000, size=30)))}\n" for i in range(2000))
    path = put(folder / "collection.tsv", lines, zipped=True)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FileFormatError, match=r"collection\.tsv\.gz, line \d+: .*gzip") as caught:
        open_collection(folder)
    assert 500 < caught.value.line < 1500
    for damaged in (whole[:200] + b"\xff" * 40 + whole[240:], b"not gzip at all"):
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError, match=r"collection\.tsv\.gz.*gzip"):
            open_collection(folder)


def test_blank_passages_are_left_out_with_a_warning(tmp_path: Path) -> None:
    folder = gerdalir(tmp_path, **{"collection.tsv": "1\ta b\n1\t \n2\tc\n3\t\u00a0\n"})
    with pytest.warns(UserWarning, match="2 passages of only whitespace"):
        collection = read_documents(folder)
    assert collection.passages.doc_offsets.tolist() == [0, 1, 2, 2]  # document 3 stays, without passages


def test_a_header_of_queries_in_gerdalirs_layout_is_no_query(tmp_path: Path) -> None:
    folder = gerdalir(tmp_path)
    path = folder / "queries" / "queries.train.tsv"
    expected = open_collection(folder).queries.ids
    path.write_text("query_id\tquery\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    assert open_collection(folder).queries.ids.equals(expected)


def test_layouts_are_recognised_by_their_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="absent"):
        open_collection(tmp_path / "absent")
    with pytest.raises(InputError, match=r"collection\.tsv"):
        open_collection(tmp_path)
    put(beir(tmp_path) / "collection.tsv", "1\tText.\n")
    with pytest.raises(InputError, match="beir, gerdalir"):
        open_collection(tmp_path)
    assert open_collection(tmp_path, layout="beir").n_documents == 2
    with pytest.raises(UnknownNameError, match="'trec'"):
        open_collection(tmp_path, layout="trec")


def test_trec_qrels_and_runs(tmp_path: Path) -> None:
    qrels = put(tmp_path / "qrels.txt", "q1 0 d1 2\nq1 0 d2 0\n", zipped=True)
    assert list(read_qrels(qrels)) == [(1, "q1", "d1", 2), (2, "q1", "d2", 0)]
    run = put(tmp_path / "run.txt", "q1 Q0 d2 1 3.5 me\nq1 Q0 d1 2 1e-3 me\n")
    assert read_trec_run(run).to_numpy().tolist() == [["q1", "d2", 3.5, 1], ["q1", "d1", 0.001, 2]]
    for text, message in {
        "q1 Q0 d2 1 3.5": "5",
        "q1 Q0 d2 1 x me": "'x'",
        "q1 Q0 d2 1 nan me": "'nan'",
        "q1 Q0 d2 1 1_000 me": "'1_000'",
        "q1 Q0 d2 1 ١ me": "'١'",
    }.items():
        with pytest.raises(FileFormatError, match=f"line 1: .* found {message}"):
            read_trec_run(put(tmp_path / "invalid.txt", f"{text}\n"))
    with pytest.raises(InputError, match=r"absent\.txt"):
        read_trec_run(tmp_path / "absent.txt")


@pytest.mark.parametrize("grade", ["1_0", "١", "1.0", "0x1", ""])
@pytest.mark.parametrize(("name", "line"), [("a.csv", "query_id,doc_id,relevance\nq1,a,"), ("a.txt", "q1 0 a ")])
def test_grades_are_decimal_digits(tmp_path: Path, name: str, line: str, grade: str) -> None:
    with pytest.raises(FileFormatError, match=rf"line {line.count(chr(10)) + 1}: "):
        list(read_qrels(put(tmp_path / name, f"{line}{grade}\n")))
    ((*_, read),) = read_qrels(put(tmp_path / name, f"{line}-2\n"))
    assert read == -2


def test_errors_distinguish_ids_that_look_the_same(tmp_path: Path) -> None:
    folder = beir(tmp_path)
    put(folder / "corpus.jsonl", '{"_id": "é", "text": "x"}')
    put(folder / "qrels/dev.tsv", "q1\te\u0301\t1\n")
    with pytest.raises(FileFormatError, match=r"'e.u0301' .*'.xe9'"):
        open_collection(folder)


@pytest.mark.parametrize(
    ("base", "members", "message"),
    [
        (FolderReader, {"name": "x"}, "Odd .*add_documents, expected"),
        (Reader, {"name": "x", "expected": "x"}, "Odd .*read, recognises"),
        (FolderReader, {"add_documents": print}, "Odd .*name, expected"),
    ],
)
def test_an_incomplete_class_raises_an_error(base: type, members: dict[str, object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        type("Odd", (base,), members)


def test_names_take_precedence_over_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pydocs: Collection
) -> None:
    (tmp_path / "pydocs").mkdir()
    (tmp_path / "pydocs" / "corpus.jsonl").write_text('{"_id": "a", "text": "b"}')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("haybale.collections.readers.pydocs.read_pydocs", lambda: pydocs)
    assert open_collection("pydocs") is pydocs
