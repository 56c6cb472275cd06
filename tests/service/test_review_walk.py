"""Two people review 1,900 records of three databases in a browser, from import to PRISMA numbers and statement."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browser import DESK, OVERFLOW, PHONE, chromium, collect_errors, expect, needs_browser
from support.commands import haybale
from support.served import Served

pytestmark = [needs_browser, pytest.mark.thorough]

N_WORKS, N_RELEVANT = 1500, 60
# The works of each database: 1,900 records, 400 of which are of works that another database has, too.
PARTS = {"pubmed.nbib": range(700), "embase.ris": range(500, 1200), "scopus.csv": range(1000, 1500)}
TOPIC = "Do statins lower the risk of stroke?"
STARTS, ENDS = ["ba", "de", "fi", "go", "lu", "me", "no", "pa", "ri"], ["lin", "ran", "mol"]
WORDS = [start + end for start in STARTS for end in ENDS]


def works() -> list[dict[str, str]]:
    """Return works with a title, an abstract, a year, an author and a DOI; the relevant ones are about statins."""
    rng = random.Random(0)
    relevant = set(rng.sample(range(N_WORKS), N_RELEVANT))
    made = []
    for number in range(N_WORKS):
        words = rng.choices(WORDS, k=60)
        if number in relevant:
            words[5:5] = ["statins", "lower", "the", "risk", "of", "stroke"]
        title = f"{'Statins and stroke' if number in relevant else 'A study'} of {' '.join(words[:4])} {words[30]}"
        about = {"title": title, "abstract": f"{' '.join(words)}.", "year": str(1990 + number % 30)}
        made.append(about | {"author": f"{words[7].title()}, {words[9][0].upper()}", "doi": f"10.1000/w{number}"})
    return made


def files(folder: Path) -> dict[str, Path]:
    """Write the records of three databases; every second record of the table has no DOI."""
    table, nbib, ris = io.StringIO(newline=""), "", ""
    rows = csv.writer(table)
    rows.writerow(["title", "abstract", "year", "authors", "doi"])
    made = works()
    for number in PARTS["pubmed.nbib"]:
        work = made[number]
        nbib += f"PMID- {10_000 + number}\nTI  - {work['title']}\nAB  - {work['abstract']}\nFAU - {work['author']}\n"
        nbib += f"DP  - {work['year']}\nLID - {work['doi']} [doi]\n\n"
    for number in PARTS["embase.ris"]:
        work = made[number]
        ris += f"TY  - JOUR\nTI  - {work['title']}\nAB  - {work['abstract']}\nAU  - {work['author']}\n"
        ris += f"PY  - {work['year']}\nDO  - {work['doi']}\nER  - \n\n"
    for number in PARTS["scopus.csv"]:
        work = made[number]
        doi = work["doi"] if number % 2 else ""
        rows.writerow([work["title"], work["abstract"], work["year"], work["author"], doi])
    paths = {}
    for name, text in {"pubmed.nbib": nbib, "embase.ris": ris, "scopus.csv": table.getvalue()}.items():
        paths[name] = folder / name
        paths[name].write_text(text, encoding="utf-8")
    return paths


def command(*arguments: object) -> str:
    done = haybale(*map(str, arguments))
    assert done.returncode == 0, done.stderr
    return done.stdout


class Walk:
    """A browser before a service; every page that is opened is checked for accessibility, on a screen and a phone."""

    def __init__(self, address: str, browser: Any) -> None:
        self.address, self.browser = address, browser

    def person(self, name: str, **options: Any) -> Any:
        context = self.browser.new_context(base_url=self.address, **{"viewport": DESK} | options)
        context.set_default_timeout(30_000)
        context.add_cookies([{"name": "haybale-judge", "value": name, "url": self.address}])
        page = context.new_page()
        page.errors = collect_errors(page)
        return page

    def look(self, page: Any, path: str) -> None:
        from axe_core_python.base import AXE_SCRIPT

        size = page.viewport_size
        page.goto(path)
        page.evaluate(AXE_SCRIPT)
        run = "axe.run().then((found) => found.violations.map((each) => [each.id, each.nodes[0].html]))"
        for other in (DESK, PHONE):
            page.set_viewport_size(other)
            assert page.evaluate(run) == [], path
            assert page.evaluate(OVERFLOW) <= 0, path
        page.set_viewport_size(size)

    def ask(self, page: Any, path: str, body: Any = None, **parameters: Any) -> Any:
        if body is None:
            answer = page.request.get(f"/api/{path}", params=parameters)
        else:
            answer = page.request.post(f"/api/{path}", data=body, headers={"content-type": "application/json"})
        assert answer.ok, answer.text()
        return answer.json()


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[tuple[Walk, dict[str, Path]]]:
    paths = files(tmp_path)
    first = tmp_path / "first"
    first.mkdir()
    paths["pubmed.nbib"].rename(first / "pubmed.nbib")
    command("index", first, "--out", tmp_path / "engine", "--language", "english")
    with Served(tmp_path / "engine") as served, chromium() as browser:
        yield Walk(served.address, browser), paths


def is_relevant(document: dict[str, Any]) -> int:
    return int(str(document["title"]).startswith("Statins"))


def test_two_people_from_import_to_statement(walk: tuple[Walk, dict[str, Path]], tmp_path: Path) -> None:
    site, paths = walk
    ada, bob = site.person("Ada"), site.person("Bob", viewport=PHONE)
    for name in ("embase.ris", "scopus.csv"):
        site.look(ada, "/records")
        ada.locator("input[type=file]").set_input_files(paths[name])
        ada.get_by_role("button", name="Add").click()
        ada.locator("section", has_text=name).get_by_text("done").wait_for(timeout=120_000)
    site.look(ada, "/topics")
    ada.get_by_label("What are you looking for?").fill(TOPIC)
    ada.get_by_role("button", name="Begin").click()
    ada.wait_for_url("**/review")
    topic = int(ada.url.split("/")[-2])
    site.look(ada, f"/topics/{topic}/protocol")
    ada.get_by_role("textbox", name="Criteria for inclusion").fill("# Trials\n\n- of *statins*\n- with strokes counted")
    ada.get_by_label("Reasons for exclusion").fill("no statin\nno trial")
    ada.get_by_label("Keywords for inclusion").fill("statin*\nstroke")
    ada.get_by_label("Two: title and abstract").check()
    ada.get_by_role("button", name="Save").click()
    site.look(ada, f"/topics/{topic}/judges")
    ada.get_by_label("Two judges judge, in %").fill("5")
    ada.get_by_role("button", name="Change", exact=True).first.click()
    site.look(ada, f"/topics/{topic}")
    expect(ada.locator("main")).to_contain_text("1,900 records")
    expect(ada.locator("main")).to_contain_text("400 duplicates")
    site.look(ada, f"/topics/{topic}/duplicates")

    # By keyboard, and by tapping on a phone.
    for page, judge in ((ada, "Ada"), (bob, "Bob")):
        site.look(page, f"/topics/{topic}/review")
        for n in range(1, 9):
            card = page.locator("article.card:not([hidden])")
            shown, grade = card.get_attribute("data-doc"), int("Statins" in card.locator("h2").inner_text())
            if page is ada:
                page.keyboard.press("y" if grade else "n")
            else:
                page.get_by_role("button", name="Relevant" if grade else "Not relevant", exact=False).first.click()
            other = "shown => document.querySelector('article.card:not([hidden])')?.dataset.doc !== shown"
            page.wait_for_function(other, arg=shown)
            page.locator("#status", has_text="Saved").wait_for()
            assert n <= 8, judge
    ada.goto(f"/topics/{topic}")
    ada.get_by_role("button", name="Begin", exact=True).click()  # the audit
    n_judged = read_until_the_audit_stops(site, ada, topic)
    assert n_judged < N_WORKS
    conflicts = site.ask(ada, f"topics/{topic}/conflicts")["conflicts"]
    assert conflicts
    site.look(ada, f"/topics/{topic}/judges")
    ada.get_by_label("Note").first.fill("we have read it again")
    ada.get_by_label("Bob and I have agreed").first.check()
    ada.get_by_role("button", name="resolve as not relevant").first.click()
    ada.get_by_text("Resolved by Ada and Bob").wait_for()
    assert site.ask(ada, f"topics/{topic}/conflicts")["conflicts"] == []

    # Full texts, PRISMA, the statement.
    site.look(bob, f"/topics/{topic}/full-text")
    read_full_texts(site, bob, topic)
    site.look(ada, f"/topics/{topic}/prisma")
    prisma = site.ask(ada, f"topics/{topic}/prisma")
    assert (prisma["n_identified"], prisma["n_duplicates"]) == (1900, 400)
    assert sorted(prisma["identified"].values()) == [500, 700, 700]
    assert prisma["n_assessed"] == prisma["n_included"] + prisma["n_full_texts_excluded"]
    assert prisma["n_included"] >= 0.6 * N_RELEVANT
    with ada.expect_download() as diagram:
        ada.get_by_role("link", name="Diagram").click()
    assert "<svg" in Path(diagram.value.path()).read_text(encoding="utf-8")
    ada.goto(f"/topics/{topic}")
    statement = site.ask(ada, f"topics/{topic}/audit")
    assert statement["looks"]
    assert (statement["n_documents"], statement["gap"]) == (N_WORKS, "")
    assert statement["statement"].startswith(("At least 8", "At least 9"))
    site.look(ada, f"/topics/{topic}")

    # The exported records, in a new engine, have the same decisions.
    exported = ada.request.get(f"/api/topics/{topic}/export", params={"format": "ris", "documents": "all"}).text()
    again = tmp_path / "again"
    again.mkdir()
    (again / "records.ris").write_text(exported, encoding="utf-8")
    command("index", again, "--out", tmp_path / "engine-again", "--language", "english")
    command("review", tmp_path / "engine-again", TOPIC, "--decisions", again / "records.ris")
    decided = command("review", tmp_path / "engine-again", TOPIC, "--export", "qrels")
    grades = [int(line.split()[-1]) for line in decided.splitlines()]
    judged = ada.request.get(f"/api/topics/{topic}/export", params={"format": "qrels"}).text().splitlines()
    assert sorted(grades) == sorted(int(line.split()[-1]) for line in judged)
    assert ada.errors == bob.errors == []


def read_until_the_audit_stops(site: Walk, page: Any, topic: int) -> int:
    """Let both judge in turn, with the true grades, until the audit says stop; Bob errs once where two judge."""
    erred = False
    for turn in range(4 * N_WORKS):
        judge = ("Ada", "Bob")[turn % 2]
        documents = site.ask(page, f"topics/{topic}/next", n=5, judge=judge)["documents"]
        for document in documents:
            grade = is_relevant(document)
            waits = document["probability"] is None
            if waits and not grade and not erred and judge == "Bob":
                grade, erred = 1, True
            body = {"doc_id": document["doc_id"], "grade": grade, "judge": judge}
            site.ask(page, f"topics/{topic}/judgements", body)
        if turn % 4 == 3 or not documents:
            progress = site.ask(page, f"topics/{topic}/progress")
            audit = next(advice for name, advice in progress["advice"].items() if name.startswith("audit"))
            if audit["stop"] and not progress["n_waiting"]:
                return int(progress["n_judged"])
    raise AssertionError("the audit has not stopped")


def read_full_texts(site: Walk, page: Any, topic: int) -> None:
    """Judge all full texts; every tenth is not retrieved, and every fifth is excluded with a reason."""
    n = 0
    while documents := site.ask(page, f"topics/{topic}/full-text/next", judge="Bob")["documents"]:
        n += 1
        body: dict[str, Any] = {"doc_id": documents[0]["doc_id"], "judge": "Bob"}
        body |= {"grade": 0, "reasons": ["no trial"]} if n % 5 == 0 else {"grade": 1}
        site.ask(page, f"topics/{topic}/full-text/judgements", body)
    assert n > N_RELEVANT // 2
