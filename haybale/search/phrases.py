"""Phrases in quotation marks, which must occur in each document that is found."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from haybale.analysis import Analyzer
from haybale.collections.collection import Ints, ragged_take, take_strings
from haybale.engine import Engine
from haybale.errors import InputError

_QUOTED = re.compile(r'"([^"]*)"|“([^“”]*)”|„([^„“”]*)[“”]|«([^«»]*)»')


@dataclass(frozen=True)
class Phrases:
    """The phrases of a query, and the documents and passages of an engine that have them."""

    analyzer: Analyzer
    terms: list[list[str]]  # of each phrase
    documents: NDArray[np.bool_]  # (n_documents,) whether every phrase occurs in the document
    passages: Ints  # ascending numbers of the passages that have a phrase

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
    """Find the documents that have all phrases, each in one passage: its terms next to each other, in this order.

    Terms are those of BM25, so inflections and stop words make no difference. A part of a compound is not a word:
    "Vertrag" does not occur in *Arbeitsvertrag*. Only passages that have all terms of a phrase, by the index of BM25,
    are read.
    """
    index, texts = engine.bm25("passage"), engine.collection.passages.texts
    documents, passages = np.ones(engine.collection.n_documents, dtype=bool), [np.empty(0, dtype=np.int64)]
    analyzer = index.analyzer.whole_words
    by_phrase = [analyzer.terms(phrase) for phrase in phrases]
    for phrase, terms in zip(phrases, by_phrase, strict=True):
        if not terms:
            raise InputError(f"the phrase {phrase!r} must have a term besides stop words, found none; omit the quotes")
        numbers = index.passages_with_all(terms)
        if len(terms) > 1 or analyzer is not index.analyzer:
            numbers = numbers[_have_phrase(analyzer, take_strings(texts, numbers), terms)]
        passages.append(numbers)
        documents &= np.isin(np.arange(len(documents)), index.doc_of[numbers])
    return Phrases(analyzer, by_phrase, documents, np.unique(np.concatenate(passages)))


def _have_phrase(analyzer: Analyzer, texts: list[str], terms: list[str]) -> NDArray[np.bool_]:
    """Return whether each text has the terms next to each other."""
    analyzed, n = analyzer(texts), len(terms)
    term_ids = [analyzed.vocabulary.get(term, -1) for term in terms]
    return np.array([any(ids[at : at + n] == term_ids for at in range(len(ids) - n + 1)) for ids in analyzed.ids], bool)


def phrase_spans(located: Sequence[tuple[str, int, int]], terms: Sequence[str]) -> list[tuple[int, int]]:
    """Return where terms stand next to each other among the located terms of a text, from the first to the last.

    >>> phrase_spans([("burden", 4, 10), ("proof", 14, 19), ("proof", 21, 26)], ["burden", "proof"])
    [(4, 19)]
    """
    names, n = [term for term, _, _ in located], len(terms)
    starts = [at for at in range(len(names) - n + 1) if names[at : at + n] == list(terms)]
    return [(located[at][1], located[at + n - 1][2]) for at in starts]
