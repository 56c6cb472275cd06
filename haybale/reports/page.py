"""The page: one HTML file with its style and script inside, which loads nothing.

A content security policy forbids what the page does not need: other scripts than its own, which it names by hash, and
anything from a network.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from string import Template

from haybale.reports.markup import Html, element, escaped, joined
from haybale.reports.section import Section


def page(title: str, facts: Sequence[tuple[str, str]], lead: str, sections: Sequence[Section]) -> str:
    """The whole document: ``title``, a line of ``facts`` (what, how much), one sentence, the sections."""
    style, script = _read("page.css"), _read("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Template(_read("page.html")).substitute(
        title=escaped(title),
        style=style,
        script=script,
        policy=f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'",
        facts=_facts(facts),
        lead=escaped(lead),
        contents=_contents(sections),
        sections=joined(section.html() for section in sections),
    )


def _facts(facts: Sequence[tuple[str, str]]) -> Html:
    return element("dl", *(element("div", element("dt", name), element("dd", value)) for name, value in facts))


def _contents(sections: Sequence[Section]) -> Html:
    items = [element("li", element("a", each.title, href=f"#{each.anchor}")) for each in sections if not each.absent]
    return element("ul", *items)


def _read(name: str) -> str:
    return (files("haybale.reports") / name).read_text(encoding="utf-8")
