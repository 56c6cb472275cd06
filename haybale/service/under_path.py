"""Serve an application under a path of its host, such as ``/cases``, which a proxy may hand on or leave out."""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Receive, Scope, Send

from haybale.errors import InputError

_SEGMENT = re.compile(r"(/[\w.~-]+)+")


class UnderPath:
    """The ASGI middleware that takes a path off the begin of requests; pages put it before their own addresses.

    Parameters
    ----------
    application : ASGIApp
    root_path : str
        Such as ``"/cases"``; empty for none.
    """

    def __init__(self, application: ASGIApp, root_path: str = "") -> None:
        self.application, self.root_path = application, root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on with the path within the application."""
        if scope["type"] == "http" and self.root_path:
            path, raw = scope["path"], scope.get("raw_path") or b""
            if path == self.root_path or path.startswith(self.root_path + "/"):
                path, raw = path[len(self.root_path) :] or "/", raw[len(self.root_path) :] or b"/"
            scope = {**scope, "root_path": self.root_path, "path": path, "raw_path": raw}
        await self.application(scope, receive, send)


def checked_root_path(root_path: str, paths_within: set[str]) -> str:
    """Return a root path without a slash at its end.

    Parameters
    ----------
    root_path : str
    paths_within : set of str
        The first segments of the application's own paths, which would be mistaken for it.

    Raises
    ------
    InputError
        If it is no path, or begins like a path of the application.

    Examples
    --------
    >>> checked_root_path("/cases/", {"api"}), checked_root_path("", {"api"})
    ('/cases', '')
    """
    path = root_path.rstrip("/")
    if path and not _SEGMENT.fullmatch(path):
        raise InputError(
            f"--root-path must be a path such as /cases, found {root_path!r}; use letters, digits, - and /"
        )
    if path.split("/")[1:2] and path.split("/")[1] in paths_within:
        raise InputError(f"--root-path must not begin like a page of the service, found {root_path!r}; choose another")
    return path
