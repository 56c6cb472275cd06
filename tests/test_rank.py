"""``haybale rank``: an engine's documents for texts, files and splits, with reasons, as a user meets it."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import haybale, word_folder

from haybale import Engine, parse
from haybale.collections import CollectionBuilder
from haybale.retrieval import Run

Call = Callable[..., tuple[int, str, str]]
DOCUMENT = """rare3x and
common1

rare4x common2"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("rank")
    Engine.build(word_folder(folder / "words"), folder / "engine", language="english").prepare()
    return str(folder / "engine")


@pytest.fixture
def document(tmp_path: Path) -> str:
    (tmp_path / "case.txt").write_text(DOCUMENT, encoding="utf-8")
    return str(tmp_path / "case.txt")


def ids_of(run: Run) -> dict[str, list[str]]:
    return {query_id: [doc_id for doc_id, _ in run[query_id]] for query_id in run.query_ids}


def test_a_text(engine: str) -> None:
    done = haybale("rank", engine, "rare5x common1", "--top", "3")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "0: rare5x common1"
    assert re.fullmatch(r"   1  d05 +\d\.\d{4}  Title 5", lines[1])
    assert re.fullmatch(r"   2  d\d\d +\d\.\d{4}  .+", lines[2])
    assert len(lines) == 5
    expected = parse("rrf(bm25-doc,parm-vrrf)").fit(Engine.open(engine)).rank("rare5x common1")["0"]
    assert [line.split()[1] for line in lines[1:4]] == [doc_id for doc_id, _ in expected[:3]]


def test_a_document_is_split_into_paragraphs(engine: str, document: str, tmp_path: Path, here: Call) -> None:
    ranked = Engine.open(engine)
    ranker = parse("parm-rrf").fit(ranked)
    for how, paragraphs in (((), ["rare3x and common1", "rare4x common2"]),
                            (("--paragraphs", "lines"), ["rare3x and", "common1", "rare4x common2"])):  # fmt: skip
        out = tmp_path / "run.trec"
        status, shown, said = here("rank", engine, document, "--ranker", "parm-rrf", "--out", str(out), *how)
        assert status == 0, said
        assert shown.startswith("case: rare3x and common1 rare4x common2\n")
        assert ids_of(Run.from_trec(out)) == ids_of(ranker.rank({"case": paragraphs}))


def test_stdin_files_and_splits(
    engine: str, document: str, tmp_path: Path, here: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ranked(queries: str) -> tuple[str, Run]:
        out = tmp_path / "run.trec"
        status, shown, said = here("rank", engine, queries, "--out", str(out))
        assert status == 0, said
        return shown, Run.from_trec(out)

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(DOCUMENT.encode())))
    shown, run = ranked("-")
    assert run["stdin"] == ranked(document)[1]["case"]
    assert ranked("dev")[1].query_ids == [f"dev{i}" for i in range(8)]
    (tmp_path / "q.tsv").write_text("a\trare1x\nb\trare2x \x1b[31mred\n")
    shown, run = ranked(str(tmp_path / "q.tsv"))
    assert run.query_ids == ["a", "b"]
    assert run["a"][0][0] == "d01"
    assert r"b: rare2x \x1b[31mred" in shown
    (tmp_path / "q.jsonl").write_text('{"_id": "a", "text": "rare1x\\ncommon1", "own": "d01"}\n')
    assert "d01" not in [doc_id for doc_id, _ in ranked(str(tmp_path / "q.jsonl"))[1]["a"]]


def test_reasons(engine: str, document: str, tmp_path: Path, here: Call) -> None:
    status, shown, said = here("rank", engine, document, "--explain", "--top", "2")
    assert status == 0, said
    assert re.search(r"^   1  d0[34] ", shown, re.M)
    assert "bm25-doc, rank 1" in shown
    assert "term rare3x" in shown
    assert "paragraph 0 → passage d03:0" in shown
    out = tmp_path / "why.jsonl"
    status, shown, _ = here(
        "rank", engine, document, "--explain-document", "d04", "--explain-document", "d29", "--top", "1",
        "--out", str(out),
    )  # fmt: skip
    assert status == 0
    assert "d04: rank " in shown
    assert "d29: " in shown
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [record["rank"] for record in records] == list(range(1, len(records) + 1))
    explained = {record["doc_id"]: record["explanation"] for record in records if "explanation" in record}
    assert set(explained) <= {"d04", "d29"}
    assert sum(share["share"] for share in explained["d04"]["shares"]) == pytest.approx(
        next(record["score"] for record in records if record["doc_id"] == "d04")
    )
    assert sorted(records[0]) == ["doc_id", "query_id", "rank", "score"]


def test_what_is_written(engine: str, tmp_path: Path, here: Call) -> None:
    (tmp_path / "q.tsv").write_text("a\trare1x\nb\trare2x\n")
    expected = parse("bm25").fit(Engine.open(engine)).rank(tmp_path / "q.tsv", depth=4)
    for name in ("run.trec", "new/folder/run.trec", "run.jsonl", "run.txt"):
        status, _, said = here(
            "rank", engine, str(tmp_path / "q.tsv"), "--ranker", "bm25", "--depth", "4", "--out", str(tmp_path / name)
        )
        assert status == 0, said
    for name in ("run.trec", "new/folder/run.trec"):
        assert ids_of(Run.from_trec(tmp_path / name)) == ids_of(expected)
    records = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    frame = expected.to_frame()
    assert [tuple(record.values()) for record in records] == list(
        zip(frame["query_id"], frame["doc_id"], frame["rank"], frame["score"], strict=True)
    )
    table = [line.split("\t") for line in (tmp_path / "run.txt").read_text().splitlines()]
    assert table[0] == ["query", "rank", "document", "score", "beginning"]
    assert [row[:3] for row in table[1:]] == [[r["query_id"], str(r["rank"]), r["doc_id"]] for r in records]


def test_within(engine: str, tmp_path: Path, here: Call) -> None:
    (tmp_path / "ids").write_text("d07\n\nd08\n")
    out = tmp_path / "run.trec"
    status, _, said = here(
        "rank", engine, "rare5x common1 common2", "--within", str(tmp_path / "ids"), "--out", str(out), "--explain"
    )
    assert status == 0, said
    assert {doc_id for doc_id, _ in Run.from_trec(out)["0"]} == {"d07", "d08"}
    (tmp_path / "ids").write_text("d07\nd99\n")
    status, _, said = here("rank", engine, "rare5x", "--within", str(tmp_path / "ids"))
    assert (status, said) == (2, "haybale: unknown document id 'd99'\n")


@pytest.mark.parametrize("ranker", ["parm-vrrf", "rrf(bm25,rrf(bm25-doc,parm-rrf))"])
def test_a_heatmap_also_of_a_parm_within(ranker: str, engine: str, document: str, tmp_path: Path, here: Call) -> None:
    picture = tmp_path / "why.svg"
    status, shown, said = here("rank", engine, document, "--ranker", ranker, "--heatmap", str(picture))
    assert status == 0, said
    assert picture.read_text(encoding="utf-8").lstrip().startswith("<?xml")
    assert "paragraph 0" not in shown  # reasons were not asked for
    picture.unlink()
    status, _, said = here(
        "rank", engine, document, "--ranker", ranker, "--heatmap", str(picture), "--explain-document", "d04"
    )
    assert status == 0, said
    assert picture.exists()


@pytest.mark.filterwarnings("ignore:.* training queries for")
def test_a_ranker_is_trained_on_the_fly(engine: str, here: Call) -> None:
    status, shown, said = here(
        *("rank", engine, "rare5x common1", "--ranker", "learned(bm25,knn-queries)"),
        *("--set", "unseen_share=0.1", "--top", "1"),
    )
    assert status == 0, said
    assert said.startswith("learned(bm25,knn-queries,unseen_share=0.1) is trained first; haybale train would keep it\n")
    assert re.search(r"^   1  d\d\d ", shown, re.M)


def test_nothing_that_a_terminal_obeys_is_sent(tmp_path: Path, here: Call) -> None:
    builder = CollectionBuilder("odd", language="english")
    builder.add_document("evil\x1b[2J", ["one word\x07 \x9b31m more\u202e"], title="Title\x1b]0;owned\x07")
    builder.add_document("plain", ["one\x1b[31m red word"])
    Engine.build(builder.build(), tmp_path / "e").prepare()
    for how in ((), ("--explain",), ("--explain-document", "evil\x1b[2J"), ("--out", str(tmp_path / "table.txt"))):
        status, shown, said = here("rank", str(tmp_path / "e"), "one word\x1b[5m", *how)
        assert status == 0, said
        assert r"evil\x1b[2J" in shown
        sent = shown + said + ((tmp_path / "table.txt").read_text() if "--out" in how else "")
        assert all(character.isprintable() or character in "\n\t" for character in sent), repr(sent)


def test_no_document_at_all_is_one_line(engine: str) -> None:
    done = haybale("rank", engine, "nothing-of-this-is-there", "--ranker", "bm25")
    assert done.returncode == 0
    assert "nothing was found" in done.stdout
    assert done.stderr == "haybale: bm25 finds no document for 1 of 1 queries, the first is '0'\n"


def test_what_cannot_be_ranked(engine: str, document: str, tmp_path: Path, here: Call) -> None:
    (tmp_path / "empty.txt").write_text(" \n", encoding="utf-8")
    (tmp_path / "latin.txt").write_bytes("one\nGeb\u00fchr".encode("latin-1"))
    (tmp_path / "twice.tsv").write_text("a\tone\na\ttwo\n")
    (tmp_path / "hollow.jsonl").write_text('{"_id": "a", "text": " "}\n')
    new = str(tmp_path / "m")
    for arguments, message in [
        ((str(tmp_path / "empty.txt"),), "empty.txt: no paragraph found by blank-lines"),
        ((str(tmp_path / "none.txt"),), "none.txt: no such file"),
        (("none.jsonl",), "none.jsonl: no such file"),
        ((str(tmp_path / "latin.txt"),), "latin.txt, line 2: expected UTF-8 text: "),
        ((str(tmp_path / "twice.tsv"),), "twice.tsv: duplicate query id 'a'"),
        ((str(tmp_path / "hollow.jsonl"),), "hollow.jsonl: query 'a' is empty"),
        (("",), "empty"),
        ((document, "--paragraphs", "pages"), "unknown splitter 'pages'; known: lines, blank-lines, "),
        (("dev", "--paragraphs", "lines"), "--paragraphs splits one document"),
        ((document, "--ranker", "bm26"), "unknown ranker 'bm26'; known: bm25, "),
        ((document, "--ranker", "bm25-parm-vrrf"), "unknown ranker 'bm25-parm-vrrf'"),
        ((document, "--ranker", "bm25", "--set", "n_bags=3"), "'n_bags'"),
        ((document, "--explain-document", "nobody"), "unknown document id 'nobody'"),
        ((document, "--model", new), "m is no saved ranker"),
        ((document, "--model", new, "--ranker", "bm25"), "leave out --ranker and --set"),
        ((document, "--top", "-1"), "Invalid value for '--top'"),
        ((document, "--depth", "0"), "Invalid value for '--depth'"),
        ((document, "--within", str(tmp_path / "none")), "none: no such file"),
        ((document, "--within", str(tmp_path / "empty.txt")), "to search within"),
        ((document, "--out", str(tmp_path)), "is a folder; expected the name of a file"),
        ((document, "--out", str(tmp_path / "empty.txt" / "x.trec")), "nothing can be written to"),
        ((document, "--heatmap", str(tmp_path / "x.bmp")), "a figure is saved as one of .svg, .png, .pdf"),
        ((document, "--ranker", "bm25", "--heatmap", str(tmp_path / "x.svg")), "of PARM, which is not in bm25"),
        ((document, "--device", "cuda:x"), "'cuda:x'"),
    ]:
        status, shown, said = here("rank", engine, *arguments)
        assert status == 2, arguments
        assert shown == ""
        assert said.startswith("haybale: "), said
        assert message in said, said
        assert said.count("\n") == 1, said


@pytest.mark.filterwarnings("default")
def test_paragraphs_longer_than_the_encoder_reads_are_said_to_be(tmp_path: Path, here: Call) -> None:
    pytest.importorskip("sentence_transformers")
    from longformers import save_longformer

    model = save_longformer(tmp_path / "model")
    folder = word_folder(tmp_path / "words")
    status, _, said = here("index", str(folder), "--out", str(tmp_path / "e"), "--encoder", str(model))
    assert status == 0, said
    (tmp_path / "long.txt").write_text("dogs bark " * 3000 + "\n\ncats purr", encoding="utf-8")
    status, _, said = here("rank", str(tmp_path / "e"), str(tmp_path / "long.txt"), "--ranker", "parm-vrrf")
    assert status == 0, said
    assert "1 of 2 texts" in said
    assert said.count("\n") == 1
