"""Pages without a browser: they say what they should, whatever users write is escaped, and nothing is inline."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from haybale import Engine, parse
from haybale.collections import CollectionBuilder, UnreadPart
from haybale.review import JudgementStore
from haybale.service import Workspace, create_app
from haybale.service.pages.rendering import document_address

BAD = "<script>alert(1)</script>"
VOID = {"meta", "link", "br", "input", "rect", "circle", "path", "line", "img"}


class Page(HTMLParser):
    """Parse a page; fail for tags that do not match, for styles and scripts in the page, and for markup of users."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text, self.links, self.ids = "", [], []
        self.feed(text)
        self.words = " ".join(self.text.split())
        assert self.open == []
        assert len(self.ids) == len(set(self.ids))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        assert not [name for name in given if name == "style" or name.startswith("on")]
        assert tag not in ("style", "i", "iframe")
        assert tag != "script" or given["src"].startswith("/static/")
        if tag not in VOID:
            self.open.append(tag)
        if "href" in given:
            self.links.append(given["href"])
        if "id" in given:
            self.ids.append(given["id"])

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        assert self.open[-1:] != ["script"]
        self.text += data


def asked(client, path: str, status: int = 200, **params: str) -> Page:
    answer = client.get(path, params=params or None, headers={"Accept": "text/html"})
    assert answer.status_code == status, answer.text
    return Page(answer.text)


@pytest.fixture(scope="module")
def hostile_engine() -> Engine:
    builder = CollectionBuilder(BAD, language="english")
    for number in range(8):
        texts = [f"dogs {BAD} {number}", f"dogs \u202e\x07 </p><i> cats {number}", "a lease"]
        values = {"court": f"{BAD}'\"", 'a"b<i>': ["<i>x</i>", "y"], "year": 2000 + number % 2, "flag": number < 3}
        builder.add_document(f"{BAD}/../{number}'\"&", texts, title=f"</title>{BAD}{number}", metadata=values)
    builder.add_document("..", ["dogs outside"], title="")
    unread = tuple(UnreadPart(file=f"{BAD}.pdf", part=f"page {n}</i>", reason=f"no text {BAD}") for n in range(1, 300))
    return Engine(replace(builder.build(), unread=unread), encoder="tfidf(min_df=1)").prepare()


@pytest.fixture
def hostile(hostile_engine, tmp_path):
    from starlette.testclient import TestClient

    rankers = {BAD: parse("rrf(bm25-doc,bm25-parm-rrf,knn)").fit(hostile_engine)}
    with JudgementStore(tmp_path / f"{BAD[1:7]}.sqlite") as store:
        workspace = Workspace(hostile_engine, rankers, store)
        with TestClient(create_app(workspace), base_url="http://127.0.0.1:8000") as client:
            client.workspace = workspace
            yield client


def test_what_users_write_is_escaped(hostile) -> None:
    workspace, id = hostile.workspace, f"{BAD}/../1'\"&"
    topic = workspace.create_topic(f"dogs {BAD}", name=f"{BAD}\"'").id
    workspace.judge(topic, id, 1, judge=BAD, note=BAD)
    workspace.judge(topic, id, 0, judge="<i>Bob", note="</td>")
    texts = (BAD, f"<i> {BAD}", "</textarea>")
    lists = dict.fromkeys(("exclusion_reasons", "include_keywords", "exclude_keywords"), texts)
    criteria = dict.fromkeys(("inclusion_criteria", "exclusion_criteria"), f"# {BAD}\n\n- <i>\n\n</textarea>")
    workspace.desk.change_protocol(topic, {**lists, **criteria, "n_stages": 2}, judge=BAD)
    workspace.judge(topic, f"{BAD}/../2'\"&", 0, judge=BAD, reasons=texts)
    workspace.desk.judge_full_text(topic, id, 0, judge=BAD, reasons=texts)
    workspace.desk.delete(workspace.create_topic(f"{BAD} deleted").id)
    long = workspace.long_queries.keep(f"dogs {BAD}\n\ncats </textarea><i>")
    query = {"q": f"dogs {BAD} </textarea><i>"}
    for path, params in (
        ("/", {}),
        ("/", query),
        ("/", {**query, "f.court": f"{BAD}'\"", 'f.a"b<i>': "y", "from.year": "2000", "topic": str(topic)}),
        ("/", {"text": long}),
        ("/", {"sort": "-year", "f.court": f"{BAD}'\"", "topic": str(topic)}),
        (document_address(id), {"passage": f"{BAD}"}),
        ("/why", {**query, "id": id}),
        ("/why", {"text": long, "id": id}),
        (document_address(id), query),
        (document_address(id), {"topic": str(topic)}),
        (document_address(".."), {}),
        ("/topics", {}),
        (f"/topics/{topic}", {}),
        (f"/topics/{topic}/review", {}),
        (f"/topics/{topic}/cards", {}),
        (f"/topics/{topic}/protocol", {}),
        (f"/topics/{topic}/full-text", {}),
        (f"/topics/{topic}/prisma", {}),
        ("/train", {}),
        ("/help", {}),
        ("/unread", {}),
    ):
        asked(hostile, path, **params)
    for path, params, status in (
        ("/", {"q": "dogs", "where": BAD}, 422),
        ("/", {"q": "dogs", "ranker": f"{BAD}x"}, 422),
        ("/", {"q": "dogs", "f.<i>": "x"}, 422),
        ("/", {"sort": BAD}, 422),
        ("/", {"text": BAD}, 422),
        (document_address(f"no {BAD}"), {}, 404),
        (f"/{BAD}", {}, 404),
    ):
        page = asked(hostile, path, status, **params)
        assert "alert(1)" in page.text or "f.<i>" in params or status == 404


def test_the_sent_file_is_whole(hostile) -> None:
    long = hostile.workspace.long_queries.keep(f"dogs {BAD}\n\ncats and a lease")
    answer = hostile.get("/sent", params={"text": long})
    assert (
        answer.headers["content-disposition"]
        == 'attachment; filename="dogs-script-alert-1-script-cats-and-a-lease.html"'
    )
    body = re.sub(r"<style>.*</style>", "", answer.text, flags=re.S)
    page = Page(body)
    assert page.links == []
    assert not re.search(r"(?:src|url)\s*[=(]", body)
    assert "bm25-parm-rrf" in page.text
    assert "<svg" in body


def test_a_search_has_one_address(client) -> None:
    params = {"q": "lease rent", "where": "court = 'BGH'", "ranker": "bm25"}
    page = asked(client, "/", **params)
    [link] = [link for link in page.links if link.startswith("/?q=") and "offset" not in link and "court+%3D" in link]
    assert asked(client, link).text == page.text
    hits = client.get("/api/search", params=params).json()["hits"]
    for hit in hits:
        assert hit["title"] in page.text
    assert all(link.startswith(("/", "#")) for link in page.links)


def test_facets_make_the_condition(client, workspace) -> None:
    facet = next(each for each in workspace.facets() if each.kind == "value" and each.n_values < 8)
    value, count = facet.values[0]
    page = asked(client, "/", q="lease", k="100", **{f"f.{facet.name}": str(value).lower() if value is True else value})
    found = workspace.search("lease", 100, workspace.condition({facet.name: [value]}))
    assert 0 < len(found) <= count
    assert f"{len(found)} of 24 documents match" in page.words


def test_ranges_are_in_the_address(client, workspace) -> None:
    page = asked(client, "/", q="lease", **{"from.year": "2004", "to.date": "2015-01-01", "f.court": "BGH"})
    found = workspace.search("lease", where="year >= 2004 and date <= '2015-01-01' and court = 'BGH'")
    assert 0 < len(found) < 10
    assert f"{len(found)} of 24 documents match" in page.words
    links = [link for link in page.links if link.startswith("/why?")]
    assert len(links) == len(found)
    for link in links:
        assert "from.year=2004&to.date=2015-01-01" in link
        asked(client, link)


def test_errors_are_said_in_words(client) -> None:
    assert "columns are" in asked(client, "/", 422, q="dog", where="court = 1 and").text
    assert "unknown ranker 'bm26' (did you mean bm25?)" in asked(client, "/", 422, q="dog", ranker="bm26").text
    assert "There is no such page" in asked(client, "/topics/99", 404).text
    assert client.get("/api/topics/99", headers={"Accept": "text/html"}).headers["content-type"].endswith("json")


def test_judging_needs_no_script(client, workspace) -> None:
    made = client.post("/topics", data={"text": "dog damage", "name": "dogs"}, follow_redirects=False)
    assert made.status_code == 303
    review = made.headers["location"]
    client.post("/judge", data={"name": "Zoë", "back": review})
    first = workspace.next(1, judge="Zoë")[0]
    judged = {"doc_id": first.doc_id, "grade": "1", "note": "yes", "seconds": "x"}
    answer = client.post(
        "/topics/1/judge", data={**judged, "back": "https://elsewhere.example/"}, follow_redirects=False
    )
    assert (answer.status_code, answer.headers["location"]) == (303, review)
    [row] = workspace.judgements(1).to_dict("records")
    assert (row["doc_id"], row["grade"], row["judge"], row["note"]) == (first.doc_id, 1, "Zoë", "yes")
    back = client.post("/topics/1/judge", data={"grade": "undo"}, follow_redirects=False).headers["location"]
    assert first.title in asked(client, back).text
    assert client.post("/topics/1/judge", data={"grade": "undo"}).status_code == 422
    assert client.post("/topics/1/judge", data={"grade": "yes", "doc_id": first.doc_id}).status_code == 422
    assert client.post("/topics", data={"text": "other", "name": "dogs"}).status_code == 422  # the name is taken
    assert client.post("/topics", data={"text": "  "}).status_code == 422


def test_judgements_come_and_go_as_files(client, workspace) -> None:
    topic = workspace.create_topic("dog damage").id
    ids = [hit.doc_id for hit in workspace.search("dog damage", 3)]
    for text, expected in (
        (f"doc_id,grade\n{ids[0]},1\n", "1 judgement added"),
        (f"t 0 {ids[0]} 0\nt 0 {ids[1]} 2\n", "1 judgement added"),
        (f"query-id\tcorpus-id\tscore\nt\t{ids[2]}\t0\n", "1 judgement added"),
        (f"doc_id,grade\n{ids[0]},1\n", "Nothing new"),
        ("no,table\n1,2\n", "expected decisions"),
        ("doc_id,grade\nno such,1\n", "no such"),
        (f"doc_id,grade\n{ids[0]},-1\n", "whole number"),
    ):  # fmt: skip
        answer = client.post(f"/topics/{topic}/import", files={"file": ("old.csv", text.encode())})
        assert expected in Page(answer.text).text
    assert client.get(f"/topics/{topic}/export", params={"format": "qrels"}).text == workspace.export(topic)
    assert client.get(f"/topics/{topic}/export", params={"format": "x"}).status_code == 422


def test_a_document_is_a_query(client, workspace) -> None:
    text = "A dog bit a child.\n\nWho pays the damage?"
    for file in (("query.txt", text.encode()), ("query.md", text.encode())):
        answer = client.post("/long", files={"file": file}, data={"ranker": "both"}, follow_redirects=False)
        page = asked(client, answer.headers["location"])
        assert workspace.search(text, ranker="both")[0].title in page.text
    hit = workspace.search(text, ranker="both")[0].doc_id
    id = re.search("text=([0-9a-f]+)", answer.headers["location"])[1]
    why = asked(client, "/why", id=hit, text=id, ranker="both")
    assert "Paragraph by paragraph" in why.text
    assert "Who pays the damage?" in why.text
    refused = client.post("/long", files={"file": ("query.exe", b"x")})
    assert refused.status_code == 422
    assert ".txt" in Page(refused.text).text


def test_judges_see_no_buttons_that_they_may_not_press(workspace) -> None:
    from starlette.testclient import TestClient

    from haybale.service.security import Access
    from haybale.service.users import User, Users, digest_of

    rights = {"ada": "judge", "eve": "administer", "rob": "read"}
    users = Users(User(name, right, digest=digest_of(f"token of {name}")) for name, right in rights.items())
    topic = workspace.create_topic("dog damage").id
    for name, is_admin in (("ada", False), ("eve", True)):
        headers = {"Authorization": f"Bearer token of {name}"}
        with TestClient(
            create_app(workspace, Access(users)), base_url="http://127.0.0.1:8000", headers=headers
        ) as client:
            page = asked(client, f"/topics/{topic}")
            assert ("Old judgements" in page.text) == is_admin
            assert name in page.text
            assert "You judge as" not in asked(client, f"/topics/{topic}/review").text
            assert ("Administrators train" in asked(client, "/train").text) != is_admin
            assert "Not relevant" in asked(client, "/", q="dog", topic=str(topic)).text
    reader = {"Authorization": "Bearer token of rob"}
    with TestClient(create_app(workspace, Access(users)), base_url="http://127.0.0.1:8000", headers=reader) as client:
        page = asked(client, "/", q="dog", topic=str(topic))
        assert "documents match" in page.words
        assert "Not relevant" not in page.text
        assert "Judge for" not in page.text
        assert "You judge as" not in page.text
        assert "of 24 documents, by date" in asked(client, "/", sort="-date").words


def test_what_was_not_read_is_counted_and_listed(hostile, client) -> None:
    page = asked(hostile, "/")
    assert "299 parts of 1 file" in page.text
    assert "/unread" in page.links
    assert "/unread" in asked(hostile, "/", q="dogs").links
    first, second = asked(hostile, "/unread"), asked(hostile, "/unread", offset="200")
    assert f"{BAD}.pdf" in first.text
    assert len(re.findall(r"page \d+</i>", first.text + second.text)) == 299
    parts = hostile.get("/api/unread", params={"offset": 298}).json()
    assert parts == {
        "parts": [{"file": f"{BAD}.pdf", "part": "page 299</i>", "reason": f"no text {BAD}"}], "n_parts": 299,
    }  # fmt: skip
    assert "/unread" not in asked(client, "/").links
    assert client.get("/api/unread").json() == {"parts": [], "n_parts": 0}
    asked(client, "/unread")
