"""Show criteria, which people write in Markdown, as headings, paragraphs, lists and emphasis; the rest is text."""

from __future__ import annotations

from functools import lru_cache

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from haybale.drawing import clean

_RULES = ("heading", "lheading", "list", "emphasis", "newline", "escape")  # no HTML, links, pictures or code
_LAST_LEVEL = 6


@lru_cache(maxsize=256)
def criteria_markup(text: str, level: int) -> Markup:
    """Return a text in Markdown as HTML, whose headings begin at a level and skip none.

    >>> criteria_markup("# Who\\n### Adults <b>\\n- *no* [link](x)", 3)
    Markup('<h3>Who</h3>\\n<h4>Adults &lt;b&gt;</h4>\\n<ul>\\n<li><em>no</em> [link](x)</li>\\n</ul>\\n')
    """
    markdown = MarkdownIt("zero").enable(list(_RULES))
    tokens = markdown.parse(clean(text))
    _renumber([token for token in tokens if token.type in ("heading_open", "heading_close")], level)
    return Markup(markdown.renderer.render(tokens, markdown.options, {}))


def _renumber(headings: list[Token], level: int) -> None:
    """Give headings levels from the first one on; each is at most one below the heading before it."""
    open_levels: list[int] = []  # levels in the text of the headings that the present one stands under
    for token in headings:
        if token.type == "heading_open":
            written = int(token.tag[1:])
            open_levels = [*(outer for outer in open_levels if outer < written), written]
        token.tag = f"h{min(level + len(open_levels) - 1, _LAST_LEVEL)}"
