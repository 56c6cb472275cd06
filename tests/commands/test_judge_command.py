"""``haybale judge``: from a folder of files without queries to a trained ranker."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from haybale import Engine

Call = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.filterwarnings("ignore:.* training queries for")


@pytest.fixture
def mine(data: Path, tmp_path: Path, here: Call) -> Path:
    """A folder with queries and judgements, and an engine of the documents only."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for line in (data / "corpus.jsonl").read_text().splitlines():
        record = json.loads(line)
        (folder / f"{record['_id']}.txt").write_text(record["text"])
    queries = [json.loads(line) for line in (data / "queries.jsonl").read_text().splitlines()]
    rows = [f'{query["_id"]},"{query["text"]}"\n' for query in queries]
    (tmp_path / "queries.csv").write_text("query_id,text\n" + "".join(rows))
    for split in ("train", "dev"):
        rows = [line.split("\t") for line in (data / "qrels" / f"{split}.tsv").read_text().splitlines()]
        (tmp_path / f"{split}.csv").write_text(
            "query_id,doc_id,relevance\n"
            + "".join(f"{query},{document}.txt,{grade}\n" for query, document, grade in rows)
        )
    status, _, said = here("index", str(folder), "--out", str(tmp_path / "e"), "--language", "english")
    assert status == 0, said
    return tmp_path


def test_judge_train_and_compare(mine: Path, here: Call) -> None:
    engine, queries = str(mine / "e"), str(mine / "queries.csv")
    status, out, said = here("judge", engine, str(mine / "train.csv"), "--queries", queries)
    assert status == 0, said
    assert "24 judgements of 24 queries (24 new)" in out
    assert "haybale train" in said
    status, out, said = here("judge", engine, str(mine / "dev.csv"), "--queries", queries, "--split", "dev")
    assert status == 0, said
    assert "the split dev has 8 queries" in out
    (mine / "more.tsv").write_text("train0\td01.txt\t1\ntrain0\td00.txt\t0\n")
    status, out, said = here("judge", engine, str(mine / "more.tsv"))
    assert status == 0, said
    assert "2 judgements of 1 queries, 1 of them in place of another grade; the split train has 24 queries" in out
    splits = {name: len(part.queries) for name, part in Engine.open(engine).whole.splits.items()}
    assert splits == {"train": 24, "dev": 8}
    status, out, said = here("train", engine, "--ranker", "knn-queries", "--out", str(mine / "model"))
    assert status == 0, said
    assert "Trained knn-queries on 24 queries" in out
    assert "24 judged queries are few" in said
    status, out, said = here("compare", engine, "--rankers", "bm25", "--model", f"m={mine / 'model'}")
    assert status == 0, said
    assert "8 queries" in out


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("train0\tnone.txt\t1\n", ["--queries"], "line 1: .*none.txt"),
        ("train0\td00.txt\t1\n", [], "line 1: .*'train0'.*text"),
        ("train0\td00.txt\tgood\n", ["--queries"], "line 1: .*'good'"),
        ("train0\td00.txt\t1\ntrain0\td00.txt\t2\n", ["--queries"], "line 2: .*one grade"),
        ("train0\td00.txt\t1\n", ["--queries", "--split", ""], "split"),
    ],
)
def test_wrong_judgements(mine: Path, here: Call, text: str, options: list[str], message: str) -> None:
    (mine / "qrels.tsv").write_text(text)
    if "--queries" in options:
        options = ["--queries", str(mine / "queries.csv"), *options[1:]]
    status, out, said = here("judge", str(mine / "e"), str(mine / "qrels.tsv"), *options)
    assert status == 2
    assert not out
    assert len(said.strip().splitlines()) == 1
    assert re.search(message, said), said
