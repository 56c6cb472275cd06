"""What is taken along over HTTP: hits in each format, the judgements of a topic, and all of it as a folder."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from typing import Any

import docx
import pytest

ASKED = {"q": "Who pays for the dog?", "k": 3}
CSV = "text/csv; charset=utf-8"
WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


def hits_of(client: Any) -> list[dict[str, Any]]:
    hits: list[dict[str, Any]] = client.get("/api/search", params=ASKED).json()["hits"]
    return hits


@pytest.mark.parametrize("method", ["get", "post"])
def test_hits_have_one_content_in_each_format(client: Any, method: str) -> None:
    def ask(format: str) -> Any:
        asked = ASKED | {"format": format}
        answer = client.get("/api/search", params=asked) if method == "get" else client.post("/api/search", json=asked)
        assert answer.status_code == 200, answer.text
        return answer

    hits = ask("json").json()["hits"]
    assert hits == hits_of(client)
    assert hits[0]["citation"] == f"{hits[0]['court']}, {hits[0]['date']}"
    table = ask("csv")
    assert table.headers["content-type"] == CSV
    assert table.content.startswith(b"\xef\xbb\xbf")
    rows = list(csv.DictReader(io.StringIO(table.content.decode("utf-8-sig"))))
    for hit, row in zip(hits, rows, strict=True):
        for name in ("doc_id", "title", "citation", "court", "date", "docket", "link"):
            assert row[name] == hit[name]
        assert row["snippet"] == hit["snippets"][0]["text"]
        assert row["topics"] == "; ".join(hit["metadata"]["topics"])
    word = ask("docx")
    assert word.headers["content-type"] == WORD
    assert word.headers["content-disposition"] == 'attachment; filename="who-pays-for-the-dog.docx"'
    document = docx.Document(io.BytesIO(word.content))
    headings = [part.text for part in document.paragraphs if part.style.name == "Heading 2"]
    assert headings == [f"{hit['rank']}. {hit['title']}" for hit in hits]
    links = {part.target_ref for part in document.part.rels.values() if part.is_external}
    assert links == {hit["link"] for hit in hits}


def test_links_lead_to_the_documents(client: Any) -> None:
    for hit in hits_of(client):
        page = client.get(hit["link"], headers={"accept": "text/html"})
        assert page.status_code == 200
        assert hit["title"] in page.text
        assert "<mark>" in page.text


def test_the_page_gives_as_many_hits_as_are_asked_for(client: Any) -> None:
    for n, expected in (("5", 5), ("", 24), ("0", 1), ("10000000", 24), ("x", 24)):
        table = client.get("/sent", params={"q": "appeal", "format": "csv", "n": n, "f.court": ["BGH", "BVerfG"]})
        assert len(list(csv.reader(io.StringIO(table.text)))) == expected + 1
    filtered = client.get("/sent", params={"q": "dog", "format": "json", "f.court": "BGH"}).json()
    assert {hit["metadata"]["court"] for hit in filtered["hits"]} <= {"BGH"}
    assert client.get("/sent", params={"q": "dog", "format": "exe"}).status_code == 422
    assert client.get("/api/search", params=ASKED | {"format": "exe"}).status_code == 422


def test_a_topic_as_files_and_as_a_folder(client: Any) -> None:
    topic = client.post("/api/topics", json={"text": "damage by dogs", "name": "Dogs/Ärger"}).json()["id"]
    for doc_id, grade in (("dog/1", 1), ("tax/2", 0)):
        judged = {"doc_id": doc_id, "grade": grade, "judge": "Ada", "note": f"about {doc_id}"}
        client.post(f"/api/topics/{topic}/judgements", json=judged)
    made = client.get(f"/api/topics/{topic}/export", params={"format": "json"}).json()
    assert [document["doc_id"] for document in made["documents"]] == ["dog/1", "tax/2"]
    assert made["documents"][0]["link"] == f"http://127.0.0.1:8000/documents/dog%2F1?topic={topic}"
    assert made["documents"][0]["judgements"][0]["note"] == "about dog/1"
    word = client.get(f"/topics/{topic}/export", params={"format": "docx"})
    text = "\n".join(part.text for part in docx.Document(io.BytesIO(word.content)).paragraphs)
    assert "about dog/1" in text
    for path in (f"/api/topics/{topic}/folder", f"/topics/{topic}/folder"):
        answer = client.get(path)
        assert answer.headers["content-type"] == "application/zip"
        with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
            assert archive.testzip() is None
            names = {name.partition("/")[2] for name in archive.namelist()}
            assert {"index.html", "texts/0001-Dog-1.html", "judgements.docx"} <= names
            content = json.loads(archive.read("Dogs-Arger/judgements.json"))
            assert content["documents"] == made["documents"]
    assert client.get("/api/topics/999/folder").status_code == 404


def test_a_folder_leaves_no_file_behind(client: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    topic = client.post("/api/topics", json={"text": "damage by dogs"}).json()["id"]
    assert client.get(f"/api/topics/{topic}/folder").status_code == 200
    monkeypatch.setattr("haybale.review.topic_folder.render_page", lambda *_: 1 / 0)
    assert client.get(f"/api/topics/{topic}/folder").status_code == 500
    assert not list(tmp_path.glob("haybale-*.zip"))
