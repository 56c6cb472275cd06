"""The layouts, plain and gzipped, and what each refuses: with file, line and what was expected."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from haybale.collections import Collection, open_collection, read_qrels, read_structured, read_trec_run
from haybale.errors import FileFormatError, InputError, UnknownNameError


def put(path: Path, text: str, zipped: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if zipped:
        path = path.with_name(path.name + ".gz")
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


def gerdalir(folder: Path, zipped: bool = False, **replaced: str) -> Path:
    files = {
        "collection.tsv": "1\tErster Absatz.\n1\tZweiter\tAbsatz.\n2\tAnderer Text.\n1\tNachzügler.\n",
        "queries/queries.train.tsv": "7\tFrage eins\n",
        "queries/queries.dev.tsv": "8\tFrage zwei\n9\tFrage drei\n",
        "qrels/qrels.train.tsv": "7\t1\n",
        "qrels/qrels.dev.tsv": "8\t2\n9\t1\n9\t2\n",
    } | replaced
    for name, text in files.items():
        put(folder / name, text, zipped)
    return folder


def beir(folder: Path, zipped: bool = False, **replaced: str) -> Path:
    documents = [
        {"_id": "d1", "title": "Title", "text": "First paragraph.\nSecond paragraph."},
        {"_id": "d2", "title": "", "text": "Only paragraph."},
    ]
    queries = [
        {"_id": "q1", "text": "one line\n\nanother line", "own": "d2"},
        {"_id": "q2", "text": "elsewhere", "own": "not in the corpus"},
        {"_id": "q3", "text": "in no split"},
    ]
    files = {
        "corpus.jsonl": "\n".join(map(json.dumps, documents)),
        "queries.jsonl": "\n".join(map(json.dumps, queries)),
        "qrels/dev.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t2\nq2\td1\t0\n",
    } | replaced
    for name, text in files.items():
        put(folder / name, text, zipped)
    return folder


def structured(folder: Path, **changes: object) -> Path:
    first = {
        "_id": "a",
        "title": "A",
        "sections": [
            {"id": "a/0", "parent": None, "title": ""},
            {"id": "a/1", "parent": "a/0", "title": "Intro"},
        ],
        "passages": [
            {"id": "a/p1", "section": "a/1", "order": 1, "text": "second"},
            {"id": "a/p0", "section": "a/0", "order": 0, "text": "first"},
        ],
        "internal": [["a/p1", "a/0"]],
        "external": [["a/p0", "b"], ["a/1", "b"]],
    } | changes
    second = {
        "_id": "b",
        "title": "B",
        "sections": [{"id": "b/0", "parent": None, "title": ""}],
        "passages": [{"id": "b/p0", "section": "b/0", "order": 0, "text": "other"}],
    }
    put(folder / "documents.jsonl", f"{json.dumps(first)}\n{json.dumps(second)}\n")
    put(folder / "queries.jsonl", json.dumps({"_id": "q", "text": "what", "own": "a"}))
    put(folder / "qrels/test.tsv", "query-id\tcorpus-id\tscore\nq\tb\t1\n")
    return folder


@pytest.mark.parametrize("zipped", [False, True])
def test_gerdalir_groups_passages_by_document(tmp_path: Path, zipped: bool) -> None:
    collection = open_collection(gerdalir(tmp_path, zipped))
    assert collection.doc_ids.to_pylist() == ["1", "2"]
    assert collection.passages.doc_offsets.tolist() == [0, 3, 4]
    assert collection.passages.texts.to_pylist() == [
        "Erster Absatz.",
        "Zweiter\tAbsatz.",
        "Nachzügler.",
        "Anderer Text.",
    ]
    assert collection.passages.ids.to_pylist() == ["1:0", "1:1", "1:2", "2:0"]
    assert collection.passages.doc_of.tolist() == [0, 0, 0, 1]
    assert list(collection.splits) == ["train", "dev"]
    assert collection.qrels_frame("dev").to_numpy().tolist() == [["8", "2", 1], ["9", "1", 1], ["9", "2", 1]]
    assert collection.relevant_ids("dev") == [["2"], ["1", "2"]]


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


def test_structured_keeps_sections_and_links(tmp_path: Path) -> None:
    collection = open_collection(structured(tmp_path))
    assert collection.sections is not None
    assert collection.links is not None
    assert collection.passages.ids.to_pylist() == ["a/p0", "a/p1", "b/p0"]  # by order, not by line
    assert collection.passages.sections is not None
    assert collection.passages.sections.tolist() == [0, 1, 2]
    assert collection.sections.parents.tolist() == [-1, 0, -1]
    assert collection.sections.titles.to_pylist() == ["", "Intro", ""]
    assert collection.links.internal.tolist() == [[1, 0]]
    assert collection.links.passage_to_document.tolist() == [[0, 1]]
    assert collection.links.section_to_document.tolist() == [[1, 1]]
    assert collection.doc_titles.to_pylist() == ["A", "B"]


def read(folder: Path) -> Collection:
    return open_collection(folder)


REFUSED = {
    "a line without a tab": (
        gerdalir,
        {"collection.tsv": "1\tGut.\nohne Tabulator\n"},
        r"collection\.tsv, line 2: .*found 1",
    ),
    "a query line without a tab": (gerdalir, {"queries/queries.dev.tsv": "8 Frage\n"}, r"queries\.dev\.tsv, line 1"),
    "qrels with an unknown document": (
        gerdalir,
        {"qrels/qrels.dev.tsv": "8\t2\n8\t99\n"},
        r"qrels\.dev\.tsv, line 2: .*'99'",
    ),
    "qrels with an unknown query": (gerdalir, {"qrels/qrels.dev.tsv": "6\t2\n"}, r"line 1: .*query '6'"),
    "a duplicate query id": (gerdalir, {"queries/queries.dev.tsv": "8\tA\n8\tB\n"}, r"line 2: duplicate query id '8'"),
    "a query id of another split": (gerdalir, {"queries/queries.dev.tsv": "7\tA\n"}, r"line 1: duplicate query id '7'"),
    "an empty query": (gerdalir, {"queries/queries.dev.tsv": "8\t \n"}, r"line 1: query '8' is empty"),
    "an empty collection": (gerdalir, {"collection.tsv": "\n"}, r"empty: no document has a passage"),
    "two grades for a pair": (beir, {"qrels/dev.tsv": "q1\td1\t1\nq1\td1\t2\n"}, r"line 2: .*both 1 and 2"),
    "a grade that is no number": (beir, {"qrels/dev.tsv": "q1\td1\thigh\n"}, r"line 1: .*found 'high'"),
    "five columns of qrels": (
        beir,
        {"qrels/dev.tsv": "q1\td1\t1\t1\t1\n"},
        r"line 1: expected 2, 3 or 4 columns, found 5",
    ),
    "broken JSON": (beir, {"corpus.jsonl": '{"_id": "d1",'}, r"corpus\.jsonl, line 1: expected JSON, column 14"),
    "JSON that is no object": (beir, {"corpus.jsonl": "[1]"}, r"line 1: expected a JSON object, found list"),
    "a document without text": (beir, {"corpus.jsonl": '{"_id": "d1"}'}, r"field 'text', found nothing"),
    "an id that is no string": (beir, {"corpus.jsonl": '{"_id": 1, "text": "a"}'}, r"field '_id', found int"),
    "a duplicate document": (
        beir,
        {"corpus.jsonl": '{"_id": "d", "text": "a"}\n{"_id": "d", "text": "b"}'},
        r"line 2: duplicate document id 'd'",
    ),
}


@pytest.mark.parametrize(("make", "replaced", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_files_are_refused_by_name_and_line(tmp_path: Path, make, replaced, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_collection(make(tmp_path, **replaced))


BROKEN_STRUCTURE = {
    "a duplicate passage id": (
        {"passages": [{"id": "p", "section": "a/0", "order": i, "text": "x"} for i in (0, 1)]},
        r"line 1: duplicate passage id 'p'",
    ),
    "a passage in an unknown section": (
        {"passages": [{"id": "p", "section": "z", "order": 0, "text": "x"}]},
        r"section 'z'",
    ),
    "a passage without order": ({"passages": [{"id": "p", "section": "a/0", "text": "x"}]}, r"'order'"),
    "a link to an unknown document": ({"external": [["a/p0", "zz"]]}, r"line 1: .*'zz'"),
    "a link from nowhere": ({"internal": [["zz", "a/0"]]}, r"unknown passage id 'zz'"),
    "links that are no pairs": ({"external": [["a/p0"]]}, r"expected a list of \[id, id\]"),
    "sections that are no list": ({"sections": None}, r"expected a list of objects in field 'sections'"),
}


@pytest.mark.parametrize(("changes", "message"), BROKEN_STRUCTURE.values(), ids=BROKEN_STRUCTURE.keys())
def test_broken_structure_is_refused(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(FileFormatError, match=message):
        read_structured(structured(tmp_path, **changes))


def test_a_gzip_file_cut_off_in_the_middle_names_the_line(tmp_path: Path) -> None:
    folder = gerdalir(tmp_path, zipped=True)
    rng = np.random.default_rng(0)
    lines = "".join(f"{i}\t{' '.join(map(str, rng.integers(1_000_000, size=30)))}\n" for i in range(2000))
    path = put(folder / "collection.tsv", lines, zipped=True)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FileFormatError, match=r"collection\.tsv\.gz, line \d+: .*cut off") as caught:
        open_collection(folder)
    assert 500 < caught.value.line < 1500
    path.write_bytes(b"not gzip at all")
    with pytest.raises(FileFormatError, match="expected gzip data"):
        open_collection(folder)


def test_windows_line_ends_byte_order_marks_and_odd_breaks_are_no_part_of_ids(tmp_path: Path) -> None:
    folder = gerdalir(tmp_path)
    (folder / "collection.tsv").write_bytes("\ufeff1\tErster\rTeil\u2028Ende\r\n2\tText\r\n".encode())
    collection = open_collection(folder)
    assert collection.doc_ids.to_pylist() == ["1", "2"]
    assert collection.passages.texts.to_pylist() == ["Erster\rTeil\u2028Ende", "Text"]


def test_bytes_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    folder = gerdalir(tmp_path)
    (folder / "collection.tsv").write_bytes("1\tgut\n2\tMünze".encode("latin-1"))
    with pytest.raises(FileFormatError, match=r"expected UTF-8"):
        open_collection(folder)


def test_blank_passages_are_left_out_with_a_warning(tmp_path: Path) -> None:
    folder = gerdalir(tmp_path, **{"collection.tsv": "1\ta b\n1\t \n2\tc\n3\t\u00a0\n"})
    with pytest.warns(UserWarning, match="2 passages of only whitespace"):
        collection = open_collection(folder)
    assert collection.passages.doc_offsets.tolist() == [0, 1, 2, 2]  # document 3 stays, without passages


def test_layouts_are_recognised_or_the_known_ones_listed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        open_collection(tmp_path / "absent")
    with pytest.raises(InputError, match=r"no layout recognised.*collection\.tsv"):
        open_collection(tmp_path)
    put(beir(tmp_path) / "collection.tsv", "1\tText.\n")
    with pytest.raises(InputError, match="gerdalir, beir"):
        open_collection(tmp_path)
    assert open_collection(tmp_path, layout="beir").n_documents == 2
    with pytest.raises(UnknownNameError, match="known: gerdalir, beir, structured"):
        open_collection(tmp_path, layout="trec")


def test_unknown_ids_and_splits_are_named(tmp_path: Path) -> None:
    collection = open_collection(beir(tmp_path))
    assert collection.document_numbers(["d2", "d1"]).tolist() == [1, 0]
    with pytest.raises(InputError, match="unknown query id 'zz'"):
        collection.query_numbers(["q1", "zz"])
    with pytest.raises(UnknownNameError, match="known: dev"):
        collection.split("test")


def test_trec_qrels_and_runs(tmp_path: Path) -> None:
    qrels = put(tmp_path / "qrels.txt", "q1 0 d1 2\nq1 0 d2 0\n", zipped=True)
    assert list(read_qrels(qrels)) == [(1, "q1", "d1", 2), (2, "q1", "d2", 0)]
    run = put(tmp_path / "run.txt", "q1 Q0 d2 1 3.5 me\nq1 Q0 d1 2 1e-3 me\n")
    assert read_trec_run(run).to_numpy().tolist() == [["q1", "d2", 3.5], ["q1", "d1", 0.001]]
    for text, message in {
        "q1 Q0 d2 1 3.5\n": "line 1: expected 6 columns",
        "q1 Q0 d2 1 x me\n": "line 1: expected a number as score, found 'x'",
        "q1 Q0 d2 1 nan me\n": "line 1: expected a finite score",
    }.items():
        with pytest.raises(FileFormatError, match=message):
            read_trec_run(put(tmp_path / "bad.txt", text))
    with pytest.raises(InputError, match="no such file"):
        read_trec_run(tmp_path / "absent.txt")
