"""Pages of files in a browser: opened by keyboard on a phone, loaded when they are seen, and accessible."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browser import DESK, OVERFLOW, PHONE, chromium, collect_errors, needs_browser

pytest.importorskip("pypdfium2")
pytest.importorskip("PIL")
pytest.importorskip("reportlab")

from support.page_files import PASSAGES, by_reportlab, engine_of
from support.served import Served

pytestmark = needs_browser


@pytest.fixture
def source(tmp_path: Path) -> Path:
    made = tmp_path / "files"
    made.mkdir()
    (made / "lease.pdf").write_bytes(by_reportlab(PASSAGES, 1))
    (made / "other.pdf").write_bytes(by_reportlab(PASSAGES[:2], 0))
    for number, refers in ((1, ""), (2, "<1@x>")):
        head = f"Subject: mail {number}\nMessage-ID: <{number}@x>\nReferences: {refers}\n"
        (made / f"{number}.eml").write_text(f"{head}\nThe deposit is due.\n")
    return made


@pytest.fixture
def browser_page(source: Path, tmp_path: Path) -> Iterator[Any]:
    engine_of(source, tmp_path / "engine")
    with Served(tmp_path / "engine") as service, chromium() as browser:
        page = browser.new_context(base_url=service.address, viewport=PHONE).new_page()
        page.set_default_timeout(20_000)
        yield page


def wait_for(page: Any, condition: str) -> None:
    """Wait until an expression is true, which the content security policy lets only the test evaluate."""
    for _ in range(400):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(condition)


def test_the_page_of_a_hit_on_a_phone(browser_page: Any, source: Path) -> None:
    from axe_core_python.base import AXE_SCRIPT

    page, asked = browser_page, list[str]()
    errors = collect_errors(page)
    page.on("request", lambda request: asked.append(request.url))
    page.goto("/?q=deposit+claims&together=thread")
    assert not [url for url in asked if "/api/page" in url]  # nothing is drawn before somebody looks
    summary = page.locator(".page-view summary").first
    summary.focus()
    page.keyboard.press("Enter")
    wait_for(page, "document.querySelector('.page-view img').naturalWidth > 0")
    assert len([url for url in asked if "/api/page" in url]) == 1
    picture = page.locator(".page-view img").first
    assert picture.bounding_box()["width"] <= PHONE["width"]
    assert "Page 1 of" in picture.get_attribute("alt")
    run = "axe.run().then((found) => found.violations.map((each) => [each.id, each.nodes[0].html]))"
    page.evaluate(AXE_SCRIPT)
    assert page.evaluate(run) == []
    assert page.evaluate(OVERFLOW) <= 0
    page.keyboard.press("Tab")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    wait_for(page, "document.querySelector('.page-picture img').naturalWidth > 0")
    assert "with the passage boxed" in page.locator(".page-picture img").get_attribute("alt")
    assert page.get_by_role("link", name="Open the file").get_attribute("href").endswith("#page=1")
    page.evaluate(AXE_SCRIPT)
    assert page.evaluate(run) == []
    assert page.evaluate(OVERFLOW) <= 0
    page.set_viewport_size(DESK)
    assert page.evaluate(OVERFLOW) <= 0
    with page.expect_download() as saved:
        page.get_by_role("link", name="Save the file").click()
    assert Path(saved.value.path()).read_bytes().startswith(b"%PDF-")
    page.get_by_role("link", name="The text of the document").click()
    page.get_by_role("link", name="See the page").first.wait_for()
    page.evaluate(AXE_SCRIPT)
    assert page.evaluate(run) == []
    assert errors == []
    (source / "lease.pdf").unlink()
    (source / "other.pdf").unlink()
    page.goto("/?q=deposit+claims")
    page.locator(".page-view summary").first.click()
    page.get_by_text("This page cannot be shown").wait_for()
    page.get_by_role("link", name="This page cannot be shown").click()
    page.get_by_text("where it was indexed, found none").wait_for()
