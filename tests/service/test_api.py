"""The REST interface answers as its description says."""

import pytest

from haybale.search import SearchResults


def test_searches_with_filters_and_pages(client, workspace):
    asked = {"q": "dog damage", "k": 3, "where": "court = 'BGH'", "offset": 1}
    found = client.get("/api/search", params=asked).json()
    expected = workspace.search("dog damage", 3, "court = 'BGH'", offset=1)
    assert isinstance(expected, SearchResults)
    assert found == expected.to_dict()


def test_reviews_a_topic(client):
    topic = client.post("/api/topics", json={"text": "dogs"}).json()["id"]
    for _ in range(5):
        [document] = client.get(f"/api/topics/{topic}/next", params={"judge": "Ada"}).json()["documents"]
        judged = {
            "doc_id": document["doc_id"],
            "grade": int("dog" in document["doc_id"]),
            "judge": "Ada",
            "seconds": 1.5,
        }
        assert client.post(f"/api/topics/{topic}/judgements", json=judged).status_code == 201
    assert client.post(f"/api/topics/{topic}/undo", json={"judge": "Ada"}).json() == {"doc_id": document["doc_id"]}
    assert client.get(f"/api/topics/{topic}/judgements").json()["n_judgements"] == 4
    progress = client.get(f"/api/topics/{topic}/progress").json()
    assert progress["n_judged"] == 4
    lines = client.get(f"/api/topics/{topic}/export").text.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("dogs 0 ") for line in lines)
    client.post(f"/api/topics/{topic}/skip", json={"doc_id": document["doc_id"], "judge": "Ada"})
    assert client.get(f"/api/topics/{topic}/progress").json()["n_skipped"] == 1
    assert client.post(f"/api/topics/{topic}/import", json={"tax/2": 0}).json() == {"n_added": 1}
    assert [each["id"] for each in client.get("/api/topics").json()["topics"]] == [topic]


def test_searches_for_a_whole_document(client, workspace):
    text = "\n\n".join(["The keeper of a dog must pay."] * 30 + ["The landlord may end the lease."])
    found = client.post("/api/search", json={"q": text, "k": 5}).json()
    links = [hit.pop("link") for hit in found["hits"]]
    expected = workspace.search(text, 5).to_dict()["hits"]
    assert found["hits"] == [{name: value for name, value in hit.items() if name != "link"} for hit in expected]
    assert all(link.startswith("http://127.0.0.1:8000/documents/") for link in links)
    assert found["hits"][0]["doc_id"].startswith("dog/")
    asked = {"q": text, "doc_id": found["hits"][0]["doc_id"]}
    assert client.post("/api/explain", json=asked).json()["rank"] == 1


def test_explains(client):
    first = client.get("/api/search", params={"q": "dog damage"}).json()["hits"][0]
    found = client.get("/api/explain", params={"q": "dog damage", "doc_id": first["doc_id"]}).json()
    assert found["score"] == first["score"]
    assert found["snippets"] == first["snippets"]
    assert any("of" in share for share in found["shares"])


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/search", 422),
        ("/api/search?q=", 422),
        ("/api/search?q=dog&k=0", 422),
        ("/api/search?q=dog&where=wrong", 409),
        ("/api/search?q=dog&ranker=bm26", 409),
        ("/api/documents/no/such", 404),
        ("/api/explain?q=dog&doc_id=no", 404),
        ("/api/topics/99", 404),
        ("/api/topics/99/next", 404),
        ("/api/topics/x", 404),
        ("/api/search?q=dog&rankre=bm25", 422),
        ("/api/nothing", 404),
    ],
)
def test_errors_are_problem_details(client, path, status):
    answer = client.get(path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status
    assert answer.json()["detail"]
    assert "Traceback" not in answer.text


def test_its_description_is_valid(client):
    described = client.get("/openapi.json").json()
    assert described["openapi"].startswith("3.")
    assert {"/api/search", "/api/documents/{doc_id}", "/api/explain", "/api/topics"} <= described["paths"].keys()
