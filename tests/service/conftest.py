"""A small library of court decisions, and a service of it that tests ask without a network."""

from __future__ import annotations

import pytest
from support.decisions import decisions
from support.matters import WORDS, build_matter

from haybale import Engine, parse
from haybale.review import JudgementStore
from haybale.service import Workspace, create_app


@pytest.fixture(autouse=True)
def patient_pages(monkeypatch):
    """Let pages wait for reviews, also on a slow machine."""
    monkeypatch.setattr("haybale.service.open_reviews.MAX_WAIT_SECONDS", 120)


@pytest.fixture(scope="session")
def library():
    return Engine(decisions(), language="english", encoder="tfidf(min_df=1)").prepare()


@pytest.fixture(scope="session")
def rankers(library):
    return {"both": parse("rrf(bm25-doc,parm-rrf)").fit(library), "bm25": parse("bm25").fit(library)}


@pytest.fixture(scope="session")
def matter_engines(tmp_path_factory):
    """Return a folder of engines, one for each of WORDS; tests copy it."""
    folder = tmp_path_factory.mktemp("engines")
    for name, word in WORDS.items():
        build_matter(folder / name, word)
    return folder


@pytest.fixture
def store(tmp_path):
    with JudgementStore(tmp_path / "judgements.sqlite") as opened:
        yield opened


@pytest.fixture
def workspace(library, rankers, store):
    return Workspace(library, rankers, store)


@pytest.fixture
def client(workspace):
    """Return a client that sends the token of forms with every request, as the pages do."""
    from starlette.testclient import TestClient

    with TestClient(create_app(workspace), base_url="http://127.0.0.1:8000", raise_server_exceptions=False) as asked:
        page = asked.get("/login").text
        asked.headers["x-csrf-token"] = page.partition('name="csrf_token" value="')[2].partition('"')[0]
        yield asked
