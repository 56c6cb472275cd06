"""The log has what everybody did, notices changes, is cut at its beginning, and repeats searches."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient
from support.decisions import decisions
from support.served import Served

from haybale import Engine, parse
from haybale.review import JudgementStore
from haybale.review.store_file import utc_now
from haybale.service import Workspace, create_app
from haybale.service.log_chain import ORIGIN, LogHead, check_lines, digest_of_line, line_of
from haybale.service.matter_log import MatterLog, stored_lines
from haybale.service.matter_store import MatterFile, MatterStore
from haybale.service.ranker_on_documents import digest_of_ranker
from haybale.service.security import Access
from haybale.service.trainings import ModelTraining
from haybale.service.users import User, Users, digest_of

TEXT = "damage by a dog"
ADA, EVE = {"authorization": "Bearer a token of Ada's"}, {"authorization": "Bearer a token of Eve's"}


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    engine = Engine(decisions(), language="english", encoder="tfidf(min_df=1)")
    with JudgementStore(tmp_path / "cases-judgements.sqlite") as store:
        rankers = {"both": parse("rrf(bm25-doc,parm-rrf)").fit(engine), "bm25": parse("bm25").fit(engine)}
        made = Workspace(engine, rankers, store)
        yield made
        made.close()


@pytest.fixture
def client(workspace: Workspace) -> Iterator[TestClient]:
    rights = {"Ada": "judge", "Eve": "administer"}
    users = Users(User(name, right, digest=digest_of(f"a token of {name}'s")) for name, right in rights.items())
    application = create_app(workspace, Access(users))
    with TestClient(application, base_url="http://127.0.0.1:8000", raise_server_exceptions=False) as asked:
        yield asked


def actions(workspace: Workspace) -> list[tuple[str, str]]:
    return [(entry.user, entry.action) for entry in reversed(workspace.log.entries(limit=1000))]


def test_what_is_done_is_logged_with_who_did_it(client: TestClient, workspace: Workspace) -> None:
    client.get("/api/search", params={"q": TEXT}, headers=ADA)
    assert workspace.matter.path is not None
    assert not workspace.matter.path.exists(), "it is off at first, and there is no file"
    assert client.patch("/api/log", json={"is_on": True}, headers=EVE).json()["is_on"]
    hit = client.get("/api/search", params={"q": TEXT, "where": "year > 2001", "k": 2}, headers=ADA).json()["hits"][0]
    client.get("/", params={"q": TEXT, "ranker": "bm25"}, headers=ADA)
    client.get(f"/api/documents/{hit['doc_id']}", params={"q": TEXT}, headers=ADA)
    client.get(f"/documents/{hit['doc_id']}", headers=ADA)  # the same again
    client.get("/api/documents", params={"where": "court = 'BGH'", "sort": "year"}, headers=ADA)
    client.get("/api/explain", params={"q": TEXT, "doc_id": hit["doc_id"]}, headers=ADA)
    topic = client.post("/api/topics", json={"text": TEXT}, headers=ADA).json()["id"]
    client.post(f"/api/topics/{topic}/judgements", json={"doc_id": hit["doc_id"], "grade": 1}, headers=ADA)
    client.post(f"/api/topics/{topic}/import", json={"tax/2": 0, "tax/6": 0}, headers=EVE)
    client.get(f"/api/topics/{topic}/export", params={"format": "csv"}, headers=ADA)
    client.get("/log/export", headers=EVE)
    client.patch("/api/log", json={"is_on": False}, headers=EVE)
    client.get("/api/search", params={"q": TEXT}, headers=ADA)
    assert actions(workspace) == [
        ("Eve", "log"),
        ("Ada", "search"),
        ("Ada", "search"),
        ("Ada", "open"),
        ("Ada", "list"),
        ("Ada", "open"),
        ("Ada", "judge"),
        ("Eve", "judge"),
        ("Ada", "export"),
        ("Eve", "export"),
        ("Eve", "log"),
    ]
    search, second, opened, listed, _, judged, imported = (
        workspace.log.entry(number).details for number in range(2, 9)
    )
    assert (search["text"], search["where"], search["k"], search["n_hits"]) == (TEXT, "year > 2001", 2, 2)
    assert search["hits"][0] == hit["doc_id"]
    assert (search["ranker"], second["ranker"]) == ("both", "bm25")
    assert search["ranker_digest"] == digest_of_ranker(parse("rrf(bm25-doc,parm-rrf)").fit(workspace.engine))
    assert second["ranker_digest"] != search["ranker_digest"]
    assert (opened["doc_id"], opened["part"]) == (hit["doc_id"], "text")
    assert (listed["where"], listed["n_documents"]) == ("court = 'BGH'", 12)
    assert judged["rows"][0]["grade"] == 1
    assert imported["n_rows"] == 2


def test_trainings_are_logged(client: TestClient, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    started, model = ModelTraining(3, "running", "2026-01-01T00:00:00+00:00"), workspace.ranker("bm25")
    methods = {"start": started, "model": model, "accept": None, "revert": None, "accepted": [], "stop": None}
    done = {name: lambda *rest, result=result: result for name, result in methods.items()}
    monkeypatch.setattr(workspace, "_trainings", SimpleNamespace(**done))
    monkeypatch.setattr(workspace, "training_readiness", lambda: SimpleNamespace(check=lambda recipe: None))
    workspace.log.change(is_on=True, user="Eve")
    for path, body in (("", {"recipe": "svr"}), ("/3/accept", {}), ("/revert", {})):
        assert client.post(f"/api/train{path}", json=body, headers=EVE).status_code < 300
    lines = list(reversed(workspace.log.entries(action="train")))
    assert [(line.user, line.details["what"]) for line in lines] == [
        ("Eve", "started"),
        ("Eve", "accepted"),
        ("Eve", "reverted"),
    ]
    assert lines[0].details["training"] == 3
    assert lines[1].details["ranker_digest"] == digest_of_ranker(parse("bm25").fit(workspace.engine))


@pytest.mark.thorough
def test_the_option_turns_it_on_and_it_stays_on(tmp_path: Path, here: Callable[..., tuple[int, str, str]]) -> None:
    folder = tmp_path / "cases"
    Engine.build(decisions(8), folder, language="english", encoder="tfidf(min_df=1)").prepare()
    for options in (("--log",), (), ("--no-log",)):
        with Served(folder, *options) as served, urllib.request.urlopen(f"{served.address}/api/search?q=dog") as answer:
            assert answer.status == 200
    status, out, _ = here("log", str(folder))
    assert status == 0
    assert [json.loads(line)["action"] for line in out.splitlines()] == ["log", "search", "search", "log"]
    assert here("log", str(folder), "--check")[0] == 0


def test_only_administrators_see_it(client: TestClient, workspace: Workspace) -> None:
    workspace.log.change(is_on=True, user="Eve")
    client.get("/api/search", params={"q": TEXT}, headers=ADA)
    for path in ("/log", "/log/1", "/log/2/repeat", "/log/export", "/api/log", "/api/log/export", "/api/log/2/repeat"):
        assert client.get(path, headers=ADA).status_code == 403, path
        assert client.get(path).status_code == 401, path
        assert client.get(path, headers=EVE).status_code == 200, path
    for path in ("/log", "/log/check", "/api/log/check"):
        assert client.post(path, json={}, headers=ADA).status_code == 403, path
    assert client.patch("/api/log", json={"is_on": False}, headers=ADA).status_code == 403
    assert workspace.log.is_on


def test_exports_can_be_checked_and_have_no_formulas(client: TestClient, workspace: Workspace) -> None:
    workspace.log.change(is_on=True, user="=Eve")
    client.get("/api/search", params={"q": f"{TEXT} Öl"}, headers=ADA)
    lines = client.get("/api/log/export", headers=EVE).text.splitlines()
    check = check_lines(lines, [workspace.log.head])
    assert (check.is_whole, check.n_lines) == (True, len(lines))
    rows = list(csv.DictReader(io.StringIO(client.get("/log/export?format=csv", headers=EVE).text)))
    assert [row["number"] for row in rows] == [str(number) for number in range(1, len(lines) + 2)]
    assert rows[0]["user"] == "'=Eve"
    assert json.loads(rows[1]["details"])["text"] == f"{TEXT} Öl"


def chain(n: int) -> list[str]:
    lines, before = [], ORIGIN
    for number in range(1, n + 1):
        lines.append(line_of(number, "2026-01-01T00:00:00+00:00", "Ada", "search", {"text": str(number)}, before))
        before = digest_of_line(lines[-1])
    return lines


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda lines: lines[3:4] + lines[4:], "3"),
        (lambda lines: [*lines[:3], lines[3].replace('"4"', '"5"'), *lines[4:]], "line 5"),
        (lambda lines: [*lines[:3], *lines[4:]], "line 4 is missing"),
        (lambda lines: [*lines[:4], lines[3], *lines[4:]], "line 5 is missing"),
        (lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]], "line 4 is missing"),
        (lambda lines: [*lines[:3], "no line", *lines[4:]], "line 3 is no line"),
        (lambda lines: [*lines[:3], "[]", *lines[4:]], "line 3 is no line"),
        (lambda lines: lines[:-2], "line 8"),
        (lambda lines: [], "line 8"),
        (lambda lines: [*lines[:-1], line_of(8, "", "Ada", "search", {}, digest_of_line(lines[-2]))], "line 8"),
        (lambda lines: [lines[0].replace("Ada", "Bob"), *lines[1:]], "line 2"),
    ],
)
def test_changes_are_noticed(change: Callable[[list[str]], list[str]], where: str) -> None:
    lines = chain(8)
    head = LogHead(8, digest_of_line(lines[-1]))
    assert check_lines(lines, [head]).is_whole
    check = check_lines(change(lines), [head])
    assert not check.is_whole
    assert where in check.problem


def test_a_log_that_was_written_anew_needs_a_head_to_be_noticed() -> None:
    """What the digests do not prove: whoever can write the log can write another one."""
    lines, forged = chain(8), chain(8)[:5]
    assert check_lines(forged).is_whole
    assert not check_lines(forged, [LogHead(8, digest_of_line(lines[-1]))]).is_whole
    assert check_lines(forged, [LogHead(4, digest_of_line(lines[3]))]).is_whole


def test_lines_in_the_file_do_not_change(workspace: Workspace, here: Callable[..., tuple[int, str, str]]) -> None:
    workspace.log.change(is_on=True, user="")
    for _ in range(5):
        workspace.search(TEXT, 3)
    kept = workspace.log.head
    path = workspace.matter.path
    assert path is not None
    with closing(sqlite3.connect(path)) as raw:
        for statement in ("UPDATE log SET line = line", "DELETE FROM log WHERE number = 3", "DELETE FROM log"):
            with pytest.raises(sqlite3.IntegrityError):
                raw.execute(statement)
    heads = path.with_name("heads.txt")
    status, out, _ = here("log", str(path), "--head")
    heads.write_text(out)
    assert (status, out) == (0, f"{kept.number} {kept.digest}\n")
    status, out, _ = here("log", str(path))
    exported = path.with_name("log.jsonl")
    exported.write_text(out)
    assert here("log", str(exported), "--check", "--heads", str(heads))[0] == 0
    assert here("log", str(path), "--check", "--heads", str(heads))[0] == 0
    with closing(sqlite3.connect(path)) as raw:  # by somebody who may write the file
        raw.executescript("DROP TRIGGER log_stays; DROP TRIGGER log_remains")
        raw.execute("UPDATE log SET line = replace(line, 'damage', 'nothing') WHERE number = 3")
        raw.commit()
    assert workspace.log.check().problem.startswith("line 4")
    assert workspace.log.entry(3).details["text"] == "nothing by a dog"
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("DELETE FROM log WHERE number > 2")
        raw.commit()
    assert workspace.log.check().is_whole
    assert "line 6 was there" in workspace.log.check([kept]).problem
    status, _, err = here("log", str(path), "--check", "--heads", str(heads))
    assert status == 2
    assert "line 6 was there" in err


def test_old_lines_are_cut_and_the_rest_can_be_checked(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    log, days = workspace.log, 0
    monkeypatch.setattr("haybale.review.store_file.utc_now", lambda: utc_now() - timedelta(days=100 - days))
    log.change(is_on=True, user="Eve")
    for days in range(10, 100, 10):  # the clock reads it
        log.record("open", {"doc_id": f"day {days}"}, user="Ada")
    early, late = LogHead(2, digest_of_line(log.entry(2).line)), log.head
    monkeypatch.undo()
    log.change(keep_days=45, user="Eve")
    assert [entry.details.get("doc_id") for entry in log.entries(action="open")] == [
        f"day {days}" for days in (90, 80, 70, 60)
    ]
    cut = log.entries(action="cut")[0].details
    assert cut["through"] == 6
    assert not workspace.matter.store.rows("SELECT 1 FROM states"), "no line refers to one"
    check = log.check([early, LogHead(6, cut["digest"]), late])
    assert (check.problem, check.first, check.n_heads, check.n_heads_cut) == ("", 7, 2, 1)
    lines = list(log.lines())
    assert "removed at the beginning" in check_lines(lines[1:]).problem
    log.change(keep_days=0, user="Eve")
    assert log.settings.keep_days is None
    assert log.check().is_whole


def test_all_lines_may_be_too_old(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("haybale.review.store_file.utc_now", lambda: utc_now() - timedelta(days=9))
    workspace.log.change(is_on=True, keep_days=3, user="Eve")
    workspace.log.record("open", {"doc_id": "a"}, user="Ada")
    monkeypatch.undo()
    workspace.log._next_cut = 0.0
    workspace.log.cut_old_lines()
    assert [entry.action for entry in workspace.log.entries()] == ["cut"]
    assert workspace.log.check().is_whole
    workspace.log.record("open", {"doc_id": "b"}, user="Ada")
    assert workspace.log.check().is_whole


def test_several_writers_make_one_chain(workspace: Workspace) -> None:
    workspace.log.change(is_on=True, user="Eve")
    other = MatterLog(MatterFile(workspace.engine, workspace.matter.path))

    def write(log: MatterLog, user: str) -> None:
        for number in range(25):
            log.record("open", {"doc_id": str(number)}, user=user)

    threads = [threading.Thread(target=write, args=pair) for pair in ((workspace.log, "a"), (other, "b"), (other, "c"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other._file.close()
    assert workspace.log.check().n_lines == 76
    assert workspace.log.check().is_whole


KILLED = """
import sys
from pathlib import Path
from types import SimpleNamespace
from haybale.service.matter_log import MatterLog
from haybale.service.matter_store import MatterFile

engine = SimpleNamespace(identity="an engine", folder=None)
log = MatterLog(MatterFile(engine, Path(sys.argv[1])))
log.change(is_on=True, user="")
for number in range(10**9):
    log.record("open", {"doc_id": str(number)}, user="Ada")
    print(number, flush=True)
"""


@pytest.mark.thorough
def test_a_process_that_is_killed_loses_no_line(tmp_path: Path) -> None:
    path = tmp_path / "searches.sqlite"
    with subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        acknowledged = [process.stdout.readline() for _ in range(300)][-1]
        process.kill()
        rest = process.stdout.read().splitlines()
    last = int(rest[-1] if rest else acknowledged)
    with MatterStore(path) as store:
        lines = list(stored_lines(store))
    assert check_lines(lines).is_whole
    assert len(lines) - 2 in (last, last + 1), "the first line says that the log is on"


def test_what_cannot_be_logged_is_not_answered(client: TestClient, workspace: Workspace) -> None:
    workspace.log.change(is_on=True, user="Eve")
    with workspace.matter.store.writing() as connection:
        connection.execute("CREATE TRIGGER full BEFORE INSERT ON log BEGIN SELECT RAISE(ABORT, 'no room'); END")
    for path in ("/api/search?q=dog", "/api/documents/dog/1"):
        answer = client.get(path, headers=ADA)
        assert answer.status_code == 503
        assert "dog damage" not in answer.text


# Searches of the past.


def repeated(client: TestClient, number: int) -> dict[str, Any]:
    answer: dict[str, Any] = client.get(f"/api/log/{number}/repeat", headers=EVE).json()
    assert client.get(f"/log/{number}/repeat", headers=EVE).status_code == 200
    return answer


def test_a_search_is_repeated_on_the_documents_of_then(client: TestClient, workspace: Workspace) -> None:
    workspace.log.change(is_on=True, user="Eve")
    parameters = {"q": TEXT, "k": 6, "where": "year >= 2000"}
    hits = [hit["doc_id"] for hit in client.get("/api/search", params=parameters, headers=ADA).json()["hits"]]
    assert repeated(client, 2)["is_same"]
    better = {"text": "The damage by a dog. A dog did damage.", "year": 2020}
    workspace.engine.add({f"new/{number}": better for number in range(4)})
    now = [hit["doc_id"] for hit in client.get("/api/search", params=parameters, headers=ADA).json()["hits"]]
    assert now != hits
    again = repeated(client, 2)
    assert (again["n_added"], again["changed"], again["removed"]) == (4, [], [])
    assert {hit["doc_id"] for hit in again["hits"]} == set(hits)
    assert not any(hit["doc_id"].startswith("new/") for hit in again["hits"])
    workspace.engine.replace({hits[0]: {"text": "Another text about a dog.", "year": 2001}}, remove=[hits[1], "tax/2"])
    again = repeated(client, 2)
    assert (again["n_added"], again["changed"], again["removed"]) == (5, [hits[0]], sorted([hits[1], "tax/2"]))
    assert {*again["lost"]} == {hits[0], hits[1]}
    assert not again["is_same"]
    workspace.engine.set_metadata({hits[2]: {"year": 1990}})
    again = repeated(client, 2)
    assert hits[2] in again["lost"]
    assert any("Metadata" in difference for difference in again["differences"])
    third = next(entry.number for entry in workspace.log.entries() if entry.details.get("hits") == now)
    assert repeated(client, third)["n_added"] == 1
    assert client.get("/api/log/1/repeat", headers=EVE).status_code == 404
    assert client.get("/api/log/999/repeat", headers=EVE).status_code == 404


def test_another_ranker_of_the_same_name_is_named(client: TestClient, workspace: Workspace) -> None:
    workspace.log.change(is_on=True, user="Eve")
    client.get("/api/search", params={"q": TEXT}, headers=ADA)
    workspace._rankers["both"] = parse("bm25(k1=0.1)").fit(workspace.engine)
    assert any("ranker" in difference for difference in repeated(client, 2)["differences"])
    del workspace._rankers["both"]
    workspace._default = "bm25"
    again = repeated(client, 2)
    assert again["hits"] is None
    assert "both" in again["problem"]


def test_states_that_were_changed_are_not_believed(client: TestClient, workspace: Workspace) -> None:
    workspace.log.change(is_on=True, user="Eve")
    client.get("/api/search", params={"q": TEXT}, headers=ADA)
    with workspace.matter.store.writing() as connection:
        connection.execute("UPDATE states SET value = replace(value, '24', '23')")
    again = repeated(client, 2)
    assert again["hits"] is None
    assert again["problem"]


def test_pages_of_the_log(client: TestClient, workspace: Workspace) -> None:
    page = client.get("/log", headers=EVE).text
    assert "The log is off" in page
    page = client.post("/log", json={}, headers=EVE)
    assert page.status_code == 422
    form = {"keep_days": "30", "is_on": "true"}
    assert "The log is on" in client.post("/log", data=form, headers=EVE).text
    assert workspace.log.settings.keep_days == 30
    client.get("/api/search", params={"q": "<b>dog</b>"}, headers=ADA)
    page = client.get("/log?user=Ada&action=search", headers=EVE).text
    assert "&lt;b&gt;dog&lt;/b&gt;" in page
    head = workspace.log.head
    page = client.post("/log/check", data={"heads": f"{head.number} {head.digest}"}, headers=EVE).text
    assert "1 head fits" in page
    assert "was changed" in client.post("/log/check", data={"heads": f"1 {'0' * 64}"}, headers=EVE).text
    assert client.post("/log/check", data={"heads": "x"}, headers=EVE).status_code == 422
    assert client.post("/log", data={"keep_days": "-1"}, headers=EVE).status_code == 422
    checked = client.post("/api/log/check", json={"heads": [head._asdict()]}, headers=EVE).json()
    assert (checked["is_whole"], checked["n_heads"]) == (True, 1)
