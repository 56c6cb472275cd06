"""Passages cut into pieces of equal length, with a stride: what an index may hold instead of the passages.

Passages of a collection differ in length by orders of magnitude, and a vector says less of a long one. Bönisch &
Mehler 2024 name pieces of equal length as their next step.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from haybale.collections import Collection, Links, Passages
from haybale.collections.collection import Ints
from haybale.collections.spool import piece_id
from haybale.errors import InputError, UnknownNameError
from haybale.extras import require

UNITS = ("words", "tokens")
_WORD = re.compile(r"\S+")
Spans = list[tuple[int, int]]  # characters: start, end


@dataclass(frozen=True)
class Chunking:
    """``length`` words or tokens a piece, a new piece every ``stride`` (default: ``length``, so none overlap).

    The last piece of a passage ends where the passage does and may be shorter. ``tokenizer``, for tokens, is a hub
    id or folder as transformers saves tokenizers; lengths are then counted in the tokens of the whole passage,
    without the special ones. A piece tokenised on its own can differ by a token at either end.

    >>> Chunking(3, 2).pieces("one two three four five six")
    ['one two three', 'three four five', 'five six']
    """

    length: int
    stride: int | None = None
    unit: str = "words"
    tokenizer: str | None = None

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise UnknownNameError("unit", self.unit, UNITS)
        if self.length < 1:
            raise InputError(f"length of a piece must be at least 1, found {self.length}")
        if self.stride is not None and not 1 <= self.stride <= self.length:
            raise InputError(f"stride must lie between 1 and the length, {self.length}, found {self.stride}")
        if (self.unit == "tokens") != (self.tokenizer is not None):
            raise InputError("pieces counted in tokens, and only they, need a tokenizer: a hub id or folder")

    def pieces(self, text: str) -> list[str]:
        """The pieces of one passage, in reading order; at least one."""
        return [text[start:end] for start, end in self.spans(text)]

    def spans(self, text: str) -> Spans:
        """Where the pieces lie in the passage, in characters."""
        return spans_of(self.units()(text), len(text), self.length, self.stride or self.length)

    def splitter(self) -> Callable[[str], Spans]:
        """:meth:`spans` with the tokenizer loaded once, for many passages."""
        units = self.units()
        return lambda text: spans_of(units(text), len(text), self.length, self.stride or self.length)

    def units(self) -> Callable[[str], Spans]:
        """The function that finds words or tokens in a passage."""
        if self.unit == "words":
            return lambda text: [match.span() for match in _WORD.finditer(text)]
        tokenizer = _tokenizer(str(self.tokenizer))

        def tokens(text: str) -> Spans:
            found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
            return [(start, end) for start, end in found["offset_mapping"] if end > start]

        return tokens

    def describe(self) -> dict[str, Any]:
        """Plain values, for a manifest."""
        return {
            "length": self.length,
            "stride": self.stride or self.length,
            "unit": self.unit,
            "tokenizer": self.tokenizer,
        }


def spans_of(units: Spans, end: int, length: int, stride: int) -> Spans:
    """Pieces of ``length`` units every ``stride`` of them; a text without units, of ``end`` characters, is one piece.

    >>> spans_of([(0, 1), (2, 3), (4, 5)], end=5, length=2, stride=1)
    [(0, 3), (2, 5)]
    """
    if not units:
        return [(0, end)]
    # A piece that begins within the last `length` units reaches the end; the ones after it would be parts of it.
    starts = range(0, max(1, len(units) - length + stride), stride)
    return [(units[first][0], units[min(first + length, len(units)) - 1][1]) for first in starts]


@dataclass(frozen=True)
class Pieces:
    """A collection whose passages are pieces, and what they are pieces of.

    ``collection`` can be used wherever the original can; its passage ids are ``<passage id>#<number from 0>``.
    ``passage`` (n,) is the number of the passage in the original, ``spans`` (n, 2) the characters taken from it.
    """

    collection: Collection
    passage: Ints
    spans: Ints


def cut(collection: Collection, chunking: Chunking) -> Pieces:
    """Cut the passages of a collection; documents, queries and judgements stay. Links go out from every piece."""
    split = chunking.splitter()
    spans = [split(text.as_py()) for text in collection.passages.texts]
    counts = np.array([len(found) for found in spans], dtype=np.int64)
    passage = np.repeat(np.arange(len(counts)), counts)
    first = np.concatenate(([0], np.cumsum(counts)))  # (n_passages + 1,) where the pieces of each begin
    ids, texts = collection.passages.ids.to_pylist(), collection.passages.texts
    pieces = [text.as_py()[a:b] for text, found in zip(texts, spans, strict=True) for a, b in found]
    sections = collection.passages.sections
    passages = Passages(
        ids=_strings([piece_id(ids[p], number - first[p]) for number, p in enumerate(passage)]),
        texts=_strings(pieces),
        doc_offsets=first[collection.passages.doc_offsets],
        sections=None if sections is None else sections[passage],
    )
    links = collection.links
    if links is not None:
        links = Links(
            internal=_from_pieces(links.internal, first),
            passage_to_document=_from_pieces(links.passage_to_document, first),
            section_to_document=links.section_to_document,
        )
    flat = np.array([span for found in spans for span in found], dtype=np.int64).reshape(-1, 2)
    return Pieces(replace(collection, passages=passages, links=links), passage, flat)


def _from_pieces(edges: Ints, first: Ints) -> Ints:
    counts = np.diff(first)[edges[:, 0]]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.stack([np.repeat(first[edges[:, 0]], counts) + within, np.repeat(edges[:, 1], counts)], axis=1)


def _strings(values: list[str]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, type=pa.large_string())])


def _tokenizer(name: str) -> Any:
    library = require("transformers", "neural")
    try:
        tokenizer = library.AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot load the tokenizer {name!r}: {error}") from error
    if not tokenizer.is_fast:
        raise InputError(f"the tokenizer {name!r} does not tell where its tokens lie; a fast one is needed")
    return tokenizer
