"""A part of the page."""

from __future__ import annotations

from typing import NamedTuple

from haybale.reports.markup import Html, element


class Section(NamedTuple):
    """``anchor`` is its id on the page; a section that is ``absent`` says what would bring it."""

    anchor: str
    title: str
    body: Html
    absent: bool = False

    def html(self) -> Html:
        heading = f"{self.anchor}-title"
        return element(
            "section",
            element("h2", self.title, id=heading),
            self.body,
            id=self.anchor,
            aria_labelledby=heading,
            class_="absent" if self.absent else None,
        )


def absent(anchor: str, title: str, reason: str) -> Section:
    """A section in whose place stands one line."""
    return Section(anchor, title, element("p", reason, class_="note"), absent=True)


def shortened(text: str, most: int) -> str:
    """At most ``most`` characters, cut at a space where there is one near; line breaks stay.

    >>> shortened("one two three", 9)
    'one two …'
    """
    text = text.strip()
    if len(text) <= most:
        return text
    cut = text[: most - 1]
    return f"{cut[:space].rstrip()} …" if (space := cut.rfind(" ")) > most // 2 else f"{cut}…"
