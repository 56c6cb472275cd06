"""What a splitter makes of a document: paragraphs, each with the label it goes by there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple


class Paragraph(NamedTuple):
    """``label`` is what the paragraph is called in its document, where no other has it: ``"0"``, ``"S"``, a heading."""

    text: str
    label: str


Splitter = Callable[[str], list[Paragraph]]


def counted(texts: Iterable[str]) -> list[Paragraph]:
    """Paragraphs labelled by their place, from 0 as everywhere.

    >>> counted(["a", "b"])
    [Paragraph(text='a', label='0'), Paragraph(text='b', label='1')]
    """
    return [Paragraph(text, str(place)) for place, text in enumerate(texts)]


def uniquely_labelled(paragraphs: Iterable[Paragraph]) -> list[Paragraph]:
    """The same paragraphs; a label that came before gets a number.

    >>> [p.label for p in uniquely_labelled([Paragraph("a", "Facts"), Paragraph("b", "Facts")])]
    ['Facts', 'Facts (2)']
    """
    taken: set[str] = set()
    times: dict[str, int] = {}  # else a thousand equal labels would each be tried a thousand times
    unique = []
    for paragraph in paragraphs:
        label = paragraph.label
        while label in taken:
            times[paragraph.label] = times.get(paragraph.label, 1) + 1
            label = f"{paragraph.label} ({times[paragraph.label]})"
        taken.add(label)
        unique.append(paragraph._replace(label=label))
    return unique


def split_or_whole(text: str, splitter: Splitter) -> list[Paragraph]:
    """The paragraphs of a text; the whole of it, labelled 0, where the splitter finds none but there is something.

    >>> split_or_whole(" two words ", lambda text: [])
    [Paragraph(text='two words', label='0')]
    """
    return splitter(text) or ([Paragraph(text.strip(), "0")] if text.strip() else [])
