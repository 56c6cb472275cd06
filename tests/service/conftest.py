"""A small library of court decisions, and a service of it that tests ask without a network."""

from __future__ import annotations

import pytest

from haybale import Engine, parse
from haybale.review import JudgementStore
from haybale.service import Workspace, create_app

COURTS = ("BGH", "BVerfG")
SUBJECTS = {
    "lease": "The landlord may end the lease if the tenant does not pay the rent for two months.",
    "dog": "The keeper of a dog must pay the damage that the dog does, unless the dog guards a house.",
    "tax": "The tax office may estimate the income of a company that keeps no books.",
    "road": "A driver who leaves the scene of an accident on the road loses the licence.",
}


def decisions(n=24):
    """Return decisions of four subjects, with a court, a year, a date and topics each."""
    subjects = list(SUBJECTS)
    return {
        f"{subjects[i % 4]}/{i}": {
            "text": [SUBJECTS[subjects[i % 4]], f"The appeal number {i} was {'allowed' if i % 3 else 'dismissed'}."],
            "title": f"{subjects[i % 4].title()} {i}",
            "court": COURTS[i % 2],
            "year": 2000 + i,
            "date": f"{2000 + i}-05-01",
            "topics": [subjects[i % 4], "civil"],
        }
        for i in range(n)
    }


@pytest.fixture(scope="session")
def library():
    return Engine(decisions(), language="english", encoder="tfidf(min_df=1)").prepare()


@pytest.fixture(scope="session")
def rankers(library):
    return {"both": parse("rrf(bm25-doc,parm-rrf)").fit(library), "bm25": parse("bm25").fit(library)}


@pytest.fixture
def store(tmp_path):
    with JudgementStore(tmp_path / "judgements.sqlite") as opened:
        yield opened


@pytest.fixture
def workspace(library, rankers, store):
    return Workspace(library, rankers, store)


@pytest.fixture
def client(workspace):
    from starlette.testclient import TestClient

    with TestClient(create_app(workspace), base_url="http://127.0.0.1:8000", raise_server_exceptions=False) as asked:
        yield asked
