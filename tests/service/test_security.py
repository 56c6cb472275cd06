"""What was tried against the service, one row for each attempt; docs/how-to/serve.md lists them."""

import asyncio
import json
from io import StringIO

import pytest
from starlette.testclient import TestClient

from haybale.service import Workspace, create_app
from haybale.service import security as security_module
from haybale.service.request_errors import TooManyGuessesError
from haybale.service.security import LOOPBACK, Access
from haybale.service.users import User, Users, digest_of, only_token
from haybale.service.users_file import UsersFile, add_user, renew_token

TOKEN = "a token that is long enough"
JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}
PROGRAM = {"x-requested-with": "curl"}
SCRIPT = "<script>alert(1)</script>"


def asked(workspace, access=None, log=None, **options):
    return TestClient(
        create_app(workspace, access, log), base_url="http://127.0.0.1:8000", raise_server_exceptions=False, **options
    )


@pytest.fixture
def client(workspace):
    """Return a client that is no browser with a page of the service."""
    with asked(workspace) as found:
        yield found


@pytest.fixture
def guarded(workspace, monkeypatch):
    """Return a service with the users Ada, a judge, and Eve, an admin."""
    monkeypatch.setattr(security_module, "_GUESS_SECONDS", 0.0)
    rights = {"Ada": "judge", "Eve": "administer"}
    users = Users(User(name, right, digest=digest_of(f"token of {name}")) for name, right in rights.items())
    return asked(workspace, Access(users), follow_redirects=False)


def bearer(name):
    return {"authorization": f"Bearer token of {name}"}


@pytest.mark.parametrize(
    "host", ["evil.org", "evil.org:8000", "127.0.0.1.evil.org", "", "127.0.0.1@evil.org", "a b", "8.8.8.8"]
)
def test_another_host_is_refused(client, host):
    """DNS rebinding: a page of another site whose name points to this machine."""
    assert client.get("/api/topics", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["127.0.0.1:9", "localhost", "LOCALHOST:8000", "[::1]:8000"])
def test_own_hosts_are_known(client, host):
    assert client.get("/health", headers={"host": host}).status_code == 200


def test_addresses_and_named_hosts_are_known_with_a_token(workspace):
    client = asked(workspace, Access(only_token(TOKEN), [*LOOPBACK, "search.firm.example"], any_address=True))
    for host, status in {"10.0.0.7:8000": 200, "search.firm.example": 200, "evil.org": 421}.items():
        assert client.get("/health", headers={"host": host}).status_code == status


ATTACKS = [
    ("a form of another site", FORM, b"text=x", {"origin": "https://evil.org"}, 403),
    ("a form without origin and token", FORM, b"text=x", {}, 403),
    ("a form that says it is JSON in its text", {"content-type": "text/plain"}, b'{"text":"x"}', {}, 403),
    ("no content type", {}, b'{"text":"x"}', {}, 403),
    ("JSON of another site", JSON, b'{"text":"x"}', {"origin": "https://evil.org"}, 403),
    ("JSON of a sibling site", JSON, b'{"text":"x"}', {"sec-fetch-site": "same-site"}, 403),
    ("JSON across sites", JSON, b'{"text":"x"}', {"sec-fetch-site": "cross-site"}, 403),
    ("JSON of a sandboxed frame", JSON, b'{"text":"x"}', {"origin": "null"}, 403),
    ("another port of this machine", JSON, b'{"text":"x"}', {"origin": "http://127.0.0.1:9999"}, 403),
    ("a guessed form token", FORM, b"text=x&csrf_token=" + b"0" * 64, {}, 403),
    ("a form of another site, with a header", FORM | PROGRAM, b"text=x", {"origin": "https://evil.org"}, 403),
    ("a form of another site, with another header", FORM | PROGRAM, b"text=x", {"sec-fetch-site": "cross-site"}, 403),
    ("JSON of this site", JSON, b'{"text":"x"}', {"origin": "http://127.0.0.1:8000"}, 201),
    ("JSON of a program", JSON, b'{"text":"x"}', {}, 201),
]


@pytest.mark.parametrize(
    ("kind", "body", "headers", "status"), [row[1:] for row in ATTACKS], ids=[row[0] for row in ATTACKS]
)
def test_other_sites_change_nothing(client, kind, body, headers, status):
    assert client.post("/api/topics", content=body, headers=kind | headers).status_code == status
    assert len(client.get("/api/topics").json()["topics"]) == (status == 201)


def test_other_sites_may_not_read(client):
    preflight = client.options(
        "/api/topics", headers={"origin": "https://evil.org", "access-control-request-method": "POST"}
    )
    answer = client.get("/api/topics", headers={"origin": "https://evil.org"})
    for each in (preflight, answer):
        assert not [name for name in each.headers if name.startswith("access-control")]
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    "path", ["/api/topics", "/api/search?q=dog", "/", "/metrics", "/openapi.json", "/api/train", "//login"]
)
def test_nothing_is_open_without_a_token(guarded, path):
    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Basic QWRhOng="},
        {"cookie": "haybale_session=x"},
    ):
        answer = guarded.get(path, headers=headers)
        assert answer.status_code == 401
        assert "www-authenticate" in answer.headers
    assert guarded.get("/health").status_code == 200


def test_judges_judge_as_themselves_and_admins_train(guarded):
    topic = guarded.post("/api/topics", json={"text": "dogs"}, headers=bearer("Ada")).json()["id"]
    path = f"/api/topics/{topic}/judgements"
    said = guarded.post(path, json={"doc_id": "dog/1", "grade": 1}, headers=bearer("Ada"))
    assert said.json()["judge"] == "Ada"
    other = guarded.post(path, json={"doc_id": "dog/1", "grade": 0, "judge": "Eve"}, headers=bearer("Ada"))
    assert other.status_code == 403
    for path in ("/api/train", "/api/train/1/accept", "/api/train/revert", f"/api/topics/{topic}/import"):
        assert guarded.post(path, json={}, headers=bearer("Ada")).status_code == 403
        assert guarded.post(path, json={}, headers=bearer("Eve")).status_code != 403


def test_browsers_log_in_by_a_form_and_out(guarded):
    page = guarded.get("/api/topics?x=1", headers={"accept": "text/html"})
    assert page.status_code == 303
    assert page.headers["location"] == "/login?back=%2Fapi%2Ftopics%3Fx%3D1"
    form = guarded.get(page.headers["location"])
    token = form.text.partition('name="csrf_token" value="')[2].partition('"')[0]
    assert len(token) == 64
    given = {"csrf_token": token, "token": "token of Ada", "back": "/api/topics?x=1"}
    assert guarded.post("/login", data=given | {"csrf_token": "0" * 64}).status_code == 403
    assert guarded.post("/login", data=given | {"token": "wrong"}).status_code == 401
    assert guarded.post("/login", data=given | {"back": "//evil.org"}).headers["location"] == "/"
    inside = guarded.post("/login", data=given)
    assert inside.headers["location"] == "/api/topics?x=1"
    assert "HttpOnly" in inside.headers["set-cookie"]
    assert "SameSite" in inside.headers["set-cookie"]
    assert guarded.get("/api/topics").status_code == 200
    assert guarded.post("/api/topics", content="text=x", headers=FORM).status_code == 403  # the cookie is not enough
    old = guarded.cookies["haybale_session"]
    assert guarded.post("/logout", data={"csrf_token": token}).status_code == 303
    assert guarded.get("/api/topics", headers={"cookie": f"haybale_session={old}"}).status_code == 401


def test_a_right_token_is_not_refused_because_of_wrong_ones(guarded):
    """Behind a proxy, all users share one address."""
    for number in range(25):
        assert guarded.get("/api/topics", headers={"authorization": f"Bearer {number}"}).status_code == 401
        form = guarded.get("/login").text.partition('name="csrf_token" value="')[2].partition('"')[0]
        assert guarded.post("/login", data={"csrf_token": form, "token": f"{number}"}).status_code == 401
    assert guarded.get("/api/topics", headers=bearer("Ada")).status_code == 200
    assert guarded.post("/login", data={"csrf_token": form, "token": "token of Ada"}).status_code == 303


def test_wrong_tokens_take_time_but_only_so_many_wait(monkeypatch):
    """Wrong tokens beyond those that wait are told to come back later, and a right one passes at once meanwhile."""
    access, gate = Access(Users([User("Ada", "judge", digest=digest_of("token of Ada"))])), None
    monkeypatch.setattr(security_module, "_MAX_GUESSES", 5)

    async def guess():
        nonlocal gate
        gate = asyncio.Event()
        monkeypatch.setattr(security_module.asyncio, "sleep", lambda seconds: gate.wait())
        waiting = [asyncio.ensure_future(access.login(f"guess {number}")) for number in range(5)]
        await asyncio.wait(waiting, timeout=0.01)
        with pytest.raises(TooManyGuessesError):
            await access.login("another guess")
        assert (await access.login("token of Ada")).name == "Ada"
        gate.set()
        assert await asyncio.gather(*waiting) == [None] * 5
        assert await access.login("a guess after that") is None

    asyncio.run(guess())


def test_a_wrong_token_among_too_many_is_told_when_to_come_back(guarded, monkeypatch):
    monkeypatch.setattr(security_module, "_MAX_GUESSES", 0)
    form = guarded.get("/login").text.partition('name="csrf_token" value="')[2].partition('"')[0]
    for answer in (
        guarded.get("/api/topics", headers={"authorization": "Bearer x"}),
        guarded.post("/login", data={"csrf_token": form, "token": "x"}),
    ):
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) > 0
    assert guarded.get("/api/topics", headers=bearer("Ada")).status_code == 200


@pytest.mark.parametrize(
    "back",
    [
        "//evil.example",
        "/\\evil.example",
        "/\t/evil.example",
        "/\n/evil.example",
        "https://evil.example",
        "\\\\evil",
        "",
    ],
)
def test_nothing_leads_to_another_site(guarded, back):
    """The field back leads to a path of this service only, after a login and after a choice of a name."""
    form = guarded.get("/login").text.partition('name="csrf_token" value="')[2].partition('"')[0]
    given = {"csrf_token": form, "token": "token of Ada", "back": back, "name": "Ada"}
    assert guarded.post("/login", data=given).headers["location"] == "/"
    assert guarded.post("/judge", data=given).headers["location"] == "/topics"
    assert 'value="/"' in guarded.get("/login", params={"back": back}).text


@pytest.mark.parametrize("size", [6_000_000, 10_000_000])
def test_large_requests_are_refused(client, size):
    assert client.post("/api/topics", json={"text": "x" * size}).status_code == 413

    def parts():
        for _ in range(size // 100_000):
            yield b"x" * 100_000

    assert client.post("/api/topics", content=parts(), headers=JSON).status_code == 413  # without Content-Length


@pytest.mark.parametrize(
    "asked",
    [
        {"q": "x" * 300_000},
        {"q": "dog", "where": "x" * 3000},
        {"q": "dog", "k": 10**30},
        {"q": "dog", "k": "ten"},
        {"q": "dog", "offset": -1},
        {"q": "dog", "ranker": "bm25(k1=0.1)"},
        {"q": "dog", "ranker": "space('/etc/passwd')"},
        {"q": "\udcff".encode("utf-8", "surrogatepass")},
        {"q": "\x00"},
    ],
)
def test_wrong_searches_are_problems(client, asked):
    answer = (
        client.post("/api/search", json=asked) if len(asked["q"]) > 1000 else client.get("/api/search", params=asked)
    )
    assert answer.status_code in (200, 409, 422)
    assert "Traceback" not in answer.text


CONDITIONS = [
    "court in (select content from read_text('/etc/passwd'))",
    "exists (select 1 from read_csv('/etc/passwd'))",
    "exists (from '/etc/passwd')",
    "1=1); attach '/tmp/haybale-attack.db' as a; select (1",
    "1=1); copy documents to '/tmp/haybale-attack.csv'; --",
    "1=1); install httpfs; load httpfs; --",
    "getenv('HOME') = 'x'",
    "current_setting('secret_directory') = 'x'",
    "1=1); set enable_external_access = true; --",
    "(select count(*) from range(1000000000) a, range(1000000000) b) > 0",
    "length(repeat('x', 2000000000)) > 1",
    "pg_sleep(100)",
    "court = 'x' union select * from duckdb_settings()",
]


@pytest.mark.parametrize("where", CONDITIONS)
def test_conditions_only_compare(client, where):
    answer = client.get("/api/search", params={"q": "dog", "where": where})
    assert answer.status_code == 409
    assert "root:" not in answer.text


@pytest.mark.parametrize(
    "doc_id",
    [
        "../../../etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e/%2e%2e/etc/passwd",
        "/etc/passwd",
        "dog/1%00",
        "dog/1/../2",
    ],
)
def test_ids_are_never_paths(client, doc_id):
    answer = client.get(f"/api/documents/{doc_id}")
    assert answer.status_code in (404, 409)
    assert "root:" not in answer.text


def test_texts_come_back_as_data(workspace, client):
    """Scripts in queries, ids, notes and names stay JSON strings, of a type that no browser runs."""
    topic = client.post("/api/topics", json={"text": SCRIPT, "name": SCRIPT}).json()["id"]
    client.post(
        f"/api/topics/{topic}/judgements", json={"doc_id": "dog/1", "grade": 1, "judge": SCRIPT, "note": SCRIPT}
    )
    for path in (
        "/api/topics",
        f"/api/topics/{topic}/judgements",
        f"/api/search?q={SCRIPT} dog",
        f"/api/documents/{SCRIPT}",
    ):
        answer = client.get(path)
        assert answer.headers["content-type"].partition(";")[0] in ("application/json", "application/problem+json")
        assert answer.headers["x-content-type-options"] == "nosniff"
    exported = client.get(f"/api/topics/{topic}/export?format=csv")
    assert exported.headers["content-disposition"].startswith("attachment")


def test_headers_cannot_be_injected(client):
    for value in ("x\r\nset-cookie: a=b", "%0d%0aset-cookie:a=b", "x\nlocation: //evil.org"):
        for path in ("/login", "/api/topics/1/export", "/api/search"):
            answer = client.get(path, params={"back": value, "format": value, "q": value})
            assert not {"a"} & set(answer.cookies)
            assert "location" not in answer.headers


def test_a_failure_shows_no_trace(workspace, client, monkeypatch, caplog):
    monkeypatch.setattr(Workspace, "topics", lambda self: 1 / 0)
    answer = client.get("/api/topics")
    assert answer.status_code == 500
    assert answer.json()["detail"]
    assert "ZeroDivision" not in answer.text
    assert "nosniff" in answer.headers["x-content-type-options"]
    assert "ZeroDivisionError" in caplog.text  # it is in the log


def test_the_access_log_has_a_line_of_json_for_each_request(workspace):
    log = StringIO()
    client = asked(workspace, log=log)
    client.get("/api/search?q=secret")
    client.get("/api/documents/a%0a%7b%22status%22:200%7d")
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [line["status"] for line in lines] == [200, 404]
    assert lines[0]["method"] == "GET"
    assert "secret" not in log.getvalue()


def test_users_are_kept_without_their_tokens(tmp_path):
    path = tmp_path / "users.json"
    ada, eve = add_user(path, User("Ada", "judge")), add_user(path, User("Eve", "administer"))
    assert ada not in path.read_text()
    users = UsersFile(path)
    assert (users.find(ada).name, users.find(eve).right, users.find("x")) == ("Ada", "administer", None)
    again = renew_token(path, "Ada")
    users.look()
    assert (users.find(ada), users.find(again).right) == (None, "judge")


def test_metrics_and_health(client):
    from prometheus_client.parser import text_string_to_metric_families

    client.get("/api/search?q=dog")
    client.get("/api/documents/nothing")
    client.get("/nowhere/at/all")
    answer = client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    requests = {tuple(sample.labels.values()): sample.value for sample in families["haybale_requests"].samples}
    assert requests["GET", "/api/search", "200"] == 1
    assert requests["GET", "/api/documents/{doc_id:path}", "404"] == 1
    assert requests["GET", "other", "404"] == 1
    seconds = [sample for sample in families["haybale_request_seconds"].samples if sample.labels["route"] == "other"]
    assert [sample.value for sample in seconds if sample.name.endswith("_count")] == [1]
    assert len([sample for sample in seconds if sample.name.endswith("_bucket")]) == 11
    types = {"haybale_requests": "counter", "haybale_request_seconds": "histogram", "process_open_fds": "gauge"}
    types |= dict.fromkeys(
        ("haybale_info", "haybale_requests_running", "haybale_start_time_seconds", "process_resident_memory_bytes"),
        "gauge",
    )
    sizes = {"haybale_documents": 24, "haybale_topics": 0, "haybale_judgement_rows": 0, "haybale_requests_running": 1}
    assert {name: families[name].type for name in types} == types
    assert {name: families[name].samples[0].value for name in sizes} == sizes
    accepted = {"accept": "application/openmetrics-text;version=1.0.0"}
    assert client.get("/metrics", headers=accepted).text.endswith("# EOF\n")
    assert client.get("/health").json()["status"] == "ok"
