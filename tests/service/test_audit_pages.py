"""An audit is begun on a page or by the REST interface; its bound is shown, and its statement is a file."""

from __future__ import annotations

import json
import re


def read(client, topic: int, n: int) -> list[str]:
    models = []
    for _ in range(n):
        documents = client.get(f"/api/topics/{topic}/next", params={"judge": "Ada"}).json()["documents"]
        if not documents:
            break
        models.append(documents[0]["model"])
        doc_id = documents[0]["doc_id"]
        judged = {"doc_id": doc_id, "grade": int(doc_id.startswith("dog")), "judge": "Ada"}
        assert client.post(f"/api/topics/{topic}/judgements", json=judged).status_code == 201
    return models


def test_an_audit_from_the_page_to_the_statement(client, workspace):
    topic = client.post("/api/topics", json={"text": "dogs"}).json()["id"]
    assert client.get(f"/api/topics/{topic}/audit").status_code == 409
    page = client.get(f"/topics/{topic}").text
    assert f'action="/topics/{topic}/audit"' in page
    begun = client.post(f"/topics/{topic}/audit", data={"target": "0.8", "confidence": "0.9"}, follow_redirects=False)
    assert (begun.status_code, begun.headers["location"]) == (303, f"/topics/{topic}/review")
    n_documents = workspace.progress(topic).n_documents
    models = read(client, topic, n_documents - 4)
    assert "audit" in models
    statement = client.get(f"/api/topics/{topic}/audit").json()
    assert (statement["target"], statement["confidence"], statement["n_documents"]) == (0.8, 0.9, n_documents)
    assert [look["n_draws"] for look in statement["looks"]] == list(range(1, models.count("audit") + 1))
    shown = re.search(r"At least (\d+) % found, with 90 % confidence", client.get(f"/topics/{topic}/progress").text)
    assert shown is not None
    assert int(shown[1]) == int(100 * statement["bound"]["low"])
    assert "Begin another audit" in client.get(f"/topics/{topic}").text
    as_json = client.get(f"/topics/{topic}/audit", params={"format": "json"})
    assert json.loads(as_json.text) == statement
    assert "attachment" in as_json.headers["content-disposition"]
    as_page = client.get(f"/topics/{topic}/audit")
    assert as_page.headers["content-type"].startswith("text/html")
    assert statement["statement"] in as_page.text
    assert client.get(f"/topics/{topic}/audit", params={"format": "pdf"}).status_code == 422


def test_an_audit_by_the_rest_interface(client):
    topic = client.post("/api/topics", json={"text": "dogs"}).json()["id"]
    begun = client.post(f"/api/topics/{topic}/audit", json={"target": 0.9, "seed": 12, "judge": "Ada"})
    assert begun.status_code == 201
    assert (begun.json()["seed"], begun.json()["begun_by"], begun.json()["looks"]) == (12, "Ada", [])
    assert client.post(f"/api/topics/{topic}/audit", json={"target": 1.5}).status_code == 422
    refused = client.post(f"/topics/{topic}/audit", data={"target": "1.5"})
    assert refused.status_code == 422
    assert "target" in refused.text
    rules = client.get(f"/api/topics/{topic}/progress").json()["advice"]
    assert "audit(target=0.9)" in rules
