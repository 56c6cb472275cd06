"""The splitters by name."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

from haybale.collections.paragraphs.blank_lines import split_blank_lines
from haybale.collections.paragraphs.headings import split_headings
from haybale.collections.paragraphs.lines import split_lines
from haybale.collections.paragraphs.numbered import split_numbered
from haybale.collections.paragraphs.paragraph import Splitter
from haybale.collections.paragraphs.sentences import split_sentences
from haybale.errors import InputError, UnknownNameError

SPLITTERS: dict[str, Splitter] = {
    "lines": split_lines,
    "blank-lines": split_blank_lines,
    "numbered": split_numbered,
    "sentences": split_sentences,
    "headings": split_headings,
}


def find_splitter(name: str, **options: Any) -> Splitter:
    """The splitter of that name, with its options set; an unknown name, option or value raises.

    >>> [p.text for p in find_splitter("sentences", words=2)("One two three.")]
    ['One two', 'three.']
    """
    if name not in SPLITTERS:
        raise UnknownNameError("splitter", name, SPLITTERS)
    splitter = SPLITTERS[name]
    known = [option for option in inspect.signature(splitter).parameters if option != "text"]
    for option in options:
        if option not in known:
            takes = f"takes {', '.join(known)}" if known else "takes none"
            raise InputError(f"the splitter {name!r} knows no option {option!r}; it {takes}")
    chosen = partial(splitter, **options) if options else splitter
    chosen("")  # a bad value is refused here, not at the first document
    return chosen
