"""The search page without a browser: what it says, where its links lead, copies, lists, and judges who are blind."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest

from haybale import Engine, parse
from haybale.review import JudgementStore
from haybale.service import Workspace, create_app

CLAUSE = (
    "The lessor keeps the deposit until all claims are settled, at most for six months after the lease ends, in a bank "
    "of the city of Ulm."
)


@pytest.fixture(scope="module")
def leases() -> Engine:
    documents: dict[str, Any] = {
        "lease": {"title": "A lease", "text": CLAUSE, "file": "a/lease.pdf"},
        "copy": {"title": "A lease (2)", "text": CLAUSE.upper(), "file": "b/lease.docx"},
        "long": {"title": "A code", "text": [f"Article {n} is void." for n in range(450)] + ["The deposit is due."]},
        "other": {"title": "Keys", "text": "The keys are returned.", "signed": "2001-02-03"},
    }
    return Engine(documents, language="english", encoder="tfidf(min_df=1)").prepare()


@pytest.fixture
def asked(leases: Engine, store: JudgementStore) -> Any:
    from starlette.testclient import TestClient

    rankers = {name: parse(name).fit(leases) for name in ("bm25-doc", "bm25")}
    workspace = Workspace(leases, rankers, store)
    with TestClient(create_app(workspace), base_url="http://127.0.0.1:8000") as client:

        def ask(path: str, **params: Any) -> str:
            answer = client.get(path, params=params or None, headers={"Accept": "text/html"})
            assert answer.status_code == 200, answer.text
            return unescape(" ".join(re.sub(r"<(script|style).*?</\1>", "", answer.text).split()))

        ask.client, ask.workspace = client, workspace
        yield ask


def words(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", "", page).split())


def links(page: str, within: str = r"<h3>.*?</h3>") -> list[str]:
    return [re.search('href="([^"]*)"', part)[1] for part in re.findall(within, page)]


def test_it_counts_in_the_words_of_people(asked: Any) -> None:
    assert "3 of 4 documents match, by bm25-doc" in words(asked("/", q="deposit"))
    assert "1 of 4 documents matches, by" in words(asked("/", q="keys"))
    assert "2 of 4 documents match, by" in words(asked("/", q='"the deposit until"'))
    assert "from the 2nd hit" in words(asked("/", q="deposit", offset=1))
    assert "4 documents, " in words(asked("/"))


def test_copies_are_one_hit_with_its_places(asked: Any) -> None:
    page = asked("/", q="deposit")
    assert len(links(page)) == 2
    assert "1 copy of A lease" in words(page)
    assert "b/lease.docx Word" in words(page)
    assert "a/lease.pdf PDF" in words(page)
    assert len(links(asked("/", q="deposit", together="no"))) == 3
    answer = asked.client.get("/api/search", params={"q": "deposit", "together": "copies"}).json()
    assert sorted(answer["groups"][0]["doc_ids"]) == ["copy", "lease"]


def test_a_title_leads_to_the_passage_in_any_part_of_a_text(asked: Any) -> None:
    [link] = [link for link in links(asked("/", q="deposit")) if "/long?" in link]
    assert link.endswith("&passage=long%3A450#at")
    page = asked(link.partition("#")[0])
    assert "passages 401 to 451 of 451" in words(page)
    assert re.search(r'<p class="passage matches" id="at"[^>]*>The <mark[^>]*>deposit</mark> is due', page)
    assert asked("/documents/long", q="deposit", passage="no such").count('class="passage') == 200


def test_a_ranker_that_finds_more_than_words_is_said_to(asked: Any, leases: Engine) -> None:
    assert "no word of the query" not in words(asked("/", q="deposit"))
    topic = asked.workspace.create_topic("keys").id
    asked.workspace.judge(topic, "other", 1)
    page = words(asked("/", q="deposit", topic=topic, learned=1))
    assert "One of these hits has no word of the query" in page
    assert "3 of 4 documents match" in page


def test_documents_are_listed_and_filters_lead_back(asked: Any) -> None:
    assert [link.partition("?")[0] for link in links(asked("/", sort="title"))] == [
        "/documents/long", "/documents/lease", "/documents/copy", "/documents/other",
    ]  # fmt: skip
    page = asked("/", **{"from.signed": "2001-01-01"})
    assert "1 of 4 documents, by signed, newest first" in words(page)
    back = re.search(r'href="([^"]*)">← Back', asked(links(page)[0].partition("#")[0]))
    assert back is not None
    assert "1 of 4 documents, by signed" in words(asked(back[1]))
    assert "No document was found among those that the filters leave" in words(
        asked("/", where="signed > '2020-01-01'")
    )


def test_hits_are_judged_blind_in_double_screening(asked: Any) -> None:
    topic = asked.workspace.create_topic("deposits", double_share=1.0).id
    assert f'<option value="{topic}">deposits</option>' in asked("/", q="deposit")
    page = asked("/", q="deposit", topic=topic)
    assert "You judge as" in words(page)
    token = re.search('name="csrf_token" value="([^"]*)"', page)
    assert token is not None

    def judge(name: str, grade: int) -> None:
        for path, fields in (
            ("/judge", {"name": name}),
            (f"/topics/{topic}/judge", {"doc_id": "lease", "grade": grade}),
        ):
            headers = {"x-csrf-token": token[1], "Accept": "application/json"}
            assert asked.client.post(path, data=fields, headers=headers).status_code == 200

    def badge() -> list[str]:
        return re.findall(r'class="badge (?:yes|no)">([^<]*)', asked("/", q="deposit", topic=topic, together="no"))

    judge("Ada", 1)
    assert badge() == ["relevant"]
    asked.client.post("/judge", data={"name": "Bob"}, headers={"x-csrf-token": token[1]})
    assert badge() == []
    judge("Bob", 0)
    assert len(badge()) == 1
    asked.workspace.desk.close(topic)
    assert f'<option value="{topic}">' not in asked("/", q="deposit")
    assert "Not relevant" not in asked("/", q="deposit", topic=topic)
