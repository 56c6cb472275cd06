"""The pages of several matters in a browser: from the list through a search into a matter and back, without scripts."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browser import DESK, OVERFLOW, PHONE, chromium, collect_errors, expect, needs_browser
from support.matters import matters_of

from haybale.service.matters.matters_application import create_matters_app

pytestmark = [needs_browser, pytest.mark.thorough]


@pytest.fixture(scope="module")
def address(matter_engines: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    uvicorn = pytest.importorskip("uvicorn")
    folder = Path(shutil.copytree(matter_engines, tmp_path_factory.mktemp("pages") / "matters"))
    (folder / "wreck").mkdir()
    (folder / "wreck" / "engine.json").write_text("{")
    matters = matters_of(folder)
    server = uvicorn.Server(uvicorn.Config(create_matters_app(matters), port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.mark.parametrize("has_scripts", [True, False])
def test_from_the_list_through_a_search_into_a_matter(address: str, browser: Any, has_scripts: bool) -> None:
    page = browser.new_context(base_url=address, java_script_enabled=has_scripts).new_page()
    errors = collect_errors(page)
    page.goto("/")
    page.get_by_role("link", name="plover").click()
    expect(page.get_by_role("heading", name="Search plover")).to_be_visible()
    page.get_by_role("link", name="Matters").click()
    page.get_by_label("wreck").uncheck()
    page.get_by_label("What are you looking for").fill("the lease")
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".hit h3 a")).to_have_text(["Walrus 0", "Zebra 0"])
    page.get_by_role("link", name="Zebra 0").click()
    expect(page.get_by_role("heading", name="Zebra 0")).to_be_visible()
    assert "/matters/plover/documents/" in page.url
    page.go_back()
    page.locator(".hit").first.get_by_role("link", name="heron").click()
    expect(page.locator(".hit h3 a").first).to_have_text("Walrus 0")
    page.get_by_role("link", name="Topics").click()
    page.get_by_label("What are you looking for?").fill("a lease")
    page.get_by_role("button", name="Begin").click()
    expect(page.locator("#judge")).to_be_attached()
    assert "/matters/heron/" in page.url
    assert errors == []


def test_pages_are_accessible_and_fit_a_phone(address: str, browser: Any) -> None:
    from axe_core_python.base import AXE_SCRIPT

    page = browser.new_context(base_url=address).new_page()
    run = "axe.run({{runOnly: {}}}).then((found) => found.violations.map((each) => [each.id, each.nodes[0].html]))"
    for path in ("/", "/?q=the+lease", "/?q=qqqq", "/?q=lease&matter=nowhere", "/help", "/matters/wreck/", "/nothing"):
        page.set_viewport_size(DESK)
        page.emulate_media(color_scheme="light")
        page.goto(path)
        page.evaluate(AXE_SCRIPT)
        assert page.evaluate(run.format("undefined")) == [], path
        page.emulate_media(color_scheme="dark")
        assert page.evaluate(run.format("['color-contrast']")) == [], path
        assert page.evaluate(OVERFLOW) <= 0, path
        page.set_viewport_size(PHONE)
        assert page.evaluate(OVERFLOW) <= 0, path
