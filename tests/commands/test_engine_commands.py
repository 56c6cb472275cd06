"""``haybale index``, ``add``, ``remove`` and ``train``."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import haybale

from haybale import Engine, load
from haybale.collections import open_collection, read_trec_run

Call = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.filterwarnings("ignore:.* training queries for")


def test_indexing_again_opens_the_engine(data: Path, tmp_path: Path) -> None:
    before = {}
    for again in (False, True):
        done = haybale("index", str(data), "--out", str(tmp_path / "e"))
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("Engine 'words': 30 documents, 75 passages, in ")
        assert done.stdout.count("\n") == 1
        assert "\x1b[" not in done.stdout + done.stderr  # no colours, because this is not a terminal
        assert ("index BM25" in done.stderr) != again
        files = {path: path.stat().st_mtime_ns for path in (tmp_path / "e").rglob("*.safetensors")}
        assert not again or files == before
        before = files
    opened = Engine.open(tmp_path / "e")
    assert opened.collection.doc_ids.to_pylist() == open_collection(data).doc_ids.to_pylist()


def test_settings_of_an_engine(data: Path, tmp_path: Path, here: Call) -> None:
    status, _, said = here(
        "index", str(data), "--out", str(tmp_path / "e"), "--encoder", "lsa(5,random_state=3)", "--pieces", "3",
        "--stride", "2", "--language", "english", "--paragraphs", "lines", "--layout", "beir",
    )  # fmt: skip
    assert status == 0, said
    opened = Engine.open(tmp_path / "e")
    expected = {
        "encoder": "lsa(n_components=5,random_state=3)", "language": "english", "paragraphs": "lines",
        "chunking": {"length": 3, "stride": 2, "unit": "words", "tokenizer": None},
    }  # fmt: skip
    assert {name: opened.settings[name] for name in expected} == expected
    assert opened.passages.vectors.shape == (opened.collection.n_passages, 5)
    assert opened.collection.n_passages > opened.whole.n_passages


def test_an_engine_of_a_store(data: Path, tmp_path: Path, here: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert here("embed", str(data), "--out", "store", "--encoder", "lsa(4)")[0] == 0
    status, _, said = here("index", str(data), "--out", "e", "--store", "store")
    assert status == 0, said
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # the engine knows the absolute path of the store
    status, _, said = here("rank", "../e", "rare3x", "--ranker", "knn", "--k", "1")
    assert status == 0, said


def test_adding_documents_equals_indexing_all_at_once(data: Path, tmp_path: Path, here: Call) -> None:
    """One addition of every kind of file gives the same BM25 scores as one index of all documents."""
    lines = (data / "corpus.jsonl").read_text().splitlines(keepends=True)
    parts = {"first": lines[:20], "folder": lines[20:24]}
    for name, part in parts.items():
        shutil.copytree(data, tmp_path / name)
        (tmp_path / name / "corpus.jsonl").write_text("".join(part))
        for path in (tmp_path / name / "qrels").glob("*.tsv"):
            path.write_text("train0\td00\t1\n" if name == "first" else "train0\td20\t1\n")
    records = [json.loads(line) for line in lines[24:]]
    (tmp_path / "more.jsonl").write_text("".join(lines[24:27]))
    renamed = [{"doc_id": each.pop("_id"), **each} for each in records[3:5]]
    (tmp_path / "other.jsonl").write_text("".join(json.dumps(each) + "\n" for each in renamed))
    last = records[5]
    (tmp_path / f"{last['_id']}.txt").write_text("\n\n".join(f"{last['title']} {last['text']}".split("\n")))
    assert here("index", str(tmp_path / "first"), "--out", str(tmp_path / "e"), "--language", "english")[0] == 0
    status, out, said = here(
        "add", str(tmp_path / "e"), *(str(tmp_path / name) for name in ("more.jsonl", "folder", "other.jsonl")),
        str(tmp_path / f"{last['_id']}.txt"),
    )  # fmt: skip
    assert status == 0, said
    assert "10 documents and 25 passages" in out
    assert "30 documents, 75 passages" in out
    assert here("index", str(data), "--out", str(tmp_path / "whole"), "--language", "english")[0] == 0
    for name in ("e", "whole"):
        assert here(
            "rank", str(tmp_path / name), str(data / "queries.jsonl"), "--ranker", "rrf(bm25,bm25-doc)",
            "--out", str(tmp_path / f"{name}.trec"),
        )[0] == 0  # fmt: skip
    assert (tmp_path / "e.trec").read_text() == (tmp_path / "whole.trec").read_text()


def test_answers_are_written_in_the_form_of_coliee(engine: Path, tmp_path: Path, here: Call) -> None:
    """The name of the file is the run tag, which is checked before any work."""
    out = tmp_path / "univABC.coliee"
    status, _, said = here("rank", str(engine), "train", "--ranker", "bm25", "--k", "2", "--out", str(out))
    assert status == 0, said
    lines = out.read_text().splitlines()
    assert lines
    assert all(re.fullmatch(r"train\d+ d\d+ univABC", line) for line in lines)
    status, _, said = here("rank", str(engine), "train", "--out", str(tmp_path / "a-tag.coliee"))
    assert status == 2
    assert "'a-tag'" in said


def test_removed_documents_are_not_found(engine: Path, tmp_path: Path, here: Call) -> None:
    status, out, said = here("remove", str(engine), "d03", "d04")
    assert status == 0, said
    assert "28 documents" in out
    run = tmp_path / "run.trec"
    assert here("rank", str(engine), "rare3x common1", "--out", str(run))[0] == 0
    assert not {"d03", "d04"} & set(read_trec_run(run)["doc_id"])
    assert Engine.open(engine).collection.n_documents == 28


def test_replaced_documents(engine: Path, tmp_path: Path, here: Call) -> None:
    for doc_id in ("d03", "new"):
        (tmp_path / f"{doc_id}.txt").write_text("onlyhere word")
    files = [str(tmp_path / "d03.txt"), str(tmp_path / "new.txt")]
    assert here("remove", str(engine), "d04")[0] == 0
    (tmp_path / "d04.txt").write_text("onlyhere word")
    for path in (files[0], str(tmp_path / "d04.txt")):
        status, _, said = here("add", str(engine), path)
        assert status == 2, said
        assert "--replace" in said
    status, out, said = here("add", str(engine), *files, str(tmp_path / "d04.txt"), "--replace")
    assert status == 0, said
    assert "3 documents and 3 passages (1 replaced)" in out
    assert "31 documents" in out
    run = tmp_path / "run.trec"
    assert here("rank", str(engine), "onlyhere", "--ranker", "bm25", "--out", str(run))[0] == 0
    assert sorted(read_trec_run(run)["doc_id"]) == ["d03", "d04", "new"]


def test_train_prints_a_summary_and_details_on_request(built: Path, tmp_path: Path, here: Call) -> None:
    ranker, fast = "learned(bm25,bm25-doc,knn,svr)", ("--set", "n_bags=4", "--set", "n_jobs=1")
    printed = []
    for name, how in (("m", ()), ("v", ("--verbose",))):
        command = ("train", str(built), "--ranker", ranker, *fast, "--out", str(tmp_path / name), *how)
        status, out, said = here(*command)
        assert status == 0, said
        assert "fit svr" in said
        assert f"haybale rank {built}" in out.splitlines()[-1]
        assert all(part in out for part in ("learned(", "queries of words", str(tmp_path / name)))
        printed.append(out)
    summary, details = printed
    assert len(summary.splitlines()) <= 6
    assert not any(each in summary for each in ("unseen share", "gamma"))
    assert all(each in details for each in ("training queries", "unseen share", "bags", "gamma", "weights: "))


def test_train_a_ranker_of_a_file_and_one_without_training(built: Path, tmp_path: Path, here: Call) -> None:
    (tmp_path / "r.yaml").write_text("ranker: learned\nrankers: [bm25, {ranker: bm25-doc, k1: 2}]\nunseen_share: 0.1\n")
    names = {str(tmp_path / "r.yaml"): "learned(bm25,bm25-doc(k1=2),unseen_share=0.1)", "bm25": "bm25"}
    for number, (ranker, name) in enumerate(names.items()):
        folder = tmp_path / str(number)
        status, out, said = here("train", str(built), "--ranker", ranker, "--out", str(folder))
        assert status == 0, said
        assert name in out
        assert str(load(folder, Engine.open(built))) == name


def test_quiet_and_verbose(data: Path, tmp_path: Path, here: Call) -> None:
    """Every command prints less or more; the log is as before afterwards."""
    status, shown, said = here("index", str(data), "--out", str(tmp_path / "q"), "--language", "english", "--quiet")
    assert (status, said) == (0, "")
    assert "30 documents" in shown
    status, _, said = here("rank", str(tmp_path / "q"), "rare3x", "--verbose")
    assert status == 0
    assert re.search(r"^  search BM25 \(documents\): \d+\.\d s on cpu$", said, re.M)
    assert here("rank", str(tmp_path / "q"), "rare3x")[2] == ""
    status, _, said = here("rank", str(tmp_path / "q"), "rare3x", "--quiet", "--verbose")
    assert (status, said.count("\n")) == (2, 1)
    status, _, said = here("rank", str(tmp_path / "none"), "rare3x", "--quiet")
    assert (status, said.count("\n")) == (2, 1)  # errors are printed by a quiet command, too
