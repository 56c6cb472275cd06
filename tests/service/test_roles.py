"""What a right allows is said at each route, and holds for every spelling of the route's address."""

import asyncio
import random
import socket

import pytest
from fastapi import APIRouter
from starlette.testclient import TestClient
from support.decisions import decisions
from support.served import Served
from support.spellings import (
    FORBIDDEN,
    METHODS,
    OF_ADMINS,
    TOKENS,
    all_paths,
    credentials,
    random_requests,
    request_of,
    spellings,
    spied,
    status_of,
)

from haybale import Engine
from haybale.review import JudgementStore
from haybale.service import create_app
from haybale.service.roles import RANKS, RIGHTS
from haybale.service.security import Access
from haybale.service.users import User
from haybale.service.users_file import add_user


@pytest.fixture(scope="module")
def spied_service(library):
    calls = []
    with JudgementStore() as store:
        store.add_topic("dogs", "dogs")
        yield *spied(library, store, calls), calls


def check(calls, right, name, status):
    assert not FORBIDDEN[right] & set(calls), (name, calls)
    assert 200 <= status < 500 or (status == 503 and "ready" in name.lower()), (name, status)
    calls.clear()


@pytest.mark.thorough  # random spellings of all routes are tried always
def test_every_spelling_of_what_admins_do(spied_service):
    """A judge, and nobody, has no effect by any spelling or method; an admin has, by the plain one."""
    application, access, calls = spied_service
    rng, people, done = random.Random(0), credentials(access), set()

    async def ask_all():
        for method, path in all_paths(application):
            of_topic = tuple(
                f"{root}/topics/1/{name}" for root in ("", "/api") for name in ("import", "screening", "manage")
            )
            is_change = (method, path) == ("PATCH", "/api/topics/1")
            if not is_change and not path.startswith(("/api/train", "/train", *of_topic)):
                continue
            for who, (right, headers) in people.items():
                for number, target in enumerate(spellings(path)):
                    for verb in METHODS if number == 0 else (method,):
                        scope, body = request_of(headers, verb, path, target, rng)
                        status, _ = await status_of(application, scope, body)
                        if right == "administer" and number == 0 and verb == method:
                            done.update(calls)
                        check(calls, right, f"{who}: {verb} {target}", status)

    asyncio.run(ask_all())
    assert {*OF_ADMINS} <= done


def test_random_spellings_of_all_routes(spied_service):
    application, access, calls = spied_service
    requests = random_requests(application, access, random.Random(1))

    async def ask_some():
        for _ in range(1200):
            right, name, scope, body = next(requests)
            status, _ = await status_of(application, scope, body)
            check(calls, right, name, status)

    asyncio.run(ask_some())


def test_nobody_sees_which_paths_there_are(spied_service):
    """Without a user, every path but the open ones has the same answer, whether there is a route or not."""
    application, _, _ = spied_service

    async def ask_all():
        answers = {}
        for method, path in [
            *all_paths(application),
            ("GET", "/nothing"),
            ("POST", "/api/nothing"),
            ("GET", "/train/"),
        ]:
            answers[path] = await status_of(application, *request_of([], method, path, path, random.Random(2)))
        return answers

    answers = asyncio.run(ask_all())
    closed = {
        path: answer
        for path, answer in answers.items()
        if not path.startswith(("/health", "/ready", "/login", "/static", "/feed"))
    }
    assert len(set(closed.values())) == 1
    assert closed["/nothing"][0] == 401


@pytest.mark.parametrize("end", ["%0A", "%0D", "%00", "%20", "/", ";", "%2F"])
def test_a_path_with_an_end_is_no_training(workspace, end):
    with TestClient(create_app(workspace), base_url="http://127.0.0.1:8000") as client:
        answer = client.post(f"/api/train{end}", json={}, follow_redirects=False)
    assert answer.status_code in (404, 405)


def test_slashes_at_the_end_lead_to_the_page_of_this_service(workspace):
    with TestClient(create_app(workspace), base_url="http://127.0.0.1:8000") as client:
        assert client.get("/topics/", follow_redirects=False).headers["location"] == "/topics"
        assert client.get("/nothing/", follow_redirects=False).status_code == 404


@pytest.mark.parametrize(
    "path", ["/", "/health", "/topics", "/topics/", "/metrics", "/openapi.json", "/nothing", "/api/train"]
)
def test_head_is_answered_as_get_without_the_body(workspace, path):
    with TestClient(create_app(workspace), base_url="http://127.0.0.1:8000") as client:
        head, get = (client.request(method, path, follow_redirects=False) for method in ("HEAD", "GET"))
    assert (head.status_code, head.content) == (get.status_code, b"")
    assert head.headers["content-type"] == get.headers["content-type"] if "content-type" in get.headers else True


def test_head_needs_the_right_of_get(spied_service):
    application, access, calls = spied_service

    async def ask(headers, method, path):
        return (await status_of(application, *request_of(headers, method, path, path, random.Random(2))))[0]

    for _, headers in credentials(access).values():
        for path in {path for method, path in all_paths(application) if method == "GET"}:
            head, get = (asyncio.run(ask(headers, method, path)) for method in ("HEAD", "GET"))
            assert head == get, path
            calls.clear()


@pytest.mark.parametrize("right", TOKENS)
def test_a_right_allows_what_needs_it_and_nothing_more(spied_service, right):
    application, access, calls = spied_service
    (headers,) = [headers for who, (_, headers) in credentials(access).items() if who == f"{right} by token"]

    async def ask_all():
        for route in application.routes:
            is_allowed = RANKS[right] >= RANKS[route.right]
            for method, path in all_paths(application, [route]):
                status, _ = await status_of(application, *request_of(headers, method, path, path, random.Random(3)))
                assert (status == 403) is not is_allowed, (method, path, status)
        calls.clear()

    asyncio.run(ask_all())


def test_every_route_declares_its_right(workspace):
    application = create_app(workspace)
    assert all(route.right in ("open", *RIGHTS) for route in application.routes)
    with pytest.raises(TypeError, match="right"):
        application.get("/more")(lambda: "anything")


def test_a_route_beside_the_guarded_ones_stops_the_service(workspace):
    """A route that was added in another way has no check, so nothing is answered."""
    application = create_app(workspace, Access())
    router = APIRouter()
    router.get("/more")(lambda: "anything")
    application.include_router(router)
    client = TestClient(application, base_url="http://127.0.0.1:8000", raise_server_exceptions=False)
    assert client.get("/more").status_code == 500
    assert client.get("/health").status_code == 500


@pytest.mark.thorough
def test_spellings_over_a_real_connection(tmp_path):
    """The same over sockets, as uvicorn reads request lines: no training begins by a judge's token."""
    folder, users = tmp_path / "engine", tmp_path / "users.json"
    Engine.build(decisions(8), folder, language="english", encoder="tfidf(min_df=1)").prepare()
    token = add_user(users, User("Ada", "judge"))
    with Served(folder, "--users", str(users)) as served:
        host, _, port = served.address.removeprefix("http://").partition(":")
        for path in ("/api/train", "/train", "/api/train/1/accept", "/api/topics/1/import"):
            for target in spellings(path):
                for method in ("POST", "post", "TRACE"):
                    head = f"{method} {target} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\n"
                    head += "Content-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
                    with socket.create_connection((host, int(port)), timeout=60) as connection:
                        connection.sendall(head.encode())
                        answer = connection.makefile("rb").read()
                    assert answer[9:10] in (b"4", b""), (method, target, answer[:100])
    assert not (tmp_path / "judgements-models").exists()
