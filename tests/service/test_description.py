"""The description of the REST interface says what the service answers, refuses and offers."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import pytest
from support.decisions import decisions

from haybale.service import create_app
from haybale.service.exports_api import EXPORT_FORMATS
from haybale.service.security import Access
from haybale.service.taken_along import HIT_MEDIA_TYPES
from haybale.service.users import only_token

TOKEN = "a token of everybody"


@pytest.fixture
def document(client: Any) -> dict[str, Any]:
    described: dict[str, Any] = client.get("/openapi.json").json()
    return described


class GeneratedClient:
    """A client with a method for each operation of a description; it checks requests and answers by the description."""

    def __init__(self, document: dict[str, Any], client: Any) -> None:
        self._document, self._client = document, client
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                setattr(self, operation["operationId"], self._call_of(path, method, operation))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the description has no operation {name}")

    def validate(self, value: Any, schema: dict[str, Any]) -> None:
        jsonschema.Draft202012Validator({**schema, "components": self._document["components"]}).validate(value)

    def _call_of(self, path: str, method: str, operation: dict[str, Any]) -> Callable[..., Any]:
        schemas = {parameter["name"]: parameter for parameter in operation.get("parameters", [])}

        def call(body: Any = None, **values: Any) -> Any:
            for name, value in values.items():
                self.validate(value, schemas[name]["schema"])
            if body is not None:
                self.validate(body, operation["requestBody"]["content"]["application/json"]["schema"])
            in_path = {name: values.pop(name) for name in list(values) if schemas[name]["in"] == "path"}
            answer = self._client.request(method, path.format(**in_path), params=values, json=body)
            assert str(answer.status_code) in operation["responses"], (path, answer.status_code, answer.text)
            described = operation["responses"][str(answer.status_code)]
            if "$ref" in described:
                described = self._document["components"]["responses"][described["$ref"].rpartition("/")[2]]
            kind = answer.headers["content-type"].partition(";")[0]
            assert kind in described["content"], (path, kind)
            if not kind.endswith("json"):
                return answer.text
            self.validate(answer.json(), described["content"][kind]["schema"])
            return answer.json()

        return call


def test_a_client_that_is_generated_from_the_description_does_a_review(client: Any, document: dict[str, Any]) -> None:
    service = GeneratedClient(document, client)
    first = service.search(q="dog damage", k=3, where="court = 'BVerfG'")["hits"][0]
    assert service.search_long({"q": "dog damage\n\nWho pays?", "together": "court"})["groups"]
    assert service.explain(q="dog damage", doc_id=first["doc_id"])["snippets"]
    assert service.explain_long({"q": "dog damage", "doc_id": first["doc_id"]})["rank"] == 1
    assert service.document(doc_id=first["doc_id"], q="dog")["matching"]
    assert {facet["name"] for facet in service.facets()["facets"]} >= {"court", "year"}
    assert service.facets_of_chosen({"q": "dog", "chosen": {"court": ["BGH"]}})["n_matching"] == 0
    assert service.documents(sort="title", limit=3)["n_documents"] == len(decisions())
    assert service.unread() == {"parts": [], "n_parts": 0}
    assert [ranker["name"] for ranker in service.rankers()["rankers"]] == ["both", "bm25"]
    topic = service.create_topic({"text": "damage by dogs", "known": {"tax/6": 0}})["id"]
    for judge, grades in (("Ada", (1, 0)), ("Ben", (0, 0))):
        for doc_id, grade in zip(("dog/1", "dog/5"), grades, strict=True):
            service.judge({"doc_id": doc_id, "grade": grade, "judge": judge, "note": "read"}, topic=topic)
    assert service.conflicts(topic=topic)["conflicts"][0]["doc_id"] == "dog/1"
    assert service.resolve({"doc_id": "dog/1", "grade": 1, "judge": "Cyd"}, topic=topic)["together_with"] is None
    assert service.conflicts(topic=topic, resolved=True)["conflicts"][0]["resolution"]["by"] == ["Cyd"]
    assert service.undo_resolution({"doc_id": "dog/1", "judge": "Cyd"}, topic=topic) == {"doc_id": "dog/1"}
    assert service.change_screening({"double_share": 0.5, "judge": "Cyd"}, topic=topic) == service.screening(
        topic=topic
    )
    service.change_screening({"double_share": 0}, topic=topic)
    proposed = service.following(topic=topic, n=2, judge="Ada")["documents"][0]
    assert service.skip({"doc_id": proposed["doc_id"]}, topic=topic) == {"doc_id": proposed["doc_id"]}
    assert service.undo({"judge": "Ben"}, topic=topic) == {"doc_id": "dog/5"}
    assert service.judgements(topic=topic)["n_judgements"] == 4
    changes = {"exclusion_reasons": ["no dog"], "n_stages": 2, "criteria_as_query": False}
    assert len(service.change_protocol(changes, topic=topic)["versions"]) == 2
    assert service.protocol(topic=topic)["protocol"]["n_stages"] == 2
    assert service.following_full_text(topic=topic)["documents"]
    full_text = {"doc_id": "dog/1", "grade": 0, "judge": "Ada", "reasons": ["no dog"]}
    assert service.judge_full_text(full_text, topic=topic)["reasons"] == ["no dog"]
    assert service.undo_full_text({"judge": "Ada"}, topic=topic) == {"doc_id": "dog/1"}
    assert service.skip_full_text({"doc_id": "dog/1"}, topic=topic) == {"doc_id": "dog/1"}
    assert service.full_text_progress(topic=topic)["n_sought"]
    assert service.prisma(topic=topic)["n_screened"]
    assert service.prisma(topic=topic, format="svg").startswith("<svg")
    assert service.prisma(topic=topic, format="csv").startswith("phase,item,n")
    assert service.change_topic({"name": "bites"}, topic=topic)["name"] == "bites"
    assert service.deleted_topics() == {"topics": [], "n_topics": 0}
    assert service.progress(topic=topic, rule=["cmh(target=0.9)"])["advice"]
    assert service.agreement(topic=topic)["pairs"]
    joined = service.change_duplicates({"action": "join", "doc_ids": ["dog/9", "dog/13"]}, topic=topic)
    assert joined["n_duplicates"] == service.duplicates_of_topic(topic=topic)["n_duplicates"] > 0
    assert service.duplicates(limit=1)["n_documents"] == len(decisions())
    assert service.import_judgements({"tax/2": 0}, topic=topic) == {"n_added": 1}
    for format in EXPORT_FORMATS:
        assert service.export(topic=topic, format=format, documents="all")
    for format in HIT_MEDIA_TYPES:
        assert service.search(q="dog damage", format=format)
    assert service.topic(topic=topic) == service.topics()["topics"][0]
    assert service.trainings()["trainings"] == []
    assert service.trainings()["readiness"]["default"] == "similar topics"
    assert service.health()["documents"] == len(decisions())
    assert "haybale_documents" in service.metrics_text()


def test_saved_searches_and_the_log_are_described(client: Any, document: dict[str, Any]) -> None:
    service = GeneratedClient(document, client)
    assert service.change_log({"is_on": True, "keep_days": 90})["is_on"]
    saved = service.save_search({"name": "dogs", "q": "dog damage", "where": "year > 2000", "ranker": "bm25", "k": 5})
    number = saved["id"]
    assert service.change_search({"name": "bites", "is_shared": True}, number=number)["name"] == "bites"
    news = service.saved_search(number=number)
    assert (len(news["hits"]), news["n_new"]) == (5, 0)
    assert service.see_search({"state": news["state"]}, number=number)["since"] >= news["since"]
    assert "/feed?token=" in service.change_feed({"is_open": True}, number=number)["address"]
    assert service.change_feed({"is_open": False}, number=number) == {"address": None}
    assert service.change_mail({"address": "ada@example.org"}, number=number)["address"] == "ada@example.org"
    assert service.searches()["searches"][0]["mail"] == "ada@example.org"
    assert service.change_mail({"address": ""}, number=number) == {"address": None}
    assert service.delete_search({}, number=number) == {"id": number}
    service.search(q="dog damage", k=3)
    log = service.log_lines(action="search", limit=1)
    assert log["n_lines"] > 1
    again = service.repeat_search(number=log["lines"][0]["number"])
    assert (again["is_same"], len(again["hits"])) == (True, 3)
    checked = service.check_log({"heads": [log["head"]]})
    assert (checked["is_whole"], checked["n_heads"]) == (True, 1)
    assert service.export_log(format="csv").startswith("number,time,user,action,details,before")
    assert len(service.export_log().splitlines()) > checked["n_lines"]
    service.change_log({"is_on": False, "keep_days": 0})


def test_every_problem_is_described(client: Any, document: dict[str, Any]) -> None:
    service = GeneratedClient(document, client)
    for problem, status in (
        (service.document(doc_id="no/such"), 404),
        (service.topic(topic=9), 404),
        (service.search(q="dog", where="court ="), 409),
        (service.search(q="dog", ranker="bm26"), 409),
        (service.create_topic({"known": {"no": 1}}), 409),
        (service.revert({}), 409),
    ):
        assert problem["status"] == status, problem


def operations_of(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield method, re.sub(r"\{doc_id\}", "dog/1", re.sub(r"\{(topic|number|user)\}", "1", path)), operation


def test_what_is_not_described_is_refused(client: Any, document: dict[str, Any]) -> None:
    client.post("/api/topics", json={"text": "dogs"})
    described: dict[str, set[str]] = {}
    for method, path, operation in operations_of(document):
        described.setdefault(path, set()).add(method.upper())
        required = {
            parameter["name"]: "dog/1"
            for parameter in operation.get("parameters", [])
            if parameter["in"] == "query" and parameter.get("required")
        }
        body = {} if method == "post" else None
        answer = client.request(method, path, params=required | {"rankre": "bm25"}, json=body)
        assert (answer.status_code, "rankre" in answer.text) == (422, True), path
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if content is not None and "grades" not in str(content):
            assert client.request(method, path, json={"docid": "dog/1"}).status_code == 422, path
    for path, methods in described.items():
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY"} - methods:
            answer = client.request(method, path)
            assert answer.status_code == 405, (method, path)
            assert set(answer.headers["allow"].split(", ")) == methods
            assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("has_users", [False, True])
def test_the_token_is_described_where_there_is_one(workspace: Any, has_users: bool) -> None:
    from starlette.testclient import TestClient

    application = create_app(workspace, Access(only_token(TOKEN)) if has_users else None)
    headers = {"authorization": f"Bearer {TOKEN}"} if has_users else {}
    with TestClient(application, base_url="http://127.0.0.1:8000", raise_server_exceptions=False) as client:
        document = client.get("/openapi.json", headers=headers).json()
        assert ("securitySchemes" in document["components"]) is has_users
        for method, path, operation in operations_of(document):
            answer = client.request(method, path, json={} if method == "post" else None)
            assert (
                (answer.status_code == 401)
                is ("security" in operation)
                is (has_users and path not in ("/health", "/ready"))
            ), path


def test_answers_that_have_not_changed_are_not_sent_again(client: Any) -> None:
    answer = client.get("/api/documents/dog/1")
    tag = answer.headers["etag"]
    for value in (tag, f'"other", W/{tag}', "*"):
        again = client.get("/api/documents/dog/1", headers={"if-none-match": value})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert client.get("/api/documents/dog/1", headers={"if-none-match": '"other"'}).json() == answer.json()
    assert client.get("/api/documents/dog/5", headers={"if-none-match": tag}).status_code == 200
    head = client.head("/api/documents/dog/1")
    assert (head.headers["etag"], head.content) == (tag, b"")


def test_what_is_blank_is_described_as_it_is_refused(client: Any, document: dict[str, Any]) -> None:
    """Every character of Unicode that is a space somewhere, by the rules of JSON Schema's regular expressions."""
    schema = document["components"]["schemas"]["NewSearch"]["properties"]
    # What ECMA-262 calls white space and line terminators.
    spaces = {chr(code) for code in range(0x3001) if unicodedata.category(chr(code)) == "Zs"} | set(
        "\t\n\v\f\r\ufeff\u2028\u2029"
    )
    inner, other = re.fullmatch(r"\[\^\\s(.+)\]\|(.+)", schema["q"]["pattern"]).groups()
    for code in (*range(0x3001), 0xFEFF):
        text = chr(code)
        matches = (text not in spaces and not re.match(f"[{inner}]", text)) or re.match(other, text) is not None
        assert matches == bool(text.strip()), hex(code)
    assert schema["name"]["pattern"] == schema["q"]["pattern"]
    for text, status in (("\x1c", 422), ("\x85", 422), ("\ufeff", 201)):
        answer = client.post("/api/searches", json={"name": f"x{ord(text)}", "q": text})
        assert answer.status_code == status, answer.text
