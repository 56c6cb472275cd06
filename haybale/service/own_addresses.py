"""Addresses within this service: those to which a page may lead back, and those of documents, files and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode


def own_path(back: str, default: str = "") -> str:
    r"""Return a path of this service to go back to; ``default`` for an address that could lead elsewhere.

    Browsers take ``\`` as ``/``, and leave out tabs and line ends: ``/\evil.example`` and ``/<tab>/evil.example`` lead
    to another site.

    >>> own_path("/topics?x=1"), own_path("//evil.example/"), own_path("https://evil.example/")
    ('/topics?x=1', '', '')
    >>> own_path("/\\evil.example", "/"), own_path("/\t/evil.example", "/")
    ('/', '/')
    """
    is_path = back.startswith("/") and not back.startswith(("//", "/\\")) and back.isprintable()
    return back if is_path else default


def address(path: str, *parameters: Mapping[str, Any] | Sequence[tuple[str, Any]], **more: Any) -> str:
    """Return a path with parameters; those that are None or empty are left out.

    >>> address("/", {"q": "a&b", "where": None}, [("f.court", "BGH")], offset=10)
    '/?q=a%26b&f.court=BGH&offset=10'
    """
    pairs: list[tuple[str, Any]] = []
    for named in (*parameters, more):
        pairs += named.items() if isinstance(named, Mapping) else named
    kept = [(name, value) for name, value in pairs if value is not None and value != ""]
    return f"{path}?{urlencode(kept)}" if kept else path


def document_address(doc_id: str, *parameters: Mapping[str, Any] | Sequence[tuple[str, Any]]) -> str:
    """Return the address of a document's page.

    Browsers take ``.`` and ``..`` as folders even where they are escaped, so these ids are parameters.

    >>> document_address("a/b c"), document_address("..")
    ('/documents/a%2Fb%20c', '/documents?id=..')
    """
    if doc_id in (".", ".."):
        return address("/documents", {"id": doc_id}, *parameters)
    return address(f"/documents/{quote(doc_id, safe='')}", *parameters)


def original_address(doc_id: str) -> str:
    """Return the address of the file of a document.

    >>> original_address("a b.pdf")
    '/api/original?doc_id=a+b.pdf'
    """
    return f"/api/original?{urlencode({'doc_id': doc_id})}"


def picture_address(doc_id: str, passage_id: str | None, page: int | None) -> str:
    """Return the address of the picture of a page, with boxes around a passage.

    >>> picture_address("a.pdf", "a.pdf:3", None)
    '/api/page/picture?doc_id=a.pdf&passage_id=a.pdf%3A3'
    """
    parameters = {"doc_id": doc_id, "passage_id": passage_id, "page": page}
    return f"/api/page/picture?{urlencode({name: value for name, value in parameters.items() if value is not None})}"
