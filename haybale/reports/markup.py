"""HTML from values: every string is escaped where it enters an element, unless it is HTML already.

Texts of a collection are anybody's: a document may hold ``<script>``. No other function of this room joins a text to
HTML.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # what HTML does not allow


class Html(str):
    """A string that is HTML already."""

    __slots__ = ()


def element(name: str, *content: object, **attributes: object) -> Html:
    """An element with its closing tag; content and values that are no :class:`Html` are escaped.

    An attribute ``None`` or ``False`` is left out, ``True`` stands without a value; ``class_`` is ``class``,
    ``aria_label`` is ``aria-label``.

    >>> element("p", "a < b ", element("b", "c"), class_="note", hidden=True, title=None)
    '<p class="note" hidden>a &lt; b <b>c</b></p>'
    """
    shown = "".join(_attribute(key, value) for key, value in attributes.items())
    return Html(f"<{name}{shown}>{joined(content)}</{name}>")


def joined(parts: Iterable[object]) -> Html:
    """Parts side by side, those that are no :class:`Html` escaped.

    >>> joined(["<", element("i", "x"), 3])
    '&lt;<i>x</i>3'
    """
    return Html("".join(part if isinstance(part, Html) else escaped(str(part)) for part in parts))


def escaped(text: str) -> Html:
    """A text as HTML shows it; control characters become the sign for what is unknown.

    >>> escaped("<script>alert('x')</script>")
    '&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;'
    """
    return Html(html.escape(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)))


def _attribute(name: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escaped(str(value))}"'
