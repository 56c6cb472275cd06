"""Addresses within this service, to which a page may lead back."""

from __future__ import annotations


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
