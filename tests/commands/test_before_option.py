"""``--before`` of rank, train and compare: queries of a BEIR folder find only documents before their own date."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from haybale import Engine, Run

Call = Callable[..., tuple[int, str, str]]
N, NAME = 12, "learned(bm25,knn-queries)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return documents of the years 2000 to 2011, and queries of 2001 to 2012 for which the one before is relevant."""
    folder = tmp_path / "cases"
    (folder / "qrels").mkdir(parents=True)
    documents = [{"_id": f"d{i}", "text": f"dogs and word{i}", "decided": 2000 + i} for i in range(N)]
    queries = [{"_id": f"q{i}", "text": f"dogs of word{i}", "date": f"{2001 + i}-05"} for i in range(N)]
    queries.append({"_id": "undated", "text": "dogs"})
    for name, rows in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    judged = {"train": [f"q{i}\td{i}\t1" for i in range(0, N, 2)], "dev": [f"q{i}\td{i}\t1" for i in range(1, N, 2)]}
    judged["dev"] += ["q3\td9\t1", "undated\td1\t1"]  # a document of the future, and a query without a date
    for split, lines in judged.items():
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
    return folder


def test_no_command_finds_a_later_document(folder: Path, tmp_path: Path, here: Call) -> None:
    engine, model = tmp_path / "engine", tmp_path / "model"
    Engine.build(folder, engine, language="english", encoder="tfidf(min_df=1)")
    status, _, said = here("train", str(engine), "--ranker", NAME, "--before", "decided", "--out", str(model))
    assert status == 0, said
    files = {}
    for name, ranker in (("bm25", ("--ranker", "bm25")), ("model", ("--model", str(model)))):
        status, _, said = here(
            "rank", str(engine), "train", *ranker, "--before", "decided", "--out", str(tmp_path / f"{name}.trec")
        )
        assert status == 0, said
        files[name] = tmp_path / f"{name}.trec"
    how = ("--rankers", "bm25,knn-queries", "--before", "decided", "--out", str(tmp_path / "out"))
    status, shown, said = here("compare", str(engine), *how)
    assert status == 0, said
    assert "1 queries without a date, 1 judgements of documents that are not earlier" in said
    assert f"{N // 2} queries" in shown
    for path in (*files.values(), *(tmp_path / "out" / "runs").glob("*.trec")):
        run = Run.from_trec(path)
        found = {query: [int(doc[1:]) for doc, _ in run[query]] for query in run.query_ids}
        assert all(number <= int(query[1:]) for query, numbers in found.items() for number in numbers)
        assert sum(map(len, found.values())) > N
    assert json.loads((tmp_path / "out" / "settings.json").read_text())["before"] == "decided"
    status, _, said = here("report", str(tmp_path / "out"), "--out", str(tmp_path / "page.html"), "--picture", "none")
    assert status == 0, said
    status, _, said = here("rank", str(engine), "dev", "--ranker", "bm25", "--before", "decided")
    assert status == 2
    assert "'undated'" in said
    status, _, said = here("rank", str(engine), "train", "--ranker", "bm25", "--before", "date")
    assert status == 2
    assert "decided" in said
