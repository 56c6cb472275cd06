"""Turn the paragraphs and headings of a document, in their order, into parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from haybale.collections.files.file_document import Part

_MAX_ROW_CHARACTERS = 1000  # a longer row of a table becomes a passage for each of its paragraphs


BlockStyle = Literal["body", "heading", "title", "aside"]


class TextBlock(NamedTuple):
    """A paragraph, a row of a table, a heading, or a title on the page.

    An aside is a note or a box: it belongs to the paragraph or row before it, but its text is no part of that.
    """

    text: str
    style: BlockStyle = "body"

    def as_aside(self) -> TextBlock:
        """Return a paragraph as an aside; headings and titles stay."""
        return self._replace(style="aside") if self.style == "body" else self


@dataclass
class OpenParagraph:
    """The text of a paragraph that is being read, and the blocks that follow it: its notes, and boxes in it."""

    pieces: list[str] = field(default_factory=list)
    following: list[TextBlock] = field(default_factory=list)

    def blocks(self, style: BlockStyle = "body") -> list[TextBlock]:
        """Return the paragraph, and after it the others as asides."""
        return [TextBlock("".join(self.pieces), style), *(block.as_aside() for block in self.following)]


def parts_of(blocks: Iterable[TextBlock]) -> tuple[list[Part], str]:
    """Return blocks as parts under their headings, and the first title on the page; an empty text without one.

    >>> blocks = [TextBlock("Lease", "title"), TextBlock(" "), TextBlock("Rent", "heading"), TextBlock("It is due.")]
    >>> parts, title = parts_of(blocks)
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


def row_of(cells: Iterable[Sequence[TextBlock]]) -> Iterator[TextBlock]:
    """Yield the blocks of a row of a table: one with the texts of its cells, and the asides in them.

    A row is a paragraph for each paragraph in it if it has only one cell with text, a heading or very much text: it is
    there for the layout of a page.

    >>> list(row_of([[TextBlock("rent"), TextBlock("1", "aside")], [], [TextBlock("900"), TextBlock("a month")]]))
    [TextBlock(text='rent |  | 900 a month', style='body'), TextBlock(text='1', style='aside')]
    """
    cells = [[block for block in cell if block.text.strip()] for cell in cells]
    texts = [" ".join(block.text.strip() for block in cell if block.style == "body") for cell in cells]
    row = " | ".join(texts).strip(" |")
    blocks = [block for cell in cells for block in cell]
    has_heading = any(block.style in ("heading", "title") for block in blocks)
    if has_heading or len(row) > _MAX_ROW_CHARACTERS or sum(map(bool, texts)) <= 1:
        yield from blocks
        return
    yield TextBlock(row)
    yield from (block for block in blocks if block.style == "aside")
