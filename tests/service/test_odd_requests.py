"""Odd numbers, bodies, files and cookies: every route answers them, with 4xx where they are wrong, and never fails."""

import asyncio
import logging
import random

import pyarrow as pa
import pytest
from starlette.testclient import TestClient
from support.decisions import decisions
from support.odd_requests import COOKIES, LONG, NUMBERS, odd_requests
from support.spellings import TOKENS, VISITOR, status_of

from haybale import Engine, parse
from haybale.service import Workspace, create_app, trainings
from haybale.service.cookies import cookie_values
from haybale.service.facets import FacetTable
from haybale.service.imported_judgements import grades_of_file
from haybale.service.security import Access
from haybale.service.users import User, Users, digest_of

NOT_FINITE = [float("inf"), float("-inf"), float("nan")]


@pytest.fixture
def odd_workspace(store, monkeypatch):
    """Return a workspace of an engine whose metadata have numbers that are not finite, as an old one may."""
    monkeypatch.setattr(trainings, "_started", lambda place: None)
    documents = decisions(12)
    for number, document in enumerate(documents.values()):
        document["weight"] = 1.5 + number
    engine = Engine(documents, language="english", encoder="tfidf(min_df=1)").prepare()
    metadata = engine.collection.metadata
    weights = pa.array([*NOT_FINITE, *([1.5] * 9)], type=pa.float64())
    changed = metadata.set_column(metadata.column_names.index("weight"), "weight", weights)
    object.__setattr__(engine.collection, "metadata", changed)
    workspace = Workspace(engine, {"bm25": parse("bm25").fit(engine)}, store)
    workspace.create_topic("dogs")
    return workspace


def client_of(workspace, access=None):
    return TestClient(create_app(workspace, access), base_url="http://127.0.0.1:8000", raise_server_exceptions=False)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a form that ends within a file
def test_random_odd_requests_never_fail(odd_workspace, caplog):
    """The law: no request, whatever it has, is answered with a failure."""
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)
    access = Access()
    application = create_app(odd_workspace, access)
    paths = [route.path for route in application.routes]
    requests = odd_requests(paths, random.Random(3), [("x-csrf-token", access.form_token(VISITOR))])

    async def ask():
        for _ in range(500):
            name, scope, body = next(requests)
            status, _ = await status_of(application, scope, body)
            assert 200 <= status < 500, (name, status, caplog.text[-2000:])

    asyncio.run(ask())


@pytest.mark.parametrize("number", [LONG, "-" + LONG, "9" * 4300, "9" * 30])
def test_numbers_of_5000_digits_are_4xx(odd_workspace, number):
    client = client_of(odd_workspace)
    client.headers["x-csrf-token"] = (
        client.get("/login").text.partition('name="csrf_token" value="')[2].partition('"')[0]
    )
    addresses = [f"/?q=dog&topic={number}", f"/?q=dog&topic={number}&learned=1", f"/documents/dog%2F1?topic={number}"]
    addresses += [f"/why?id=dog%2F1&q=dog&topic={number}", f"/sent?q=dog&topic={number}", f"/?q=dog&from.year={number}"]
    addresses += [
        f"/topics/{number}",
        f"/topics/1?offset={number}",
        f"/topics/1/cards?n={number}",
        f"/api/train/{number}",
    ]
    addresses += [f"/api/topics/{number}/next", f"/api/search?q=dog&k={number}", f"/?q=dog&to.weight={number}"]
    for path in addresses:
        assert client.get(path).status_code < 500, path
    json = {"content-type": "application/json"}
    for path, body in [
        ("/api/topics/1/import", f'{{"dog/1": {number}}}'),
        ("/api/topics/1/judgements", f'{{"doc_id": "dog/1", "grade": {number}}}'),
        ("/api/topics/1/judgements", f'{{"doc_id": "dog/1", "grade": 1, "seconds": {number}}}'),
        ("/api/search", f'{{"q": "dog", "k": {number}}}'),
        ("/api/train", f'{{"random_state": {number}}}'),
    ]:
        assert 400 <= client.post(path, content=body, headers=json).status_code < 500, path
    content = f"doc_id,grade\ndog/1,{number}\n".encode()
    assert client.post("/topics/1/import", files={"file": ("a.csv", content)}).status_code == 422
    assert client.post("/topics/1/judge", data={"grade": number, "doc_id": "dog/1"}).status_code == 422


def test_files_of_judgements_that_are_no_tables_are_refused():
    for data in (b'doc_id,grade\n"' + b"a" * 200_000, f"doc_id,grade\na,{LONG}".encode()):
        with pytest.raises(ValueError, match=r"judgements|grade"):
            grades_of_file(data)


def test_numbers_that_are_not_finite_fail_no_page_and_no_answer(odd_workspace):
    client = client_of(odd_workspace)
    doc_ids = odd_workspace.engine.collection.doc_ids.to_pylist()[:3]
    for path in ("/?q=lease", "/", "/api/search?q=lease", "/api/facets", "/sent?q=lease", "/?q=dog&from.weight=1"):
        assert client.get(path).status_code == 200, path
    for doc_id in doc_ids:
        assert client.get(f"/documents/{doc_id}?q=dog").status_code == 200
        assert client.get(f"/api/documents/{doc_id}").json()["metadata"]["weight"] in ("Infinity", "-Infinity", None)
    (weight,) = [facet for facet in client.get("/api/facets").json()["facets"] if facet["name"] == "weight"]
    assert (weight["least"], weight["most"]) == (1.5, 1.5)


def test_facets_have_finite_ends():
    table = pa.table({"id": ["a", "b", "c"], "x": NOT_FINITE, "y": [1.0, float("inf"), 2.0]})
    assert [(each.name, each.least, each.most) for each in FacetTable(table).facets] == [("y", 1.0, 2.0)]


def test_cookies_of_others_never_lose_a_session(workspace):
    """The law: whatever cookies other applications have set, and ours for other paths, one right session is enough."""
    access = Access(Users([User("Ada", "judge", digest=digest_of(TOKENS["judge"]))]))
    client, rng = client_of(workspace, access), random.Random(5)
    session = access.sessions.open(access.users.find(TOKENS["judge"]))
    for number in range(150):
        others = rng.sample(COOKIES, rng.randrange(len(COOKIES)))
        cookies = [*others, f"haybale_session={session}", f"haybale_visitor={VISITOR}"]
        rng.shuffle(cookies)
        header = {"cookie": rng.choice(("; ", ";", " ;  ")).join(cookies), "x-csrf-token": access.form_token(VISITOR)}
        assert client.get("/api/topics", headers=header).status_code == 200, cookies
        if number < 20:
            form = {"name": "Ada"}
            assert client.post("/judge", data=form, headers=header, follow_redirects=False).status_code == 303, cookies
    assert client.get("/api/topics", headers={"cookie": "haybale_session=x"}).status_code == 401


def test_json_of_another_application_is_no_problem(workspace):
    access = Access(Users([User("Ada", "judge", digest=digest_of(TOKENS["judge"]))]))
    session = access.sessions.open(access.users.find(TOKENS["judge"]))
    client = client_of(workspace, access)
    for theme in ('theme={"dark":true}', 'theme={"dark":true,"size":[1,2]}', "x=\x80\xff", 'y="', "z=a,b"):
        for cookie in (f"{theme}; haybale_session={session}", f"haybale_session={session}; {theme}"):
            assert client.get("/api/topics", headers={"cookie": cookie.encode("latin-1")}).status_code == 200


def test_a_logout_ends_all_sessions_of_a_browser(workspace):
    access = Access(Users([User("Ada", "judge", digest=digest_of(TOKENS["judge"]))]))
    client = client_of(workspace, access)
    sessions = [access.sessions.open(access.users.find(TOKENS["judge"])) for _ in range(2)]
    cookie = "; ".join([*(f"haybale_session={session}" for session in sessions), f"haybale_visitor={VISITOR}"])
    header = {"cookie": cookie, "x-csrf-token": access.form_token(VISITOR)}
    assert client.post("/logout", headers=header, follow_redirects=False).status_code == 303
    assert [access.user_of_session(session) for session in sessions] == [None, None]


def test_values_of_a_cookie_are_found_among_any_others():
    from starlette.datastructures import Headers

    for odd in (*COOKIES, *NUMBERS):
        headers = Headers({"cookie": f"{odd}; a=1;a=2; b=3"})
        assert cookie_values(headers, "a")[-2:] == ["1", "2"]
