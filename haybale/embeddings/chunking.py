"""Passages cut into pieces of equal length, with a stride: what an index may hold instead of the passages.

Passages of a collection differ in length by orders of magnitude, and a vector says less of a long one. Bönisch &
Mehler 2024 name pieces of equal length as their next step.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from haybale.collections import Collection, Links, Passages
from haybale.collections.collection import Ints
from haybale.collections.spool import piece_id
from haybale.errors import InputError, UnknownNameError
from haybale.extras import require

Spans = list[tuple[int, int]]  # characters: start, end


@dataclass(frozen=True)
class Chunking:
    """How passages are cut into pieces; the last piece of a passage ends where the passage does and may be shorter.

    Tokens are those of the whole passage, without the special ones: a piece tokenised on its own can differ by a token
    at either end.

    Parameters
    ----------
    length : int
        Words or tokens of a piece, at least 1.
    stride : int, optional
        A new piece begins every so many, 1 to ``length``; None: ``length``, so none overlap.
    unit : {"words", "tokens"}, default "words"
    tokenizer : str, optional
        For tokens: a hub id or folder as transformers saves tokenizers.

    Examples
    --------
    >>> Chunking(3, 2).pieces("one two three four five six")
    ['one two three', 'three four five', 'five six']
    """

    length: int
    stride: int | None = None
    unit: str = "words"
    tokenizer: str | None = None

    def __post_init__(self) -> None:
        if self.unit not in ("words", "tokens"):
            raise UnknownNameError("unit", self.unit, ("words", "tokens"))
        if self.length < 1:
            raise InputError(f"length of a piece must be at least 1, found {self.length}")
        if self.stride is not None and not 1 <= self.stride <= self.length:
            raise InputError(f"stride must lie between 1 and the length, {self.length}, found {self.stride}")
        if (self.unit == "tokens") != (self.tokenizer is not None):
            raise InputError("pieces counted in tokens, and only they, need a tokenizer: a hub id or folder")

    def pieces(self, text: str) -> list[str]:
        """The pieces of one passage, in reading order; at least one."""
        return [text[start:end] for start, end in self.splitter()(text)]

    def splitter(self) -> Callable[[str], Spans]:
        """What finds the pieces of a passage, in characters; the tokenizer is loaded once for many passages."""
        units, stride = self._units(), self.stride or self.length

        def spans(text: str) -> Spans:
            found = units(text)
            if not found:
                return [(0, len(text))]
            # A piece that begins within the last `length` units reaches the end; later ones would be parts of it.
            starts = range(0, max(1, len(found) - self.length + stride), stride)
            return [(found[first][0], found[min(first + self.length, len(found)) - 1][1]) for first in starts]

        return spans

    def _units(self) -> Callable[[str], Spans]:
        """What finds words or tokens in a passage."""
        if self.unit == "words":
            return lambda text: [match.span() for match in re.finditer(r"\S+", text)]
        library = require("transformers", "neural")
        try:
            tokenizer = library.AutoTokenizer.from_pretrained(self.tokenizer)
        except (OSError, ValueError) as error:
            raise InputError(f"cannot load the tokenizer {self.tokenizer!r}: {error}") from error
        if not tokenizer.is_fast:
            raise InputError(f"the tokenizer {self.tokenizer!r} does not tell where its tokens lie")

        def tokens(text: str) -> Spans:
            found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
            return [(start, end) for start, end in found["offset_mapping"] if end > start]

        return tokens

    def describe(self) -> dict[str, Any]:
        """Plain values, for a manifest."""
        return {**asdict(self), "stride": self.stride or self.length}


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
    split, passages, links = chunking.splitter(), collection.passages, collection.links
    spans: list[Spans] = []
    texts: list[str] = []
    ids: list[str] = []
    for passage_id, text in zip(passages.ids.to_pylist(), passages.texts, strict=True):
        text = text.as_py()
        spans.append(split(text))
        texts += [text[start:end] for start, end in spans[-1]]
        ids += [piece_id(passage_id, number) for number in range(len(spans[-1]))]
    counts = np.array([len(found) for found in spans], dtype=np.int64)
    passage = np.repeat(np.arange(len(counts)), counts)
    first = np.concatenate(([0], np.cumsum(counts)))  # (n_passages + 1,) where the pieces of each begin
    pieces = Passages(
        ids=pa.chunked_array([pa.array(ids, type=pa.large_string())]),
        texts=pa.chunked_array([pa.array(texts, type=pa.large_string())]),
        doc_offsets=first[passages.doc_offsets],
        sections=None if passages.sections is None else passages.sections[passage],
    )
    if links is not None:
        links = Links(
            internal=_from_pieces(links.internal, first),
            passage_to_document=_from_pieces(links.passage_to_document, first),
            section_to_document=links.section_to_document,
        )
    flat = np.array([span for found in spans for span in found], dtype=np.int64).reshape(-1, 2)
    return Pieces(replace(collection, passages=pieces, links=links), passage, flat)


def _from_pieces(edges: Ints, first: Ints) -> Ints:
    counts = np.diff(first)[edges[:, 0]]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.stack([np.repeat(first[edges[:, 0]], counts) + within, np.repeat(edges[:, 1], counts)], axis=1)

