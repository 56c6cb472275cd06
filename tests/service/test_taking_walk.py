"""Hits and a topic are taken along by keyboard and on a phone, and a ranker is trained: pages that do what they say."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docx
import pytest
from support.browser import DESK, OVERFLOW, PHONE, chromium, collect_errors, expect, needs_browser
from support.decisions import decisions
from support.page_files import engine_of
from support.served import serving

from haybale import parse
from haybale.review import JudgementStore
from haybale.service import Workspace

pytestmark = needs_browser

QUESTION = "keeper of a dog"
AXE = "axe.run().then((found) => found.violations.map((each) => [each.id, each.nodes[0].html]))"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Any]]:
    """Serve decisions that were read from files, with a court and a date each."""
    folder = tmp_path_factory.mktemp("taken")
    texts, rows = folder / "texts", io.StringIO()
    texts.mkdir()
    table = csv.writer(rows)
    table.writerow(["path", "court", "date", "docket"])
    for number, decision in enumerate(decisions(32).values()):
        name = f"{decision['title'].replace(' ', '-')}.md"
        (texts / name).write_text(f"# {decision['title']}\n\n" + "\n\n".join(decision["text"]), encoding="utf-8")
        table.writerow([name, decision["court"], decision["date"], f"VI ZR {number}/14"])
    (texts / "metadata.csv").write_text(rows.getvalue(), encoding="utf-8")
    engine = engine_of(texts, folder / "engine").prepare()
    with JudgementStore(folder / "judgements.sqlite") as store:
        workspace = Workspace(engine, {"both": parse("rrf(bm25-doc,parm-vrrf)").fit(engine)}, store)
        with serving(workspace) as address, chromium() as browser:
            yield address, browser


def opened(site: tuple[str, Any], path: str, **options: Any) -> Any:
    address, browser = site
    context = browser.new_context(base_url=address, **{"viewport": DESK} | options)
    context.set_default_timeout(30_000)
    context.add_cookies([{"name": "haybale-judge", "value": "Ada", "url": address}])
    page = context.new_page()
    page.errors = collect_errors(page)
    page.goto(path)
    return page


def close(page: Any) -> None:
    assert page.errors == []
    page.context.close()


def is_accessible(page: Any) -> bool:
    from axe_core_python.base import AXE_SCRIPT

    page.evaluate(AXE_SCRIPT)
    assert page.evaluate(AXE) == []
    assert page.evaluate(OVERFLOW) <= 0
    return True


def tab_to(page: Any, name: str) -> None:
    """Press Tab until the element with a text or a label has the focus."""
    focused = "(document.activeElement.innerText || document.activeElement.ariaLabel || document.activeElement.name)"
    for _ in range(80):
        page.keyboard.press("Tab")
        if str(page.evaluate(focused)).strip() == name:
            return
    raise AssertionError(f"the keyboard does not reach {name!r}")


def saved(page: Any, key: str) -> bytes:
    """Return the file that a key saves."""
    with page.expect_download() as download:
        page.keyboard.press(key)
    return Path(download.value.path()).read_bytes()


def new_topic(site: tuple[str, Any], name: str, n_relevant: int, n_others: int) -> int:
    """Add a topic with judgements by the interface, and return its number."""
    page = opened(site, "/help")
    headers = {"content-type": "application/json"}

    def ask(path: str, body: dict[str, Any]) -> Any:
        answer = page.request.post(f"/api/{path}", data=body, headers=headers)
        assert answer.ok, answer.text()
        return answer.json()

    topic = int(ask("topics", {"text": QUESTION, "name": name})["id"])
    dogs = [f"Dog-{number}.md" for number in range(1, 32, 4)][:n_relevant]
    others = [f"Lease-{number}.md" for number in range(0, 32, 4)][:n_others]
    for doc_id in (*dogs, *others):
        body = {"doc_id": doc_id, "grade": int(doc_id.startswith("Dog")), "judge": "Ada", "note": f"on {doc_id}"}
        ask(f"topics/{topic}/judgements", body)
    close(page)
    return topic


def test_the_page_says_that_nothing_can_be_trained(site: tuple[str, Any]) -> None:
    page = opened(site, "/train")
    expect(page.locator("#missing")).to_contain_text("found none")
    expect(page.get_by_role("button", name="Train", exact=True)).to_be_disabled()
    assert is_accessible(page)
    close(page)


def test_hits_are_taken_along_by_keyboard(site: tuple[str, Any]) -> None:
    page = opened(site, f"/?q={QUESTION}&f.court=BVerfG")
    titles = page.locator(".hit h3 a").all_inner_texts()
    tab_to(page, "Take along")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Word")).to_be_visible()
    assert is_accessible(page)
    tab_to(page, "n")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("3")
    tab_to(page, "Word")
    document = docx.Document(io.BytesIO(saved(page, "Enter")))
    headings = [part.text.partition(". ")[2] for part in document.paragraphs if part.style.name == "Heading 2"]
    assert headings == titles[:3]
    tab_to(page, "CSV")
    rows = list(csv.DictReader(io.StringIO(saved(page, "Space").decode("utf-8-sig"))))
    assert [row["title"] for row in rows] == titles[:3]
    assert all(row["citation"].startswith("BVerfG, 20") and "VI ZR" in row["citation"] for row in rows)
    page.goto(rows[0]["link"])
    expect(page.locator("h1")).to_have_text(titles[0])
    close(page)


def test_a_topic_is_taken_along_on_a_phone(site: tuple[str, Any], tmp_path: Path) -> None:
    topic = new_topic(site, "dogs", 2, 1)
    page = opened(site, f"/topics/{topic}", viewport=PHONE, has_touch=True)
    assert page.evaluate(OVERFLOW) <= 0
    with page.expect_download() as download:
        page.get_by_role("button", name="Folder (zip)").tap()
    with zipfile.ZipFile(download.value.path()) as archive:
        archive.extractall(tmp_path)
    close(page)
    page = opened(site, "/help", viewport=PHONE)
    page.goto("about:blank")  # ends the requests of the page before
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((tmp_path / "dogs" / "index.html").as_uri())
    expect(page.get_by_role("heading", level=1)).to_have_text("dogs")
    assert is_accessible(page)
    expect(page.get_by_text("Note: on Dog-1.md")).to_be_visible()
    page.get_by_role("link", name="Dog 1", exact=True).click()
    expect(page.locator("mark", has_text="dog").first).to_be_visible()
    assert page.evaluate(OVERFLOW) <= 0
    page.get_by_role("link", name="The original file").click()
    expect(page.locator("body")).to_contain_text("The keeper of a dog must pay")
    assert all(url.startswith(("file:", "data:,")) for url in asked)
    close(page)


def test_the_page_says_what_is_missing_before_a_training(site: tuple[str, Any]) -> None:
    new_topic(site, "fourteen", 7, 7)
    page = opened(site, "/train", viewport=PHONE)
    expect(page.get_by_role("button", name="Train on")).to_be_enabled()
    expect(page.locator("option[value=svr]")).to_be_disabled()
    expect(page.locator("#recipes")).to_contain_text("svr needs 2 topics with different questions")
    assert is_accessible(page)
    tab_to(page, "search with the topic's judgements")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    expect(page.locator("#found")).to_contain_text("and the topic's judgements")
    close(page)


@pytest.mark.thorough
def test_the_default_training_never_fails(site: tuple[str, Any]) -> None:
    new_topic(site, "trained", 7, 7)
    page = opened(site, "/train", viewport=PHONE)
    expect(page.get_by_role("button", name="Train on")).to_be_enabled()
    page.get_by_role("button", name="Train on").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Accept: let it rank the search page")).to_be_visible(timeout=120_000)
    assert not page.get_by_text("failed").count()
    assert is_accessible(page)
    page.get_by_role("button", name="Accept: let it rank the search page").click()
    expect(page.get_by_text("ranks the search page").first).to_be_visible()
    page.get_by_role("button", name="Take it back").click()
    expect(page.get_by_role("button", name="Accept: let it rank the search page")).to_be_visible()
    close(page)
