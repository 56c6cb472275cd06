"""Put ranked documents that belong together into groups, such as the mails of a thread, or the copies of a document.

A column of the metadata says what belongs together, or the texts do, of copies. Groups are in the order of their best
documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from haybale.collections import Collection
from haybale.engine import Engine
from haybale.engine.copies import groups_of_copies
from haybale.errors import InputError, UnknownNameError

PARENT = "parent"  # the column with the id of the document that a document was attached to
COPIES = "copies"  # stands for copies of a document in place of a column
MAX_SHOWN = 5  # documents of a group that a search returns; of copies, only the first


@dataclass(frozen=True)
class HitGroup:
    """Ranked documents that belong together.

    Parameters
    ----------
    value : str
        The value of the column that they share, or the id of the document that is alone or that they were attached to;
        of copies, the id of the first.
    ranks : list of int
        The ranks of all of them, from 1, ascending.
    doc_ids : list of str
        Their ids, in the order of the ranks.
    max_shown : int, default 5
        How many of them a search returns at most.
    """

    value: str
    ranks: list[int]
    doc_ids: list[str]
    max_shown: int = field(default=MAX_SHOWN, repr=False)

    @property
    def shown(self) -> list[int]:
        """The ranks of the documents that a search returns."""
        return self.ranks[: self.max_shown]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {"value": self.value, "ranks": self.ranks, "doc_ids": self.doc_ids}


def grouped(engine: Engine, doc_ids: Sequence[str], together: str) -> list[HitGroup]:
    """Return ranked documents of an engine as groups, by a column of the metadata, or as copies with ``"copies"``."""
    if together != COPIES:
        return group_ranked(engine.collection, doc_ids, together)
    groups = groups_of_copies(engine, engine.collection.document_numbers(doc_ids)) if doc_ids else []
    return [
        HitGroup(doc_ids[group[0]], [row + 1 for row in group], [doc_ids[row] for row in group], max_shown=1)
        for group in groups
    ]


def group_ranked(collection: Collection, doc_ids: Sequence[str], column: str) -> list[HitGroup]:
    """Return ranked documents as groups that a column of the metadata makes.

    A document without a value in the column belongs to the group of the document that it was attached to; it is alone
    if it was not attached. With the column ``parent``, all documents that were attached to one, or to those attached to
    it, are a group with it.

    Parameters
    ----------
    collection : Collection
    doc_ids : sequence of str
        Documents of the collection, the best first.
    column : str
        A column of the metadata that has one value for a document.

    Raises
    ------
    InputError
        If there is no such column, or its values are lists.

    Examples
    --------
    >>> from haybale.collections import CollectionBuilder
    >>> builder = CollectionBuilder("mail")
    >>> for doc_id, metadata in {"a": {"thread": "t"}, "b": {}, "c": {"parent": "a"}}.items():
    ...     _ = builder.add_document(doc_id, ["text"], metadata=metadata)
    >>> group_ranked(builder.build(), ["c", "b", "a"], "thread")
    [HitGroup(value='t', ranks=[1, 3], doc_ids=['c', 'a']), HitGroup(value='b', ranks=[2], doc_ids=['b'])]
    """
    columns = (
        {}
        if collection.metadata is None
        else dict(zip(collection.metadata.column_names, collection.metadata.columns, strict=True))
    )
    if column not in columns:
        raise UnknownNameError("column of the metadata", column, [*columns, COPIES])
    if pa.types.is_nested(columns[column].type):
        raise InputError(f"expected a column with one value for a document, found {column!r}, which has lists")
    ranks: dict[str, list[int]] = {}
    for rank, number in enumerate(collection.document_numbers(doc_ids).tolist(), 1):
        ranks.setdefault(_group_of(collection, columns, number, column), []).append(rank)
    return [HitGroup(value, of_group, [doc_ids[rank - 1] for rank in of_group]) for value, of_group in ranks.items()]


def _group_of(collection: Collection, columns: dict[str, Any], number: int, column: str) -> str:
    """Return the value of a document or, without one, that of the document that it was attached to."""
    visited = set[int]()
    while number not in visited:
        visited.add(number)
        value = None if column == PARENT else columns[column][number].as_py()
        if value is not None:
            return str(value)
        parent = columns[PARENT][number].as_py() if PARENT in columns else None
        if parent is None:
            break
        number = int(collection.find_documents([parent])[0])
        if number < 0:
            return str(parent)
    return str(collection.doc_ids[number].as_py())
