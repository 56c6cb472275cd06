"""Cut passages into pieces of equal length, which are indexed instead of the passages.

Passages of a collection differ in length by orders of magnitude, and one vector represents a long passage less well.
Bönisch & Mehler (2024) propose pieces of equal length as future work.
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
from haybale.collections.spool import SpanChunker, piece_id
from haybale.errors import InputError
from haybale.extras import hub_options, import_optional, loading_model
from haybale.parameters import COUNT, COUNT_OR_NONE, TEXT_OR_NONE, check_parameters, one_of

_CONSTRAINTS = {
    "length": COUNT,
    "stride": COUNT_OR_NONE,
    "unit": one_of(("words", "tokens")),
    "tokenizer": TEXT_OR_NONE,
}


@dataclass(frozen=True)
class Chunking:
    """Settings for cutting passages into pieces. The last piece of a passage may be shorter.

    A passage is tokenised as a whole, without special tokens. Tokenising a piece alone can give one token more or less
    at either end.

    Parameters
    ----------
    length : int
        The number of words or tokens in a piece.
    stride : int, optional
        The number of words or tokens from one piece's start to the next, at most ``length``. Default: ``length``, so
        that pieces do not overlap.
    unit : {"words", "tokens"}, default "words"
        What ``length`` and ``stride`` count.
    tokenizer : str, optional
        Hub id or folder of a fast tokenizer of transformers; required for ``unit="tokens"``, and only then.

    Examples
    --------
    >>> Chunking(2, 1).splitter()("one two three")
    [(0, 7), (4, 13)]
    """

    length: int
    stride: int | None = None
    unit: str = "words"
    tokenizer: str | None = None

    def __post_init__(self) -> None:
        check_parameters("Chunking", vars(self), _CONSTRAINTS)
        if self.stride is not None and self.stride > self.length:
            raise InputError(f"stride must lie between 1 and the length, {self.length}, found {self.stride}")
        if (self.unit == "tokens") != (self.tokenizer is not None):
            raise InputError(f"unit 'tokens' needs a tokenizer, 'words' takes none; found tokenizer={self.tokenizer!r}")

    def splitter(self) -> SpanChunker:
        """Return a function from a passage to the character spans of its pieces, at least one.

        Load the tokenizer, if there is one; raise :class:`InputError` if it cannot be loaded or is not a fast one.
        """
        unit_spans = _word_spans if self.tokenizer is None else _token_spans(self.tokenizer)
        stride = self.stride or self.length

        def spans(text: str) -> list[tuple[int, int]]:
            units = unit_spans(text) or [(0, len(text))]
            # A piece that begins within the last `length` units reaches the end; later pieces would be contained in it.
            starts = range(0, max(1, len(units) - self.length + stride), stride)
            return [(units[first][0], units[min(first + self.length, len(units)) - 1][1]) for first in starts]

        return spans

    def describe(self) -> dict[str, Any]:
        """Return the settings as JSON values, for a manifest."""
        return {**asdict(self), "stride": self.stride or self.length}


def _word_spans(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(r"\S+", text)]


def _token_spans(name: str) -> Callable[[str], list[tuple[int, int]]]:
    transformers, options = import_optional("transformers", "neural"), hub_options(name)
    with loading_model("tokenizer", name, options):
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, **options)
    if not tokenizer.is_fast:
        raise InputError(f"the tokenizer {name!r} gives no character offsets; choose one with a tokenizer.json")

    def spans(text: str) -> list[tuple[int, int]]:
        encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        return [(start, end) for start, end in encoded["offset_mapping"] if end > start]

    return spans


def cut(collection: Collection, chunking: Chunking) -> Collection:
    """Return the collection with pieces as its passages. Their ids are ``<passage id>#<number from 0>``.

    Documents, queries and judgements are unchanged. A link of a passage becomes a link of each of its pieces.
    """
    split, passages, links = chunking.splitter(), collection.passages, collection.links
    texts, ids, counts = list[str](), list[str](), list[int]()
    for passage_id, scalar in zip(passages.ids.to_pylist(), passages.texts, strict=True):
        text = scalar.as_py()
        spans = split(text)
        counts.append(len(spans))
        texts += [text[start:end] for start, end in spans]
        ids += [piece_id(passage_id, number) for number in range(len(spans))]
    first = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))  # (n_passages + 1,) first piece of each passage
    pieces = Passages(
        ids=pa.chunked_array([pa.array(ids, type=pa.large_string())]),
        texts=pa.chunked_array([pa.array(texts, type=pa.large_string())]),
        doc_offsets=first[passages.doc_offsets],
        sections=None if passages.sections is None else np.repeat(passages.sections, counts),
    )
    if links is not None:
        links = Links(
            internal=_from_pieces(links.internal, first),
            passage_to_document=_from_pieces(links.passage_to_document, first),
            section_to_document=links.section_to_document,
        )
    return replace(collection, passages=pieces, links=links)


def _from_pieces(edges: Ints, first: Ints) -> Ints:
    ends = [(piece, end) for start, end in edges.tolist() for piece in range(first[start], first[start + 1])]
    return np.array(ends, dtype=np.int64).reshape(-1, 2)
