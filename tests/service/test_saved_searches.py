"""Saved searches say what is new since a look, in Python, over HTTP and in feeds."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import feedparser
import pandas as pd
import pytest
from starlette.testclient import TestClient
from support.decisions import decisions

from haybale import Engine, InputError, StoreError, parse
from haybale.review import JudgementStore
from haybale.service import Workspace, create_app
from haybale.service.matter_store import MatterStore, attach_searches, is_matter_store
from haybale.service.ranker_on_documents import digest_of_ranker
from haybale.service.request_errors import NotAllowedError, NotFoundError
from haybale.service.saved_searches import SavedQuery
from haybale.service.security import Access
from haybale.service.users import User, Users, digest_of

DOGS = SavedQuery("damage by a dog", ranker="both", k=3)
BEST = {"new/1": "The dog did damage. The damage by a dog is paid by the keeper of the dog."}


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    engine = Engine(decisions(), language="english", encoder="tfidf(min_df=1)")
    with JudgementStore(tmp_path / "cases-judgements.sqlite") as store:
        made = Workspace(engine, {"both": parse("rrf(bm25-doc,parm-rrf)").fit(engine)}, store)
        yield made
        made.close()


def novelties(workspace: Workspace, number: int, user: str = "Ada") -> dict[str, str]:
    return {marked.hit.doc_id: marked.novelty for marked in workspace.searches.news(number, user).new}


def test_new_and_changed_hits_are_marked_for_each_user(workspace: Workspace) -> None:
    saved = workspace.searches.save(DOGS, "dogs", "Ada", is_shared=True)
    assert novelties(workspace, saved.id) == {}
    assert [hit.doc_id for hit in workspace.search(DOGS.text, 3)] == [
        marked.hit.doc_id for marked in workspace.searches.news(saved.id, "Ada").hits
    ]
    workspace.searches.look(saved.id, "Ben")
    workspace.engine.replace({**BEST, "tax/2": BEST["new/1"] + " It bites.", "far/1": "A tax is due."})
    assert novelties(workspace, saved.id) == {"new/1": "new", "tax/2": "changed"}
    news = workspace.searches.news(saved.id, "Ada")
    workspace.engine.add({"new/2": BEST["new/1"] + " Damage by a dog."})
    workspace.searches.look(saved.id, "Ada", news.state)  # what came since the page was made stays new
    assert novelties(workspace, saved.id) == {"new/2": "new"}
    assert set(novelties(workspace, saved.id, "Ben")) == {"new/1", "tax/2", "new/2"}
    assert [listed.n_new for listed in workspace.searches.listed("Ada")] == [1]
    assert workspace.searches.news(saved.id, "Cyd").since is None, "who never looked has nothing marked"
    with pytest.raises(InputError, match="state="):
        workspace.searches.look(saved.id, "Ada", "0" * 64)


def test_a_text_that_was_there_is_not_new(workspace: Workspace) -> None:
    saved = workspace.searches.save(SavedQuery("damage by a dog", "year >= 2010", {}, "both", 20), "dogs", "Ada")
    collection = workspace.engine.snapshot().whole
    text = [str(passage) for passage in collection.passages.texts[:2].to_pylist()]
    moved, shown = str(collection.doc_ids[0].as_py()), {"text": text, "year": 2015}
    workspace.engine.replace({"moved/1": shown}, remove=[moved])  # under another id
    workspace.engine.set_metadata({"dog/5": {"year": 2015}})  # fulfils the filter only now
    hits = {marked.hit.doc_id for marked in workspace.searches.news(saved.id, "Ada").hits}
    assert "dog/5" in hits
    assert novelties(workspace, saved.id) == {}


def test_a_hit_below_the_first_k_is_not_new(workspace: Workspace) -> None:
    saved = workspace.searches.save(SavedQuery("damage by a dog", ranker="both", k=1), "dogs", "Ada")
    workspace.engine.add({"new/1": "A dog."})
    assert [marked.hit.doc_id for marked in workspace.searches.news(saved.id, "Ada").hits] != ["new/1"]
    assert novelties(workspace, saved.id) == {}


def test_chosen_values_of_filters_hold(workspace: Workspace) -> None:
    query = SavedQuery("rent of two months", "year < 2010", {"court": ["BGH"], "year": ["2002", ""]}, "both", 20)
    saved = workspace.searches.save(query, "of one court", "Ada")
    metadata = [marked.hit.metadata for marked in workspace.searches.news(saved.id, "Ada").hits]
    assert metadata
    assert all(row["court"] == "BGH" and 2002 <= row["year"] < 2010 for row in metadata)


def test_a_restored_engine_compares_hits(workspace: Workspace) -> None:
    """Without the documents of the last look, hits are new that were none then."""
    saved = workspace.searches.save(DOGS, "dogs", "Ada")
    with workspace.matter.store.writing() as connection:
        connection.execute("UPDATE states SET value = '{}'")
    assert workspace.searches.news(saved.id, "Ada").is_certain is False
    assert novelties(workspace, saved.id) == {}
    workspace.engine.add(BEST)
    assert novelties(workspace, saved.id) == {"new/1": "new"}


def test_a_learned_ranker_ranks_and_is_told_from_another_one(workspace: Workspace) -> None:
    texts = {"dog": "damage by a dog", "lease": "rent of a lease", "tax": "income tax of a company"}
    qrels = pd.DataFrame([(subject, f"{subject}/{n}", 1) for subject in texts for n in range(24)])
    qrels.columns = ["query_id", "doc_id", "relevance"]
    qrels = qrels[qrels["doc_id"].isin(decisions())]
    fitted = parse("bm25-weighted").fit(workspace.engine, texts, qrels)
    other = parse("bm25-weighted").fit(workspace.engine, texts, qrels[qrels["query_id"] != "tax"])
    assert digest_of_ranker(fitted) != digest_of_ranker(other)
    assert digest_of_ranker(fitted) == digest_of_ranker(parse("bm25-weighted").fit(workspace.engine, texts, qrels))
    workspace._rankers["trained 1"] = fitted
    saved = workspace.searches.save(SavedQuery(DOGS.text, ranker="trained 1", k=3), "dogs", "Ada")
    workspace.engine.add(BEST)
    assert novelties(workspace, saved.id) == {"new/1": "new"}


def test_who_may_see_and_change_a_search(workspace: Workspace) -> None:
    saved = workspace.searches
    private, shared = saved.save(DOGS, "mine", "Ada"), saved.save(DOGS, "ours", "Ada", is_shared=True)
    assert [listed.search.name for listed in saved.listed("Ben")] == ["ours"]
    for asked in (saved.get, saved.news, saved.open_feed):
        with pytest.raises(NotFoundError):
            asked(private.id, "Ben")
    with pytest.raises(NotAllowedError):
        saved.change(shared.id, "Ben", "theirs")
    with pytest.raises(NotAllowedError):
        saved.delete(shared.id, "Ben")
    token = saved.open_feed(shared.id, "Ben")
    saved.change(shared.id, "Ada", is_shared=False)
    with pytest.raises(NotFoundError):
        saved.feed(token)
    saved.change(shared.id, "Ada", "all of ours", True)
    assert saved.feed(token).search.name == "all of ours"
    saved.delete(shared.id, "Ben", is_admin=True)
    with pytest.raises(NotFoundError):
        saved.feed(token)
    assert saved.save(DOGS, "ours", "Ada").id > shared.id, "numbers are not used again"


@pytest.mark.parametrize(
    ("query", "name"),
    [
        (DOGS, " "),
        (DOGS, "a\nb"),
        (DOGS, "taken"),
        (SavedQuery("dogs", ranker="none"), "x"),
        (SavedQuery("dogs", "court =", {}, "both"), "x"),
        (SavedQuery(" ", ranker="both"), "x"),
        (SavedQuery("dogs", ranker="both", k=101), "x"),
    ],
)
def test_what_cannot_be_saved(workspace: Workspace, query: SavedQuery, name: str) -> None:
    workspace.searches.save(DOGS, "taken", "Ada")
    with pytest.raises(InputError):
        workspace.searches.save(query, name, "Ada")
    assert len(workspace.searches.listed("Ada")) == 1


def test_a_ranker_that_is_gone_is_named(workspace: Workspace) -> None:
    saved = workspace.searches.save(DOGS, "dogs", "Ada")
    workspace.engine.add(BEST)
    del workspace._rankers["both"]
    (listed,) = workspace.searches.listed("Ada")
    assert (listed.n_new, listed.search.id) == (None, saved.id)
    assert "both" in listed.problem


def test_the_file_belongs_to_its_engine(workspace: Workspace, tmp_path: Path) -> None:
    workspace.searches.save(DOGS, "secret", "", is_shared=True)
    workspace.close()
    assert workspace.matter.path is not None
    assert is_matter_store(workspace.matter.path)
    other = Engine(decisions(4), language="english", encoder="tfidf(min_df=1)")
    with MatterStore(workspace.matter.path) as store, pytest.raises(StoreError, match="another engine"):
        store.bind(other)
    with JudgementStore(tmp_path / "cases-judgements.sqlite") as store:
        store.set_owner(other.identity, None, store.owner)
        second = Workspace(other, {"both": parse("bm25").fit(other)}, store)
        with pytest.raises(StoreError, match="haybale attach"):
            second.searches.listed("")
        attach_searches(workspace.matter.path, other)
        assert [listed.search.name for listed in second.searches.listed("")] == ["secret"]
        second.close()


# Feeds.


def entries_of(client: TestClient, link: str) -> Any:
    answer = client.get(link)
    assert answer.headers["content-type"].startswith("application/atom+xml")
    parsed = feedparser.parse(answer.content)
    assert not parsed.bozo
    check_atom(answer.content)
    return parsed.entries


def check_atom(content: bytes) -> None:
    """Check what RFC 4287 demands of feeds and entries."""
    atom = "{http://www.w3.org/2005/Atom}"
    root = ElementTree.fromstring(content)
    assert root.tag == f"{atom}feed"
    assert root.find(f"{atom}author/{atom}name") is not None
    for element in (root, *root.findall(f"{atom}entry")):
        for name in ("id", "title", "updated"):
            assert len(element.findall(f"{atom}{name}")) == 1, name
        assert str(element.findtext(f"{atom}id")).startswith("urn:uuid:")
        alternate = [link.get("href") for link in element.findall(f"{atom}link") if link.get("rel") == "alternate"]
        assert len(alternate) == 1
        assert str(alternate[0]).startswith("http://127.0.0.1:8000/")
    ids = [entry.findtext(f"{atom}id") for entry in root.iter(f"{atom}entry")]
    assert len(set(ids)) == len(ids)


def test_a_feed_lists_each_new_text_once_and_needs_no_login(workspace: Workspace) -> None:
    access = Access(Users([User("Ada", "read", digest=digest_of("a token of Ada's"))]))
    headers = {"authorization": "Bearer a token of Ada's"}
    with TestClient(create_app(workspace, access), base_url="http://127.0.0.1:8000") as client:
        body = {"name": "dogs & <cats>", "q": DOGS.text, "k": 3}
        number = client.post("/api/searches", json=body, headers=headers).json()["id"]
        link = client.post(f"/api/searches/{number}/feed", json={"is_open": True}, headers=headers).json()["address"]
        assert urlsplit(link).path == "/feed"
        assert entries_of(client, link) == []
        workspace.engine.replace(
            {"new/1": {"text": BEST["new/1"], "title": "A & B \x1b"}, "tax/2": BEST["new/1"] + "!"}
        )
        first = entries_of(client, link)
        assert [entry.title for entry in first] == ["A & B \\x1b", "Changed: tax/2"]
        assert [entry.tags[0].term for entry in first] == ["new", "changed"]
        assert first[0].link.endswith("/documents/new%2F1")
        workspace.engine.add({"new/2": BEST["new/1"] + " Damage by a dog!"})
        second = entries_of(client, link)
        assert [entry.id for entry in second[1:]] == [entry.id for entry in first]
        assert len(second) == 3
        workspace.engine.remove(["new/2"])
        assert [entry.id for entry in entries_of(client, link)] == [entry.id for entry in first]
        again = client.post(f"/api/searches/{number}/feed", json={"is_open": True}, headers=headers).json()["address"]
        assert client.get(link).status_code == 404
        assert entries_of(client, again) == []
        assert client.get("/feed?token=guess").status_code == client.get("/feed").status_code == 404
        for others in (User("Ben", "read"), User("Ada", "none")):
            access.users = Users([others])
            assert client.get(again).status_code == 404, "its user was removed, or may read no more"
    token = urlsplit(again).query.removeprefix("token=")
    assert workspace.matter.path is not None
    stored = b"".join(path.read_bytes() for path in workspace.matter.path.parent.glob("*searches.sqlite*"))
    assert token.encode() not in stored


def test_the_interface_does_all_of_it(client: TestClient, workspace: Workspace) -> None:
    made = client.post("/api/searches", json={"name": "dogs", "q": DOGS.text, "where": "year > 2000", "judge": "Ada"})
    assert made.status_code == 201
    number = made.json()["id"]
    assert made.json()["ranker"] == "both"
    workspace.engine.add({"new/1": {"text": BEST["new/1"], "year": 2020}})
    (listed,) = client.get("/api/searches", params={"judge": "Ada"}).json()["searches"]
    assert (listed["n_new"], listed["has_feed"], listed["mail"]) == (1, False, None)
    news = client.get(f"/api/searches/{number}", params={"judge": "Ada"}).json()
    assert [hit["doc_id"] for hit in news["hits"] if hit["novelty"]] == ["new/1"]
    seen = client.post(f"/api/searches/{number}/seen", json={"state": news["state"], "judge": "Ada"}).json()
    assert seen["n_new"] == 0
    mail = client.post(f"/api/searches/{number}/mail", json={"address": "ada@example.org", "judge": "Ada"})
    assert mail.json() == {"address": "ada@example.org"}
    for wrong in ("ada", "a@b\nBcc: x@y.org", "a b@c.org", "a@b,c@d.org"):
        answer = client.post(f"/api/searches/{number}/mail", json={"address": wrong, "judge": "Ada"})
        assert answer.status_code == 409, wrong
    renamed = client.patch(f"/api/searches/{number}", json={"name": "bites", "is_shared": True, "judge": "Ada"})
    assert (renamed.json()["name"], renamed.json()["is_shared"]) == ("bites", True)
    assert client.get(f"/api/searches/{number}", params={"judge": "Ben"}).json()["since"] is None
    assert client.post(f"/api/searches/{number}/delete", json={"judge": "Ada"}).json() == {"id": number}
    assert client.get(f"/api/searches/{number}", params={"judge": "Ada"}).status_code == 404


def test_pages_save_mark_and_change(client: TestClient, workspace: Workspace) -> None:
    client.cookies.set("haybale-judge", "Ada")
    page = client.get("/", params={"q": DOGS.text, "f.court": "BGH"}).text
    assert "Save this search" in page
    link = page.partition('name="address" value="')[2].partition('"')[0].replace("&amp;", "&")
    made = client.post("/searches", data={"address": link, "name": "dogs", "k": 5}, follow_redirects=False)
    assert made.status_code == 303
    path = made.headers["location"]
    assert workspace.searches.listed("Ada")[0].search.query.chosen == {"court": ["BGH"]}
    assert "Nothing is new" in client.get(path).text
    workspace.engine.add({"new/1": {"text": BEST["new/1"], "court": "BGH"}})
    assert "1 new" in client.get("/searches").text
    page = client.get(path).text
    assert '<span class="badge yes">new</span>' in page
    state = page.partition('name="state" value="')[2].partition('"')[0]
    assert client.post(f"{path}/seen", data={"state": state}).text.count("badge yes") == 0
    page = client.post(f"{path}/feed", data={"action": "open"}).text
    feed = page.partition('<input id="feed" value="')[2].partition('"')[0]
    assert entries_of(client, feed) == []
    client.post(f"{path}/feed", data={"action": "close"})
    assert client.get(feed).status_code == 404
    assert client.post(f"{path}/mail", data={"address": "no address"}).status_code == 422
    client.post(f"{path}/mail", data={"address": "ada@example.org"})
    assert workspace.searches.listed("Ada")[0].mail == "ada@example.org"
    client.post(f"{path}/change", data={"name": "bites", "is_shared": "true"})
    assert client.post("/searches", data={"address": link, "name": "bites"}).status_code == 422
    client.post(f"{path}/delete")
    assert "no saved search yet" in client.get("/searches").text
