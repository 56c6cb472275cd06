"""A page says what is done while a review is being opened, and nothing else waits for that."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from haybale import Engine, parse
from haybale.errors import StoreError
from haybale.review import JudgementStore, TopicFeatures
from haybale.service import Workspace, create_app


@pytest.fixture
def workspace(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("haybale.service.open_reviews.MAX_WAIT_SECONDS", 0.01)
    engine = Engine({"a": "Dogs bark.", "b": "Cats purr."}, language="english", encoder="tfidf(min_df=1)")
    with JudgementStore(tmp_path / "judgements.sqlite") as store:
        store.add_topic("dogs", "dogs", {"duplicates": True})
        yield Workspace(engine, {"bm25": parse("bm25").fit(engine)}, store)


def test_pages_say_what_is_done_and_search_goes_on(workspace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    testclient = pytest.importorskip("starlette.testclient")
    counts, may_count = threading.Event(), threading.Event()
    make = TopicFeatures.of.__func__  # type: ignore[attr-defined]

    def waiting(cls: Any, documents: Any) -> Any:
        counts.set()
        assert may_count.wait(60)
        return make(cls, documents)

    monkeypatch.setattr(TopicFeatures, "of", classmethod(waiting))
    client = testclient.TestClient(create_app(workspace), base_url="http://127.0.0.1:8000")
    for path in ("/topics/1/review", "/topics/1", "/topics/1/duplicates"):
        page = client.get(path)
        assert page.status_code == 200
        assert 'http-equiv="refresh"' in page.text
    assert counts.wait(60)
    assert "2 passages" in client.get("/topics/1/review").text
    assert " bark." in client.get("/?q=dogs").text
    assert client.get("/topics").status_code == 200
    assert client.get("/topics/7/review").status_code == 404
    may_count.set()
    while 'http-equiv="refresh"' in client.get("/topics/1/review").text:
        pass
    assert 'data-doc="a"' in client.get("/topics/1/review").text


def test_an_error_of_the_thread_is_raised_by_the_page(workspace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(store: Any, engine: Any) -> None:
        raise StoreError("the disk is gone; mount it")

    monkeypatch.setattr("haybale.service.open_reviews.ensure_attached", broken)
    while workspace.opening(1) is not None:
        pass
    with pytest.raises(StoreError):
        workspace.progress(1)
