"""What is imported into topics, who may import, what leaves as CSV, and how judges share the last documents."""

from __future__ import annotations

import csv
import io
import random
from typing import Any

import pytest
from support.decisions import decisions

from haybale import Engine, InputError, Review, parse
from haybale.review import JudgementStore
from haybale.service import Workspace
from haybale.service.imported_judgements import grades_of_file
from haybale.spreadsheets import as_cell, from_cell

IDS = sorted(decisions())


# Imports.


@pytest.mark.parametrize(
    "text",
    [
        "q1 0 a 1\nq2 0 a 0\n",
        "q1 0 a 1\nq2 0 b 0\n",
        "query-id\tcorpus-id\tscore\nq1\ta\t1\nq2\tb\t1\n",
        "query_id,doc_id,relevance\nq1,a,1\nq2,b,1\n",
        "topic;document;grade\nq1;a;1\nq2;b;1\n",
        "doc_id,grade\na,1\na,0\n",
        "q1 0 a 1\nq1 0 a 2\n",
        "doc_id,grade\na,1\nb\n",
        "doc_id,grade\na,1,7\n",
        "doc_id,grade\na,1.5\n",
        "doc_id,grade\na,-1\n",
        f"doc_id,grade\na,{'9' * 5000}\n",
        'doc_id,grade\n"a,1\n',
        "doc_id,title,grade\na,Rent, and more,1\n",
        "doc_id,grade,relevance\na,1,0\n",
        "",
    ],
)
def test_files_that_do_not_say_one_thing_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        grades_of_file(text.encode())


def test_the_query_of_a_file_can_be_chosen(client: Any, workspace: Any) -> None:
    topic = workspace.create_topic("dogs").id
    file = {"file": ("old.txt", f"q1 0 {IDS[0]} 1\nq2 0 {IDS[0]} 0\nq2 0 {IDS[1]} -2\n".encode())}
    assert client.post(f"/topics/{topic}/import", files=file).status_code == 422
    assert client.post(f"/topics/{topic}/import", files=file, data={"query": "q3"}).status_code == 422
    assert workspace.topic(topic).n_judged == 0
    assert client.post(f"/topics/{topic}/import", files=file, data={"query": "q2"}).status_code == 200
    assert (workspace.topic(topic).n_judged, workspace.topic(topic).n_relevant) == (2, 0)
    assert grades_of_file(b"q1 0 a 1\nq1 0 a 1\n") == {"a": 1}  # says one thing twice


def test_one_document_with_two_grades_in_json(client: Any, workspace: Any) -> None:
    topic = workspace.create_topic("dogs").id
    headers = {"content-type": "application/json"}
    for path, body in (
        (f"/api/topics/{topic}/import", f'{{"{IDS[0]}": 1, "{IDS[0]}": 0}}'),
        ("/api/topics", f'{{"text": "new", "known": {{"{IDS[0]}": 1, "{IDS[0]}": 0}}}}'),
    ):
        assert client.post(path, content=body, headers=headers).status_code == 422
    assert len(workspace.topics()) == 1
    assert workspace.topic(topic).n_judged == 0
    body = f'{{"{IDS[0]}": 1, "{IDS[0]}": 1}}'
    assert client.post(f"/api/topics/{topic}/import", content=body, headers=headers).json() == {"n_added": 1}


def test_known_documents_are_not_imported_into_a_topic_that_exists(client: Any, workspace: Any) -> None:
    made = client.post("/api/topics", json={"text": "dogs", "known": {IDS[0]: 1}})
    assert made.status_code == 201
    for body in ({"text": "dogs"}, {"name": "dogs"}, {"text": " dogs ", "name": " dogs "}):
        answer = client.post("/api/topics", json=body | {"known": {IDS[1]: 1}})
        assert answer.status_code == 409, body
    for form in ({"text": "dogs", "known": IDS[1]}, {"name": "dogs", "known": IDS[1]}):
        assert client.post("/topics", data=form).status_code == 422
    assert workspace.topic(1).n_judged == 1
    again = client.post("/api/topics", json={"text": "dogs"})  # finds it
    assert again.json()["id"] == made.json()["id"]
    with Review(workspace.engine, topic="dogs", known=[IDS[1]], judgements=workspace.store):  # whoever has the file may
        assert workspace.topic(1).n_judged == 2


# Formulas.


def test_no_cell_of_an_export_is_a_formula(tmp_path: Any) -> None:
    ids = ["=d1", "@d2", "-d3", "+d4", "'d5", "'=d6", "-7", "plain"]
    texts = ["=1+1", "@SUM(A1)", "-1+2", "+1", "\t=1", "\r=1+1", "a\r=1+1", "ok"]
    documents = {
        doc_id: {"text": f"Dog {text}", "title": text.strip() or "x"} for doc_id, text in zip(ids, texts, strict=True)
    }
    engine = Engine(documents, language="english", encoder="tfidf(min_df=1)")
    with JudgementStore() as store:
        workspace = Workspace(engine, {"bm25": parse("bm25").fit(engine)}, store)
        topic = workspace.create_topic("dogs").id
        for doc_id, text in zip(ids, texts, strict=True):
            workspace.next(topic, 8)
            workspace.judge(topic, doc_id, 1 if doc_id != "-d3" else 0, judge="=cmd()", note=text, seconds=1.5)
        exported = workspace.export(topic, "csv")
        rows = list(csv.DictReader(io.StringIO(exported, newline="")))
        assert len(rows) == len(ids)
        for row in rows:
            for name, cell in row.items():
                assert cell[:1] not in ("=", "@", "\t", "\r"), (name, cell)
                assert cell[:1] not in ("+", "-") or float(cell) is not None, (name, cell)
            assert float(row["grade"]) in (0, 1)
            assert float(row["seconds"]) == 1.5
        assert [row["notes"] for row in rows][-1] == "ok"
        assert grades_of_file(exported.encode()) == {doc_id: int(doc_id != "-d3") for doc_id in ids}
        other = workspace.create_topic("other").id
        assert workspace.import_judgements(other, grades_of_file(exported.encode())) == len(ids)


def test_cells_are_read_back() -> None:
    """Law: any text comes back, and none begins as a formula."""
    rng = random.Random(0)
    for _ in range(5000):
        text = "".join(rng.choice("'=+-@\t\r\n 1a.＝") for _ in range(rng.randint(0, 5)))
        cell = as_cell(text)
        assert from_cell(cell) == text
        assert not cell.startswith(("=", "@", "\t", "\r", "＝")), cell
        if cell.startswith(("+", "-")):
            float(cell)  # a number, which stays one
    assert [as_cell(value) for value in (-1, 2.5, None, True)] == [-1, 2.5, None, True]


def test_skipped_files_are_no_formulas(tmp_path: Any) -> None:
    from support.commands import haybale as command

    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_text("Dogs bark.")
    (tmp_path / "files" / "=1+1.pdf").write_bytes(b"no PDF")
    done = command("index", str(tmp_path / "files"), "--out", str(tmp_path / "engine"))
    assert done.returncode == 0, done.stderr
    rows = list(csv.reader((tmp_path / "engine" / "skipped.csv").read_text().splitlines()))
    assert rows[1][0] == "'=1+1.pdf"


# Judges who share the last documents.


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def shared(rankers: Any) -> tuple[Workspace, int, Clock]:
    documents = {f"d{number}": f"Dog number {number} barks." for number in range(6)}
    engine, clock = Engine(documents, language="english", encoder="tfidf(min_df=1)"), Clock()
    workspace = Workspace(engine, {"bm25": parse("bm25").fit(engine)}, JudgementStore(), clock=clock)
    return workspace, workspace.create_topic("dogs").id, clock


def test_documents_that_others_hold_are_not_all_judged(shared: tuple[Workspace, int, Clock]) -> None:
    from starlette.testclient import TestClient

    from haybale.service import create_app

    workspace, topic, clock = shared
    held = {document.doc_id for document in workspace.next(topic, 6, "ann")}
    assert len(held) == 6
    assert workspace.next(topic, 4, "bob") == []
    assert (workspace.n_held(topic, "bob"), workspace.n_held(topic, "ann")) == (6, 0)
    with TestClient(create_app(workspace), base_url="http://127.0.0.1:8000") as client:
        answer = client.get(f"/api/topics/{topic}/next?judge=bob").json()
        assert answer == {"documents": [], "n_held": 6}
        client.cookies.set("judge", "bob")
        assert "Everything is judged" not in client.get(f"/topics/{topic}/review").text
    clock.now = 60.0
    workspace.next(topic, 6, "ann")  # asks again, and cannot hold them for ever by that
    clock.now = 125.0
    assert {document.doc_id for document in workspace.next(topic, 6, "bob")} == held
    assert workspace.next(topic, 6, "ann") == []
    assert workspace.n_held(topic, "bob") == 0
    for doc_id in held:
        workspace.judge(topic, doc_id, 1, "bob")
    for judge in ("ann", "bob"):
        assert (workspace.next(topic, 1, judge), workspace.n_held(topic, judge)) == ([], 0)


@pytest.mark.parametrize("seed", range(10))
def test_judges_never_block_each_other_for_ever(shared: tuple[Workspace, int, Clock], seed: int) -> None:
    """Law: whoever gives up, and whoever goes on asking, a judge who waits gets every document in the end."""
    workspace, topic, clock = shared
    rng = random.Random(seed)
    for _ in range(rng.randint(0, 15)):
        judge, action = rng.choice(("ann", "bob", "cyd")), rng.random()
        documents = workspace.next(topic, rng.randint(1, 4), judge)
        if documents and action < 0.3:
            workspace.judge(topic, documents[0].doc_id, 1, judge)
        elif documents and action < 0.4:
            workspace.skip(topic, documents[0].doc_id, judge)
        clock.now += rng.choice((0.0, 1.0, 100.0, 700.0))
    for _ in range(40):
        workspace.next(topic, 4, "bob")  # a page that is open, and only asks
        for document in workspace.next(topic, 1, "ann"):
            workspace.judge(topic, document.doc_id, 0, "ann")
        clock.now += 50.0
    assert workspace.topic(topic).n_judged == 6
    assert workspace.n_held(topic, "ann") == 0
