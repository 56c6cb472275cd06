"""``haybale rank``: texts, files and splits as queries, explanations, and the files that it writes."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import haybale

from haybale import Engine, parse
from haybale.collections import CollectionBuilder
from haybale.retrieval import Run

Call = Callable[..., tuple[int, str, str]]


def ids_of(run: Run) -> dict[str, list[str]]:
    return {query_id: [doc_id for doc_id, _ in run[query_id]] for query_id in run.query_ids}


def test_a_text_as_query(built: Path) -> None:
    done = haybale("rank", str(built), "rare5x common1", "--k", "3")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "0: rare5x common1"
    assert re.fullmatch(r"   1  d05 +\d\.\d{4}  Title 5", lines[1])
    assert re.fullmatch(r"   2  d\d\d +\d\.\d{4}  .+", lines[2])
    expected = parse("rrf(bm25-doc,parm-vrrf)").fit(Engine.open(built)).rank("rare5x common1")["0"]
    assert [line.split()[1] for line in lines[1:-1]] == [doc_id for doc_id, _ in expected[:3]]


def test_a_document_is_split_into_paragraphs(built: Path, document: str, tmp_path: Path, here: Call) -> None:
    ranker = parse("parm-rrf").fit(Engine.open(built))
    for how, paragraphs in (((), ["rare3x and common1", "rare4x common2"]),
                            (("--paragraphs", "lines"), ["rare3x and", "common1", "rare4x common2"])):  # fmt: skip
        out = tmp_path / "run.trec"
        status, shown, said = here("rank", str(built), document, "--ranker", "parm-rrf", "--out", str(out), *how)
        assert status == 0, said
        assert shown.startswith("case: rare3x and common1 rare4x common2\n")
        assert shown.count("\n") <= 12  # ten documents are printed
        assert ids_of(Run.from_trec(out)) == ids_of(ranker.rank({"case": paragraphs}))


def test_stdin_files_and_splits(
    built: Path, document: str, tmp_path: Path, here: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ranked(queries: str) -> tuple[str, Run]:
        out = tmp_path / "run.trec"
        status, shown, said = here("rank", str(built), queries, "--out", str(out))
        assert status == 0, said
        return shown, Run.from_trec(out)

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(document).read_bytes())))
    assert ranked("-")[1]["stdin"] == ranked(document)[1]["case"]
    assert ranked("dev")[1].query_ids == [f"dev{i}" for i in range(8)]
    (tmp_path / "q.tsv").write_text("a\trare1x\nb\trare2x \x1b[31mred\n")
    shown, run = ranked(str(tmp_path / "q.tsv"))
    assert run.query_ids == ["a", "b"]
    assert run["a"][0][0] == "d01"
    assert r"b: rare2x \x1b[31mred" in shown
    (tmp_path / "q.jsonl").write_text('{"_id": "a", "text": "rare1x\\ncommon1", "own": "d01"}\n')
    assert "d01" not in [doc_id for doc_id, _ in ranked(str(tmp_path / "q.jsonl"))[1]["a"]]


def test_explanations(built: Path, document: str, here: Call) -> None:
    status, shown, said = here("rank", str(built), document, "--explain", "--k", "2")
    assert status == 0, said
    assert re.search(r"^   1  d0[34] ", shown, re.M)
    for part in ("bm25-doc, rank 1", "term rare3x", "paragraph 0 → passage d03:0"):
        assert part in shown


def test_output_files(built: Path, tmp_path: Path, here: Call) -> None:
    (tmp_path / "q.tsv").write_text("a\trare1x\nb\trare2x\n")
    expected = parse("bm25").fit(Engine.open(built)).rank(tmp_path / "q.tsv", depth=4)
    for name in ("new/folder/run.trec", "run.trec.gz", "run.jsonl", "run.txt"):
        how = ("--ranker", "bm25", "--k", "4", "--out", str(tmp_path / name), "--explain")
        status, _, said = here("rank", str(built), str(tmp_path / "q.tsv"), *how)
        assert status == 0, said
    for name in ("new/folder/run.trec", "run.trec.gz"):
        assert ids_of(Run.from_trec(tmp_path / name)) == ids_of(expected)
    records = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    for record in records:
        assert sum(share["share"] for share in record.pop("explanation")["shares"]) == pytest.approx(
            record["true_score"]
        )
    assert records == expected.to_frame()[["query_id", "doc_id", "rank", "score", "true_score"]].to_dict("records")
    table = [line.split("\t") for line in (tmp_path / "run.txt").read_text().splitlines()]
    assert table[0] == ["query", "rank", "document", "score", "beginning"]
    assert [row[:3] for row in table[1:]] == [[r["query_id"], str(r["rank"]), r["doc_id"]] for r in records]
    assert [float(row[3]) for row in table[1:]] == [r["score"] for r in records]
    assert table[1][4] == "Title 1"


def test_within_a_list_of_documents(built: Path, tmp_path: Path, here: Call) -> None:
    (tmp_path / "ids").write_text("d07\n\nd08\n")
    how = ("--within", str(tmp_path / "ids"), "--out", str(tmp_path / "run.trec"), "--explain")
    status, _, said = here("rank", str(built), "rare5x common1 common2", *how)
    assert status == 0, said
    assert {doc_id for doc_id, _ in Run.from_trec(tmp_path / "run.trec")["0"]} == {"d07", "d08"}


def test_where_ranks_the_documents_that_fulfil_a_condition(built: Path, tmp_path: Path, here: Call) -> None:
    pytest.importorskip("duckdb")
    how = ("--where", "title in ('Title 5', 'Title 7')", "--explain", "--out", str(tmp_path / "run.trec"))
    status, _, said = here("rank", str(built), "rare5x common1 common2", *how)
    assert status == 0, said
    assert {doc_id for doc_id, _ in Run.from_trec(tmp_path / "run.trec")["0"]} == {"d05", "d07"}
    status, _, said = here("rank", str(built), "common1", "--where", "titel = 'Title 5'")
    assert (status, "id, title, passages" in said) == (2, True)


@pytest.mark.parametrize("ranker", ["parm-vrrf", "rrf(bm25,rrf(bm25-doc,parm-rrf))"])
def test_heatmap_of_parm_or_of_a_parm_inside_another_ranker(
    ranker: str, built: Path, document: str, tmp_path: Path, here: Call
) -> None:
    picture = tmp_path / "why.svg"
    status, shown, said = here("rank", str(built), document, "--ranker", ranker, "--heatmap", str(picture))
    assert status == 0, said
    assert picture.read_text(encoding="utf-8").lstrip().startswith("<?xml")
    assert "paragraph 0" not in shown  # without --explain


@pytest.mark.filterwarnings("ignore:.* training queries for")
def test_a_ranker_that_needs_training_is_trained_first(built: Path, here: Call) -> None:
    status, shown, said = here("rank", str(built), "rare5x common1", "--ranker", "learned(bm25,knn-queries)")
    assert status == 0, said
    assert said.startswith("learned(bm25,knn-queries) ")
    assert "haybale train" in said
    assert re.search(r"^   1  d\d\d ", shown, re.M)


def test_weights_are_adapted_to_the_queries(tmp_path: Path, here: Call) -> None:
    builder = CollectionBuilder("asked", language="none")
    for doc in range(60):
        builder.add_document(f"d{doc:02}", [f"word{doc} common{doc % 9} ask{doc % 5}"])
    for i in range(60):
        new = i % 2
        builder.add_query(f"q{i:02}", [f"word{i}" if new else f"ask{i % 5} common{i % 9}"], split="train")
        builder.add_judgement("train", f"q{i:02}", f"d{i if new else i % 5:02}", 1)
    engine = Engine.build(builder.build(), tmp_path / "e", encoder="tfidf").prepare()
    adapted = parse("learned(bm25,knn-queries)").fit(engine).adapted("train")
    asked = ("rank", str(tmp_path / "e"), "train", "--ranker")
    status, _, said = here(*asked, "learned(bm25,knn-queries)", "--adapt", "--out", str(tmp_path / "run.trec"))
    assert status == 0, said
    share = adapted.fit_report_["queries expected to be new"]
    assert f"{share:.0%}" in said
    assert str(adapted) in said
    assert ids_of(Run.from_trec(tmp_path / "run.trec")) == ids_of(adapted.rank("train"))
    status, _, said = here(*asked, "bm25", "--adapt")
    assert status == 2
    assert said.startswith("haybale: --adapt ")


@pytest.mark.filterwarnings("default")
def test_a_query_without_a_matching_document(built: Path, here: Call) -> None:
    status, shown, said = here("rank", str(built), "unknownword", "--ranker", "bm25")
    assert (status, said.count("\n")) == (0, 1)
    assert not re.search(r"^ +1 ", shown, re.M)
    assert "bm25" in said
