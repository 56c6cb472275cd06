"""A stand-in for OpenSearch and Elasticsearch: the search interface of an index, on this machine.

It answers ``POST /INDEX/_search`` and ``POST /INDEX/_msearch`` in the forms that both document: lines of JSON that end
with a newline in requests, ``responses`` with a status each in answers, and ``error`` with type and reason.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class SearchService:
    """One index, whose hits are scored by the number of words that they share with a query.

    Parameters
    ----------
    documents : mapping
        Texts by ``_id``.
    sources : mapping, optional
        The ``_source`` of hits by ``_id``, beside the text.
    authorization : str, optional
        The header that every request must have.
    """

    def __init__(
        self,
        documents: Mapping[str, str],
        sources: Mapping[str, Mapping[str, Any]] | None = None,
        authorization: str | None = None,
    ) -> None:
        self.documents, self.sources, self.authorization = dict(documents), dict(sources or {}), authorization
        self.url = ""  # of the index
        self.bodies: list[dict[str, Any]] = []  # of all searches
        self.n_requests, self.ports = 0, set[int]()
        self.failures: list[int | str] = []  # statuses of the next answers, or "hang up"
        self.partial: dict[str, Any] = {}  # replaces parts of responses

    def answered(self, path: str, data: bytes, headers: Mapping[str, str]) -> tuple[int, Any]:
        """Return status and content of the answer to a request."""
        if self.authorization is not None and headers.get("Authorization") != self.authorization:
            return 401, _error("security_exception", "missing authentication credentials")
        _, index, action = path.split("/")
        if index != "laws":
            return 404, _error("index_not_found_exception", f"no such index [{index}]")
        if action == "_search" and headers["Content-Type"] == "application/json":
            return self.response(json.loads(data or b"{}"))
        assert action == "_msearch"
        assert headers["Content-Type"] == "application/x-ndjson"
        assert data.endswith(b"\n")
        lines = [json.loads(line) for line in data.splitlines()]
        responses = [self.response(body) for _, body in zip(lines[::2], lines[1::2], strict=True)]
        return 200, {"took": 1, "responses": [content | {"status": status} for status, content in responses]}

    def response(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return status and content of the answer to one search."""
        self.bodies.append(body)
        [(kind, clause)] = body["query"].items()
        if kind not in ("match", "match_all"):
            return 400, _error("parsing_exception", f"unknown query [{kind}]")
        words = set(re.findall(r"\w+", " ".join(clause.values()))) if kind == "match" else set()
        scores = {doc_id: len(words & set(re.findall(r"\w+", text))) for doc_id, text in self.documents.items()}
        ranked = sorted((doc_id for doc_id in scores if scores[doc_id] or not words), key=lambda d: (-scores[d], d))
        hits = [{"_index": "laws", "_id": doc_id, "_score": float(scores[doc_id] or 1)} for doc_id in ranked]
        shown = body.get("_source", True)
        for hit in hits if shown else ():
            source = {"text": self.documents[str(hit["_id"])], **self.sources.get(str(hit["_id"]), {})}
            hit["_source"] = source if shown is True else {name: source[name] for name in shown if name in source}
        answer = {
            "took": 1,
            "timed_out": False,
            "_shards": {"total": 1, "successful": 1, "skipped": 0, "failed": 0},
            "hits": {"total": {"value": len(hits), "relation": "eq"}, "hits": hits[: body.get("size", 10)]},
        }
        return 200, answer | self.partial


def _error(kind: str, reason: str) -> dict[str, Any]:
    return {"error": {"root_cause": [], "type": kind, "reason": reason}, "status": 400}


@contextmanager
def served(service: SearchService) -> Iterator[SearchService]:
    """Serve on a free port, and set the url."""

    connections = list[socket.socket]()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # keeps connections open
        timeout = 30

        def setup(self) -> None:
            super().setup()
            connections.append(self.connection)

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            service.n_requests += 1
            service.ports.add(self.client_address[1])
            failure = service.failures.pop(0) if service.failures else None
            if failure == "hang up":
                self.close_connection = True
                return
            status, content = (
                (failure, {}) if isinstance(failure, int) else service.answered(self.path, data, self.headers)
            )
            answer = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Print nothing: clients may close their connections."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    service.url = f"http://127.0.0.1:{server.server_port}/laws"
    try:
        yield service
    finally:
        server.shutdown()
        for connection in connections:
            with suppress(OSError):  # closed already
                connection.shutdown(socket.SHUT_RDWR)
        server.server_close()
        thread.join()
