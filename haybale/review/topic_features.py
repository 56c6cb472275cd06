"""The vectors of a collection's documents, which all its topics share.

A document is one row if it is short, and one row for each passage if it is long. Every row begins with the title.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from haybale.analysis import NO_LANGUAGE, Analyzer, guess_language
from haybale.cached import cached_property
from haybale.collections.collection import Collection, Ints, Strings
from haybale.embeddings.counting import strings
from haybale.errors import InputError
from haybale.review.term_space import TermSpace, TermVector, Words

if TYPE_CHECKING:
    from haybale.engine import Engine

SHORT = 500  # words; a shorter document is one row
_TEXTS_FOR_LANGUAGE = 200  # texts by which the language is recognised, about

Vectors = dict[str, list[TermVector]]  # the vectors of one text by kernel, one in each of its spaces


@dataclass(frozen=True, eq=False)
class TopicFeatures:
    """TF-IDF vectors of documents in several spaces; made by :meth:`of`.

    Attributes
    ----------
    kernels : dict of str to list of TermSpace
        Ways to compare two texts; the kernel is the mean of the cosines in its spaces. ``"words"``: words and pairs of
        neighbouring words. ``"stems"``: the same of stems. ``"pairs"``: pairs of words only. ``"fields"``: titles with
        titles, and the rest with the rest; only for documents with titles.
    row_offsets : (n_documents + 1,) int64 array
        ``row_offsets[d]:row_offsets[d + 1]`` are the rows of document d; every document has at least one.
    passage_offsets : (n_documents + 1,) int64 array
        The same for the collection's passages.
    passages : sequence of str
        The texts of the passages.

    Examples
    --------
    >>> features = TopicFeatures.of(["Dogs bark.", "Cats purr.", "A dog needs a lead."])
    >>> features.n_documents, list(features.kernels)
    (3, ['words', 'stems', 'pairs'])
    """

    kernels: dict[str, list[TermSpace]]
    row_offsets: Ints
    passage_offsets: Ints
    passages: Sequence[str] | Strings

    @classmethod
    def of(cls, documents: Engine | Collection | Sequence[str]) -> TopicFeatures:
        """Count the words of the documents of an engine or of a collection, or of a list of texts.

        An engine keeps them in memory until it changes.

        Raises
        ------
        InputError
            If there is no document, or ``documents`` is a single string.
        """
        if isinstance(documents, (Sequence, Collection)):
            return cls._of(documents)
        snapshot = documents.snapshot()
        return snapshot.cached("review features", lambda: cls._of(snapshot.collection))

    @classmethod
    def _of(cls, documents: Collection | Sequence[str]) -> TopicFeatures:
        if isinstance(documents, Collection):
            language, passages = documents.language, documents.passages.texts
            offsets, titles = documents.passages.doc_offsets, list(strings(documents.doc_titles))
            texts = list(_by_document(strings(passages), offsets))
        else:
            language, passages = None, list(strings(documents))
            offsets, titles = np.arange(len(passages) + 1), [""] * len(passages)
            texts = [[text] for text in passages]
        if not texts:
            raise InputError("expected one or more documents with a passage, found n_documents=0; add documents")
        heads, bodies, n_rows = [], [], [0]
        for title, parts in zip(titles, texts, strict=True):
            rows = parts if len(parts) > 1 and sum(part.count(" ") for part in parts) >= SHORT else ["\n".join(parts)]
            rest = [part.removeprefix(title) for part in rows]
            heads += [title] * len(rows)
            bodies += rest
            n_rows.append(len(rows))
        whole = [f"{head}\n{body}" for head, body in zip(heads, bodies, strict=True)]
        plain = Analyzer(NO_LANGUAGE)
        words = Words.of(whole, plain)
        kernels = {"words": [TermSpace.of(words)]}
        stemmed = Analyzer(language or guess_language(whole[:: max(len(whole) // _TEXTS_FOR_LANGUAGE, 1)]), ())
        stems = words.as_terms_of(stemmed) if stemmed.splits_like(plain) else Words.of(whole, stemmed)
        kernels["stems"] = [TermSpace.of(stems)]
        kernels["pairs"] = [TermSpace.of(words, pairs_only=True)]
        if any(titles):
            kernels["fields"] = [TermSpace.of(Words.of(part, plain)) for part in (heads, bodies)]
        return cls(kernels, np.cumsum(n_rows), offsets, passages)

    @property
    def n_documents(self) -> int:
        """The number of documents."""
        return len(self.row_offsets) - 1

    @cached_property
    def document_of_rows(self) -> Ints:
        """The document of each row, (n_rows,)."""
        return np.repeat(np.arange(self.n_documents), np.diff(self.row_offsets))

    def row(self, row: int) -> Vectors:
        """Return the vectors of a row."""
        return {name: [space.row(row) for space in spaces] for name, spaces in self.kernels.items()}

    def vectors(self, text: str) -> Vectors:
        """Return the vectors of a text; terms that the collection does not have are dropped."""
        return {name: [space.vector(text) for space in spaces] for name, spaces in self.kernels.items()}


def _by_document(texts: Iterator[str], offsets: Ints) -> Iterator[list[str]]:
    """Yield the passages of each document."""
    for start, end in pairwise(offsets.tolist()):
        yield [next(texts) for _ in range(end - start)]
