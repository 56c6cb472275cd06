"""Phrases in quotation marks, which must occur in each document that is found."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from haybale.analysis import Analyzer
from haybale.collections.collection import Ints, Strings, ragged_take, take_strings
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.stopping_work import check_wanted

_TEXTS_AT_ONCE = 10_000
_QUOTED = re.compile(r'"([^"]*)"|“([^“”]*)”|„([^„“”]*)[“”]|«([^«»]*)»|»([^«»]*)«')


@dataclass(frozen=True)
class Phrases:
    """The phrases of a query, and the documents and passages of an engine that have them."""

    analyzer: Analyzer
    terms: list[list[str]]  # the phrase terms of each phrase
    documents: NDArray[np.bool_]  # (n_documents,) whether every phrase occurs in the document
    passages: Ints  # ascending numbers of the passages that have a phrase

    def first_documents(self, engine: Engine, k: int) -> list[tuple[str, float]]:
        """Return the ids of k documents that have the phrases, those with most such passages first, and their number.

        The documents are those of an engine whose passages the phrases refer to; of equal numbers, the id that comes
        first is first.
        """
        collection = engine.collection
        counts = np.bincount(collection.passages.doc_of[self.passages], minlength=collection.n_documents)
        numbers = np.flatnonzero(counts)
        doc_ids = dict(zip(take_strings(collection.doc_ids, numbers), counts[numbers].tolist(), strict=True))
        first = sorted(doc_ids, key=lambda doc_id: (-doc_ids[doc_id], doc_id))[:k]
        return [(doc_id, float(doc_ids[doc_id])) for doc_id in first]

    def within(self, engine: Engine, documents: NDArray[np.bool_]) -> Phrases:
        """Return the phrases with the passage numbers of a view of some documents of the engine."""
        numbers = ragged_take(engine.collection.passages.doc_offsets, np.flatnonzero(documents))[0]
        return replace(
            self, documents=self.documents[documents], passages=np.flatnonzero(np.isin(numbers, self.passages))
        )


def parse_phrases(text: str) -> tuple[str, list[str]]:
    """Return a text without the quotation marks of its phrases, and the phrases. A mark without its pair stays.

    >>> parse_phrases('who has the "burden of proof" here?')
    ('who has the burden of proof here?', ['burden of proof'])
    """
    phrases = [_inside(match) for match in _QUOTED.finditer(text)]
    return _QUOTED.sub(_inside, text), [phrase for phrase in phrases if phrase.strip()]


def _inside(match: re.Match[str]) -> str:
    return next(filter(None, match.groups()), "")


def find_phrases(engine: Engine, phrases: Sequence[str]) -> Phrases:
    """Find the documents that have all phrases, each in one passage: its words next to each other, in this order.

    All words count, also stop words and single characters, and signs such as §; inflections make no difference
    (:meth:`~haybale.analysis.Analyzer.phrase_terms`). A part of a compound is not a word: "Vertrag" does not occur in
    *Arbeitsvertrag*. Only passages that have all indexed terms of a phrase, by the index of BM25, are read.
    """
    index, texts = engine.bm25("passage"), engine.collection.passages.texts
    documents, passages = np.ones(engine.collection.n_documents, dtype=bool), [np.empty(0, dtype=np.int64)]
    analyzer = index.analyzer.whole_words
    by_phrase = [analyzer.phrase_terms(phrase) for phrase in phrases]
    for phrase, terms in zip(phrases, by_phrase, strict=True):
        if not terms:
            raise InputError(
                f"the phrase {phrase!r} must have a word, a number or a sign such as §, found none; add one"
            )
        # A single character may be indexed as a part of a longer run of a script without spaces.
        indexed_terms = [term for term in analyzer.terms(phrase) if len(term) > 1]
        numbers = index.passages_with_all(indexed_terms)
        if indexed_terms != terms or len(terms) > 1 or analyzer is not index.analyzer:
            numbers = numbers[_have_phrase(analyzer, texts, numbers, terms)]
        passages.append(numbers)
        documents &= np.isin(np.arange(len(documents)), index.doc_of[numbers])
    return Phrases(analyzer, by_phrase, documents, np.unique(np.concatenate(passages)))


def _have_phrase(analyzer: Analyzer, texts: Strings, numbers: Ints, terms: Sequence[str]) -> NDArray[np.bool_]:
    """Return whether each of some texts has phrase terms next to each other."""
    parts = [np.zeros(0, dtype=bool)]
    for start in range(0, len(numbers), _TEXTS_AT_ONCE):
        some = take_strings(texts, numbers[start : start + _TEXTS_AT_ONCE])
        parts.append(np.fromiter(analyzer.has_phrase(some, terms), bool, len(some)))
        check_wanted()
    return np.concatenate(parts)


def phrase_spans(located: Sequence[tuple[str, int, int]], terms: Sequence[str]) -> list[tuple[int, int]]:
    """Return where terms stand next to each other among the located terms of a text, from the first to the last.

    >>> phrase_spans([("burden", 4, 10), ("proof", 14, 19), ("proof", 21, 26)], ["burden", "proof"])
    [(4, 19)]
    """
    names, n = [term for term, _, _ in located], len(terms)
    starts = [at for at in range(len(names) - n + 1) if names[at : at + n] == list(terms)]
    return [(located[at][1], located[at + n - 1][2]) for at in starts]
