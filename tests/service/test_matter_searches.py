"""Each matter of a service has saved searches, feeds and a log of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

from starlette.testclient import TestClient
from support.matters import WORDS, matters_of

from haybale import Engine
from haybale.service.matters.matters_application import create_matters_app
from haybale.service.security import Access
from haybale.service.users import User, Users, digest_of


def test_searches_feeds_and_logs_of_matters_are_apart(matter_engines: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(matter_engines, tmp_path / "matters"))
    users = {"Ada": {"plover": "judge"}, "Eve": {"plover": "administer", "heron": "administer"}}
    access = Access(
        Users(
            User(name, "none", rights, digest=digest_of(f"{name}'s token, which is long"))
            for name, rights in users.items()
        )
    )
    ada, eve = ({"authorization": f"Bearer {name}'s token, which is long"} for name in users)
    matters = matters_of(folder, access=access)
    with TestClient(create_matters_app(matters, access), base_url="http://127.0.0.1:8000") as client:
        client.patch("/matters/plover/api/log", json={"is_on": True}, headers=eve)
        body = {"name": "leases", "q": "lease damage", "k": 5, "is_shared": True}
        number = client.post("/matters/plover/api/searches", json=body, headers=ada).json()["id"]
        feed = client.post(f"/matters/plover/api/searches/{number}/feed", json={"is_open": True}, headers=ada)
        address = feed.json()["address"]
        assert address.startswith("http://127.0.0.1:8000/matters/plover/feed?token=")
        assert client.get("/matters/heron/api/searches", headers=eve).json()["searches"] == []
        assert client.get(f"/matters/heron/api/searches/{number}", headers=eve).status_code == 404
        client.get("/api/search", params={"q": "lease"}, headers=ada)  # in all matters that Ada may read
        lines = client.get("/matters/plover/api/log", headers=eve).json()["lines"]
        assert [(line["user"], line["action"]) for line in lines] == [("Ada", "search"), ("Eve", "log")]
        assert client.get("/matters/heron/api/log", headers=eve).json()["n_lines"] == 0
        Engine.open(folder / "plover").add({"new/1": f"A lease and its damage, says the {WORDS['plover']}."})
        plover = matters.get("plover")
        assert plover is not None
        assert plover.opened is not None
        plover.opened.workspace.refresh()
        assert "new/1" in client.get(address).text
        nowhere = client.get("/matters/nothing/feed?token=guess")
        for other in (address.replace("plover", "heron"), f"{address}x", "/matters/plover/feed"):
            answer = client.get(other)
            assert (answer.status_code, answer.content) == (nowhere.status_code, nowhere.content)
    matters.stop()
