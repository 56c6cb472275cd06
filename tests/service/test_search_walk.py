"""The search page by keyboard alone, on a screen and a phone: filters, hits, copies, judgements and lists."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from support.browser import OVERFLOW, PHONE, expect, needs_browser
from support.contracts import write_contracts
from support.site import Site, close, site_of, violations

from haybale import parse
from haybale.review import JudgementStore
from haybale.service import Workspace

pytest.importorskip("pypdfium2")
pytest.importorskip("PIL")
pytest.importorskip("reportlab")

from support.page_files import PASSAGES, by_reportlab, engine_of

pytestmark = needs_browser
N = 24  # contracts


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("walk")
    source = folder / "files"
    write_contracts(source, N)
    (source / "lease.pdf").write_bytes(by_reportlab(PASSAGES, 1))
    (source / "copies").mkdir()
    shutil.copy(source / "lease.pdf", source / "copies" / "lease.pdf")
    engine = engine_of(source, folder / "engine").prepare()
    engine.duplicates()
    with JudgementStore(folder / "judgements.sqlite") as store:
        rankers = {"both": parse("rrf(bm25-doc,bm25)").fit(engine)}
        with site_of(Workspace(engine, rankers, store)) as served:
            served.workspace.create_topic("deposits", name="deposits")
            yield served


def tab_to(page: Any, selector: str) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(120):
        page.keyboard.press("Tab")
        if page.evaluate(f"document.activeElement.matches({selector!r})"):
            return
    raise AssertionError(f"no Tab leads to {selector}")


def searches_of(page: Any) -> list[str]:
    """Return a list that gets the address of each page that is asked for from now on."""
    asked: list[str] = []
    page.on(
        "request", lambda request: asked.append(request.url) if request.resource_type in ("fetch", "document") else None
    )
    return asked


def place(page: Any) -> tuple[str, int]:
    """Return the field that has the focus, and where it is on the screen."""
    name, top = page.evaluate(
        "[document.activeElement.name, Math.round(document.activeElement.getBoundingClientRect().top)]"
    )
    return name, top


def search(page: Any, words: str) -> None:
    page.keyboard.type(words)
    page.keyboard.press("Enter")
    page.wait_for_selector(".hit")
    page.wait_for_load_state()


def test_filters_apply_when_a_hand_expects_it_and_keep_focus_and_place(site: Site) -> None:
    page = site.open()
    search(page, "notice to terminate")
    expect(page.locator("#found")).to_have_text(re.compile(rf"^\s*\d+ of {N + 2} documents\s+match"))
    asked = searches_of(page)
    tab_to(page, "[name='f.kind'][value='Lease']")
    before = place(page)
    page.keyboard.press("Space")
    expect(page.locator("#n-chosen")).to_have_text("(1)")
    assert place(page) == before
    assert page.evaluate("document.activeElement.checked")
    n_leases = int(page.locator("label", has_text="Lease").locator("small").inner_text())
    expect(page.locator("#found")).to_have_text(re.compile(rf"^\s*{n_leases} of {N + 2} "))
    cities = page.locator("[data-facet=city] small").all_inner_texts()
    assert sum(map(int, cities)) == n_leases  # counted under the filter of the other column
    kinds = page.locator("[data-facet=kind] label").all_inner_texts()
    tab_to(page, "[name='f.city']")
    before = place(page)
    page.keyboard.press("Space")
    expect(page.locator("#n-chosen")).to_have_text("(2)")
    assert place(page) == before
    names = [text.partition("\n")[0] for text in page.locator("[data-facet=kind] label").all_inner_texts()]
    assert names == [text.partition("\n")[0] for text in kinds]  # also those that no document has any more
    page.keyboard.press("Space")
    expect(page.locator("#n-chosen")).to_have_text("(1)")
    assert page.locator("[data-facet=kind] label").all_inner_texts() == kinds
    page.keyboard.press("/")  # a box is a field
    assert place(page)[0] == "f.city"
    tab_to(page, "[name='from.signed']")
    page.keyboard.type("01012014")
    tab_to(page, "[name='from.value']")  # leaves the date
    expect(page.locator("#n-chosen")).to_have_text("(2)")
    assert place(page)[0] == "from.value"
    n_asked = len(asked)
    page.keyboard.type("20000")
    page.wait_for_timeout(150)
    assert len(asked) == n_asked
    page.keyboard.press("Enter")
    expect(page.locator("#n-chosen")).to_have_text("(3)")
    assert place(page)[0] == "from.value"
    page.keyboard.type("0")
    page.keyboard.press("Backspace")
    tab_to(page, "#facets button")  # nothing has changed in the field
    assert len(asked) == n_asked + 1
    expected = site.workspace.search(
        "notice to terminate", 50, "kind = 'Lease' and signed >= '2014-01-01' and value >= 20000", together="copies"
    )
    expect(page.locator(".hit")).to_have_count(len(expected))
    assert "from.signed=2014-01-01" in page.url
    page.keyboard.press("Tab")  # to the link that clears the filters
    page.keyboard.press("Enter")
    expect(page.locator("#n-chosen")).to_have_text("")
    page.go_back()
    expect(page.locator("#n-chosen")).to_have_text("(3)")
    close(page)


def test_hits_open_at_the_passage_show_copies_and_are_judged(site: Site) -> None:
    page = site.open(judge="Ada")
    tab_to(page, "select[name=topic]")
    page.keyboard.type("deposits")
    page.locator("#q").focus()
    search(page, "deposit claims")
    hit = page.locator(".hit", has_text="lease.pdf").first
    expect(hit.locator(".file")).to_contain_text("PDF")
    expect(hit.locator(".file a")).to_have_attribute("href", re.compile(r"^/api/original\?doc_id=.*#page=1$"))
    tab_to(page, ".copies summary")
    page.keyboard.press("Enter")
    expect(page.locator(".copies li")).to_have_count(1)
    assert page.evaluate(OVERFLOW) <= 0
    page.locator("h1").evaluate("each => each.ownerDocument.activeElement.blur()")
    page.keyboard.press("j")
    page.keyboard.press("y")
    expect(page.locator(".hit").first.locator(".judged")).to_have_text("relevant")
    [row] = site.workspace.judgements(1).to_dict("records")
    assert (row["grade"], row["judge"]) == (1, "Ada")
    page.keyboard.press("n")
    expect(page.locator(".hit").first.locator(".judged")).to_have_text("not relevant")
    assert site.workspace.judgements(1)["grade"].tolist() == [0]
    assert "Saved" in page.locator("#status").inner_text()
    for _ in range(20):
        if page.evaluate("document.activeElement.closest('.hit').textContent.includes('lease.pdf')"):
            break
        page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector(".page-picture")
    page.go_back()
    page.wait_for_load_state()
    text = page.locator(".hit", has_text="Markdown").first
    text.locator("h3 a").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".passage:target mark")
    close(page)


def test_documents_are_listed_without_a_query(site: Site) -> None:
    page = site.open(viewport=PHONE)
    tab_to(page, ".browse a")
    page.keyboard.press("Enter")
    expect(page.locator("#found")).to_have_text(re.compile(rf"^\s*{N + 2} of {N + 2} documents, by "))
    page.wait_for_load_state()
    tab_to(page, "#facets summary")
    page.keyboard.press("Enter")
    tab_to(page, "#sort")
    page.keyboard.type("title")
    expect(page.locator("#found")).to_have_text(re.compile("by title"))
    assert place(page)[0] == "sort"
    assert page.evaluate(OVERFLOW) <= 0
    assert violations(page) == []
    titles = page.locator(".hit h3 a").all_inner_texts()
    tab_to(page, "[rel=next]")
    page.keyboard.press("Enter")
    expect(page.locator("#found")).to_contain_text("from the 11th")
    titles += page.locator(".hit h3 a").all_inner_texts()
    listed = site.workspace.documents(sort="title", limit=20).documents
    assert titles == [document.title for document in listed]
    close(page)


@pytest.mark.thorough
def test_hits_with_copies_are_accessible(site: Site) -> None:
    for options in ({}, {"viewport": PHONE}, {"color_scheme": "dark"}):
        page = site.open("/?q=deposit+claims&topic=1", **options)
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        expect(page.locator(".copies li")).to_be_visible()
        assert violations(page) == []
        assert page.evaluate(OVERFLOW) <= 0
        close(page)


@pytest.mark.thorough
def test_a_judgement_that_is_refused_is_said_to(site: Site) -> None:
    topic = site.workspace.create_topic("two judges", double_share=1.0).id
    page = site.open(f"/?q=deposit+claims&topic={topic}")
    page.keyboard.press("j")
    page.keyboard.press("y")  # without a name
    page.get_by_role("heading", name="Not judged").wait_for()
    assert len(site.workspace.judgements(topic)) == 0
    assert any("422" in error for error in page.errors)
    page.errors.clear()
    close(page)


@pytest.mark.thorough
def test_the_search_page_needs_no_script(site: Site) -> None:
    page = site.open("/?q=deposit+claims&topic=1", judge="Bob", java_script_enabled=False)
    page.locator("summary", has_text="Filters").click()
    page.get_by_label("value from").fill("1")
    page.get_by_label("value to").fill("100000")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("#n-chosen")).to_have_text("(2)")
    expect(page.locator("select[name=topic]")).to_have_value("1")
    page.get_by_role("button", name=re.compile("is relevant")).nth(1).click()
    expect(page.locator(".hit").nth(1).locator(".judged")).to_have_text("relevant")
    assert page.url.endswith("#hit-2")
    page.goto("/?sort=title")
    page.locator("summary", has_text="Filters").click()
    page.get_by_label("Order").select_option("-title")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("#found")).to_contain_text("by title, from the end")
    close(page)
