"""Render templates to pages, and make the addresses in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from importlib.resources import files
from typing import Any
from urllib.parse import quote, unquote

import jinja2
from fastapi import Request
from markupsafe import Markup
from starlette.responses import HTMLResponse

from haybale.drawing import clean
from haybale.search.snippets import Snippet
from haybale.service.acting_user import JUDGE_COOKIE
from haybale.service.own_addresses import address as address
from haybale.service.own_addresses import document_address as document_address
from haybale.service.roles import ADMINISTER, JUDGE, NONE, RANKS, READ
from haybale.service.users import User
from haybale.service.workspace import Workspace

FOLDER = files("haybale.service.pages")
_ENTRIES = [("/", "Search"), ("/searches", "Saved"), ("/topics", "Topics"), ("/train", "Train"), ("/help", "Help")]
_ENTRIES_OF_SERVICE = [("/", "Matters"), ("/help", "Help")]
_NOBODY = User("", NONE)


def in_words(value: Any) -> str:
    """Return a value of the metadata for people.

    >>> in_words(["tax", "land"]), in_words(True), in_words(1234.5), in_words(date(2015, 1, 31))
    ('tax, land', 'yes', '1234.5', '2015-01-31')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(in_words, value))
    return value.isoformat() if isinstance(value, date) else str(value)


def shortened(text: str | None, length: int) -> str:
    """Return a text in at most this many characters.

    >>> shortened("a long name", 6), shortened(None, 3)
    ('a lon…', '')
    """
    text = (text or "").strip()
    return text if len(text) <= length else f"{text[: length - 1]}…"


def body(snippet: Snippet, title: str) -> Snippet:
    """Return a passage without the lines of the title and the heading before it, which the page shows elsewhere.

    >>> body(Snippet("a:0", "§ 1 Dogs\\nDogs bark.", [(2, 3), (9, 13)], heading="§ 1 Dogs"), "Animals")
    Snippet(passage_id='a:0', text='Dogs bark.', highlights=[(0, 4)], page=None, heading='§ 1 Dogs')
    """
    at = 0
    for line in snippet.text.split("\n"):
        if line.strip() not in (title, snippet.heading):
            break
        at += len(line) + 1
    if at >= len(snippet.text):
        return snippet
    kept = [(max(start - at, 0), end - at) for start, end in snippet.highlights if end > at]
    return replace(snippet, text=snippet.text[at:], highlights=kept)


def amount(n: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun; the plural is by default the noun with an s.

    >>> amount(1, "document"), amount(1204, "document"), amount(2, "copy", "copies")
    ('1 document', '1,204 documents', '2 copies')
    """
    return f"{n:,} {one if n == 1 else many or f'{one}s'}"


def ordinal(n: int) -> str:
    """Return a number as one counts: 1st, 2nd, 3rd, 4th.

    >>> [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 1102, 1111)]
    ['1st', '2nd', '3rd', '4th', '11th', '12th', '13th', '21st', '1,102nd', '1,111th']
    """
    ending = "th" if 10 < n % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n:,}{ending}"


AT_PASSAGE = "at"  # the anchor of the passage that the page of a document is opened at

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FunctionLoader(lambda name: (FOLDER / "templates" / name).read_text(encoding="utf-8")),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    finalize=lambda value: clean(value) if type(value) is str else value,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters |= {
    "amount": amount,
    "body": body,
    "in_words": in_words,
    "ordinal": ordinal,
    "sentence": lambda text: f"{text[:1].upper()}{text[1:]}.",
    "shortened": shortened,
    "combined": lambda first, second: {**first, **second},
    "day": lambda time: str(time)[:10] if time else "",
    "minute": lambda time: str(time)[:16].replace("T", " "),
}


def passage_address(
    doc_id: str, passage_id: str | None, *parameters: Mapping[str, Any] | Sequence[tuple[str, Any]]
) -> str:
    """Return the address of a document's page at one of its passages.

    >>> passage_address("a", "a:3", {"q": "dogs"}), passage_address("a", None)
    ('/documents/a?q=dogs&passage=a%3A3#at', '/documents/a')
    """
    plain = document_address(doc_id, *parameters, {"passage": passage_id})
    return f"{plain}#{AT_PASSAGE}" if passage_id else plain


def view_address(
    doc_id: str, passage_id: str | None, page: int | None, *parameters: Mapping[str, Any] | Sequence[tuple[str, Any]]
) -> str:
    """Return the address of the page that shows a page of a file, with a passage boxed.

    >>> view_address("a.pdf", None, 3)
    '/page?id=a.pdf&page=3'
    """
    return address("/page", {"id": doc_id, "passage": passage_id, "page": page}, *parameters)


def download_headers(name: str, suffix: str) -> dict[str, str]:
    """Return the headers of a file to save under a name.

    >>> print(download_headers("Hunde/Öl", "csv")["Content-Disposition"])
    attachment; filename="Hunde--l.csv"; filename*=UTF-8''Hunde%2F%C3%96l.csv
    """
    plain = "".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in name)
    both = f"attachment; filename=\"{plain}.{suffix}\"; filename*=UTF-8''{quote(name, safe='')}.{suffix}"
    return {"Content-Disposition": both}


class Renderer:
    """Renders the pages of a workspace, or those of a service of several matters that belong to none.

    Parameters
    ----------
    workspace : Workspace, optional
    """

    def __init__(self, workspace: Workspace | None = None) -> None:
        self.workspace = workspace

    def page(self, request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Return a page. ``here`` is the path of its entry in the bar, or None."""
        return HTMLResponse(self.text(request, template, **values), status)

    def text(self, request: Request, template: str, **values: Any) -> str:
        """Return a template with values, and what all templates know."""
        root, matter = request.scope.get("root_path", ""), request.scope.get("matter", "")
        service_path = getattr(request.state, "service_path", root)
        user: User = getattr(request.state, "user", None) or _NOBODY
        is_open = user is not _NOBODY if self.workspace is None else may(user, READ)
        name = matter or ("" if self.workspace is None else self.workspace.engine.collection.name)
        common = {
            "collection_name": name if is_open else "",
            "entries": _ENTRIES if self.workspace is not None else _ENTRIES_OF_SERVICE,
            "has_session": getattr(request.state, "session", None) is not None,
            "here": None,
            "is_admin": may(user, ADMINISTER),
            "is_open": is_open,
            "may_judge": may(user, JUDGE),
            "judge": judge_of(request),
            "link": lambda path: root + path,
            "manages_users": user.is_administrator and getattr(request.state, "has_users_file", False),
            "matter": matter,
            "service_link": lambda path: service_path + path,
            "token_field": _token_field(request),
            "user": user_of(request),
        }
        return _ENVIRONMENT.get_template(template).render(common | values)


def judge_of(request: Request) -> str:
    """Return who judges: the user who is logged in, else the name that was given on a page."""
    return user_of(request) or unquote(request.cookies.get(JUDGE_COOKIE, ""))


def user_of(request: Request) -> str:
    """Return the name of the user who is logged in; an empty text where there are no users."""
    return str(getattr(getattr(request.state, "user", None), "name", ""))


def may(user: User, right: str) -> bool:
    """Return whether a user has a right where the user asks."""
    return RANKS[user.right] >= RANKS[right]


def _token_field(request: Request) -> Markup:
    token = getattr(request.state, "form_token", "")
    return Markup('<input type="hidden" name="csrf_token" value="{}">').format(token)
