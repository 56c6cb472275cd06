"""Pages and the REST interface show duplicates with their sources, separate and join them, and count groups once."""

from __future__ import annotations

from typing import Any

import pytest

from haybale import Engine, parse
from haybale.review import JudgementStore
from haybale.service import Workspace, create_app

RECORDS = {
    f"{database}:{number}": {
        "title": f"What is known of {about} by now",
        "text": f"It was asked what happened to {about} in {number} towns. " * 4,
        "year": 2001,
        "file": f"{database}.ris",
    }
    for number, about in enumerate(("dogs on trains", "leases of flats", "wheat and nitrogen"))
    for database in ("embase", "pubmed")
    if number < 2 or database == "embase"
}


@pytest.fixture
def served(tmp_path: Any) -> Any:
    testclient = pytest.importorskip("starlette.testclient")
    engine = Engine(RECORDS, language="english", encoder="tfidf(min_df=1)")
    with JudgementStore(tmp_path / "judgements.sqlite") as store:
        workspace = Workspace(engine, {"bm25": parse("bm25").fit(engine)}, store)
        workspace.create_topic("dogs")
        with testclient.TestClient(create_app(workspace), base_url="http://127.0.0.1:8000") as client:
            page = client.get("/topics/1/duplicates").text
            client.headers["x-csrf-token"] = page.partition('name="csrf_token" value="')[2].partition('"')[0]
            yield client, workspace


def posted(client: Any, **fields: str) -> Any:
    return client.post("/topics/1/duplicates", data=fields, follow_redirects=False)


def test_a_group_is_one_document_of_a_topic(served: Any) -> None:
    client, _ = served
    page = client.get("/topics/1/duplicates").text
    assert "<b>5</b> records, <b>2</b> duplicates, <b>3</b> to read" in page
    for doc_id in ("embase:0", "pubmed:0", "embase:1", "pubmed:1"):
        assert f'value="{doc_id}"' in page
    assert 'value="embase:2"' not in page
    assert "pubmed.ris" in client.get("/topics/1/review").text
    assert "/topics/1/duplicates" in client.get("/topics/1/progress").text
    judged = client.post("/api/topics/1/judgements", json={"doc_id": "pubmed:0", "grade": 1, "judge": "Ada"})
    assert judged.status_code == 201
    assert client.get("/api/topics/1").json()["n_judged"] == 1
    left = [document["doc_id"] for document in client.get("/api/topics/1/next?n=9").json()["documents"]]
    assert sorted(left) == ["embase:1", "embase:2"]
    assert "Ada" in client.get("/documents/embase%3A0").text  # the group carries the judgement
    progress = client.get("/api/topics/1/progress").json()
    assert (progress["n_documents"], progress["n_duplicates"], progress["n_judged"]) == (3, 2, 1)


def test_judges_separate_and_join(served: Any) -> None:
    client, workspace = served
    client.post("/api/topics/1/judgements", json={"doc_id": "embase:0", "grade": 1, "judge": "Ada"})
    assert posted(client, action="separate", doc_ids="pubmed:0").status_code == 303
    assert "<b>4</b> to read" in client.get("/topics/1/duplicates").text
    left = [document["doc_id"] for document in client.get("/api/topics/1/next?n=9").json()["documents"]]
    assert "pubmed:0" in left
    assert posted(client, action="separate", doc_ids="embase:2").status_code == 422
    assert posted(client, action="other", doc_ids="embase:2").status_code == 422
    joined = {"action": "join", "doc_ids": ["pubmed:0", "embase:2"], "judge": "Bob"}
    answer = client.post("/api/topics/1/duplicates", json=joined)
    assert answer.json() == {"n_documents": 5, "n_duplicates": 2, "n_distinct": 3}
    groups = client.get("/api/topics/1/duplicates").json()
    assert groups["n_groups"] == 2
    assert {tuple(group["doc_ids"]) for group in groups["groups"]} == {
        ("embase:1", "pubmed:1"),
        ("pubmed:0", "embase:2"),
    }
    assert client.get("/api/topics/1/duplicates?offset=1").json()["groups"] == groups["groups"][1:]
    assert [event.judge for event in workspace.store.events(workspace.store.topics()[0])] == ["", "Bob"]


def test_the_engine_says_how_many_come_from_each_source(served: Any) -> None:
    client, _ = served
    found = client.get("/api/duplicates").json()
    assert (found["n_documents"], found["n_duplicates"], found["n_groups"]) == (5, 2, 2)
    assert found["by_source"] == [
        {"source": "embase.ris", "documents": 3, "duplicates": 0},
        {"source": "pubmed.ris", "documents": 2, "duplicates": 2},
    ]


def test_a_topic_may_read_all(served: Any) -> None:
    client, _ = served
    assert posted(client, action="all").status_code == 303
    assert "Read each group of duplicates once" in client.get("/topics/1/duplicates").text
    assert client.get("/api/topics/1/progress").json()["n_documents"] == 5
    posted(client, action="once")
    assert client.get("/api/topics/1/progress").json()["n_documents"] == 3
