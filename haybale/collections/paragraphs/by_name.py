"""The paragraphs of a collection, by the name of how they are split."""

from __future__ import annotations

from haybale.collections.collection import Collection
from haybale.collections.paragraphs import SPLITTERS, find_splitter
from haybale.collections.paragraphs.resplit import resplit
from haybale.collections.paragraphs.sections import by_section
from haybale.errors import UnknownNameError

PARAGRAPHS = (*SPLITTERS, "sections")


def with_paragraphs(collection: Collection, name: str) -> Collection:
    """:func:`resplit` by the splitter of that name, or :func:`by_section` for ``"sections"``."""
    if name not in PARAGRAPHS:
        raise UnknownNameError("way to split paragraphs", name, PARAGRAPHS)
    return by_section(collection) if name == "sections" else resplit(collection, find_splitter(name))
