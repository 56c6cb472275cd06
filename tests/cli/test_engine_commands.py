"""``haybale index``, ``add``, ``remove`` and ``train``: an engine's life in a folder, as a user meets it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import haybale

from haybale import Engine, load
from haybale.collections import open_collection, read_trec_run

Call = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.filterwarnings("ignore:.* training queries for")


def test_index_and_again(data: Path, tmp_path: Path, here: Call) -> None:
    """The second time opens what is there."""
    before = {}
    for again in (False, True):
        done = haybale("index", str(data), "--out", str(tmp_path / "e"))
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("Engine 'words': 30 documents, 75 passages, in ")
        assert done.stdout.endswith("kB on disk\n")
        assert done.stdout.count("\n") == 1
        assert "\x1b[" not in done.stdout + done.stderr  # no colours, no bars: this is no terminal
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
    monkeypatch.chdir(tmp_path / "elsewhere")  # the store is found from anywhere
    status, _, said = here("rank", "../e", "rare3x", "--ranker", "knn", "--k", "1")
    assert status == 0, said


def test_added_documents_are_found_as_if_they_had_been_there(data: Path, tmp_path: Path, here: Call) -> None:
    """BM25 over what was added equals BM25 over all at once; all forms of files in one addition."""
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
    assert out.startswith("added 10 documents and 25 passages in ")
    assert "30 documents, 75 passages" in out
    assert here("index", str(data), "--out", str(tmp_path / "whole"), "--language", "english")[0] == 0
    for name in ("e", "whole"):
        assert here(
            "rank", str(tmp_path / name), str(data / "queries.jsonl"), "--ranker", "rrf(bm25,bm25-doc)",
            "--out", str(tmp_path / f"{name}.trec"),
        )[0] == 0  # fmt: skip
    assert (tmp_path / "e.trec").read_text() == (tmp_path / "whole.trec").read_text()


def test_removed_documents_are_not_found(engine: Path, tmp_path: Path, here: Call) -> None:
    status, out, said = here("remove", str(engine), "d03", "d04")
    assert status == 0, said
    assert out.startswith("removed 2 documents; Engine 'words': 28 documents, ")
    run = tmp_path / "run.trec"
    assert here("rank", str(engine), "rare3x common1", "--out", str(run))[0] == 0
    assert not {"d03", "d04"} & set(read_trec_run(run)["doc_id"])
    assert Engine.open(engine).collection.n_documents == 28


LEARNED = "learned(bm25,bm25-doc,knn,svr)"
FAST = ("--set", "n_bags=4", "--set", "n_jobs=1")


def test_train_says_what_was_learned(built: Path, tmp_path: Path, here: Call) -> None:
    status, out, said = here("train", str(built), "--ranker", LEARNED, *FAST, "--out", str(tmp_path / "m"))
    assert status == 0, said
    assert out.startswith("learned(")
    for fact in ("training queries", "bags", "unseen share", "gamma"):
        assert fact in out
    assert "fit svr" in said
    (tmp_path / "r.yaml").write_text("ranker: learned\nrankers: [bm25, {ranker: bm25-doc, k1: 2}]\nunseen_share: 0.1\n")
    status, _, said = here("train", str(built), "--ranker", str(tmp_path / "r.yaml"), "--out", str(tmp_path / "y"))
    assert status == 0, said
    assert str(load(tmp_path / "y", Engine.open(built))) == "learned(bm25,bm25-doc(k1=2),unseen_share=0.1)"
