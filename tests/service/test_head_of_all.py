"""HEAD is answered at every address where GET is, with the same status and headers, and without a body."""

from __future__ import annotations

import re

from starlette.testclient import TestClient

from haybale.service import create_app

VALUES = {"topic": "1", "doc_id": "dog/1", "name": "pages.css", "number": "1", "user": "Ada"}
PARAMETERS = {"q": "dogs", "doc_id": "dog/1", "format": "csv"}
CHANGING = ("content-length", "etag", "last-modified", "set-cookie")  # headers that differ if the same is asked twice


def test_head_of_every_route_is_get_without_the_body(workspace) -> None:
    application = create_app(workspace)
    topic = workspace.create_topic("dogs that bite")
    workspace.judge(topic.id, "dog/1", 1, "Ada")
    workspace.prepare_reviews()
    n_with_body = 0
    paths = sorted({route.path for route in application.routes if "GET" in route.methods})
    assert len(paths) > 40
    with TestClient(application, base_url="http://127.0.0.1:8000", follow_redirects=False) as client:
        for path in paths:
            address = re.sub(r"\{(\w+)[^}]*\}", lambda match: VALUES[match[1]], path)
            for parameters in ({}, PARAMETERS):
                get, head = (client.request(method, address, params=parameters) for method in ("GET", "HEAD"))
                assert head.status_code == get.status_code, address
                assert head.content == b"", address
                both = (
                    {name: value for name, value in answer.headers.items() if name not in CHANGING}
                    for answer in (get, head)
                )
                assert next(both) == next(both), address
                n_with_body += bool(get.content)
    assert n_with_body > len(paths)
