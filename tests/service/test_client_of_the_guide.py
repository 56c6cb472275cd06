"""The client in the guide works as it is printed there."""

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from support.decisions import decisions
from support.served import Served

from haybale import Engine

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "serve.md"


def test_the_client_searches_and_judges(tmp_path):
    [code] = re.findall(r"```text\n(import json\n.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert len(code.splitlines()) <= 25
    Engine.build(decisions(), tmp_path / "engine", language="english", encoder="tfidf(min_df=1)").prepare()
    printed = StringIO()
    with Served(tmp_path / "engine") as served, redirect_stdout(printed):
        exec(code.replace("http://127.0.0.1:8000", served.address), {})
    *hits, judged = printed.getvalue().splitlines()
    assert [line.split()[0] for line in hits] == ["1", "2", "3"]
    assert all("dog/" in line for line in hits)
    assert judged == "2"


def test_every_route_is_in_the_guide(workspace):
    from haybale.service import create_app

    page = PAGE.read_text(encoding="utf-8").replace("{n}", "{number}")
    for path in create_app(workspace).openapi()["paths"]:
        last = path.rpartition("/")[2] if not path.endswith("}") else path.split("/")[2]
        assert last in page, path
