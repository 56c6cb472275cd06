"""Hits of a search as a file to save, with links to the documents in this service."""

from __future__ import annotations

import re

from fastapi import Request
from starlette.responses import Response

from haybale.search import SearchResults
from haybale.service.own_addresses import address, document_address
from haybale.word_document import MAX_LINK_CHARACTERS
from haybale.word_document import MEDIA_TYPE as WORD

HIT_MEDIA_TYPES = {"json": "application/json", "csv": "text/csv; charset=utf-8", "docx": WORD}
_MAX_QUERY_CHARACTERS = 500  # of a query that a link to a document has


def own_base(request: Request) -> str:
    """Return the address before the paths of the service, as whoever asks reaches it, with the path of a proxy."""
    return origin_of(request) + str(request.scope.get("root_path", ""))


def origin_of(request: Request) -> str:
    """Return the scheme, host and port by which the service was asked."""
    return f"{request.url.scheme}://{request.url.netloc}"


def with_links(results: SearchResults, request: Request, ranker: str | None = None) -> SearchResults:
    """Return results whose hits have links to their documents here, on which the matching passages are marked."""
    base = own_base(request)
    query = results.query if len(results.query) <= _MAX_QUERY_CHARACTERS else ""

    def link_of(doc_id: str) -> str:
        path = document_address(doc_id)
        whole = base + address(path, q=query, ranker=ranker) if "?" not in path else base + path
        return whole if len(whole) <= MAX_LINK_CHARACTERS else base + path

    return results.linked(lambda hit: link_of(hit.doc_id))


def file_stem(query: str) -> str:
    """Return a name of a file for a search, without its suffix.

    >>> file_stem("Who pays, in München?"), file_stem("§ 5")
    ('who-pays-in-m-nchen', '5')
    """
    return re.sub(r"[^a-z0-9]+", "-", query.lower())[:60].strip("-") or "search"


def hits_response(results: SearchResults, format: str) -> Response:
    """Return hits as a file to save."""
    headers = {"Content-Disposition": f'attachment; filename="{file_stem(results.query)}.{format}"'}
    return Response(results.to_file(format), media_type=HIT_MEDIA_TYPES[format], headers=headers)
