"""Search with the interface of OpenSearch and Elasticsearch: requests to ``_search`` and ``_msearch`` of an index.

Each thread keeps its connection open. Nothing but the standard library is needed.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from haybale.errors import InputError, SearchServiceError
from haybale.stopping_work import check_wanted

_BUSY = (429, 502, 503, 504)  # statuses with which a service asks to try again later
_FIRST_PAUSE_SECONDS = 0.5  # before the second try; each further pause is twice as long
_MAX_REASON = 300  # characters of a service's error that a message has

# .connections: the _Connections, by process, scheme, host, port and timeout
_of_thread = threading.local()


class _Connections(dict[tuple[Any, ...], http.client.HTTPConnection]):
    """The open connections of a thread, which are closed when it ends."""

    def __del__(self) -> None:
        for connection in self.values():
            connection.close()


class EndpointHits(NamedTuple):
    """The hits of one search: ids of documents, best first, and their scores."""

    doc_ids: list[str]
    scores: list[float]


@dataclass(frozen=True)
class SearchEndpoint:
    """An index of a search service.

    Parameters
    ----------
    url : str
        The address of the index, such as ``https://search.example.org:9200/laws``.
    authorization : str, optional
        The name of an environment variable with ``user:password``, or with the whole value of the header
        ``Authorization``, such as ``ApiKey …``. It is read for each request, and kept nowhere.
    id_field : str, optional
        The field of hits that has the id of the document. Default: ``_id``.
    timeout : float
        Seconds that a request may take.
    retries : int
        How often a request is sent again if the service is busy or the connection breaks.
    """

    url: str
    authorization: str | None = None
    id_field: str | None = None
    timeout: float = 30.0
    retries: int = 2

    def check(self) -> None:
        """Raise InputError for an address that is not that of an index, or that has a password."""
        try:
            parts = urlsplit(self.url)
            is_index = (
                parts.scheme in ("http", "https") and parts.hostname and parts.path.strip("/") and parts.port != 0
            )
        except ValueError:  # a port that is no number
            is_index = False
        if not is_index or parts.query or parts.fragment:
            raise InputError(f"url must be that of an index, such as 'https://HOST:9200/INDEX', found {self.url!r}")
        if parts.username is not None or parts.password is not None:
            raise InputError(
                f"url must have no password, because it is saved with rankers, found one for {parts.hostname!r}; put "
                "USER:PASSWORD into an environment variable, and give the variable's name as authorization"
            )

    def search_all(self, bodies: Sequence[Mapping[str, Any]]) -> list[EndpointHits]:
        """Return the hits of several searches, which the service does at once.

        ``bodies`` are what ``_search`` takes. SearchServiceError is raised if a search fails, or if a part of the index
        did not answer.
        """
        shown_fields: dict[str, Any] = {"_source": False if self.id_field is None else [self.id_field]}
        lines = (line for body in bodies for line in ({}, shown_fields | dict(body)))
        answer = self._answer("_msearch", "".join(f"{json.dumps(line)}\n" for line in lines), "application/x-ndjson")
        responses = answer.get("responses") if isinstance(answer, dict) else None
        if not isinstance(responses, list) or len(responses) != len(bodies):
            raise self._error(f"answers to {len(bodies):,} searches", str(answer))
        return [self._hits(response) for response in responses]

    def _hits(self, response: Any) -> EndpointHits:
        """Return the hits of a response, the first of each document."""
        if not isinstance(response, dict) or "error" in response or not isinstance(response.get("hits"), dict):
            raise self._error("hits", json.dumps(response.get("error", response) if isinstance(response, dict) else ""))
        shards = response.get("_shards") or {}
        if response.get("timed_out") or shards.get("failed"):
            raise self._error("answers of all shards", f"timed_out, or {shards.get('failed', 0)} failed shards")
        scores: dict[str, float] = {}
        for hit in response["hits"].get("hits", ()):
            doc_id = self._document_of(hit)
            if not isinstance(hit.get("_score"), int | float):
                raise self._error("hits with a score", f"{hit.get('_score')!r}, perhaps because of 'sort'")
            scores.setdefault(doc_id, float(hit["_score"]))
        return EndpointHits(list(scores), list(scores.values()))

    def _document_of(self, hit: Any) -> str:
        """Return the id of the document of a hit; a dot in the name of the field leads into an object."""
        value = hit.get("_id") if self.id_field is None else hit.get("_source") or {}
        if self.id_field is not None:
            for name in [self.id_field] if self.id_field in value else self.id_field.split("."):
                value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise self._error(f"an id in the field {self.id_field or '_id'!r}", f"{value!r} in hit {hit.get('_id')!r}")
        return str(value)

    def _answer(self, action: str, text: str, content_type: str) -> Any:
        """Send a request, again if the service is busy, and return the JSON of the answer."""
        parts = urlsplit(self.url)
        headers = {"Content-Type": content_type, "Accept": "application/json", **self._authorization_header()}
        path = f"/{parts.path.strip('/')}/{action}"
        for attempt in range(self.retries + 1):
            check_wanted()
            if attempt:
                time.sleep(_FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
            try:
                status, data = self._sent(parts, path, text.encode(), headers)
            except (OSError, http.client.HTTPException) as error:
                if attempt == self.retries:
                    raise self._error("an answer", f"{type(error).__name__}: {error}") from None
                continue
            if status not in _BUSY or attempt == self.retries:
                break
        if status != 200:
            raise self._error("status 200", f"{status}: {data[:_MAX_REASON].decode(errors='replace')}")
        try:
            return json.loads(data)
        except ValueError:
            raise self._error("JSON", data[:_MAX_REASON].decode(errors="replace")) from None

    def _sent(self, parts: SplitResult, path: str, data: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Send a request on the connection of this thread, and return status and content."""
        connections: _Connections = vars(_of_thread).setdefault("connections", _Connections())
        key = os.getpid(), parts.scheme, parts.hostname, parts.port, self.timeout
        is_new = key not in connections
        if is_new:
            kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
            connections[key] = kind(str(parts.hostname), parts.port, timeout=self.timeout)
        try:
            connections[key].request("POST", path, data, dict(headers))
            response = connections[key].getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            connections.pop(key).close()
            if is_new or isinstance(error, TimeoutError):
                raise
        return self._sent(parts, path, data, headers)  # the service had closed the idle connection

    def _authorization_header(self) -> dict[str, str]:
        if self.authorization is None:
            return {}
        value = os.environ.get(self.authorization, "").strip()
        if not value:
            raise InputError(
                f"authorization needs the environment variable {self.authorization!r}, found none; set it to "
                "USER:PASSWORD, or to the value of the header, such as 'ApiKey …'"
            )
        if " " not in value and ":" in value:
            value = f"Basic {base64.b64encode(value.encode()).decode()}"
        return {"Authorization": value}

    def _error(self, expected: str, answer: str) -> SearchServiceError:
        return SearchServiceError(
            f"{self.url}: expected {expected}, found {answer[:_MAX_REASON]}; check the service, the url and the query"
        )
