"""Documents and queries split into paragraphs, by the form they were written in; one splitter a file."""

from haybale.collections.paragraphs.paragraph import Paragraph, Splitter, split_or_whole
from haybale.collections.paragraphs.registry import SPLITTERS, find_splitter

__all__ = ["SPLITTERS", "Paragraph", "Splitter", "find_splitter", "split_or_whole"]
