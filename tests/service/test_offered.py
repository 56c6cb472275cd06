"""Pages offer what their reader may do: no link and no button leads to a refusal, whatever the right."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from starlette.routing import Match
from starlette.testclient import TestClient
from support.decisions import decisions

from haybale.service import create_app
from haybale.service.guarded_routes import GuardedRoute
from haybale.service.roles import RANKS
from haybale.service.saved_searches import SavedQuery
from haybale.service.security import Access
from haybale.service.users import User, Users, digest_of

RIGHTS = ("none", "read", "judge", "administer")
TEXT = "notice periods of leases"
STARTS = ("/", "/searches", "/topics", "/train", "/help", "/records", "/unread", "/sessions")
STARTS += (f"/?q={TEXT}&topic=1", f"/?q={TEXT}")


class Offers(HTMLParser):
    """The method and the address of each link, form and picture of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        if tag == "form":
            self.found.append((values.get("method", "get").upper(), values.get("action", "")))
        elif tag in ("a", "img") and not values.get("href", "/").startswith("#"):
            self.found.append(("GET", values.get("href") or values.get("src", "")))


def route_of(application: Any, method: str, path: str) -> GuardedRoute:
    scope = {"type": "http", "method": method, "path": path, "headers": [], "root_path": ""}
    (route,) = [route for route in application.routes if route.matches(scope)[0] is Match.FULL][:1]
    return route  # type: ignore[no-any-return]


@pytest.fixture
def application(workspace: Any) -> Any:
    """An application whose topic has everything that pages offer: two judges, conflicts, two stages, an audit."""
    workspace.create_topic(TEXT, double_share=1.0, judge="Ann")
    documents = sorted(decisions())[:6]
    for judge, grade in (("Ann", 1), ("Bob", 0)):
        for doc_id in documents:
            workspace.judge(1, doc_id, grade, judge)
    workspace.judges(1).resolve(documents[0], 1, "Cyd", "because", None)
    workspace.desk.change_protocol(1, {"n_stages": 2, "inclusion_criteria": "leases"}, "Ann")
    workspace.create_topic("deleted")
    workspace.desk.delete(2, "Eve")
    workspace.searches.save(SavedQuery(TEXT, ranker="bm25"), "leases", "Ann", is_shared=True)
    workspace.log.change(is_on=True, user="Eve")
    users = Users(User(f"may {right}", right, digest=digest_of(f"token {right}")) for right in RIGHTS)
    return create_app(workspace, Access(users))


@pytest.mark.parametrize("right", RIGHTS)
def test_no_page_offers_what_is_refused(application: Any, right: str) -> None:
    headers = {"authorization": f"Bearer token {right}", "accept": "text/html"}
    client = TestClient(application, base_url="http://127.0.0.1:8000", headers=headers)
    waiting, seen, posts = list(STARTS if right != "none" else ("/sessions",)), set(), set()
    while waiting:
        address = waiting.pop(0)
        split = urlsplit(address)
        path = unquote(split.path)
        route = route_of(application, "GET", path)
        if (route.path, bool(split.query)) in seen:
            continue
        seen.add((route.path, bool(split.query)))
        answer = client.get(address)
        assert answer.status_code == 200, address
        if not answer.headers["content-type"].startswith("text/html"):
            continue
        for method, target in Offers(answer.text).found:
            where = urlsplit(target or address)
            if where.netloc or (right == "none" and target == "/"):  # the name of the service leads to its start
                continue
            offered = route_of(application, method, unquote(where.path))
            assert RANKS[offered.right] <= RANKS[right], (address, method, target)
            if method == "GET":
                waiting.append(target)
            else:
                posts.add(offered.path)
    assert (len(seen) > 15) == (right != "none")
    assert ("/topics/{topic}/judge" in posts) == (RANKS[right] >= RANKS["judge"])
    assert ("/topics/{topic}/manage" in posts) == (right == "administer")
