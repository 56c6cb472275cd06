"""Protocols, reasons, full texts, PRISMA numbers and the end of topics: on pages without a script, and by REST."""

from __future__ import annotations

import json

import pytest
from starlette.testclient import TestClient

from haybale.errors import InputError
from haybale.review import NOT_RETRIEVED
from haybale.service import Workspace, create_app
from haybale.service.security import Access
from haybale.service.users import User, Users, digest_of

BAD = "<script>alert(1)</script>"
FORM = {
    "inclusion_criteria": f"# Who\n\n- dogs {BAD}\n\n[link](javascript:alert(1))",
    "exclusion_criteria": "## What\nNo *cats*.",
    "exclusion_reasons": f"no dog\nno {BAD}\n",
    "include_keywords": "dog*\r\ndamage",
    "exclude_keywords": "rent",
    "n_stages": "2",
}


@pytest.fixture
def topic(workspace: Workspace) -> int:
    return workspace.create_topic("dog damage", name="dogs").id


def test_the_protocol_is_written_and_shown_beside_records(client: TestClient, workspace: Workspace, topic: int) -> None:
    saved = client.post(f"/topics/{topic}/protocol", data=FORM)
    assert "Saved." in saved.text
    protocol = workspace.desk.protocol(topic)
    assert protocol.include_keywords == ("dog*", "damage")
    assert (protocol.n_stages, protocol.criteria_as_query) == (2, False)
    page = client.get(f"/topics/{topic}/review").text
    assert "<h4>Who</h4>" in page
    assert "<em>cats</em>" in page
    assert "<script>alert" not in page
    assert 'href="javascript' not in page
    document = client.get("/documents/dog%2F1", params={"topic": topic}).text
    assert '<mark class="include">dog' in page.lower()
    assert '<mark class="include">dog' in document.lower()
    assert "(dashed line)" in document
    assert '<mark class="include">' not in client.get("/documents/dog%2F1").text
    assert f'value="no {BAD}"' not in page
    assert page.count('type="checkbox" name="reason"') == 2
    wrong = client.post(f"/topics/{topic}/protocol", data=FORM | {"exclusion_reasons": "x" * 300})
    assert wrong.status_code == 422
    assert "x" * 300 in wrong.text  # what was entered is still there
    assert len(workspace.desk.versions(topic)) == 6
    assert client.post(f"/topics/{topic}/protocol", data=FORM | {"n_stages": "3"}).status_code == 422


def test_reasons_are_given_without_a_script(client: TestClient, workspace: Workspace, topic: int) -> None:
    client.post(f"/topics/{topic}/protocol", data=FORM)
    first, second, third = (document.doc_id for document in workspace.next(topic, 3))
    send = f"/topics/{topic}/judge"
    client.post(send, data={"doc_id": first, "grade": "0", "reason": ["no dog", " of my own ", ""]})
    client.post(send, data={"doc_id": second, "grade": "1", "reason": ["no dog"]})  # relevant: it has no reason
    client.post(send, data={"doc_id": third, "grade": "0", "reason": [""]})
    assert workspace.judgements(topic)["reasons"].tolist() == [["no dog", "of my own"], [], []]
    client.post(send, data={"doc_id": third, "grade": "0", "reason": ["no dog"]})  # adds a reason
    client.post(send, data={"doc_id": third, "grade": "0"})  # repeats the last one, and takes nothing back
    assert workspace.judgements(topic)["reasons"].tolist()[-1] == ["no dog"]
    assert "of my own" in client.get(f"/topics/{topic}").text


def test_full_texts_are_judged_without_a_script(client: TestClient, workspace: Workspace, topic: int) -> None:
    assert "one stage" in client.get(f"/topics/{topic}/full-text").text
    client.post(f"/topics/{topic}/protocol", data=FORM)
    ids = [document.doc_id for document in workspace.next(topic, 4)]
    for doc_id in ids:
        workspace.judge(topic, doc_id, 1, "Ada")
    page, send = f"/topics/{topic}/full-text", f"/topics/{topic}/full-text/judge"
    assert f'data-doc="{ids[0]}"' in client.get(page).text
    client.post(send, data={"doc_id": ids[0], "grade": "0", "reason": ["no dog"], "note": "read", "seconds": "9"})
    client.post(send, data={"doc_id": ids[1], "grade": "not-retrieved"})
    client.post(send, data={"doc_id": ids[2], "grade": "skip"})
    client.post(send, data={"doc_id": ids[3], "grade": "1"})
    back = client.post(send, data={"grade": "undo"}, follow_redirects=False).headers["location"]
    assert f'data-doc="{ids[3]}"' in client.get(back).text
    rows = workspace.desk.full_text_judgements(topic).to_dict("records")
    assert [(row["doc_id"], row["grade"], row["reasons"]) for row in rows] == [
        (ids[0], 0, ["no dog"]), (ids[1], 0, [NOT_RETRIEVED]),
    ]  # fmt: skip
    assert (rows[0]["note"], rows[0]["seconds"]) == ("read", 9.0)
    for wrong in ({"grade": "1", "doc_id": "tax/2"}, {"grade": "maybe", "doc_id": ids[0]}):
        assert client.post(send, data=wrong).status_code == 422
    progress = client.get(f"{page}/progress").text
    assert "1 not retrieved, 1 put off" in progress
    assert client.get(f"{page}/cards").text.count("<article") == 2


def test_full_texts_are_held_for_the_judge_who_reads_them(workspace: Workspace, topic: int) -> None:
    now = [0.0]
    workspace = Workspace(workspace.engine, {"bm25": workspace.ranker("bm25")}, workspace.store, clock=lambda: now[0])
    desk = workspace.desk
    desk.change_protocol(topic, {"n_stages": 2})
    ids = [document.doc_id for document in workspace.next(topic, 2)]
    for doc_id in ids:
        workspace.judge(topic, doc_id, 1)

    def following(judge: str) -> str:
        return desk.next_full_text(topic, 1, judge)[0].doc_id

    assert [following("Ada"), following("Ada"), following("Bob")] == [ids[0], ids[0], ids[1]]
    assert following("Eve") in ids  # nothing else is left
    now[0] = 2000
    assert following("Bob") == ids[0]
    desk.judge_full_text(topic, ids[0], 1, "Bob")
    assert following("Ada") == ids[1]


def test_prisma_on_the_page_and_as_files(client: TestClient, workspace: Workspace, topic: int) -> None:
    [document] = workspace.next(topic)
    workspace.judge(topic, document.doc_id, 0, reasons=["no dog"])
    page = client.get(f"/topics/{topic}/prisma").text
    assert 'role="img" aria-labelledby="flow-title flow-desc"' in page
    assert "Records excluded: no dog" in page
    for format, kind in (("svg", "image/svg+xml"), ("csv", "text/csv; charset=utf-8"), ("json", "application/json")):
        file = client.get(f"/topics/{topic}/prisma/file", params={"format": format})
        assert file.headers["content-type"] == kind
        assert file.headers["content-disposition"].startswith('attachment; filename="PRISMA-dogs.')
        assert client.get(f"/api/topics/{topic}/prisma", params={"format": format}).text == file.text
    assert json.loads(file.text)["excluded"] == {"no dog": 1}
    by_court = client.get(f"/topics/{topic}/prisma", params={"source": "court"}).text
    assert "Records identified from BGH" in by_court
    assert client.get(f"/topics/{topic}/prisma", params={"source": BAD}).status_code == 422
    assert client.get(f"/topics/{topic}/prisma/file", params={"format": "png"}).status_code == 422


def test_topics_are_renamed_closed_and_deleted_on_pages(client: TestClient, workspace: Workspace, topic: int) -> None:
    manage = f"/topics/{topic}/manage"
    assert "hounds" in client.post(manage, data={"action": "rename", "name": "hounds"}).text
    assert workspace.topic(topic).name == "hounds"
    workspace.prepare_reviews()
    assert "closed: it can be read" in client.post(manage, data={"action": "close"}).text
    assert "This topic is closed" in client.get(f"/topics/{topic}/review").text
    assert client.post(f"/topics/{topic}/judge", data={"doc_id": "dog/1", "grade": "1"}).status_code == 422
    client.post(manage, data={"action": "reopen"})
    assert client.post(f"/topics/{topic}/judge", data={"doc_id": "dog/1", "grade": "1"}).status_code == 200
    listed = client.post(manage, data={"action": "delete"}).text
    assert "Deleted topics" in listed
    assert workspace.topics() == []
    assert workspace.document("dog/1").judged == {}
    with pytest.raises(InputError, match="deleted"):
        workspace.create_topic("dog damage", name="hounds")
    client.post(manage, data={"action": "restore"})
    assert [summary.n_judged for summary in workspace.topics()] == [1]
    for wrong in ({"action": "burn"}, {"action": "rename", "name": " "}):
        assert client.post(manage, data=wrong).status_code == 422


def test_rest_has_all_of_it(client: TestClient, workspace: Workspace, topic: int) -> None:
    api = f"/api/topics/{topic}"
    changes = {"exclusion_reasons": ["no dog"], "n_stages": 2, "judge": "Ada", "criteria_as_query": True}
    assert client.patch(f"{api}/protocol", json=changes).json()["protocol"]["exclusion_reasons"] == ["no dog"]
    versions = client.get(f"{api}/protocol").json()["versions"]
    assert [(version["part"], version["judge"]) for version in versions] == [
        ("exclusion_reasons", "Ada"), ("n_stages", "Ada"), ("criteria_as_query", "Ada"),
    ]  # fmt: skip
    assert client.patch(f"{api}/protocol", json={"n_stages": 4}).status_code == 422
    judged = {"doc_id": "dog/1", "grade": 0, "judge": "Ada", "reasons": ["no dog"]}
    assert client.post(f"{api}/judgements", json=judged).status_code == 201
    assert client.get(f"{api}/judgements").json()["judgements"][0]["reasons"] == ["no dog"]
    assert client.post(f"{api}/judgements", json=judged | {"grade": 1}).status_code == 409
    client.post(f"{api}/judgements", json=judged | {"grade": 1, "reasons": []})
    assert [document["doc_id"] for document in client.get(f"{api}/full-text/next").json()["documents"]] == ["dog/1"]
    stage = f"{api}/full-text"
    client.post(f"{stage}/skip", json={"doc_id": "dog/1", "judge": "Ada"})
    assert client.post(f"{stage}/judgements", json=judged).status_code == 201
    assert client.get(f"{stage}/progress").json()["n_assessed"] == 1
    assert client.post(f"{stage}/undo", json={"judge": "Ada"}).json() == {"doc_id": "dog/1"}
    changed = client.patch(api, json={"name": "hounds", "is_closed": True, "is_deleted": True}).json()
    assert (changed["name"], changed["is_closed"], changed["is_deleted"], changed["n_stages"]) == (
        "hounds",
        True,
        True,
        2,
    )
    assert client.get("/api/topics").json()["topics"] == []
    assert [each["id"] for each in client.get("/api/deleted-topics").json()["topics"]] == [topic]
    assert client.patch(api, json={"is_deleted": False}).json()["is_closed"]
    assert client.post(f"{api}/judgements", json=judged).status_code == 409
    assert not client.patch(api, json={"is_closed": False}).json()["is_closed"]


def test_judges_write_protocols_and_admins_end_topics(workspace: Workspace, topic: int) -> None:
    rights = {"ada": "judge", "eve": "administer"}
    users = Users(User(name, right, digest=digest_of(f"token of {name}")) for name, right in rights.items())
    with TestClient(create_app(workspace, Access(users)), base_url="http://127.0.0.1:8000") as client:
        ada, eve = ({"Authorization": f"Bearer token of {name}"} for name in ("ada", "eve"))
        protocol = {"inclusion_criteria": "dogs"}
        assert client.patch(f"/api/topics/{topic}/protocol", json=protocol, headers=ada).status_code == 200
        assert workspace.desk.versions(topic)[0].judge == "ada"
        for method, path in (("PATCH", f"/api/topics/{topic}"), ("GET", "/api/deleted-topics")):
            body = {"is_closed": True} if method == "PATCH" else None
            assert client.request(method, path, json=body, headers=ada).status_code == 403
            assert client.request(method, path, json=body, headers=eve).status_code == 200
        [event] = workspace.store.events(workspace.store.topic("dogs"), "closed")
        assert event.judge == "eve"
        page = client.get(f"/topics/{topic}", headers=ada).text
        assert "Rename" not in page
        assert "Rename" in client.get(f"/topics/{topic}", headers=eve).text
