"""In double screening, nothing that a judge can ask the service for tells what another has judged, until both have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient
from support.decisions import decisions

from haybale.review import JudgementStore, Review
from haybale.service import Workspace, create_app
from haybale.service.security import Access
from haybale.service.users import User, Users, digest_of

IDS = sorted(decisions())
ADA, BOB, CYD, EVE = ({"authorization": f"Bearer a token of {name}'s, long"} for name in ("Ada", "Bob", "Cyd", "Eve"))
RIGHTS = {"Ada": "judge", "Bob": "judge", "Cyd": "judge", "Eve": "administer"}
USERS = [User(name, right, digest=digest_of(f"a token of {name}'s, long")) for name, right in RIGHTS.items()]


class FixedLearner:
    """A learner that learns nothing, so that the ranking of other documents is the same whatever was judged."""

    def __init__(self, engine: Any, text: str | None, random_state: int) -> None:
        self.offsets = engine.collection.passages.doc_offsets
        self.n = engine.collection.n_documents

    def judge(self, document: int, grade: float) -> None: ...

    def unjudge(self, document: int) -> None: ...

    def scores(self) -> np.ndarray:
        return -np.arange(self.n, dtype=float)

    def probabilities(self) -> np.ndarray:
        return np.full(self.n, 0.25)

    def disagreement(self) -> np.ndarray:
        return self.scores()

    def best_passage(self, document: int) -> int:
        return int(self.offsets[document])


def site_of(library: Any, rankers: Any, share: float = 1.0) -> tuple[TestClient, Workspace, int]:
    workspace = Workspace(library, rankers, JudgementStore())
    client = TestClient(create_app(workspace, Access(Users(USERS))), base_url="http://127.0.0.1:8000")
    body = {"text": "damage by dogs", "double_share": share}
    topic = client.post("/api/topics", json=body, headers=ADA).json()["id"]
    return client, workspace, topic


def say(client: TestClient, topic: int, doc_id: str, grade: int, who: dict[str, str], note: str = "") -> Any:
    body = {"doc_id": doc_id, "grade": grade, "note": note or None}
    answer = client.post(f"/api/topics/{topic}/judgements", json=body, headers=who)
    assert answer.status_code == 201
    return answer.json()


def addresses(topic: int, doc_id: str) -> Iterator[str]:
    """Yield the address of everything that shows documents or judgements."""
    root = f"/topics/{topic}"
    yield from ("/topics", root, f"{root}/review", f"{root}/judges", f"{root}/progress", f"{root}/cards?n=10", "/train")
    yield from (f"/documents/{doc_id}?topic={topic}", f"/api/documents/{doc_id}")
    yield from (f"{root}/cards?doc={doc_id}", f"{root}/review?doc={doc_id}")
    names = ("", "/next?n=24", "/next?n=24&independent=true", "/judgements", "/progress", "/agreement", "/screening")
    yield from (f"/api{root}{name}" for name in (*names, "/conflicts", "/conflicts?resolved=true"))
    for prefix in ("", "/api"):
        yield from (f"{prefix}{root}/export?format={name}" for name in ("qrels", "csv", "beir", "ris"))
    for learned in ("", "&learned=1"):
        for path in ("/?", f"/why?id={doc_id}&"):
            yield f"{path}q=damage+of+a+dog&topic={topic}{learned}"
    yield f"/sent?q=damage+of+a+dog&topic={topic}&learned=1&k=5"
    yield from ("/api/topics", "/api/search?q=dogs&k=24", f"/api/explain?q=dogs&doc_id={doc_id}", "/api/train")


def seen(client: TestClient, addresses: list[str], who: dict[str, str]) -> dict[str, str]:
    """Return what a user sees at each address, without times and tokens of forms."""
    texts = {}
    for address in addresses:
        answer = client.get(address, headers=who)
        assert answer.status_code == 200, (address, answer.text)
        plain = re.sub(r'name="csrf_token" value="[^"]*"', "", answer.text)
        texts[address] = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d[0-9:.+]*", "TIME", plain)
    return texts


def test_no_answer_depends_on_what_another_judge_has_said(
    library: Any, rankers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: with other grades and notes of Ada, Bob sees the same, everywhere, until he has judged. So do admins."""
    monkeypatch.setattr("haybale.review.review.topic_learner", FixedLearner)
    answers = []
    for grade, note in ((0, "Ada says no"), (1, "Ada says yes")):
        client, workspace, topic = site_of(library, rankers, 0.5)
        doc_id, both, other, *_ = filter(workspace.judges(topic).plan.needs_two, IDS)
        say(client, topic, both, 1, ADA)
        say(client, topic, both, 1, BOB)
        say(client, topic, doc_id, grade, ADA, note)
        say(client, topic, other, grade, ADA, note)
        some = [f"/topics/{topic}", f"/api/topics/{topic}/export?format=csv", f"/api/documents/{doc_id}"]
        answers.append({"Bob": seen(client, [*addresses(topic, doc_id)], BOB)})
        answers[-1] |= {"Eve": seen(client, some, EVE), "Ada": seen(client, some, ADA)}
        for address in (f"/api/topics/{topic}/export?hidden=true", f"/topics/{topic}/export?hidden=true"):
            assert client.get(address, headers=BOB).status_code == 403
            assert note in client.get(f"{address}&format=csv", headers=EVE).text
        assert client.get(f"/api/topics/{topic}/judgements?judge=Ada", headers=BOB).status_code == 403
        skipped = client.post(f"/api/topics/{topic}/skip", json={"doc_id": doc_id}, headers=BOB)
        assert skipped.json() == {"doc_id": doc_id}
        answer = say(client, topic, doc_id, 1 - grade, BOB)
        assert answer["contradicts"] == {}  # is listed with the conflicts instead
        answers[-1]["after"] = seen(client, [*some, f"/topics/{topic}/judges"], BOB)
    for who in ("Bob", "Eve"):
        for address, text in answers[0][who].items():
            assert text == answers[1][who][address], (who, address)
            assert "Ada says" not in text, (who, address)
    for address, text in answers[0]["Ada"].items():
        assert text != answers[1]["Ada"][address], address
    for address, text in answers[0]["after"].items():
        assert text != answers[1]["after"][address], address
    assert "Ada says yes" in answers[1]["after"][f"/topics/{topic}/judges"]


def test_the_learned_order_does_not_tell_the_grade(library: Any, rankers: Any) -> None:
    client, workspace, topic = site_of(library, rankers)
    say(client, topic, "dog/1", 1, ADA)
    query = {"q": "the appeal was allowed", "topic": str(topic), "learned": "1", "id": "dog/1"}
    with_review = "judgements of the topic, rank"
    assert with_review in client.get("/why", params=query, headers=ADA).text
    assert with_review not in client.get("/why", params=query, headers=BOB).text
    assert "dog/1" in client.get("/", params=query | {"k": "24"}, headers=BOB).text
    say(client, topic, "dog/1", 0, BOB)
    assert with_review in client.get("/why", params=query, headers=BOB).text
    assert [conflict.doc_id for conflict in workspace.judges(topic).conflicts()] == ["dog/1"]


def test_conflicts_are_resolved_over_rest_and_on_the_page(library: Any, rankers: Any) -> None:
    client, _, topic = site_of(library, rankers)
    for doc_id in IDS[:3]:
        say(client, topic, doc_id, 1, ADA, "yes & <b>")
        say(client, topic, doc_id, 0, BOB, "no")
    root = f"/api/topics/{topic}/conflicts"
    [first, *_] = client.get(root, headers=CYD).json()["conflicts"]
    assert [(row["judge"], row["grade"], row["note"]) for row in first["judgements"]] == [
        ("Ada", 1, "yes & <b>"), ("Bob", 0, "no"),
    ]  # fmt: skip
    answer = client.post(root, json={"doc_id": IDS[0], "grade": 1}, headers=ADA)
    assert answer.status_code == 409  # alone
    answer = client.post(root, json={"doc_id": IDS[0], "grade": 1, "judge": "Cyd"}, headers=ADA)
    assert answer.status_code == 403  # as somebody else
    assert client.post(root, json={"doc_id": IDS[0], "grade": 0, "note": "late"}, headers=CYD).status_code == 201
    together = {"doc_id": IDS[1], "grade": 0, "together_with": "Bob"}
    assert client.post(root, json=together, headers=ADA).status_code == 201
    resolved = client.get(f"{root}?resolved=true", headers=BOB).json()["conflicts"]
    assert [conflict["resolution"]["by"] for conflict in resolved] == [["Cyd"], ["Ada", "Bob"]]
    assert client.get(f"/api/topics/{topic}", headers=BOB).json()["n_relevant"] == 1
    document = client.get(f"/api/documents/{IDS[0]}", headers=BOB).json()
    assert (document["resolved"], document["contradictory"]) == ({"damage by dogs": 0}, [])
    assert client.post(f"{root}/undo", json={"doc_id": IDS[0]}, headers=BOB).status_code == 200
    assert client.post(f"{root}/undo", json={"doc_id": IDS[0]}, headers=BOB).status_code == 409
    page = client.get(f"/topics/{topic}/judges", headers=BOB).text
    assert "yes &amp; &lt;b&gt;" in page
    assert page.count('name="together_with" value="Ada"') == 2
    assert 'name="together_with"' not in client.get(f"/topics/{topic}/judges", headers=CYD).text
    summary = client.get(f"/api/topics/{topic}/agreement", headers=BOB).json()
    assert [(pair["judge"], pair["documents"], pair["pabak"]) for pair in summary["pairs"]] == [("Ada", 3, -1.0)]
    assert [row["documents"] for row in summary["over_time"]] == [1, 2, 3]


def test_admins_alone_change_who_judges(library: Any, rankers: Any) -> None:
    client, workspace, topic = site_of(library, rankers)
    root = f"/api/topics/{topic}/screening"
    assert client.get(root, headers=BOB).json() == {"double_share": 1.0, "seed": 0}
    assert client.post(root, json={"double_share": 0}, headers=BOB).status_code == 403
    assert client.post(root, json={"double_share": 0.3, "seed": 5}, headers=EVE).json() == {
        "double_share": 0.3,
        "seed": 5,
    }
    assert client.post(root, json={"double_share": 2}, headers=EVE).status_code == 422
    assert (
        client.post("/api/topics", json={"text": "damage by dogs", "double_share": 0.5}, headers=BOB).status_code == 409
    )
    assert workspace.topic(topic).double_share == 0.3
    number = Review(workspace.engine, "rent", judgements=workspace.store, combine="latest").topic.number
    assert client.post(f"/api/topics/{number}/screening", json={}, headers=EVE).status_code == 409


def test_judges_without_names_are_asked_for_them(client: Any, workspace: Any) -> None:
    topic = workspace.create_topic("dogs", double_share=1.0).id
    page = client.get(f"/topics/{topic}/review").text
    assert "judge-name" in page
    assert "data-doc" not in page
    assert client.get(f"/api/topics/{topic}/next").status_code == 409
    assert client.post(f"/api/topics/{topic}/judgements", json={"doc_id": IDS[0], "grade": 1}).status_code == 409
    client.cookies.set("haybale-judge", "Ada")
    assert "data-doc" in client.get(f"/topics/{topic}/review").text


def test_two_judges_hold_a_document_at_once_and_no_third(library: Any, rankers: Any) -> None:
    _, workspace, topic = site_of(library, rankers)
    first = [workspace.next(topic, 1, name)[0].doc_id for name in ("Ada", "Bob", "Cyd")]
    assert first[0] == first[1] != first[2]
    assert (workspace.n_held(topic, "Cyd"), workspace.n_held(topic, "Ada")) == (1, 0)
    workspace.judge(topic, first[0], 1, "Ada")
    assert workspace.next(topic, 1, "Cyd")[0].doc_id == first[2]
    workspace.skip(topic, first[0], "Bob")
    assert workspace.next(topic, 1, "Cyd")[0].doc_id == first[0]


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_judges_at_once_judge_everything_as_often_as_needed(library: Any, rankers: Any, share: float) -> None:
    _, workspace, topic = site_of(library, rankers, share)
    names, n_idle = ["Ada", "Bob", "Cyd"], 0
    while n_idle < len(names):
        for name in names:
            documents = workspace.next(topic, 4, name)
            n_idle = 0 if documents else n_idle + 1
            if documents:
                workspace.judge(topic, documents[0].doc_id, len(documents) % 2, name)
    plan = workspace.judges(topic).plan
    counts = workspace.judgements(topic)["doc_id"].value_counts().to_dict()
    assert counts == {doc_id: 1 + plan.needs_two(doc_id) for doc_id in IDS}
