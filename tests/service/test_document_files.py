"""Pages and files of documents over HTTP: only those that the engine names, as they were indexed, and harmless."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pypdfium2")
pytest.importorskip("PIL")
pytest.importorskip("reportlab")

from support.page_files import PASSAGES, by_reportlab, engine_of, ink, passage_ids

from haybale import Engine, parse
from haybale.engine.original_files import OriginalFile
from haybale.review import JudgementStore
from haybale.service import Workspace, create_app, page_worker
from haybale.service.document_files import DocumentFiles
from haybale.service.security import Access
from haybale.service.users import only_token

MAIL = """\
Subject: The deposit
From: ada@example.org
Message-ID: <1@example.org>

The deposit is due.
"""
REPLY = MAIL.replace("<1@", "<2@").replace("\n\n", "\nIn-Reply-To: <1@example.org>\n\n", 1)
HOSTILE = "<!doctype html><title>Deposit</title><script>alert(1)</script><p>The deposit of a page.</p>"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder = tmp_path_factory.mktemp("pages")
    source = folder / "files"
    source.mkdir()
    (source / "Mietvertrag Ä.pdf").write_bytes(by_reportlab(PASSAGES, 1))
    (source / "page.html").write_text(HOSTILE)
    (source / "mail.eml").write_text(MAIL)
    (source / "reply.eml").write_text(REPLY)
    (folder / "secret.txt").write_text("Nobody reads this.")
    return engine_of(source, folder / "engine").prepare()


@pytest.fixture
def workspace(engine: Engine) -> Workspace:
    return Workspace(engine, {"bm25": parse("bm25").fit(engine)}, JudgementStore())


@pytest.fixture
def client(workspace: Workspace) -> Iterator[Any]:
    from starlette.testclient import TestClient

    with TestClient(create_app(workspace), base_url="http://127.0.0.1:8000", raise_server_exceptions=False) as asked:
        yield asked


PDF = "Mietvertrag Ä.pdf"


def test_a_page_and_its_picture(client: Any, engine: Engine) -> None:
    passage = passage_ids(engine, PDF)[1]
    answer = client.get("/api/page", params={"doc_id": PDF, "passage_id": passage})
    assert answer.status_code == 200, answer.text
    page = answer.json()
    assert (page["page"], page["pages"], page["n_pages"], page["note"]) == (1, [1], 1, "")
    assert len(page["boxes"]) == 3
    plain = client.get(page["picture"], params={"doc_id": PDF, "passage_id": passage, "boxes": "false"})
    assert plain.headers["content-type"] == "image/png"
    boxes = [type("B", (), box) for box in page["boxes"]]
    assert min(ink(plain.content, boxes)) > 0.95
    boxed = client.get(page["picture"])
    assert boxed.status_code == 200
    assert boxed.content != plain.content
    original = client.get(page["original"])
    assert page["original"].endswith("#page=1")
    assert original.content.startswith(b"%PDF-")
    html = client.get("/page", params={"id": PDF, "passage": passage, "q": "deposit"}, headers={"accept": "text/html"})
    assert html.status_code == 200
    assert "with the passage boxed" in html.text


def test_files_are_shown_or_saved_and_run_nothing(client: Any) -> None:
    pdf = client.get("/api/original", params={"doc_id": PDF})
    assert pdf.headers["content-type"] == "application/pdf"
    assert pdf.headers["content-disposition"] == "inline; filename*=UTF-8''Mietvertrag%20%C3%84.pdf"
    assert "script-src" not in pdf.headers["content-security-policy"]
    saved = client.get("/api/original", params={"doc_id": PDF, "download": "true"})
    page = client.get("/api/original", params={"doc_id": "page.html"})
    assert page.text == HOSTILE
    for answer in (saved, page):
        assert answer.headers["content-disposition"].startswith("attachment;")
        assert answer.headers["content-type"] == "application/octet-stream"
        assert "sandbox" in answer.headers["content-security-policy"]
    for answer in (pdf, saved, page):
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("doc_id", ["../secret.txt", "/etc/passwd", "files/../../secret.txt", "absent.pdf", "."])
def test_only_files_of_documents_are_returned(client: Any, doc_id: str) -> None:
    for path in ("/api/original", "/api/page", "/api/page/picture"):
        assert client.get(path, params={"doc_id": doc_id}).status_code == 404
    assert client.get("/page", params={"id": doc_id}).status_code == 404


def test_what_has_no_page_or_passage_is_told(client: Any) -> None:
    assert client.get("/api/page", params={"doc_id": "page.html"}).status_code == 404
    assert client.get("/api/page", params={"doc_id": PDF, "page": 2}).status_code == 404
    assert client.get("/api/page", params={"doc_id": PDF, "page": 0}).status_code == 422
    assert client.get("/api/page", params={"doc_id": PDF, "passage_id": "other"}).status_code == 409


def test_those_who_may_not_read_documents_get_no_files(workspace: Workspace, tmp_path: Path) -> None:
    from starlette.testclient import TestClient

    users = only_token("a-long-token-of-everybody")
    application = create_app(workspace, Access(users))
    with TestClient(application, base_url="http://127.0.0.1:8000") as stranger:
        for path in ("/api/original", "/api/page", "/api/page/picture"):
            assert stranger.get(path, params={"doc_id": PDF}).status_code == 401
            answer = stranger.get(
                path, params={"doc_id": PDF}, headers={"authorization": "Bearer a-long-token-of-everybody"}
            )
            assert answer.status_code == 200


def test_a_file_that_changed_is_not_shown_from_the_cache(tmp_path: Path) -> None:
    source = tmp_path / "files"
    source.mkdir()
    (source / "a.pdf").write_bytes(by_reportlab(PASSAGES, 1))
    files = DocumentFiles(engine_of(source, tmp_path / "engine"))
    assert files.problem("a.pdf") == ""
    files.view("a.pdf")
    (source / "a.pdf").write_bytes(by_reportlab(PASSAGES[::-1], 1))
    with pytest.raises(ValueError, match="another version"):
        files.view("a.pdf")
    assert "another version" in (files.problem("a.pdf") or "")


def test_pictures_are_drawn_once_and_the_cache_is_bounded(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    def output_of(module: str, arguments: list[str], data: bytes) -> bytes:
        drawn.append(int(arguments[1]))
        return page_worker._written(page_worker.draw_page(data, *arguments[:1], 0))

    monkeypatch.setattr("haybale.service.document_files.output_of", output_of)
    files = DocumentFiles(engine)
    for _ in range(2):
        files.view(PDF)
    assert drawn == [0]
    size = files._cache.n_bytes
    small = DocumentFiles(engine, max_cached_bytes=int(1.5 * size))
    original = small._files.find(PDF)
    assert isinstance(original, OriginalFile)
    for index in (0, 1, 0):
        small._draw(original, index)
        assert 0 < small._cache.n_bytes <= 1.5 * size
    assert drawn == [0, 0, 1, 0]


def test_a_process_that_fails_is_told(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("haybale.service.document_files.output_of", lambda *arguments: b"")
    with pytest.raises(ValueError, match="takes more than"):
        DocumentFiles(engine).view(PDF)


def test_mails_of_a_thread_together(client: Any) -> None:
    answer = client.get("/api/search", params={"q": "deposit", "together": "thread"}).json()
    hits = {hit["rank"]: hit["doc_id"] for hit in answer["hits"]}
    (thread,) = (group for group in answer["groups"] if len(group["ranks"]) == 2)
    assert {hits[rank] for rank in thread["ranks"]} == {"mail.eml", "reply.eml"}
    longer = client.post("/api/search", json={"q": "deposit", "together": "thread"}).json()
    assert longer["groups"] == answer["groups"]
    page = client.get("/", params={"q": "deposit", "together": "thread"}, headers={"accept": "text/html"}).text
    assert page.count("Together with rank") == 1
    assert 'name="together"' in page
    assert client.get("/api/search", params={"q": "deposit", "together": "no"}).status_code == 409
