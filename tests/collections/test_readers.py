"""The layouts, plain and gzipped, and what each refuses: with file, line and what was expected."""

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

from haybale.collections import Collection, CollectionBuilder, open_collection, read_qrels, read_trec_run
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


def test_judgements_of_documents_that_are_not_there_are_refused_or_skipped_and_counted(tmp_path: Path) -> None:
    folder = gerdalir(tmp_path)
    put(folder / "qrels/qrels.dev.tsv", "8\t2\n8\t99\n9\t98\n")
    with pytest.raises(FileFormatError, match=r"line 2: .*'99'.*missing_judgements='skip'"):
        open_collection(folder)
    with pytest.warns(UserWarning, match=r"2 of \d+ judgements are of documents that are not there"):
        collection = open_collection(folder, missing_judgements="skip")
    assert collection.qrels_frame("dev").to_numpy().tolist() == [["8", "2", 1]]
    assert collection.split("dev").queries.tolist() == [collection.queries.ids.index(each).as_py() for each in "89"]
    with pytest.raises(InputError, match="missing_judgements"):
        open_collection(folder, missing_judgements="drop")


@pytest.mark.parametrize("zipped", [False, True])
def test_beir_lines_are_paragraphs_and_own_is_honoured(tmp_path: Path, zipped: bool) -> None:
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
    with pytest.raises(UnknownNameError, match="known: dev"):
        collection.split("test")


@pytest.mark.parametrize("zipped", [False, True])
def test_structured_keeps_sections_and_links(tmp_path: Path, zipped: bool) -> None:
    collection = open_collection(structured(tmp_path, zipped))
    sections, links = collection.sections, collection.links
    assert sections is not None
    assert links is not None
    assert collection.passages.ids.to_pylist() == ["a/p0", "a/p1", "b/p0"]  # by order, not by line
    assert collection.passages.sections is not None
    assert collection.passages.sections.tolist() == [0, 1, 2]
    assert sections.parents.tolist() == [-1, 0, -1]
    assert sections.titles.to_pylist() == ["", "Intro", ""]
    assert [links.internal.tolist(), links.passage_to_document.tolist()] == [[[1, 0]], [[0, 1]]]
    assert links.section_to_document.tolist() == [[1, 1]]
    assert collection.doc_titles.to_pylist() == ["A", "B"]


@pytest.mark.parametrize("layout", [gerdalir, beir, structured])
def test_documents_alone_and_their_passages_in_a_file(tmp_path: Path, layout: Callable[[Path], Path]) -> None:
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
    of = [doc_ids[document] for document in passages.doc_of]
    assert found[0] == list(zip(passages.ids.to_pylist(), of, passages.texts.to_pylist(), strict=True))
    assert found[1] + found[2] == found[0][:2] + found[0][4:] + found[0][2:4]


REFUSED: dict[str, tuple[Callable[..., Path], dict[str, Any], str]] = {
    "a line without a tab": (gerdalir, {"collection.tsv": "1\tGut.\nohne\n"}, r"collection\.tsv, line 2: .*found 1"),
    "qrels with an unknown document": (gerdalir, {"qrels/qrels.dev.tsv": "8\t2\n8\t99\n"}, r"dev\.tsv, line 2: .*'99'"),
    "qrels with an unknown query": (gerdalir, {"qrels/qrels.dev.tsv": "6\t2\n"}, r"line 1: .*query '6'"),
    "an empty collection": (gerdalir, {"collection.tsv": "\n"}, r"empty: no document has a passage"),
    "two grades for a pair": (beir, {"qrels/dev.tsv": "q1\td1\t1\nq1\td1\t2\n"}, r"line 2: .*both 1 and 2"),
    "a grade that is no number": (beir, {"qrels/dev.tsv": "q1\td1\thigh\n"}, r"line 1: .*found 'high'"),
    "half of a surrogate pair": (beir, {"corpus.jsonl": '{"_id": "d", "text": "a\\ud800"}'}, r"line 1: .*no character"),
    "an id that is no string": (beir, {"corpus.jsonl": '{"_id": 1, "text": "a"}'}, r"field '_id', found int"),
    "a duplicate document": (beir, {"corpus.jsonl": '{"_id": "d", "text": "a"}\n' * 2}, r"line 2: duplicate document"),
    "a duplicate passage id": (
        structured,
        {"passages": [{"id": "p", "section": "a/0", "order": i, "text": "x"} for i in (0, 1)]},
        r"line 1: duplicate passage id 'p'",
    ),
    "a passage in an unknown section": (
        structured,
        {"passages": [{"id": "p", "section": "z", "order": 0, "text": "x"}]},
        r"section 'z'",
    ),
    "a passage without order": (structured, {"passages": [{"id": "p", "section": "a/0", "text": "x"}]}, r"'order'"),
    "a link to an unknown document": (structured, {"external": [["a/p0", "zz"]]}, r"line 1: .*'zz'"),
    "links that are no pairs": (structured, {"external": [["a/p0"]]}, r"expected a list of \[id, id\]"),
}


@pytest.mark.parametrize(("make", "replaced", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_files_are_refused_by_name_and_line(tmp_path: Path, make, replaced, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_collection(make(tmp_path, **replaced))


def naive(text: str) -> Collection:
    """collection.tsv, read line by line as its format says."""
    builder = CollectionBuilder("c")
    for line in text.removeprefix("\ufeff").split("\n"):
        if line.strip():
            doc_id, passage = line.rstrip("\r").split("\t", 1)
            number = builder.document_number(doc_id)
            builder.add_passage(builder.add_document(doc_id) if number is None else number, passage)
    return builder.build()


ALPHABET = st.sampled_from([*'aß1 \t\t\n\n\r",', "\u00a0", "\x1c", "\u2028", "\x85", "\ufeff", "😀"])


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.lists(ALPHABET, max_size=40).map("".join))
def test_any_text_is_read_line_by_line_or_refused(tmp_path: Path, text: str) -> None:
    """Only a newline ends a line, and nothing is quoted."""
    put(tmp_path / "collection.tsv", text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = naive(text)
        except ValueError:  # a line without a tab, or no passage
            with pytest.raises(InputError, match=r"line \d+: expected 2 tab|empty"):
                open_collection(tmp_path)
        else:
            assert open_collection(tmp_path).digest() == expected.digest()


@pytest.mark.parametrize(
    "data",
    ["1\tgut\n2\tMünze\n".encode("latin-1"), b"1\tx\n2\t\xed\xa0\x80\n", b"1\tx\n2\t\xf4\x90\x80\x80\n", b"1\t\xe2"],
)
def test_bytes_that_are_not_utf8_are_refused(tmp_path: Path, data: bytes) -> None:
    (gerdalir(tmp_path) / "collection.tsv").write_bytes(data)
    with pytest.raises(FileFormatError, match=r"collection\.tsv, line \d: expected UTF-8"):
        open_collection(tmp_path)


def test_damaged_gzip_files_are_refused_with_the_line(tmp_path: Path) -> None:
    folder = gerdalir(tmp_path, zipped=True)
    rng = np.random.default_rng(0)
    lines = "".join(f"{i}\t{' '.join(map(str, rng.integers(1_000_000, size=30)))}\n" for i in range(2000))
    path = put(folder / "collection.tsv", lines, zipped=True)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FileFormatError, match=r"collection\.tsv\.gz, line \d+: .*cut off") as caught:
        open_collection(folder)
    assert 500 < caught.value.line < 1500
    path.write_bytes(whole[:200] + b"\xff" * 40 + whole[240:])
    with pytest.raises(FileFormatError, match=r"collection\.tsv\.gz, line \d+"):
        open_collection(folder)
    path.write_bytes(b"not gzip at all")
    with pytest.raises(FileFormatError, match="expected gzip data"):
        open_collection(folder)


def test_blank_passages_are_left_out_with_a_warning(tmp_path: Path) -> None:
    folder = gerdalir(tmp_path, **{"collection.tsv": "1\ta b\n1\t \n2\tc\n3\t\u00a0\n"})
    with pytest.warns(UserWarning, match="2 passages of only whitespace"):
        collection = read_documents(folder)
    assert collection.passages.doc_offsets.tolist() == [0, 1, 2, 2]  # document 3 stays, without passages


def test_layouts_are_recognised_or_the_known_ones_listed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        open_collection(tmp_path / "absent")
    with pytest.raises(InputError, match=r"no layout recognised.*collection\.tsv"):
        open_collection(tmp_path)
    put(beir(tmp_path) / "collection.tsv", "1\tText.\n")
    with pytest.raises(InputError, match="beir, gerdalir"):
        open_collection(tmp_path)
    assert open_collection(tmp_path, layout="beir").n_documents == 2
    with pytest.raises(UnknownNameError, match="unknown layout 'trec'; known: "):
        open_collection(tmp_path, layout="trec")


def test_trec_qrels_and_runs(tmp_path: Path) -> None:
    qrels = put(tmp_path / "qrels.txt", "q1 0 d1 2\nq1 0 d2 0\n", zipped=True)
    assert list(read_qrels(qrels)) == [(1, "q1", "d1", 2), (2, "q1", "d2", 0)]
    run = put(tmp_path / "run.txt", "q1 Q0 d2 1 3.5 me\nq1 Q0 d1 2 1e-3 me\n")
    assert read_trec_run(run).to_numpy().tolist() == [["q1", "d2", 3.5], ["q1", "d1", 0.001]]
    for text, message in {
        "q1 Q0 d2 1 3.5\n": "line 1: expected 6 columns",
        "q1 Q0 d2 1 x me\n": "line 1: expected a finite number as score, found 'x'",
        "q1 Q0 d2 1 nan me\n": "line 1: expected a finite number as score",
    }.items():
        with pytest.raises(FileFormatError, match=message):
            read_trec_run(put(tmp_path / "bad.txt", text))
    with pytest.raises(InputError, match="no such file"):
        read_trec_run(tmp_path / "absent.txt")


def test_ids_that_look_the_same_are_told_apart(tmp_path: Path) -> None:
    folder = beir(tmp_path)
    put(folder / "corpus.jsonl", '{"_id": "é", "text": "x"}')
    put(folder / "qrels/dev.tsv", "q1\te\u0301\t1\n")
    with pytest.raises(FileFormatError, match=r"names document 'e.u0301' \(there is '.xe9'"):
        open_collection(folder)
