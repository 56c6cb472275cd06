"""Ids of documents and passages: none twice, and one for passages that come without."""

from __future__ import annotations

from array import array
from typing import NoReturn

from haybale.collections.sink import At
from haybale.errors import FileFormatError, InputError


class Names:
    """Numbers documents and passages in the order they come.

    >>> names = Names()
    >>> number = names.add_document("bgb")
    >>> names.add_passage(number), names.add_passage(number), names.add_passage(number, "§ 3")
    ('bgb:0', 'bgb:1', '§ 3')
    """

    def __init__(self) -> None:
        self.doc_ids: list[str] = []
        self.documents: dict[str, int] = {}
        self.given: dict[str, int] = {}  # passage ids that were given, with their numbers; generated ones cannot clash
        self.n_passages = 0
        self._of_document = array("q")  # passages of each document so far

    def add_document(self, doc_id: str, at: At = None) -> int:
        """The number of a new document; an id that was used raises."""
        if doc_id in self.documents:
            fail(f"duplicate document id {doc_id!r}", at)
        number = self.documents[doc_id] = len(self.doc_ids)
        self.doc_ids.append(doc_id)
        self._of_document.append(0)
        return number

    def add_passage(self, document: int, passage_id: str | None = None, at: At = None) -> str:
        """The id of a new passage: the given one, or ``<document id>:<its place in the document, from 0>``."""
        if passage_id is None:
            passage_id = f"{self.doc_ids[document]}:{self._of_document[document]}"
        elif passage_id in self.given:
            fail(f"duplicate passage id {passage_id!r}", at)
        else:
            self.given[passage_id] = self.n_passages
        self._of_document[document] += 1
        self.n_passages += 1
        return passage_id


def piece_id(passage_id: str, number: int) -> str:
    """The id of a piece of a passage, counted from 0.

    >>> piece_id("bgb:12", 0)
    'bgb:12#0'
    """
    return f"{passage_id}#{number}"


def fail(message: str, at: At) -> NoReturn:
    """Raise the one error of bad input, with file and line where they are known."""
    raise InputError(message) if at is None else FileFormatError(at[0], at[1], message)
