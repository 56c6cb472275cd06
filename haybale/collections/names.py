"""Ids of documents and passages: none twice, and one for passages that come without."""

from __future__ import annotations

from array import array
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from haybale.collections.collection import Ints
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

    def number_documents(self, doc_ids: pa.Array) -> Ints:
        """(n,) the numbers of documents by id, as often as they occur; unknown ones are added."""
        encoded = doc_ids.dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        numbers = [self.documents[i] if i in self.documents else self.add_document(i) for i in distinct]
        return np.asarray(np.array(numbers, dtype=np.int64)[encoded.indices.to_numpy()])

    def add_passages(self, documents: Ints, doc_ids: pa.Array, given: pa.Array | None, rows: Ints) -> pa.Array:
        """The ids of new passages, as :meth:`add_passage` gives them; an error names the row, of ``rows``."""
        n = len(documents)
        if given is not None:
            for number, (row, passage_id) in enumerate(zip(rows.tolist(), given.to_pylist(), strict=True)):
                if passage_id in self.given:
                    fail(f"row {row}: duplicate passage id {passage_id!r}", None)
                self.given[passage_id] = self.n_passages + number
        distinct, which, counts = np.unique(documents, return_inverse=True, return_counts=True)
        place = np.empty(n, dtype=np.int64)
        place[np.argsort(which, kind="stable")] = np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)
        if n:
            of_document = np.frombuffer(self._of_document, dtype=np.int64)
            place += of_document[documents]
            of_document[distinct] += counts
        self.n_passages += n
        if given is not None:
            return given
        places = pa.array(place).cast(pa.large_string())
        return pc.binary_join_element_wise(doc_ids, places, pa.scalar(":", pa.large_string()))


def piece_id(passage_id: str, number: int) -> str:
    """The id of a piece of a passage, counted from 0.

    >>> piece_id("bgb:12", 0)
    'bgb:12#0'
    """
    return f"{passage_id}#{number}"


def fail(message: str, at: At) -> NoReturn:
    """Raise the one error of bad input, with file and line where they are known."""
    raise InputError(message) if at is None else FileFormatError(at[0], at[1], message)
