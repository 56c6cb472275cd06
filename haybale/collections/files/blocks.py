"""Turn the paragraphs and headings of a document, in their order, into parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from haybale.collections.files.file_reader import Part

_MAX_ROW_CHARACTERS = 1000  # a longer row of a table becomes a passage for each of its paragraphs


class Block(NamedTuple):
    """A paragraph, a row of a table, a heading, or a title on the page.

    An aside is a note or a box: it belongs to the paragraph or row before it, but its text is no part of that.
    """

    text: str
    style: Literal["body", "heading", "title", "aside"] = "body"

    def as_aside(self) -> Block:
        """Return a paragraph as an aside; headings and titles stay."""
        return self._replace(style="aside") if self.style == "body" else self


def parts_of(blocks: Iterable[Block]) -> tuple[list[Part], str]:
    """Return blocks as parts under their headings, and the first title on the page; an empty text without one.

    >>> parts, title = parts_of([Block("Lease", "title"), Block(" "), Block("Rent", "heading"), Block("It is due.")])
    >>> [(part.text, part.heading) for part in parts], title
    ([('', 'Lease'), ('', 'Rent'), ('It is due.', 'Rent')], 'Lease')
    """
    parts: list[Part] = []
    title, heading = "", None
    for block in blocks:
        text = block.text.strip()
        if not text:
            continue
        if block.style in ("body", "aside"):
            parts.append(Part(text, heading=heading))
            continue
        heading = " ".join(text.split())
        parts.append(Part("", heading=heading))
        if block.style == "title":
            title = title or heading
    return parts, title


def row_of(cells: Iterable[Sequence[Block]]) -> Iterator[Block]:
    """Yield the blocks of a row of a table: one with the texts of its cells, and the asides in them.

    A row is a paragraph for each paragraph in it if it has only one cell with text, a heading or very much text: it is
    there for the layout of a page.

    >>> list(row_of([[Block("rent"), Block("1", "aside")], [], [Block("900"), Block("a month")]]))
    [Block(text='rent |  | 900 a month', style='body'), Block(text='1', style='aside')]
    """
    cells = [[block for block in cell if block.text.strip()] for cell in cells]
    texts = [" ".join(block.text.strip() for block in cell if block.style == "body") for cell in cells]
    row = " | ".join(texts).strip(" |")
    blocks = [block for cell in cells for block in cell]
    has_heading = any(block.style in ("heading", "title") for block in blocks)
    if has_heading or len(row) > _MAX_ROW_CHARACTERS or sum(map(bool, texts)) <= 1:
        yield from blocks
        return
    yield Block(row)
    yield from (block for block in blocks if block.style == "aside")
