"""Users and sessions in a browser: an administrator invites a user, who logs in by the link, and is logged out."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browser import DESK, OVERFLOW, PHONE, chromium, collect_errors, expect, needs_browser
from support.decisions import decisions

from haybale import Engine, parse
from haybale.review import JudgementStore
from haybale.service import Workspace, create_app
from haybale.service.security import Access
from haybale.service.sessions import Sessions
from haybale.service.users import User
from haybale.service.users_file import UsersFile, add_user

pytestmark = needs_browser


class Site:
    """A running service with an administrator, Eve; ``open`` opens a page in a browser of its own."""

    def __init__(self, address: str, link: str, browser: Any) -> None:
        self.address, self.link, self.browser = address, link, browser

    def open(self, path: str, **options: Any) -> Any:
        context = self.browser.new_context(base_url=self.address, **{"viewport": DESK} | options)
        context.set_default_timeout(30_000)
        page = context.new_page()
        page.errors = collect_errors(page)
        page.goto(path)
        return page


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    uvicorn = pytest.importorskip("uvicorn")
    engine = Engine(decisions(), language="english", encoder="tfidf(min_df=1)").prepare()
    path = tmp_path / "users.json"
    add_user(path, User("Eve", "administer"), has_token=False)
    access = Access(UsersFile(path), sessions=Sessions(tmp_path / "sessions.sqlite"))
    link, _ = access.sessions.make_link(UsersFile(path).by_name()["Eve"])
    with JudgementStore() as store:
        workspace = Workspace(engine, {"bm25": parse("bm25").fit(engine)}, store)
        config = uvicorn.Config(create_app(workspace, access), port=0, log_level="error", lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            with chromium() as browser:
                yield Site(f"http://127.0.0.1:{port}", f"/login?link={link}", browser)
        finally:
            server.should_exit = True
            thread.join()
            workspace.close()


@pytest.mark.parametrize("has_scripts", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_an_administrator_invites_a_user_who_logs_in_and_out(site: Site, has_scripts: bool) -> None:
    eve = site.open(site.link, java_script_enabled=has_scripts)
    expect(eve.get_by_role("button", name="Log in as Eve")).to_be_focused()
    eve.keyboard.press("Enter")
    expect(eve.locator(".searchbox")).to_be_visible()
    eve.get_by_role("link", name="Users").click()
    eve.get_by_label("Name").fill("Bob")
    eve.get_by_label("May", exact=True).select_option("read")
    eve.get_by_label("Except in these matters").fill("smith=judge")
    eve.get_by_role("button", name="Add").click()
    invitation = eve.get_by_label("Link that logs Bob in").input_value()
    bob = site.open(invitation.removeprefix(site.address), java_script_enabled=has_scripts)
    bob.get_by_role("button", name="Log in as Bob").click()
    bob.get_by_role("link", name="Topics").click()
    expect(bob.get_by_role("heading", name="Topics")).to_be_visible()
    expect(bob.get_by_role("button", name="Begin")).to_have_count(0)
    bob.get_by_role("link", name="Bob").click()
    expect(bob.get_by_text("this one")).to_have_count(1)
    eve.get_by_role("link", name="All users").click()
    eve.get_by_role("link", name="Bob").click()
    eve.get_by_role("button", name="Log out everywhere").click()
    expect(eve.get_by_role("status")).to_have_text("1 session ended.")
    bob.get_by_role("link", name="Topics").click()
    expect(bob.get_by_role("heading", name="Log in")).to_be_visible()
    eve.get_by_label("Yes, remove Bob").check()
    eve.get_by_role("button", name="Remove").click()
    expect(eve.get_by_role("heading", name="Users")).to_be_visible()
    expect(eve.get_by_role("link", name="Bob")).to_have_count(0)
    eve.get_by_role("button", name="Log out").click()
    expect(eve.get_by_role("heading", name="Log in")).to_be_visible()
    for page in (eve, bob):
        assert page.errors == []
        page.context.close()


@pytest.mark.thorough
def test_these_pages_are_accessible_and_fit_a_phone(site: Site) -> None:
    from axe_core_python.base import AXE_SCRIPT

    page = site.open("/login")
    run = "axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa', 'best-practice']})"
    run += ".then((result) => result.violations.map((violation) => [violation.id, violation.nodes[0].html]))"

    def check() -> None:
        for size, scheme in ((DESK, "light"), (PHONE, "dark")):
            page.set_viewport_size(size)
            page.emulate_media(color_scheme=scheme)
            page.evaluate(AXE_SCRIPT)
            assert page.evaluate(run) == [], page.url
            assert page.evaluate(OVERFLOW) <= 0, page.url

    check()
    page.goto("/login?link=wrong")
    check()
    page.goto(site.link)
    check()
    page.get_by_role("button", name="Log in as Eve").click()
    expect(page.locator(".searchbox")).to_be_visible()
    page.goto("/users")
    page.get_by_label("Name").fill("A name that is quite long, " * 3)
    page.get_by_label("Except in these matters").fill("a-folder-with-a-long-name=judge\nanother=read")
    page.get_by_label("Make a token").check()
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_label("Token of")).to_be_visible()
    check()
    page.get_by_role("button", name="Change").click()
    expect(page.get_by_role("status")).to_be_visible()
    check()
    for path in ("/users", "/sessions", "/user?name=Eve"):
        page.goto(path)
        check()
    page.get_by_label("May", exact=True).select_option("read")
    page.get_by_role("button", name="Change").click()
    expect(page.get_by_role("alert")).to_be_visible()  # the last administrator
    check()
    page.context.close()
