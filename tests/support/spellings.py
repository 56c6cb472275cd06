"""Requests as raw ASGI scopes: every route of the service, spelled in a hundred ways, by users of every right."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, unquote

from haybale.engine import Engine
from haybale.errors import InputError
from haybale.rankers import parse
from haybale.review import JudgementStore
from haybale.service import Workspace, create_app
from haybale.service.security import Access
from haybale.service.users import User, Users, digest_of

READS = ("search", "explain", "document", "facets", "topics", "topic", "judgements", "progress", "judges", "export")
READS += ("trainings", "training", "titles", "query_text", "condition", "protocol", "versions", "prisma")
OF_JUDGES = ("create_topic", "next", "judge", "skip", "undo", "change_protocol")
OF_JUDGES += ("next_full_text", "judge_full_text", "undo_full_text")
OF_ADMINS = ("start_training", "accept", "revert", "import_judgements", "change_screening")  # of the workspace
OF_ADMINS += ("rename", "delete")  # of its desk; other changes of a topic have the same routes
TOKENS = {
    "none": "token of Nan, who may do nothing",
    "read": "token of Rob, a reader",
    "judge": "token of Ada, a judge",
    "administer": "token of Eve, an administrator",
}
FORBIDDEN = {
    "": {*READS, *OF_JUDGES, *OF_ADMINS},
    "none": {*READS, *OF_JUDGES, *OF_ADMINS},
    "read": {*OF_JUDGES, *OF_ADMINS},
    "judge": {*OF_ADMINS},
    "administer": set[str](),
}
VISITOR = "v" * 32
METHODS = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "post", "Post", "FOO", "")
ENDS = ["%0A", "%0D", "%0D%0A", "%00", "%09", "%20", "%0B", "%0C", "%85", "%C2%85", "%E2%80%A8", "%C2%A0", "%EF%BB%BF"]
ENDS += [
    "/",
    "//",
    "/.",
    "/..",
    "/./",
    "/x/..",
    ";",
    ";x=1",
    "%3B",
    ".json",
    "%2F",
    "%252F",
    "%0A%0A",
    "%3F",
    "#",
    "%23",
]
ENDS += [
    "\\",
    "%5C",
    "*",
    "~",
    "%2e",
    "%",
    "%zz",
    "?",
    "?_method=POST",
    "%0Ax",
    "%E2%80%8B",
    "%C0%AF",
    "%00.css",
    "/%0A",
]
BEGINNINGS = ["/", "//", "/.", "/./", "/..", "/x/..", "/%2e", "/%2e%2e", "/%2F", "%2F", "\\", "/static/..", "/login/.."]
BEGINNINGS += [
    "/health/..",
    "/static/%2e%2e",
    "/static/%2F..",
    "/login;",
    "/health%0A",
    "/login%3F",
    "http://127.0.0.1",
]
BEGINNINGS += [
    "http://evil.example",
    "/%0A",
    "/%00",
    "//evil.example",
    "/login%23",
    "/static",
    "/health",
    "/login",
    "/api",
]
SLASHES = [
    "//",
    "%2F",
    "%252F",
    "/./",
    "\\",
    "%5C",
    "%E2%88%95",
    "%EF%BC%8F",
    "%E2%81%84",
    "/%0A",
    "%0A/",
    "/%00",
    ";/",
]


def letters(path: str, change: Callable[[str], str]) -> str:
    """Return a path with its letters changed."""
    return "".join(change(letter) if letter.isalpha() else letter for letter in path)


def spellings(path: str) -> Iterator[str]:
    """Yield the targets of request lines that look like a path, the path first."""
    yield path
    yield from (path + end for end in ENDS)
    yield from (beginning + path for beginning in BEGINNINGS)
    yield from ("/" + path[1:].replace("/", slash) for slash in SLASHES)
    yield from (path.upper(), path.title(), path.swapcase())
    yield letters(path, lambda letter: f"%{ord(letter):02x}")
    yield letters(path, lambda letter: f"%25{ord(letter):02x}")
    yield letters(path, lambda letter: quote(chr(0xFEE0 + ord(letter))))  # fullwidth
    yield path.replace("a", "%D0%B0").replace("o", "%D0%BE")  # Cyrillic
    yield path.replace("i", "%C4%B1")  # dotless


class Called(Exception):
    """A method of the workspace that was called."""


def spied(engine: Engine, store: JudgementStore, calls: list[str]) -> Any:
    """Return the application of a workspace that notes which of its methods are called, and does nothing."""
    workspace = Workspace(engine, {"bm25": parse("bm25").fit(engine)}, store)

    def note(name: str) -> Callable[..., Any]:
        def called(*_: Any, **__: Any) -> Any:
            calls.append(name)
            raise InputError(f"{name} was called")

        return called

    for name in (*READS, *OF_JUDGES, *OF_ADMINS):
        setattr(workspace if hasattr(workspace, name) else workspace.desk, name, note(name))
    access = Access(Users(User(f"who may {right}", right, digest=digest_of(token)) for right, token in TOKENS.items()))
    return create_app(workspace, access), access


def credentials(access: Access) -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """Return who asks, by name: the right, and the headers that say so."""
    cookies = {right: access.sessions.open(access.users.find(token)) for right, token in TOKENS.items()}  # type: ignore[union-attr, arg-type]
    found = {"nobody": ("", []), "a wrong session": ("", [("cookie", "haybale_session=x")])}
    found["a wrong scheme"] = ("", [("authorization", "Basic QWRhOng=")])
    for right, token in TOKENS.items():
        found[f"{right} by token"] = (right, [("authorization", f"Bearer {token}")])
        both = f'theme={{"dark":true}}; haybale_session={cookies[right]}; haybale_visitor={VISITOR}'
        found[f"{right} by session"] = (right, [("cookie", both), ("x-csrf-token", access.form_token(VISITOR))])
    return found


PATH_VALUES = {  # of the parameters in paths
    "{topic:number}": "1",
    "{number:number}": "1",
    "{topic}": "1",
    "{number}": "1",
    "{doc_id:path}": "dog/1",
    "{name}": "pages.css",
    "{user}": "Ada",
}


def all_paths(application: Any, routes: Any = None) -> list[tuple[str, str]]:
    """Return the method and a path of each route; of all, unless some are named."""
    found = []
    for route in application.routes if routes is None else routes:
        path = route.path
        for name, value in PATH_VALUES.items():
            path = path.replace(name, value)
        found += [(method, path) for method in sorted(route.methods)]
    return found


def body_of(path: str, kind: str) -> tuple[str, bytes]:
    """Return the type and a body that the route of a path takes."""
    if kind == "json":
        given: Any = {"q": "dogs", "text": "dogs", "doc_id": "dog/1", "grade": 1}
        by_path = {"/api/topics/1": {"name": "dogs"}, "/api/topics/1/import": {"dog/1": 1}}
        return "application/json", json.dumps(by_path.get(path, given)).encode()
    if "import" in path or "long" in path:
        head = 'Content-Disposition: form-data; name="file"; filename="a.txt"'
        return "multipart/form-data; boundary=x", f"--x\r\n{head}\r\n\r\nq 0 dog/1 1\r\n--x--\r\n".encode()
    return (
        "application/x-www-form-urlencoded",
        b"text=dogs&name=Ada&doc_id=dog%2F1&grade=1&recipe=svr&token=x&action=delete",
    )


def scope_of(method: str, target: str, headers: list[tuple[str, str]]) -> dict[str, Any]:
    """Return the scope that uvicorn makes of a request line."""
    raw, _, query = target.partition("?")
    encoded = [(b"host", b"127.0.0.1:8000"), *((name.encode(), value.encode()) for name, value in headers)]
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": unquote(raw), "raw_path": raw.encode(), "query_string": query.encode(), "root_path": "",
        "headers": encoded, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000),
    }  # fmt: skip


async def status_of(application: Any, scope: dict[str, Any], body: bytes) -> tuple[int, bytes]:
    """Return the status and the body of the answer to a request."""
    status, parts, is_sent = 0, [], False
    over = asyncio.Event()

    async def receive() -> dict[str, Any]:
        nonlocal is_sent
        if is_sent:
            await over.wait()
            return {"type": "http.disconnect"}
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        parts.append(message.get("body", b""))

    await application(scope, receive, send)
    over.set()
    return status, b"".join(parts)


def random_requests(application: Any, access: Access, rng: random.Random) -> Iterator[tuple[str, str, Any, bytes]]:
    """Yield requests for ever: the right of who asks, a name, a scope and a body."""
    people, paths = credentials(access), all_paths(application)
    while True:
        method, path = rng.choice(paths)
        who = rng.choice(list(people))
        target = rng.choice(list(spellings(path)))
        method = method if rng.random() < 0.7 else rng.choice(METHODS)
        yield (people[who][0], f"{who}: {method} {target}", *request_of(people[who][1], method, path, target, rng))


def request_of(
    headers: list[tuple[str, str]], method: str, path: str, target: str, rng: random.Random
) -> tuple[Any, bytes]:
    """Return a request as a scope and a body, which the route of the path takes."""
    kind, body = body_of(path, "json" if path.startswith("/api") else "form")
    more = [("content-type", kind), ("content-length", str(len(body)))] if method not in ("GET", "HEAD") else []
    if rng.random() < 0.3:
        name = rng.choice(("x-http-method-override", "x-method-override", "x-original-url", "x-rewrite-url"))
        more.append((name, rng.choice(("POST", "GET", "/health", "/api/train"))))
    if rng.random() < 0.2:
        more.append(("accept", "text/html"))
    return scope_of(method, target, [*headers, *more]), body if more else b""
