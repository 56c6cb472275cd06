"""Pages and the REST interface say which judgements moved, and list those whose text is gone or was changed."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from haybale import Engine, parse
from haybale.review import JudgementStore
from haybale.service import Workspace, create_app

TEXTS = {"r1": "Dogs bark.", "r2": "Cats purr.", "r3": "Cows moo.", "r4": "Owls hoot."}


@pytest.fixture
def changed(tmp_path: Any) -> Any:
    """Return a client of a workspace in which one judged document moved, one was replaced and one was removed."""
    testclient = pytest.importorskip("starlette.testclient")
    engine = Engine(TEXTS, language="english", encoder="tfidf(min_df=1)")
    with JudgementStore(tmp_path / "judgements.sqlite") as store:
        workspace = Workspace(engine, {"bm25": parse("bm25").fit(engine)}, store)
        topic = workspace.create_topic("pets").id
        for doc_id in ("r1", "r2", "r3"):
            workspace.next(topic, 4, "Ada")
            workspace.judge(topic, doc_id, 1, "Ada")
        engine.replace({"r9": "Dogs bark.", "r2": {"text": "Hens cluck.", "title": "Hens"}}, remove=["r1", "r3"])
        assert workspace.prepare_reviews()
        with testclient.TestClient(create_app(workspace), base_url="http://127.0.0.1:8000") as client:
            yield client, workspace


def test_pages_list_what_moved_and_what_is_gone(changed: Any) -> None:
    client, _ = changed
    for path in ("/topics/1", "/topics/1/review", "/topics/1/progress"):
        text = client.get(path).text
        unattached = text.partition("unattached")[2]
        assert "r2" in unattached, path
        assert "r3" in unattached, path
        assert "to another id" in unattached, path
    row = client.get("/topics/1").text.partition("<tbody>")[2].partition("</tbody>")[0]
    assert "Hens" not in row
    assert row.count('class="badge"') == 2
    assert "2 judged" in client.get("/topics").text


def test_the_rest_interface_says_the_same(changed: Any) -> None:
    client, workspace = changed
    progress = client.get("/api/topics/1/progress").json()
    assert (progress["moved"], progress["removed"], progress["replaced"]) == ({"r1": "r9"}, ["r3"], ["r2"])
    assert progress["undecided"] == []
    (topic,) = client.get("/api/topics").json()["topics"]
    assert (topic["n_judged"], topic["n_orphaned"], topic["n_replaced"]) == (3, 1, 1)
    rows = client.get("/api/topics/1/judgements").json()["judgements"]
    assert {row["doc_id"]: row["status"] for row in rows} == {"r9": "", "r2": "replaced", "r3": "orphaned"}
    export = csv.DictReader(io.StringIO(client.get("/api/topics/1/export?format=csv").text))
    assert {row["doc_id"]: row["passage"] for row in export} == dict(
        zip(("r9", "r2", "r3"), TEXTS.values(), strict=False)
    )
    workspace.judge(1, "r2", 1, "Ada")  # of the new text, with the same grade
    assert client.get("/api/topics/1/progress").json()["replaced"] == []
    assert workspace.topic(1).n_replaced == 0
