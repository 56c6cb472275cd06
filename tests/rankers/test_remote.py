"""A search service as a ranker, against a stand-in that speaks the interface of OpenSearch and Elasticsearch."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.search_service import SearchService, served

from haybale import Engine, load
from haybale.errors import InputError, SearchServiceError
from haybale.rankers import BM25, RRF, Remote, parse
from haybale.retrieval import search_endpoint

pytestmark = pytest.mark.filterwarnings("ignore::haybale.rankers.EmptyRankingWarning")
TEXTS = {"d1": "dog lead park", "d2": "cat tax", "d3": "dog tax may", "d4": "rent keys"}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(TEXTS, encoder="tfidf(min_df=1)", language="english")


@pytest.fixture
def service() -> Iterator[SearchService]:
    with served(SearchService(TEXTS)) as running:
        yield running


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_endpoint, "_FIRST_PAUSE_SECONDS", 0.0)


def test_rankings_are_those_of_the_service(engine: Engine, service: SearchService) -> None:
    remote = Remote(service.url).fit(engine)
    run = remote.rank({"q1": "dog tax", "q2": "rent", "q3": 'no "such" word'})
    assert run["q1"] == [("d3", 2.0), ("d1", 1.0), ("d2", 1.0)]
    assert run["q2"] == [("d4", 1.0)]
    assert run["q3"] == []
    assert remote.search("dog tax", k=1)[0].doc_id == "d3"
    why = remote.explain("dog tax", "d1")
    assert (why.rank, why.shares[0].share) == (2, 1.0)
    assert remote.rank("dog tax", within=["d2", "d4"])["0"] == [("d2", 1.0)]
    own = pd.DataFrame({"query_id": ["q"], "text": ["dog tax"], "own": ["d3"]})
    assert Remote(service.url, n_hits=2).fit(engine).rank(own)["q"] == [("d1", 1.0), ("d2", 1.0)]
    assert Remote(service.url, n_hits=1).fit(engine).rank("dog tax")["0"] == [("d3", 2.0)]


def test_the_template_is_filled_as_values(engine: Engine, service: SearchService) -> None:
    template = {"query": {"match": {"body": "{text} extra"}}, "min_score": 0}
    remote = Remote(service.url, template, n_hits=7).fit(engine)
    text = 'a "quoted" \\ {text} \n line'
    remote.rank([text])
    assert service.bodies[-1] == {
        "query": {"match": {"body": f"{text} extra"}},
        "min_score": 0,
        "size": 7,
        "_source": False,
    }
    assert parse(str(remote)) == remote


def test_queries_are_sent_together_over_one_connection(engine: Engine, service: SearchService) -> None:
    remote = Remote(service.url, batch_size=4).fit(engine)
    remote.rank({str(number): "dog" for number in range(10)})
    assert (service.n_requests, len(service.bodies), len(service.ports)) == (1 + 3, 1 + 10, 1)


def test_a_field_has_the_document_id(engine: Engine) -> None:
    passages = {f"p{number}": text for number, text in enumerate(("dog tax", "dog dog", "cat", "tax"))}
    of = dict(zip(passages, ("d3", "d3", "d2", "d1"), strict=True))
    sources = {name: {"doc": of[name], "meta": {"id": of[name]}, "number": 3} for name in passages}
    with served(SearchService(passages, sources)) as service:
        assert Remote(service.url, id_field="doc").fit(engine).rank("dog tax")["0"] == [("d3", 2.0), ("d1", 1.0)]
        with pytest.raises(InputError, match="such as 'p0', 'p1', 'p3'"):
            Remote(service.url).fit(engine).rank("dog tax")
        assert Remote(service.url, unknown_documents="drop").fit(engine).rank("dog tax")["0"] == []
        with pytest.raises(SearchServiceError, match="field 'none', found None in hit"):
            Remote(service.url, id_field="none").fit(engine)


def test_authorization_is_read_from_the_environment_and_saved_nowhere(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    basic = "Basic " + base64.b64encode(b"user:se:cret").decode()
    for value, header in (("user:se:cret", basic), ("ApiKey abc==", "ApiKey abc==")):
        with served(SearchService(TEXTS, authorization=header)) as service:
            with pytest.raises(SearchServiceError, match=r"401.*missing authentication"):
                Remote(service.url).fit(engine)
            remote = Remote(service.url, authorization="SEARCH_KEY")
            monkeypatch.delenv("SEARCH_KEY", raising=False)
            with pytest.raises(InputError, match="SEARCH_KEY"):
                remote.fit(engine)
            monkeypatch.setenv("SEARCH_KEY", value)
            ranker = RRF(BM25(), remote).fit(engine)
            ranker.save(tmp_path / header[:5])
            assert load(tmp_path / header[:5], engine).rank("dog tax") == ranker.rank("dog tax")
    secrets = (b"cret", b"abc==", basic[6:].encode())
    assert not [path for path in tmp_path.rglob("*") if path.is_file() for s in secrets if s in path.read_bytes()]


@pytest.mark.parametrize("failures", [[503], ["hang up", 429], ["hang up", "hang up"]])
def test_busy_services_and_broken_connections_are_tried_again(
    engine: Engine, service: SearchService, failures: list[int | str]
) -> None:
    remote = Remote(service.url).fit(engine)
    service.failures = failures
    assert remote.rank("rent")["0"] == [("d4", 1.0)]


def test_failures_are_errors(engine: Engine, service: SearchService) -> None:
    remote = Remote(service.url, retries=1).fit(engine)
    n_before, service.failures = service.n_requests, [503] * 5
    with pytest.raises(SearchServiceError, match="found 503"):
        remote.rank("dog")
    assert service.n_requests == n_before + 2
    service.failures = [400]
    with pytest.raises(SearchServiceError, match="found 400"):
        remote.rank("dog")
    service.failures = []
    unknown_index = service.url.replace("laws", "norms")
    with pytest.raises(SearchServiceError, match=r"404.*no such index \[norms\]"):
        Remote(unknown_index).fit(engine)
    with pytest.raises(SearchServiceError, match="unknown query"):
        Remote(service.url, {"query": {"odd": "{text}"}}).fit(engine).rank("dog")
    for partial in ({"timed_out": True}, {"_shards": {"failed": 1}}):
        service.partial = partial
        with pytest.raises(SearchServiceError, match="answers of all shards"):
            remote.rank("dog")
    for hits in ([{"_id": "d1", "_score": None}], [{"_score": 1.0}]):
        service.partial = {"hits": {"hits": hits}}
        with pytest.raises(SearchServiceError, match=r"a score|an id"):
            remote.rank("dog")


def test_a_service_that_is_not_there(engine: Engine) -> None:
    with served(SearchService(TEXTS)) as service:
        remote = Remote(service.url, retries=0, timeout=1).fit(engine)
    with pytest.raises(SearchServiceError, match="expected an answer"):
        remote.rank("dog")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"url": "ftp://host/laws"}, "'ftp://host/laws'"),
        ({"url": "http://host:9200"}, "that of an index"),
        ({"url": "http://host:x/laws"}, "that of an index"),
        ({"url": "https://me:secret@host/laws"}, "environment variable"),
        ({"query": "dog"}, "found 'dog'"),
        ({"query": {"query": {"match_all": {}}}}, "'{text}'"),
        ({"n_hits": 0}, "'n_hits'"),
        ({"authorization": 3}, "'authorization'"),
    ],
)
def test_wrong_parameters(engine: Engine, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        Remote(**{"url": "http://host/laws", **parameters}).fit(engine)
    assert "secret" not in str(caught.value)
