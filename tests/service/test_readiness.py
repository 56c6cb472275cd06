"""``/health`` says that the service works, ``/ready`` that nothing is being prepared any more."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from starlette.testclient import TestClient

from haybale.service import create_app


def test_ready_differs_from_health_while_reviews_are_prepared(workspace) -> None:
    client = TestClient(create_app(workspace), base_url="http://127.0.0.1:8000")  # not started: nothing is prepared
    assert not workspace.reviews_are_ready
    ready, health = client.get("/ready"), client.get("/health")
    assert (ready.status_code, health.status_code) == (503, 200)
    assert int(ready.headers["retry-after"]) > 0
    assert health.json()["reviews"] != "ready"
    assert client.get("/api/search", params={"q": "dogs"}).status_code == 200  # searches are answered meanwhile
    workspace.prepare_reviews()
    assert client.get("/ready").json() == {"status": "ready"}
    assert client.get("/health").json()["reviews"] == "ready"


@pytest.mark.parametrize(("n_ready", "status"), [(0, 503), (1, 503), (2, 200)])
def test_ready_waits_for_the_processes_that_search(workspace, monkeypatch, n_ready: int, status: int) -> None:
    workspace.prepare_reviews()
    monkeypatch.setattr(workspace, "processes", SimpleNamespace(n=2, n_ready=n_ready))
    client = TestClient(create_app(workspace), base_url="http://127.0.0.1:8000")
    assert client.get("/ready").status_code == status
    assert client.get("/health").json()["search_processes"] == {"wanted": 2, "ready": n_ready}
