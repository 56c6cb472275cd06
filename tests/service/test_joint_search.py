"""A service of several matters: its list of them, searches over several, and the pages of each at its address."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from starlette.testclient import TestClient
from support.matters import WORDS, matters_of

from haybale.errors import InputError
from haybale.search import SearchResults
from haybale.search.results import SearchHit
from haybale.service.matters import dispatcher
from haybale.service.matters.joint_search import merged
from haybale.service.matters.kept_matters import Matters
from haybale.service.matters.matters_application import create_matters_app
from haybale.service.security import Access
from haybale.service.users import User, Users, digest_of

TOKENS = {name: f"the token of {name}" for name in ("Ada", "Eve", "Joe")}
RIGHTS = {"Ada": {"plover": "judge", "heron": "read"}, "Eve": {"heron": "administer"}, "Joe": {}}


@pytest.fixture(scope="module")
def folder(matter_engines: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of engines, one of which is broken."""
    found = Path(shutil.copytree(matter_engines, tmp_path_factory.mktemp("joint") / "matters"))
    (found / "wreck").mkdir()
    (found / "wreck" / "engine.json").write_text("{")
    return found


@pytest.fixture(scope="module")
def matters(folder: Path) -> Iterator[Matters]:
    found = matters_of(folder, log=folder / "logs")
    yield found
    found.stop()


@pytest.fixture
def client(matters: Matters, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """Return a client of a service without users, on this machine."""
    monkeypatch.setattr(dispatcher, "PAGE_SECONDS", 60.0)
    return asked(matters)


def asked(matters: Matters, access: Access | None = None, root_path: str = "", log: Any = None) -> TestClient:
    application = create_matters_app(matters, access, log, root_path)
    return TestClient(application, base_url="http://127.0.0.1:8000", raise_server_exceptions=False)


def users() -> Access:
    return Access(Users(User(name, "none", RIGHTS[name], digest=digest_of(TOKENS[name])) for name in TOKENS))


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {TOKENS[name]}"}


def hit(rank: int, doc_id: str) -> SearchHit:
    return SearchHit(rank, doc_id, 1.0 / rank, doc_id, {}, [], [])


def test_results_are_merged_by_rank_then_name() -> None:
    results = {
        "b": SearchResults("q", "bm25", [hit(1, "x"), hit(2, "y")]),
        "a": SearchResults("q", "knn", [replace(hit(1, "x"), score=-9.0), hit(2, "z"), hit(3, "w")]),
        "c": SearchResults("q", "bm25", []),
    }
    found = [(joint.rank, joint.matter, joint.hit.doc_id) for joint in merged(results)]
    assert found == [(1, "a", "x"), (2, "b", "x"), (3, "a", "z"), (4, "b", "y"), (5, "a", "w")]


def test_a_search_over_several_matters(client: TestClient) -> None:
    given = {"q": "the lease", "matter": ["plover", "heron"], "k": 3}
    answer = client.get("/api/search", params=given).json()
    assert [(found["rank"], found["matter"], found["doc_id"]) for found in answer["hits"]] == [
        (1, "heron", "walrus/0"), (2, "plover", "zebra/0"),
    ]  # fmt: skip
    assert answer["rankers"] == {"heron": "bm25", "plover": "bm25"}
    assert client.get(answer["hits"][0]["address"], headers={"accept": "text/html"}).text.count("Walrus 0")
    body = {"q": "the lease", "k": 3, "matters": ["plover", "heron"]}
    assert client.post("/api/search", json=body).json() == answer
    rest = client.get("/api/search", params={**given, "offset": 1, "k": 1}).json()["hits"]
    assert rest == answer["hits"][1:2]
    narrowed = client.get("/api/search", params={**given, "where": "court = 'Court of the zebra'"}).json()
    assert [found["matter"] for found in narrowed["hits"]] == ["plover"]


def test_a_matter_that_cannot_answer_is_named(client: TestClient, matters: Matters) -> None:
    """A broken matter, and one whose documents lack a column; a condition that no matter understands is refused."""
    answer = client.get("/api/search", params={"q": "lease"}).json()
    assert [(each["matter"], each["is_opening"]) for each in answer["unanswered"]] == [("wreck", False)]
    assert {found["matter"] for found in answer["hits"]} == {"plover", "heron"}
    wrong = {"q": "lease", "where": "colour = 'red'", "matter": ["plover", "heron"]}
    assert client.get("/api/search", params=wrong).status_code == 409
    heron = matters.get("heron")
    assert heron is not None
    assert heron.opened is not None
    with pytest.MonkeyPatch.context() as patch:

        def refused(*_: Any) -> None:
            raise InputError("colour= must be a column, found none; choose another")

        patch.setattr(heron.opened.workspace, "search", refused)
        answer = client.get("/api/search", params=wrong | {"where": "court = 'x'"}).json()
    assert [each["matter"] for each in answer["unanswered"]] == ["heron"]


def test_only_matters_that_a_user_may_read_are_listed_and_searched(matters: Matters) -> None:
    client = asked(matters, users())
    listed = {name: client.get("/api/matters", headers=bearer(name)).json()["matters"] for name in TOKENS}
    rights = {name: {matter["name"]: matter["right"] for matter in shown} for name, shown in listed.items()}
    assert rights == RIGHTS
    for name, names in {"Ada": {"plover", "heron"}, "Eve": {"heron"}, "Joe": set[str]()}.items():
        found = client.get("/api/search?q=lease", headers=bearer(name)).json()
        assert {joint["matter"] for joint in found["hits"]} == names
        assert found["unanswered"] == []
    unknown, unreadable = (
        client.get("/api/search", params={"q": "lease", "matter": name}, headers=bearer("Eve"))
        for name in ("nowhere", "plover")
    )
    assert (unknown.status_code, unreadable.status_code) == (404, 404)
    assert unknown.text.replace("nowhere", "plover") == unreadable.text
    assert client.get("/api/search?q=lease").status_code == 401


def test_the_reason_of_a_broken_matter_is_for_its_administrators(matters: Matters) -> None:
    readers = [User("Ada", "read", digest=digest_of(TOKENS["Ada"]))]
    client = asked(matters, Access(Users([*readers, User("Eve", "administer", digest=digest_of(TOKENS["Eve"]))])))
    for name, is_told in {"Ada": False, "Eve": True}.items():
        answer = client.get("/matters/wreck/api/topics", headers=bearer(name))
        listed = {
            matter["name"]: matter for matter in client.get("/api/matters", headers=bearer(name)).json()["matters"]
        }
        page = client.get("/", headers=bearer(name)).text
        assert answer.status_code == 503
        assert listed["wreck"]["status"] == "broken"
        assert ["engine.json" in text for text in (answer.text, listed["wreck"]["detail"], page)] == [is_told] * 3


def test_each_matter_works_under_its_address_below_a_root_path(matters: Matters, folder: Path) -> None:
    """Links, forms, redirects and the description of a matter stay within it, and those of the service outside."""
    client = asked(matters, root_path="/cases")
    assert client.get("/cases/matters/plover?x=1", follow_redirects=False).headers["location"] == (
        "/cases/matters/plover/?x=1"
    )
    page = client.get("/cases/matters/plover/?q=lease", headers={"accept": "text/html"}).text
    links = [part.partition('"')[0] for part in page.split('href="')[1:]]
    outside = {"/cases/", "/cases/static/palette.css", "/cases/static/pages.css", "/cases/static/icon.svg", "#main"}
    assert {link for link in links if not link.startswith("/cases/matters/plover/")} == outside
    description = client.get("/cases/matters/plover/openapi.json").json()
    assert description["servers"] == [{"url": "/cases/matters/plover"}]
    token = page.partition('name="csrf_token" value="')[2].partition('"')[0]
    answer = client.post(
        "/cases/matters/plover/topics",
        data={"text": "a lease", "csrf_token": token},
        follow_redirects=False,
    )
    assert answer.headers["location"].startswith("/cases/matters/plover/topics")
    topics = {name: client.get(f"/cases/matters/{name}/api/topics").json()["n_topics"] for name in ("plover", "heron")}
    assert topics == {"plover": 1, "heron": 0}
    assert client.get("/cases/matters/nowhere/").status_code == 404


def test_each_matter_has_its_own_log_and_metrics(matters: Matters, folder: Path, tmp_path: Path) -> None:
    with (tmp_path / "service.log").open("w+", encoding="utf-8") as log:
        client = asked(matters, users(), log=log)
        client.get("/matters/heron/api/rankers", headers=bearer("Eve"))
        client.get("/matters/plover/api/rankers", headers=bearer("Eve"))  # which she may not read
        log.seek(0)
        of_service = [json.loads(line) for line in log]
    logs = {name: (folder / "logs" / "matters" / f"{name}.log").read_text().splitlines() for name in WORDS}
    last = json.loads(logs["heron"][-1])
    assert (last["matter"], last["user"], last["path"], last["status"]) == ("heron", "Eve", "/api/rankers", 200)
    assert [(line["path"], line["status"]) for line in of_service] == [("/matters/plover/api/rankers", 404)]
    client = asked(matters)
    client.get("/matters/heron/api/rankers")
    counted = 'haybale_requests_total{method="GET",route="/matters/{matter}/api/rankers",status="200"} 1.0'
    metrics = client.get("/metrics").text
    assert counted in metrics
    assert 'haybale_matters{status="broken"} 1.0' in metrics
    assert 'haybale_matter_documents{matter="heron"} 4.0' in metrics
    assert "haybale_documents 4.0" in client.get("/matters/heron/metrics").text


def test_a_search_over_several_matters_is_in_the_log_of_each(matters: Matters) -> None:
    """With who asked and what was found there; a matter that the user may not read was not searched."""
    with_log, client = asked(matters), asked(matters, users())
    for name in WORDS:
        assert with_log.patch(f"/matters/{name}/api/log", json={"is_on": True}).json()["is_on"]
    hits = client.get("/api/search", params={"q": "an unusual question"}, headers=bearer("Ada")).json()["hits"]
    lines = {}
    for name in WORDS:
        searches = with_log.get(f"/matters/{name}/api/log", params={"action": "search"}).json()["lines"]
        lines[name] = [line for line in searches if line["details"]["text"] == "an unusual question"]
        with_log.patch(f"/matters/{name}/api/log", json={"is_on": False})
    assert {name for name in lines if lines[name]} == set(RIGHTS["Ada"])
    for name in RIGHTS["Ada"]:
        [line] = lines[name]
        assert line["user"] == "Ada"
        assert set(line["details"]["hits"]) >= {row["doc_id"] for row in hits if row["matter"] == name}


def test_pages_of_a_service_with_several_matters(client: TestClient) -> None:
    page = client.get("/").text
    assert 'href="/matters/plover/"' in page
    found = client.get("/", params={"q": "the lease", "matter": ["plover", "heron"]}).text
    assert found.index("Walrus 0") < found.index("Zebra 0")
    assert 'href="/matters/plover/documents/zebra%2F0?q=the+lease"' in found
    assert client.get("/", params={"q": "lease", "matter": "nowhere"}).status_code == 422
    assert client.get("/help").status_code == 200
    assert client.get("/health").json()["status"] == "ok"
    assert client.get("/ready").json() == {"status": "ready"}


def test_a_page_says_that_a_matter_is_being_opened(folder: Path) -> None:
    """A page comes at once and loads itself again; programs are told when to ask again."""
    closed = matters_of(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatcher, "PAGE_SECONDS", 0.0)
        patch.setattr(dispatcher, "WAIT_SECONDS", 0.0)
        client = asked(closed)
        page = client.get("/matters/plover/topics", headers={"accept": "text/html"})
        assert (page.status_code, page.headers["retry-after"], 'http-equiv="refresh"' in page.text) == (503, "2", True)
        answer = client.get("/matters/heron/api/topics")
        assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
    assert client.get("/matters/heron/api/topics").json()["n_topics"] == 0
    closed.stop()


def test_answers_are_as_the_description_says(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    components = {"components": document["components"]}
    for path, parameters in {"/api/matters": {}, "/api/search": {"q": "lease"}, "/health": {}}.items():
        content = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        jsonschema.validate(client.get(path, params=parameters).json(), content | components)
    assert client.get("/api/search", params={"q": "lease", "matters": "plover"}).status_code == 422
