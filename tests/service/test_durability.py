"""What the service has acknowledged is on disk, however it ends; ``benchmarks/kill_service.py`` does it more often."""

import json
import shutil
import signal
import socket
import sqlite3
import threading
import time
from collections import Counter

import pytest
from support.decisions import decisions
from support.matters import WORDS
from support.served import Served, Within, is_running, judge_together

from haybale import Engine
from haybale.errors import OutputExistsError
from haybale.review import Judgement, JudgementStore


@pytest.fixture(scope="module")
def engine_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("durable") / "engine"
    Engine.build(decisions(400), folder, language="english", encoder="tfidf(min_df=1)").prepare()
    return folder


def test_killed_while_eight_judges_judge(engine_folder, tmp_path):
    """Every acknowledged judgement is there, each once."""
    store, acknowledged = tmp_path / "judgements.sqlite", []
    for killing in range(2):
        served = Served(engine_folder, "--judgements", str(store))
        topic = served.ask("/api/topics", {"text": "dogs that bite"})["id"]
        judges = judge_together(served, topic, 8, acknowledged)
        wanted = 5 * (killing + 1)
        while len(acknowledged) < wanted:
            time.sleep(0.01)
        served.kill()
        for each in judges:
            each.join()
    with JudgementStore(store) as opened:
        rows = Counter((row.doc_id, row.judge, row.grade) for row in opened.judgements(opened.topics()[0]))
    assert set(acknowledged) <= rows.keys()
    assert set(rows.values()) == {1}


@pytest.mark.thorough
def test_matters_killed_while_judges_judge(matter_engines, tmp_path):
    """Every acknowledged judgement is in the file of its matter, and in no other."""
    folder = shutil.copytree(matter_engines, tmp_path / "matters")
    acknowledged = {name: [] for name in WORDS}
    for killing in range(2):
        served, judges = Served(folder, "--ranker", "bm25"), []
        for name in WORDS:
            within = Within(served, f"/matters/{name}")
            topic = within.ask("/api/topics", {"text": f"who pays {killing}"})["id"]
            judges += judge_together(within, topic, 2, acknowledged[name])
        while not all(acknowledged.values()):
            time.sleep(0.01)
        served.kill()
        for each in judges:
            each.join()
    for name, word in WORDS.items():
        with JudgementStore(folder / f"{name}-judgements.sqlite") as opened:
            rows = {(row.doc_id, row.judge, row.grade) for topic in opened.topics() for row in opened.judgements(topic)}
        assert set(acknowledged[name]) <= rows
        assert {doc_id.partition("/")[0] for doc_id, *_ in rows} == {word}


def test_slow_and_broken_clients_new_documents_and_a_graceful_end(engine_folder, tmp_path):
    with Served(engine_folder, "--judgements", str(tmp_path / "judgements.sqlite"), processes=1) as served:
        host, port = served.address.removeprefix("http://").split(":")

        # Slow, silent and broken clients harm nobody.
        clients = [socket.create_connection((host, int(port))) for _ in range(100)]
        for number, client in enumerate(clients):
            sent = (
                b"GET /api/search?q=",
                b"POST /api/topics HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
                b"\x16\x03\x01",
            )
            client.sendall(sent[number % 3])
        assert served.ask("/api/search?q=dog")["hits"]
        for client in clients:
            client.close()

        # Documents that another process adds are found.
        Engine.open(engine_folder).add({"whale/1": {"text": "A whale is no fish.", "title": "Whale"}})
        end = time.monotonic() + 60
        while not served.ask("/api/search?q=whale")["hits"] and time.monotonic() < end:
            time.sleep(0.05)
        assert [hit["doc_id"] for hit in served.ask("/api/search?q=whale")["hits"]] == ["whale/1"]

        served.wait_for_processes()
        children = served.children
        assert len(children) == 1
        assert [hit["doc_id"] for hit in served.ask("/api/search?q=whale")["hits"]] == ["whale/1"]

        # A request that is running when the service ends is answered, and its topic is on disk.
        with socket.create_connection((host, int(port))) as slow:
            body = json.dumps({"text": "a topic that is sent slowly"}).encode()
            head = f"POST /api/topics HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            slow.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:5])
            time.sleep(0.2)
            served.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            slow.sendall(body[5:])
            assert slow.recv(100).startswith(b"HTTP/1.1 201")
        assert served.process.wait(40) in (0, -signal.SIGTERM)
        assert not any(map(is_running, children))
    with JudgementStore(tmp_path / "judgements.sqlite") as store:
        assert [topic.text for topic in store.topics()] == ["a topic that is sent slowly"]


def test_a_backup_is_of_one_moment_while_judges_judge(tmp_path):
    path, is_over = tmp_path / "judgements.sqlite", threading.Event()
    with JudgementStore(path) as store:
        topic = store.add_topic("dogs")

        def judge():
            for number in range(5000):
                if is_over.is_set():
                    return
                store.add(topic, Judgement(f"a{number}", "judged", 1), Judgement(f"b{number}", "judged", 0))

        judging = threading.Thread(target=judge)
        judging.start()
        for number in range(5):
            store.backup(tmp_path / f"copy{number}.sqlite")
        is_over.set()
        judging.join()
        with pytest.raises(OutputExistsError):
            store.backup(tmp_path / "copy0.sqlite")
    for number in range(5):
        with JudgementStore(tmp_path / f"copy{number}.sqlite") as copy:
            assert copy.n_rows() % 2 == 0  # rows that were added together are there together
        with sqlite3.connect(tmp_path / f"copy{number}.sqlite") as opened:
            assert opened.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        opened.close()
