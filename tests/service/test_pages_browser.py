"""The pages in a browser: by keyboard, on a phone, without scripts, for two judges, and for those who see little."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browser import DESK, OVERFLOW, PHONE, expect, needs_browser
from support.contracts import QUESTION, write_contracts
from support.site import Site, close, site_of, violations

from haybale import Engine, parse
from haybale.review import JudgementStore
from haybale.service import Workspace
from haybale.service.saved_searches import SavedQuery

pytestmark = needs_browser

N = 48  # contracts
PROTOCOL = {
    "inclusion_criteria": "# Contracts\n\n- with a *notice*\n\n### Parties\n\nBoth.",
    "exclusion_criteria": "Drafts.",
    "exclusion_reasons": ["no notice", "a draft"],
    "include_keywords": ["notice", "part*"],
    "exclude_keywords": ["rent", "company"],
    "n_stages": 2,
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    grades = write_contracts(folder / "contracts", N)
    engine = Engine.build(folder / "contracts", folder / "engine", language="english").prepare()
    rankers = {name: parse(text).fit(engine) for name, text in {"bm25": "bm25", "both": "rrf(bm25,parm-vrrf)"}.items()}
    with (
        JudgementStore(folder / "judgements.sqlite") as store,
        site_of(Workspace(engine, rankers, store), grades) as served,
    ):
        yield served


@pytest.fixture
def topic(site: Site, request: pytest.FixtureRequest) -> int:
    """The number of a topic of this test alone."""
    return site.workspace.create_topic(QUESTION, name=request.node.name).id


def card(page: Any) -> Any:
    return page.locator("article.card:not([hidden])")


def says(page: Any, beginning: str) -> None:
    """Wait until the line about the last judgement begins so."""
    page.locator("#status", has_text=re.compile(f"^{beginning}")).wait_for()


def caught(page: Any, held: list[Any]) -> Any:
    """Return the request that is held back, when there is one."""
    while not held:
        page.wait_for_timeout(10)
    return held.pop()


def test_search_filter_and_see_why(site: Site) -> None:
    page = site.open()
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.type("notice to terminate")
    page.keyboard.press("Enter")
    page.wait_for_selector(".hit")
    with page.expect_response("**/?*f.kind=Lease*"):
        page.get_by_label("Lease", exact=False).first.check()  # applies at once
    expect(page.locator("#n-chosen")).to_have_text("(1)")
    kinds = page.locator(".hit .meta div", has_text="kind").all_inner_texts()
    assert len(kinds) > 1
    assert all("Lease" in kind for kind in kinds)
    with page.expect_navigation():
        page.locator("select[name=ranker]").select_option("both")
        page.get_by_role("button", name="Search", exact=True).click()
    titles = page.locator(".hit h3 a").all_inner_texts()
    page.keyboard.press("j")
    page.keyboard.press("w")
    page.wait_for_selector(".hit:first-child .shares")
    shown = page.locator(".hit").first.locator(".shares > li > details > summary .what").all_inner_texts()
    assert [name.partition(",")[0] for name in sorted(shown)] == ["bm25", "parm-vrrf"]
    page.evaluate("document.querySelectorAll('.shares details').forEach((each) => { each.open = false; })")
    page.locator(".hit").first.locator("summary", has_text="bm25, rank").click()
    expect(page.locator(".hit").first.get_by_text(re.compile("term (notic|terminat)")).first).to_be_visible()
    link = page.get_by_role("link", name="Link to this search").get_attribute("href")
    page.get_by_text("Take along").click()
    with page.expect_download() as sent:
        page.get_by_role("link", name="Print or send").click()
    file = Path(sent.value.path()).read_text(encoding="utf-8")
    assert all(title in file for title in titles)
    page.goto(link)
    assert page.locator(".hit h3 a").all_inner_texts() == titles
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "q"
    page.keyboard.press("Escape")
    page.locator(".hit h3 a").first.click()
    page.wait_for_selector(".passage.matches mark")
    close(page)


def test_a_long_text_is_searched_paragraph_by_paragraph(site: Site) -> None:
    page = site.open("/?q=x&ranker=both")
    text = "The tenant pays the rent in advance. " * 60 + "\n\nDisputes are settled by one arbitrator."
    page.locator("#q").fill(text)
    page.keyboard.press("Enter")
    page.wait_for_url("**/?text=*")
    expect(page.locator("#q")).to_have_value(text.strip())
    page.locator(".open-why").first.click()
    page.wait_for_selector(".heatmap")
    expect(page.locator(".heatmap .cell").nth(2)).to_be_attached()
    expect(page.get_by_text("Disputes are settled by one arbitrator.").first).to_be_visible()
    close(page)


def test_judge_by_keyboard_without_waiting(site: Site, topic: int) -> None:
    page = site.open(f"/topics/{topic}/review", judge="Ada")
    page.locator("article.card").nth(2).wait_for(state="attached")
    held = []
    page.route("**/judge", lambda route: held.append(route))
    first = card(page).get_attribute("data-doc")
    page.keyboard.press("e")
    page.keyboard.type("see § 9 <b>")
    page.keyboard.press("Escape")
    page.keyboard.press("y")
    expect(card(page)).not_to_have_attribute("data-doc", first)  # the next is there, and the judgement is not yet sent
    expect(page.locator("#status")).to_contain_text("Saving")
    assert len(site.workspace.judgements(topic)) == 0
    caught(page, held).continue_()
    says(page, "Saved")
    [row] = site.workspace.judgements(topic).to_dict("records")
    assert (row["doc_id"], row["grade"], row["judge"], row["note"]) == (first, 1, "Ada", "see § 9 <b>")
    assert row["rank"] == 1
    second = card(page).get_attribute("data-doc")
    page.keyboard.press("n")
    caught(page, held).abort()  # the network fails: the document comes back, and nothing was saved
    says(page, "Not saved")
    expect(card(page)).to_have_attribute("data-doc", second)
    page.unroute("**/judge")
    assert page.errors.pop()
    for n in range(1, 10):
        judged = card(page).get_attribute("data-doc")
        page.keyboard.press("y" if site.grades[judged] else "n")
        page.locator(".counts div", has_text=re.compile(rf"judged\s*{n + 1}$")).wait_for()
    rows = site.workspace.judgements(topic)
    assert len(rows) == 10
    assert rows["doc_id"].is_unique
    assert (rows["grade"] == [1, *(site.grades[doc_id] for doc_id in rows["doc_id"][1:])]).all()
    assert (rows["seconds"] >= 0).all()
    page.keyboard.press("u")
    says(page, "Taken back")
    expect(card(page)).to_have_attribute("data-doc", judged)
    assert len(site.workspace.judgements(topic)) == 9
    page.keyboard.press("s")
    says(page, "Saved")
    assert site.workspace.progress(topic).n_skipped == 1
    expect(card(page)).not_to_have_attribute("data-doc", judged)
    close(page)


def test_reasons_and_full_texts_by_keyboard(site: Site, topic: int) -> None:
    desk = site.workspace.desk
    desk.change_protocol(topic, PROTOCOL)
    page = site.open(f"/topics/{topic}/review", judge="Ada")
    page.get_by_text("Include", exact=True).wait_for()
    page.locator("article.card").nth(2).wait_for(state="attached")
    page.keyboard.press("2")
    page.keyboard.press("r")
    page.keyboard.type("of 1999")
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    says(page, "Saved")
    assert site.workspace.judgements(topic)["reasons"].tolist() == [["a draft", "of 1999"]]
    expect(page.locator("input[name=reason]:checked")).to_have_count(0)
    page.keyboard.press("1")
    page.keyboard.press("y")  # relevant: the reason is left out
    page.locator(".counts div", has_text=re.compile(r"judged\s*2$")).wait_for()
    assert site.workspace.judgements(topic)["reasons"].tolist()[1] == []
    [included] = desk.next_full_text(topic)
    page.get_by_role("link", name="Full texts").click()
    page.wait_for_load_state()  # keys do nothing before the script has run
    expect(card(page)).to_have_attribute("data-doc", included.doc_id)
    with page.expect_navigation():  # nothing is left, so the page loads again; until then, keys are lost
        page.keyboard.press("m")
    page.get_by_text("Everything is judged").wait_for()
    assert desk.full_text_progress(topic).n_not_retrieved == 1
    page.keyboard.press("u")
    card(page).wait_for()
    assert desk.full_text_progress(topic).n_left == 1
    page.get_by_role("link", name="PRISMA diagram").click()
    with page.expect_download() as file:
        page.get_by_role("link", name="Diagram").click()
    assert Path(file.value.path()).read_text(encoding="utf-8") == desk.prisma(topic).to_svg()
    close(page)


def test_it_says_when_to_stop_and_exports(site: Site, topic: int) -> None:
    for _ in range(N - 1):
        [document] = site.workspace.next(topic, judge="Ada")
        site.workspace.judge(topic, document.doc_id, site.grades[document.doc_id], judge="Ada")
    page = site.open(f"/topics/{topic}/review", judge="Ada")
    expect(page.locator(".advice").first).to_be_visible()
    with page.expect_navigation():  # the page loads again
        page.keyboard.press("n")
    page.get_by_text("Everything is judged").wait_for()
    expect(page.locator(".advice").first).to_have_text("stop")
    expect(page.locator(".advice", has_not_text=re.compile("^stop$"))).to_have_count(0)
    page.locator(".rules summary").first.click()
    expect(page.get_by_text("promises nothing about recall").first).to_be_visible()
    expect(page.locator("#progress")).to_contain_text("Estimated recall: 100 %")
    page.goto(f"/topics/{topic}")
    with page.expect_download() as export:
        page.get_by_role("link", name="qrels").first.click()
    assert Path(export.value.path()).read_text(encoding="utf-8") == site.workspace.export(topic)
    page.locator("input[type=file]").set_input_files(
        files=[{"name": "old.csv", "mimeType": "text/csv", "buffer": b"doc_id,grade\n001.md,1\n"}]
    )
    page.get_by_role("button", name="Import").click()
    page.get_by_text("Nothing new").wait_for()
    close(page)


def test_two_judges_at_once(site: Site, topic: int) -> None:
    ada, bob = (site.open(f"/topics/{topic}/review", judge=name) for name in ("Ada", "Bob"))
    seen = []
    for _ in range(3):
        for page in (ada, bob):
            judged = card(page).get_attribute("data-doc")
            seen.append(judged)
            page.keyboard.press("n")
        for page in (ada, bob):
            says(page, "Saved")
            page.evaluate("document.getElementById('status').textContent = ''")
    assert len(set(seen)) == 6
    bob.goto(f"/topics/{topic}/review?doc={seen[0]}")  # judge what Ada has judged
    expect(card(bob)).to_have_attribute("data-doc", seen[0])
    bob.keyboard.press("y")
    says(bob, "Saved")
    bob.goto(f"/topics/{topic}/judges")
    expect(bob.get_by_role("table").last).to_contain_text("Ada and Bob")
    assert set(site.workspace.judgements(topic)["judge"]) == {"Ada", "Bob"}
    close(ada)
    close(bob)


def test_two_judges_are_blind_and_a_conflict_is_resolved(site: Site, topic: int) -> None:
    site.workspace.change_screening(topic, 1.0)
    ada = site.open(f"/topics/{topic}/review", judge="Ada")
    judged = card(ada).get_attribute("data-doc")
    ada.locator("#note").fill("ends by notice")
    ada.locator("h1").click()
    ada.keyboard.press("y")
    says(ada, "Saved")
    nobody = site.open(f"/topics/{topic}/review", viewport=PHONE)
    nobody.get_by_role("link", name="Say who you are").click()
    nobody.keyboard.press("Tab")
    nobody.get_by_label("You judge as").fill("Bob")
    nobody.keyboard.press("Enter")
    card(nobody).wait_for()
    expect(card(nobody)).to_have_attribute("data-doc", judged)
    assert "Ada" not in card(nobody).inner_text()
    assert "likely" not in card(nobody).inner_text()
    nobody.goto(f"/topics/{topic}")
    assert nobody.get_by_text("ends by notice").count() == 0
    nobody.goto(f"/topics/{topic}/review")
    nobody.locator("h1").click()
    nobody.keyboard.press("n")
    says(nobody, "Saved")
    assert "opposite" not in nobody.locator("#status").inner_text()
    close(nobody)
    close(ada)
    page = site.open(f"/topics/{topic}/judges", judge="Bob", java_script_enabled=False, viewport=PHONE)
    expect(page.get_by_text("ends by notice")).to_be_visible()
    page.get_by_label("Note").fill("both have read it again")
    page.get_by_label("Ada and I have agreed").check()
    page.get_by_role("button", name="resolve as not relevant").click()
    expect(page.get_by_text("Resolved by Bob and Ada")).to_be_visible()
    assert site.workspace.topic(topic).n_relevant == 0
    page.get_by_role("button", name="take the resolution back").click()
    expect(page.get_by_text("Resolved by Bob and Ada")).to_have_count(0)
    page.get_by_label("Two judges judge, in %").fill("25")
    with page.expect_navigation():
        page.get_by_role("button", name="Change", exact=True).first.click()
    assert site.workspace.judges(topic).plan.double_share == 0.25
    assert [conflict.doc_id for conflict in site.workspace.judges(topic).conflicts()] == [judged]
    close(page)


@pytest.mark.thorough
def test_train_accept_and_take_back(site: Site) -> None:
    for text in (QUESTION, "Animals that tenants keep"):  # topics with the same text are one training query
        number = site.workspace.create_topic(text, name=f"to train on: {text}").id
        for doc_id, grade in list(site.grades.items())[:30]:
            site.workspace.judge(number, doc_id, grade, judge="Ada")
    page = site.open("/train")
    page.get_by_role("button", name="Train on").click()
    page.locator("#training[data-running]").wait_for()
    page.get_by_role("heading", name="The held-back half of each topic").wait_for(timeout=300_000)
    assert page.locator("table").first.inner_text().count("0.") >= 4
    before = page.request.get(f"/api/search?q={QUESTION}").json()["hits"]
    page.get_by_role("button", name="Accept").first.click()
    page.get_by_text("ranks the search page").wait_for()
    page.goto(f"/?q={QUESTION}")
    titles = page.locator(".hit h3 a").all_inner_texts()
    assert titles != [hit["title"] for hit in before]
    found = [hit["doc_id"] for hit in page.request.get(f"/api/search?q={QUESTION}").json()["hits"]]
    assert sum(site.grades[each] for each in found) > sum(site.grades[hit["doc_id"]] for hit in before)
    page.locator(".open-why").first.click()
    page.locator(".shares .what", has_text="training query").first.wait_for(state="attached")
    assert page.locator(".shares .text", has_text=QUESTION).first.text_content()  # the text of the training query
    page.goto("/train")
    page.get_by_role("button", name="Take it back").click()
    page.get_by_role("button", name="Take it back").wait_for(state="detached")
    page.goto(f"/?q={QUESTION}")
    assert page.locator(".hit h3 a").all_inner_texts() == [hit["title"] for hit in before]
    close(page)


def test_without_scripts(site: Site) -> None:
    page = site.open(f"/?q={QUESTION}", java_script_enabled=False)
    page.locator("summary", has_text="Filters").click()
    page.get_by_label("Lease", exact=False).first.check()
    page.get_by_role("button", name="Apply").click()
    page.locator(".open-why").first.click()
    expect(page.locator(".shares li").first).to_be_attached()
    page.goto("/topics")
    page.get_by_label("What are you looking for?").fill("Which leases end without notice?")
    page.get_by_role("button", name="Begin").click()
    page.get_by_label("You judge as").fill("Zoë")
    page.get_by_role("button", name="Set").click()
    judged = card(page).get_attribute("data-doc")
    page.get_by_role("button", name="Not relevant").click()
    expect(card(page)).not_to_have_attribute("data-doc", judged)
    [row] = site.workspace.judgements(site.workspace.topics()[-1].id).to_dict("records")
    assert (row["doc_id"], row["grade"], row["judge"]) == (judged, 0, "Zoë")
    page.get_by_role("button", name="Undo").click()
    expect(card(page)).to_have_attribute("data-doc", judged)
    close(page)


@pytest.mark.thorough  # walks with axe are of fewer pages
def test_pages_are_accessible_and_fit_a_phone(site: Site, topic: int) -> None:
    site.workspace.judge(topic, "001.md", 1, judge="Ada", note="a note")
    site.workspace.judge(topic, "001.md", 0, judge="Bob")
    site.workspace.desk.change_protocol(topic, PROTOCOL)
    for grade, doc_id in enumerate(("002.md", "003.md")):
        site.workspace.judge(topic, doc_id, grade, judge="Ada")
        site.workspace.judge(topic, doc_id, 0, judge="Bob", note="another note")
    site.workspace.judges(topic).resolve("003.md", 1, "Bob", "we have talked", together_with="Ada")
    site.workspace.duplicates.change(topic, "join", ["002.md", "003.md"])
    long = site.workspace.long_queries.keep("A rent is due.\n\nA notice ends the lease.")
    site.workspace.log.change(is_on=True, user="")
    saved = site.workspace.searches.save(SavedQuery(QUESTION, ranker="both"), "contracts", "Ada", is_shared=True).id
    site.workspace.searches.open_feed(saved, "Ada")
    line = site.workspace.log.head.number + 1
    site.workspace.search(QUESTION, 5, judge="Ada")
    page = site.open("/", judge="Ada")
    for path in (
        "/",
        f"/?q={QUESTION}&f.kind=Lease&topic={topic}",
        "/?q=rent&where=no",
        "/?q=qqqq",
        "/?sort=-signed&f.kind=Lease",
        f"/why?text={long}&id=001.md&ranker=both",
        f"/documents/001.md?q={QUESTION}&topic={topic}",
        f"/topics/{topic}/review",
        f"/topics/{topic}/full-text",
        f"/topics/{topic}/protocol",
        f"/topics/{topic}/prisma",
        "/topics",
        f"/topics/{topic}",
        f"/topics/{topic}/judges",
        f"/topics/{topic}/duplicates",
        "/searches",
        f"/searches/{saved}",
        "/log",
        f"/log/{line}",
        f"/log/{line}/repeat",
        "/train",
        "/help",
        "/nothing-here",
    ):
        page.set_viewport_size(DESK)
        page.emulate_media(color_scheme="light")
        page.goto(path)
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert violations(page) == [], path
        page.emulate_media(color_scheme="dark")
        assert violations(page, "['color-contrast']") == [], path
        assert page.evaluate(OVERFLOW) <= 0, path
        page.set_viewport_size(PHONE)
        assert page.evaluate(OVERFLOW) <= 0, path
        assert page.evaluate("performance.getEntriesByType('resource').every((each) => each.name.startsWith(origin))")
    site.workspace.log.change(is_on=False, user="")
    page.errors[:] = [each for each in page.errors if "status of 4" not in each]  # of pages about errors
    close(page)


@pytest.mark.parametrize(
    "options", [{"java_script_enabled": False}, pytest.param({"viewport": PHONE}, marks=pytest.mark.thorough)]
)
def test_a_search_is_saved_looked_at_and_deleted(site: Site, options: dict[str, Any]) -> None:
    page = site.open("/", judge="Cyd", **options)
    page.locator("#q").fill("notice to terminate")
    page.get_by_role("button", name="Search", exact=True).click()
    page.get_by_text("Save this search").click()
    page.get_by_label("Hits to watch").fill("5")
    page.locator("#save-name").fill("notices")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="notices").wait_for()
    expect(page.locator("#found")).to_contain_text("Nothing is new since")
    page.get_by_role("button", name="Make a feed").click()
    expect(page.locator("#feed")).to_have_value(re.compile(r"^http://127\.0\.0\.1:\d+/feed\?token="))
    page.get_by_label("Mail new hits to").fill("cyd@example.org")
    page.get_by_role("button", name="Mail me").click()
    expect(page.get_by_role("button", name="End the feed")).to_be_visible()
    page.get_by_role("link", name="Saved", exact=True).click()
    expect(page.locator("tbody tr")).to_contain_text(["feed"])
    page.get_by_role("link", name="notices").click()
    page.get_by_role("button", name="I have seen these").click()
    page.get_by_role("button", name="Delete this search").click()
    expect(page.get_by_role("heading", name="Saved searches")).to_be_visible()
    expect(page.get_by_role("link", name="notices")).to_have_count(0)
    close(page)


def test_the_reader_chooses_dark_or_light(site: Site) -> None:
    page = site.open("/", color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Light or dark").click()
    dark = page.evaluate(ground)
    assert dark != light
    page.goto("/help")
    assert page.evaluate(ground) == dark
    page.get_by_label("Use these keys").uncheck()
    page.keyboard.press("/")
    assert page.url.endswith("/help")
    close(page)
