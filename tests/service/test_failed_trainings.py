"""Whatever is in the folder of trainings, the page and the interface list it, and a new training can begin."""

import errno
import json
import random
import shutil

import pytest
from starlette.testclient import TestClient
from support.decisions import decisions

from haybale import Engine, parse
from haybale.errors import HaybaleError, StoreError
from haybale.review import Judgement, JudgementStore
from haybale.service import Workspace, create_app, trainings
from haybale.service.long_queries import LongQueries
from haybale.service.request_errors import NotFoundError

RESULT = {"recipe": "svr", "ranker": "svr", "before": "bm25", "n_topics": 2, "n_judgements": 9, "questions": {}}
RESULT |= {"unanswered": {"new topics": "none"}, "instead_of": {"learned": "nothing to learn"}}
MEASURE = {"before": 0.1, "after": 0.2, "difference": 0.1, "p": None, "topics": {"1": [0.1, 0.2]}}
QUESTIONS = {"new topics": {"n_topics": 2, "measures": {"nDCG@10": MEASURE}}}


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    return Engine.build(
        decisions(8), tmp_path_factory.mktemp("engine") / "e", language="english", encoder="tfidf(min_df=1)"
    )


@pytest.fixture
def opened(engine, tmp_path, monkeypatch):
    """Return a workspace whose trainings start no process."""
    monkeypatch.setattr(trainings, "_started", lambda place: None)
    with JudgementStore(tmp_path / "judgements.sqlite") as store:
        for text in ("ending a rental contract", "keeper of animals"):
            store.add(store.add_topic(text, text), Judgement("dog/1", "judged", 1))
        yield Workspace(engine, {"bm25": parse("bm25").fit(engine)}, store)


@pytest.fixture
def folder(opened, tmp_path):
    (tmp_path / "judgements-models").mkdir()
    return tmp_path / "judgements-models"


def check(opened, n_failed=None):
    """Ask the page and the interface for the trainings, and each of them by its number; return them."""
    client = TestClient(create_app(opened), base_url="http://127.0.0.1:8000", raise_server_exceptions=False)
    assert client.get("/train").status_code == 200
    listed = client.get("/api/train").json()["trainings"]
    for training in listed:
        assert client.get(f"/api/train/{training['id']}").json() == training
        assert training["status"] in ("failed", "done")
    for training in listed:
        client.post(f"/api/train/{training['id']}/accept", json={})
    assert client.post("/api/train/revert", json={}).status_code in (200, 409)
    if n_failed is not None:
        assert [training["status"] for training in listed].count("failed") == n_failed
    return listed


@pytest.mark.parametrize(
    "content", [None, "", "{", "[]", "null", '"x"', "\udcff", "{}", "[" * 100_000, '{"time": 1e999}']
)
def test_a_folder_without_a_whole_request_is_a_failed_training(opened, folder, content):
    (folder / "1").mkdir()
    if content is not None:
        for name in ("request", "progress", "result", "error"):
            (folder / "1" / f"{name}.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    assert check(opened, 1)[0]["detail"]
    assert opened.start_training("svr").id == 2


def test_entries_that_are_no_trainings_are_ignored(opened, folder):
    for name in ("007", "0", "٣", "9" * 200, "1.5", "-1", "notes", ".2.abc", "²"):
        (folder / name).mkdir()
    (folder / "1").write_text("a file")
    (folder / "2").symlink_to("nowhere")
    assert check(opened) == []
    started = opened.start_training("svr")
    assert started.id == 3
    assert not (folder / ".2.abc").exists()
    (folder / "999999999").mkdir()
    assert opened.start_training("svr").id not in (3, 999999999)


@pytest.mark.parametrize(
    "accepted",
    ["", "{", "[]", "{}", '{"accepted": 1}', '{"accepted": [null, "1", "../1", 1.5, true, {}, 10, -1, [1]]}', "null"],
)
def test_a_damaged_list_of_accepted_trainings_accepts_none(opened, folder, accepted):
    (folder / "1").mkdir()
    (folder / "accepted.json").write_text(accepted)
    check(opened, 1)
    assert opened.rankers[0] == "bm25"


def test_an_accepted_training_without_its_model_is_not_used(engine, opened, folder):
    (folder / "1" / "model").mkdir(parents=True)
    (folder / "1" / "result.json").write_text(json.dumps(RESULT))
    (folder / "accepted.json").write_text('{"accepted": [7, 1]}')
    again = Workspace(engine, {"bm25": parse("bm25").fit(engine)}, opened.store)
    assert again.rankers == ["bm25"]
    check(again)


def test_random_damage_of_results_never_fails_a_page(opened, folder):
    """The law: any value anywhere in a result is a training that is done, or one that has failed."""
    rng = random.Random(0)
    opened.ranker().save(folder / "1" / "model")
    values = [None, True, 1, -1.5, "x", [], {}, [1], {"a": 1}, 10**400, 1e308]

    def damaged(value):
        if rng.random() < 0.1:
            return rng.choice(values)
        return {key: damaged(inner) for key, inner in value.items()} if isinstance(value, dict) else value

    client = TestClient(create_app(opened), base_url="http://127.0.0.1:8000", raise_server_exceptions=False)
    for _ in range(60):
        result = damaged(RESULT | {"questions": QUESTIONS})
        text = json.dumps(result).replace("1e+308", rng.choice(("1e999", "NaN", "Infinity")))
        (folder / "1" / "result.json").write_text(text)
        assert client.get("/train").status_code == 200, text
        assert client.get("/api/train").status_code == 200, text


@pytest.mark.parametrize("fails", ["write_json", "_started", "whole_folder", "save"])
def test_a_full_disk_leaves_no_training(opened, folder, monkeypatch, fails):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        if fails == "save":
            patch.setattr(type(opened.ranker()), "save", full)
        else:
            patch.setattr(trainings, fails, full)
        with pytest.raises(StoreError, match="No space left"):
            opened.start_training("svr")
        client = TestClient(create_app(opened), base_url="http://127.0.0.1:8000", raise_server_exceptions=False)
        assert client.post("/api/train", json={}).status_code == 503
        page = client.get("/login").text.partition('name="csrf_token" value="')[2].partition('"')[0]
        assert client.post("/train", data={"csrf_token": page}).status_code == 503
    assert not list(folder.iterdir())
    assert check(opened) == []
    assert opened.start_training("svr").id == 1


def test_a_full_disk_while_a_training_is_accepted(opened, folder, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    opened.ranker().save(folder / "1" / "model")
    (folder / "1" / "result.json").write_text(json.dumps(RESULT | {"questions": QUESTIONS}))
    with monkeypatch.context() as patch:
        patch.setattr(trainings, "replace_json", full)
        with pytest.raises(StoreError):
            opened.accept(1)
    assert opened.rankers[0] == "bm25"
    assert opened.accept(1) == "trained 1"
    shutil.rmtree(folder / "1")
    assert check(opened) == []


def test_a_full_disk_is_told_where_long_queries_and_logs_are_written(opened, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    class FullLog:
        write = flush = full

    client = TestClient(
        create_app(opened, log=FullLog()), base_url="http://127.0.0.1:8000", raise_server_exceptions=False
    )
    assert client.get("/health").status_code == 200
    page = client.get("/login").text.partition('name="csrf_token" value="')[2].partition('"')[0]
    monkeypatch.setattr(LongQueries, "keep", full)
    assert client.post("/long", data={"csrf_token": page, "q": "dogs"}).status_code == 507


def test_a_running_training_is_one_at_a_time(opened, folder, monkeypatch):
    monkeypatch.setattr(trainings, "_is_running", lambda place: True)
    opened.start_training("svr")
    with pytest.raises(HaybaleError, match="number 1"):
        opened.start_training("svr")


def test_a_number_without_a_training_is_not_found(opened, folder):
    (folder / "0").mkdir()
    for number in (0, -1, 7, 10**9, 10**5000, -(10**5000)):
        with pytest.raises(NotFoundError):
            opened.training(number)
