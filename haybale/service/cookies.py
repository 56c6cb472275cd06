"""Read and write cookies, and ignore cookies of other applications on the same host, whatever bytes they have.

``http.cookies.SimpleCookie`` ends at the first cookie that it does not understand, and then the ones after it are lost.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import Scope

from haybale.service.sessions import MAX_SECONDS

SESSION, VISITOR = "haybale_session", "haybale_visitor"
_MAX_VALUES_PER_COOKIE = 20  # returned values of cookies with one name


def cookie_values(headers: Headers, name: str) -> list[str]:
    """Return the values of all cookies of a name, which are several if they were set for several paths or domains.

    >>> headers = Headers({"cookie": 'theme={"dark":true}; a=1;;=; "; a="2"'})
    >>> cookie_values(headers, "a"), cookie_values(headers, "b")
    (['1', '2'], [])
    """
    values: dict[str, None] = {}
    for header in headers.getlist("cookie"):
        for part in header.split(";"):
            cookie_name, _, value = part.partition("=")
            if cookie_name.strip() == name:
                values[value.strip().strip('"')] = None
    return list(values)[:_MAX_VALUES_PER_COOKIE]


def cookie(name: str, value: str, scope: Scope, same_site: str) -> str:
    """Return a ``Set-Cookie`` header that scripts cannot read; an empty value removes the cookie."""
    secure = "; Secure" if scope.get("scheme") == "https" else ""
    age = MAX_SECONDS if value else 0
    path = scope.get("root_path", "") + "/"
    return f"{name}={value}; Path={path}; HttpOnly; SameSite={same_site}; Max-Age={age}{secure}"
