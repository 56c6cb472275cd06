"""Files of records are added to the engine on the page, and what goes wrong is said; nothing else is added."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.decisions import decisions
from support.reference_files import RECORDS, nbib, ris

from haybale import Engine, parse
from haybale.review import JudgementStore
from haybale.service import Workspace, create_app


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Any, Workspace]]:
    from starlette.testclient import TestClient

    engine = Engine.build(decisions(), tmp_path / "engine", language="english", encoder="tfidf(min_df=1)")
    with JudgementStore(tmp_path / "judgements.sqlite") as store:
        workspace = Workspace(engine, {"bm25": parse("bm25").fit(engine)}, store)
        with TestClient(create_app(workspace), base_url="http://127.0.0.1:8000") as client:
            page = client.get("/login").text
            client.headers["x-csrf-token"] = page.partition('name="csrf_token" value="')[2].partition('"')[0]
            yield client, workspace
        workspace.close()


def finished(client: Any) -> dict[str, Any]:
    """Return the last file when it is no longer being added."""
    end = time.monotonic() + 120
    while (last := client.get("/api/records").json()["files"][0])["status"] == "running":
        assert time.monotonic() < end
        time.sleep(0.1)
    return dict(last)


def test_records_are_added_and_found(served: tuple[Any, Workspace]) -> None:
    client, workspace = served
    n_before = workspace.engine.collection.n_documents
    answer = client.post("/records", files={"file": ("C:\\exports\\pubmed.txt", nbib().encode())})
    assert answer.status_code == 200
    assert "pubmed.txt" in answer.text
    last = finished(client)
    assert (last["status"], last["n_records"], last["unread"]) == ("done", len(RECORDS), []), last
    workspace.refresh()
    assert workspace.engine.collection.n_documents == n_before + len(RECORDS)
    assert workspace.search("dogs in parks", 1)[0].doc_id == "pubmed.txt:pmid:18"
    assert client.post("/api/records", files={"file": ("pubmed.txt", nbib().encode())}).status_code == 202
    again = finished(client)
    assert again["status"] == "failed"
    assert "--replace" in again["detail"] or "replace" in again["detail"]
    changed = [RECORDS[0] | {"abstract": "Another text."}, *RECORDS[1:]]
    file = {"file": ("pubmed.txt", nbib(changed).encode())}
    del client.headers["x-csrf-token"]  # from here on, a program asks
    assert client.post("/api/records", files=file, data={"replace": "true"}).status_code == 403
    client.headers["x-requested-with"] = "a program"
    assert client.post("/api/records", files=file, data={"replace": "true"}).status_code == 202
    assert finished(client)["status"] == "done"
    workspace.refresh()
    assert workspace.engine.collection.n_documents == n_before + len(RECORDS)
    assert workspace.search("another text", 1)[0].doc_id == "pubmed.txt:10.1000/leases.1"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.pdf", b"%PDF-1.4"),
        ("a.zip", b"PK\x03\x04"),
        ("a.ris", b""),
        ("", b"x"),
        ("a.ris", b"\x00\xff"),
        ("a.csv", b"a,b\n1,2\n"),
    ],
)
def test_other_files_are_refused(name: str, data: bytes, served: tuple[Any, Workspace]) -> None:
    client, workspace = served
    assert client.post("/records", files={"file": (name or "no name", data)}).status_code == 422
    assert client.get("/api/records").json() == {"files": []}
    assert workspace.added_records.files() == []


def test_an_engine_in_memory_cannot_grow(client: Any) -> None:
    assert client.post("/api/records", files={"file": ("a.ris", ris().encode())}).status_code == 409
    assert "in memory only" in client.get("/records").text
