"""Nobody learns anything of a matter without a right in it: every route of it, by everybody, in every way to ask."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.matters import WORDS, matters_of
from support.spellings import VISITOR, all_paths, request_of, spellings

from haybale.review import Judgement, JudgementStore
from haybale.service.matters.kept_matters import Matters
from haybale.service.matters.matters_application import create_matters_app
from haybale.service.matters.opened_matter import MatterOpener
from haybale.service.roles import RANKS
from haybale.service.security import Access
from haybale.service.users import User, Users, digest_of

RIGHTS = {
    "of plover": {"plover": "administer"},
    "reads plover": {"plover": "read"},
    "judges heron": {"heron": "judge"},
    "of heron": {"heron": "administer"},
    "of nothing": {},
}
OF_SESSIONS = ("/logout", "/sessions", "/sessions/1")  # ends of paths that end the session of who asks
HEADERS_OF_TIME = ("date", "set-cookie")  # that differ from answer to answer


@dataclass
class Service:
    """A service of two matters, and who asks it."""

    application: Any
    matters: Matters
    access: Access
    paths: list[tuple[str, str]]  # methods and paths within a matter
    rights: dict[tuple[str, str], str]  # the right that each of these needs

    def people(self) -> dict[str, list[tuple[str, str]]]:
        """Return the headers of everybody: by token, by session, and of nobody."""
        found: dict[str, list[tuple[str, str]]] = {"": []}
        assert self.access.users is not None
        for name, user in self.access.users.by_name().items():
            found[name] = [("authorization", f"Bearer {token_of(name)}")]
            cookie = f"haybale_session={self.access.sessions.open(user)}; haybale_visitor={VISITOR}"
            found[f"{name} by session"] = [
                ("cookie", cookie), ("x-csrf-token", self.access.form_token(VISITOR)), ("accept", "text/html"),
            ]  # fmt: skip
        found["a wrong session"] = [("cookie", "haybale_session=x"), ("accept", "text/html")]
        return found

    async def ask(
        self, headers: list[tuple[str, str]], method: str, path: str, target: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Return the status, the headers and the body of an answer."""
        scope, body = request_of(headers, method, path, target, random.Random(3))
        messages, is_sent, is_over = [], False, asyncio.Event()

        async def receive() -> dict[str, Any]:
            nonlocal is_sent
            if is_sent:
                await is_over.wait()
                return {"type": "http.disconnect"}
            is_sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            messages.append(message)

        await self.application(scope, receive, send)
        is_over.set()
        raw = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
        content = b"".join(message.get("body", b"") for message in messages)
        return messages[0]["status"], raw, content


def token_of(name: str) -> str:
    return f"the token of {name}, who"


def right_in(who: str, matter: str) -> str:
    return RIGHTS.get(who.removesuffix(" by session"), {}).get(matter, "none")


@pytest.fixture(scope="module")
def service(matter_engines: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service in which each matter has a topic, a judgement with a note, and documents with its word."""
    folder = Path(shutil.copytree(matter_engines, tmp_path_factory.mktemp("isolated") / "matters"))
    for name, word in WORDS.items():
        with JudgementStore(folder / f"{name}-judgements.sqlite") as store:
            topic = store.add_topic(f"What the {word} pays", f"The {word}")
            store.add(topic, Judgement(f"{word}/1", "judged", 1, f"judge of the {word}", note=f"a note on the {word}"))
    access = Access(
        Users(User(name, "none", rights, digest=digest_of(token_of(name))) for name, rights in RIGHTS.items())
    )
    opener = MatterOpener(access, [("bm25", "bm25")])
    matters = matters_of(folder, access=access)
    routes = opener.application.routes
    rights = {
        key: route.right  # type: ignore[attr-defined]
        for route in routes
        for key in all_paths(type("One", (), {"routes": [route]}))
    }
    yield Service(create_matters_app(matters, access), matters, access, list(rights), rights)
    matters.stop()


def plain(answer: tuple[int, dict[str, str], bytes]) -> tuple[Any, ...]:
    status, headers, body = answer
    return status, {name: value for name, value in headers.items() if name not in HEADERS_OF_TIME}, body


def test_without_a_right_a_matter_does_not_exist_and_is_not_opened(service: Service) -> None:
    """Every answer about it is, to the byte, that about a matter that does not exist: 404, or who asks must log in."""

    async def ask_all() -> None:
        for who, headers in service.people().items():
            for matter in WORDS:
                if right_in(who, matter) != "none":
                    continue
                for method, path in [*service.paths, ("GET", ""), ("GET", "/nothing"), ("POST", "/nothing")]:
                    there, nowhere = f"/matters/{matter}{path}", f"/matters/{'x' * len(matter)}{path}"
                    answer = await service.ask(headers, method, path, there)
                    expected = await service.ask(headers, method, path, nowhere)
                    assert answer[0] in ((401, 303) if who in ("", "a wrong session") else (404,)), (who, method, there)
                    if answer[0] == 303:  # the page of the login leads back to where one wanted to go
                        address = expected[1]["location"].replace("x" * len(matter), matter)
                        expected[1]["location"] = address
                    assert plain(answer) == plain(expected), (who, method, there)

    asyncio.run(ask_all())
    assert [matter.status for matter in service.matters.all()] == ["closed", "closed"]


def test_spellings_of_another_matter_lead_nowhere(service: Service) -> None:
    """However the address of a matter is spelled, who has no right in it gets nothing of it."""
    headers = service.people()["of plover"]

    async def ask_all() -> None:
        for path in ("/api/topics", "/topics", "/api/search"):
            for target in spellings(f"/matters/heron{path}"):
                for tried in (target, target.replace("/matters/", "/matters/plover/../"), f"/matters/plover{target}"):
                    status, answered, body = await service.ask(headers, "GET", path, f"{tried}?q=lease")
                    assert WORDS["heron"] not in body.decode().lower(), tried
                    assert WORDS["heron"] not in str(answered).lower(), tried
                    assert status < 500, tried

    asyncio.run(ask_all())


def test_no_answer_to_a_user_has_a_word_of_another_matter(service: Service) -> None:
    check_answers(service, ["of plover", "reads plover"], is_quick=True)


@pytest.mark.thorough
def test_no_answer_to_anybody_has_a_word_of_another_matter(service: Service) -> None:
    check_answers(service, list(service.people()), is_quick=False)


def check_answers(service: Service, names: list[str], is_quick: bool) -> None:
    """Ask for all routes of the service and of the own matter, while both matters are open.

    No answer has a word or the name of another matter, and what a right does not include is refused. A quick check
    leaves out the changes that a user may make.
    """
    outside = [(method, path, path) for method, path in all_paths(service.application)]
    statuses: dict[str, set[int]] = {}

    async def ask_all() -> None:
        people = service.people()
        for who in ("of plover", "of heron"):  # so that both are open, and have been searched
            matter = who.removeprefix("of ")
            target = f"/matters/{matter}/api/search?q=lease"
            status, _, body = await service.ask(people[who], "GET", "/api/search", target)
            assert (status, WORDS[matter] in body.decode().lower()) == (200, True)
        for who in names:
            own = [matter for matter in WORDS if right_in(who, matter) != "none"]
            within = [(method, path, f"/matters/{matter}{path}") for matter in own for method, path in service.paths]
            secret = [text for matter, word in WORDS.items() if matter not in own for text in (word, matter)]
            for method, path, target in [*within, *outside]:
                is_allowed = target != path and who.startswith("of ")
                if (path.endswith(OF_SESSIONS) and method != "GET") or (is_quick and method != "GET" and is_allowed):
                    continue
                query = "?q=lease&rule=budget&id=none&doc_id=none" if method == "GET" else ""
                status, answered, body = await service.ask(people[who], method, path, target + query)
                text = f"{answered} {body.decode('utf-8', 'replace')}".lower().replace(who.partition(" by ")[0], "")
                for word in secret:
                    assert word not in text, (who, method, target)
                if target.startswith("/matters/"):
                    right = right_in(who, own[0])
                    statuses.setdefault(right, set()).add(status)
                    is_refused = RANKS[right] < RANKS[service.rights[method, path]]
                    assert (status == 403) == is_refused, (who, method, target, status)

    asyncio.run(ask_all())
    assert 403 in statuses["read"]
    assert 200 in statuses["read"]
    assert 403 not in statuses["administer"]
