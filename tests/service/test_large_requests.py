"""Large requests have limits, work a few at a time, and end when nobody waits for them any more."""

import asyncio
import io
import json
import threading
import zipfile

import numpy as np
import pytest
from starlette.testclient import TestClient
from support.decisions import decisions
from support.spellings import scope_of, status_of

from haybale import Engine, parse
from haybale.errors import InputError, StoppedError
from haybale.rankers.parm import MAX_PAIRS
from haybale.search.searching import explain_hit, search
from haybale.service import Workspace, create_app, file_worker, request_work
from haybale.service.file_worker import MAX_PARAGRAPHS, MAX_TEXT, packed_problem
from haybale.service.long_queries import query_of_file
from haybale.service.request_work import MAX_WAITING
from haybale.service.security import Access
from haybale.stopping_work import Work, check_wanted, stoppable

JSON = [("content-type", "application/json")]


def word_document(xml, name="word/document.xml"):
    """Return a Word document whose text is some XML."""
    docx = pytest.importorskip("docx")
    whole, changed = io.BytesIO(), io.BytesIO()
    docx.Document().save(whole)
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(changed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new:
        for entry in old.namelist():
            content = old.read(entry)
            new.writestr(entry, content.replace(b"<w:body>", b"<w:body>" + xml) if entry == name else content)
    return changed.getvalue()


def long_request(client_disconnects, body=b'{"q": "dogs"}'):
    """Return a scope, and a function that receives its body and then, if it says so, that the client has gone."""
    scope = scope_of("POST", "/api/search", [*JSON, ("content-length", str(len(body)))])
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        if messages:
            return messages.pop()
        await asyncio.to_thread(client_disconnects.wait)
        return {"type": "http.disconnect"}

    return scope, receive


def test_a_small_file_of_many_paragraphs_is_refused_at_once():
    """27 kB of 250,000 paragraphs kept the service busy for seconds each."""
    data = word_document(b"<w:p><w:r><w:t>a</w:t></w:r></w:p>" * 250_000)
    assert len(data) < 100_000
    with pytest.raises(InputError, match=f"{MAX_PARAGRAPHS:,} paragraphs"):
        query_of_file("letter.docx", data)


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.html"])
def test_texts_have_limits_in_every_format(name):
    with pytest.raises(InputError, match="at most"):
        query_of_file(name, b"<p>a</p>\n\n" * (MAX_PARAGRAPHS + 1))
    with pytest.raises(InputError, match=f"at most {MAX_TEXT:,}"):
        query_of_file(name, b"<p>The tenant shall keep the house and the dog in good order.</p>\n\n" * 4000)


def test_a_packed_file_that_unpacks_to_much_is_not_read():
    data = word_document(b" " * 150_000_000)
    assert len(data) < 500_000
    with pytest.raises(InputError, match="unpacks"):
        query_of_file("letter.docx", data)
    assert packed_problem(data[: len(data) // 2]) is None  # no packed file at all
    assert packed_problem(b"text") is None


def test_reading_ends_when_its_time_is_over(monkeypatch):
    """A process that takes no end is killed, and its request is answered."""
    monkeypatch.setattr("haybale.service.limited_process.MAX_SECONDS", -10)
    monkeypatch.setattr("haybale.service.limited_process.START_SECONDS", 10.01)
    with pytest.raises(InputError, match="seconds"):
        query_of_file("a.txt", b"dogs")
    work = Work()
    work.stop()
    with stoppable(work), pytest.raises(StoppedError):
        query_of_file("a.txt", b"dogs")


def test_a_file_takes_a_limited_memory(monkeypatch, capsys):
    def out_of_memory(*_):
        raise MemoryError

    monkeypatch.setattr(file_worker, "read_documents", out_of_memory)
    assert "memory" in file_worker.text_of("a.txt", b"dogs")["problem"]


def test_the_service_names_its_limit_of_paragraphs(workspace):
    client = TestClient(create_app(workspace), base_url="http://127.0.0.1:8000")
    text = "\n\n".join(["dog"] * 33_000)
    answer = client.post("/api/search", json={"q": text})
    assert answer.status_code == 409
    assert f"{MAX_PARAGRAPHS:,}" in answer.json()["detail"]
    page = client.get("/login").text.partition('name="csrf_token" value="')[2].partition('"')[0]
    kept = client.post("/long", data={"csrf_token": page, "q": text}, headers={"accept": "text/html"})
    assert kept.status_code == 422
    assert f"{MAX_PARAGRAPHS:,}" in kept.text


@pytest.mark.parametrize("name", ["rrf(bm25-doc,parm-rrf)", "bm25"])
def test_many_paragraphs_rank_and_explain_as_few_do(name):
    """33,000 paragraphs on 80 documents: the ranking is that of the ranker, and explanations have a bounded length."""
    engine = Engine(decisions(80), language="english", encoder="tfidf(min_df=1)").prepare()
    ranker = parse(name).fit(engine)
    words = ["landlord", "lease", "keeper of a dog", "tax office", "scene of an accident", "rent"]
    text = [words[n % 6] for n in range(33_000)]
    results = search(ranker, text, 5)
    ranked = ranker.rank({"query": text}, depth=5)["query"]
    assert [(hit.doc_id, hit.score) for hit in results] == ranked
    explanation, snippets = explain_hit(ranker, text, results[0].doc_id)
    assert [snippet.text for snippet in snippets] == [snippet.text for snippet in results[0].snippets]
    assert np.isclose(sum(share.share for share in explanation.shares), results[0].score, rtol=1e-4)

    def lengths(of):
        return [len(of.shares), *(n for share in of.shares if share.of is not None for n in lengths(share.of))]

    assert max(lengths(explanation)) <= MAX_PAIRS


def test_explanations_of_many_pairs_add_up_the_pairs_of_each_passage(monkeypatch):
    engine = Engine(decisions(12), language="english", encoder="tfidf(min_df=1)")
    text = ["the keeper of a dog", "damage by a dog", "a house"]
    for name in ("parm-rrf", "parm-vrrf", "bm25-parm-combsum"):
        ranker = parse(name).fit(engine)
        monkeypatch.undo()
        whole, of_passages = search(ranker, text, 5), {}
        for hit in whole:
            sums = of_passages.setdefault(hit.doc_id, {})
            for share in explain_hit(ranker, text, hit.doc_id)[0].shares:
                sums[share.passage_id] = sums.get(share.passage_id, 0) + share.share
        monkeypatch.setattr("haybale.rankers.parm.MAX_PAIRS", 1)
        short = search(ranker, text, 5)
        assert [(hit.doc_id, hit.score, hit.snippets) for hit in short] == [
            (hit.doc_id, hit.score, hit.snippets) for hit in whole
        ]
        for hit in short:
            explanation = explain_hit(ranker, text, hit.doc_id)[0]
            sums = {share.passage_id: share.share for share in explanation.shares}
            assert sums == pytest.approx(of_passages[hit.doc_id])


def test_equal_texts_are_encoded_once():
    from haybale.search.encoded_queries import BLOCK, encoded_queries

    engine = Engine(decisions(12), language="english", encoder="lsa(4)")
    texts = ["a dog", "a tax", "a lease"] * BLOCK
    encoded = []
    whole = type(engine.encoder).encode
    expected = engine.encoder.encode(texts[:3])
    engine.encoder.encode = lambda given: encoded.extend(given) or whole(engine.encoder, given)
    found = encoded_queries(engine, texts)
    assert sorted(encoded) == sorted(texts[:3])
    np.testing.assert_allclose(found, np.tile(expected, (BLOCK, 1)), atol=1e-6)


@pytest.mark.parametrize("name", ["bm25", "rrf(bm25-doc,parm-rrf)", "parm-vrrf", "knn"])
def test_a_search_that_nobody_wants_stops(library, name):
    ranker, work = parse(name).fit(library), Work()
    with stoppable(work):
        search(ranker, "dog", 3)
        work.stop()
        with pytest.raises(StoppedError):
            search(ranker, "dog", 3)
    assert search(ranker, "dog", 3)
    with stoppable(Work(seconds=-1)), pytest.raises(StoppedError):
        search(ranker, "dog", 3)


def endless(begun, ended):
    """Return a search that works until it is stopped."""

    def searched(*_, **__):
        begun.set()
        try:
            while True:
                check_wanted()
                ended.wait(0.005)
        except StoppedError:
            ended.set()
            raise

    return searched


def test_work_ends_when_its_client_has_gone(workspace):
    begun, ended = threading.Event(), threading.Event()
    workspace.search = endless(begun, ended)
    scope, receive = long_request(begun)
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(create_app(workspace)(scope, receive, send))
    assert ended.is_set()
    assert not sent


def test_work_ends_when_its_time_is_over(workspace, monkeypatch):
    monkeypatch.setattr(request_work, "ANSWER_SECONDS", 0.2)
    ended = threading.Event()
    workspace.search = endless(threading.Event(), ended)
    body = b'{"q": "dogs"}'
    scope = scope_of("POST", "/api/search", [*JSON, ("content-length", str(len(body)))])
    status, answer = asyncio.run(status_of(create_app(workspace), scope, body))
    assert status == 503
    assert json.loads(answer)["status"] == 503
    assert ended.is_set()


def test_a_few_large_requests_work_at_once_and_small_ones_are_answered(workspace):
    running, most, go, lock = [], [0], threading.Event(), threading.Lock()

    def slow(*_, **__):
        with lock:
            running.append(1)
            most[0] = max(most[0], len(running))
        go.wait()
        with lock:
            running.pop()
        raise InputError("done")

    workspace.search = slow
    access = Access()
    application = create_app(workspace, access)
    body = json.dumps({"q": "dog " * 5000}).encode()

    async def large():
        scope = scope_of("POST", "/api/search", [*JSON, ("content-length", str(len(body)))])
        return (await status_of(application, scope, body))[0]

    async def flooded():
        tasks = [asyncio.ensure_future(large()) for _ in range(60)]
        while sum(task.done() for task in tasks) < 60 - MAX_WAITING - 8:
            await asyncio.sleep(0.01)
        light = [
            (await status_of(application, scope_of("GET", path, []), b""))[0] for path in ("/health", "/help", "/")
        ]
        go.set()
        return light, await asyncio.gather(*tasks)

    light, statuses = asyncio.run(flooded())
    assert light == [200, 200, 200]
    assert set(statuses) == {409, 503}
    assert statuses.count(409) <= MAX_WAITING + 8
    assert most[0] <= 8


def test_searches_in_processes_stop_with_their_requests(tmp_path):
    engine = Engine.build(decisions(40), tmp_path / "e", language="english", encoder="tfidf(min_df=1)").prepare()
    from haybale.review import JudgementStore

    with JudgementStore(tmp_path / "j.sqlite") as store:
        workspace = Workspace(engine, {"parm": parse("parm-vrrf").fit(engine)}, store, processes=1)
        workspace.start_processes()
        try:
            with workspace.processes._changed:
                assert workspace.processes._changed.wait_for(lambda: workspace.processes._ready, 120)
            text, work = "\n\n".join(f"dog {n} lease tax road" for n in range(MAX_PARAGRAPHS)), Work()
            threading.Timer(0.05, work.stop).start()
            with stoppable(work), pytest.raises(StoppedError):
                [workspace.search(text, 100) for _ in range(1000)]
            assert workspace.search("dog")
            assert workspace.processes.process_ids
        finally:
            workspace.close()
