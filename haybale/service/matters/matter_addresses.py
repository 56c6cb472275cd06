"""The addresses of matters within a service."""

from __future__ import annotations

from urllib.parse import quote

_BEGIN = "/matters/"


def matter_and_path(path: str) -> tuple[str, str]:
    """Return the name of the matter that a path leads into, and the rest of the path; empty texts if there is none.

    >>> matter_and_path("/matters/smith/topics/1"), matter_and_path("/matters/smith"), matter_and_path("/api/search")
    (('smith', '/topics/1'), ('smith', ''), ('', ''))
    """
    if not path.startswith(_BEGIN):
        return "", ""
    name, slash, rest = path[len(_BEGIN) :].partition("/")
    return name, slash + rest


def matter_address(root_path: str, name: str, path: str = "") -> str:
    """Return the address of a path in a matter, below the root path of the service.

    >>> matter_address("/cases", "Smith v Jones", "/topics")
    '/cases/matters/Smith%20v%20Jones/topics'
    """
    return f"{root_path}{_BEGIN}{quote(name, safe='')}{path}"
