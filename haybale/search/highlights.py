"""Where a passage has what carried the score: terms, phrases, or the sentence that is nearest to the query."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np

from haybale.analysis import Analyzer
from haybale.collections.splitters import sentences
from haybale.device import to_numpy
from haybale.embeddings import encode_queries
from haybale.embeddings.encoder import Encodes
from haybale.search.phrases import phrase_spans
from haybale.search.snippets import Span

_UNSPACED_SENTENCE = re.compile(r"(?=\S)(?:[^。！？｡]*[。！？｡]+[」』”’）]*|[^。！？｡]+)")
MAX_TERMS = 20  # different terms that are highlighted in a passage, those with the largest weights


def term_highlights(
    texts: Sequence[str],
    weights: Sequence[Mapping[Analyzer, Mapping[str, float]]],
    phrases: Mapping[Analyzer, Sequence[Sequence[str]]],
) -> list[list[Span]]:
    """Return where texts have the terms with the largest weights, and phrases from their first to their last term.

    The weights of the terms of each text, and the phrases, are given for each analyzer that found terms.
    """
    spans: list[list[Span]] = [[] for _ in texts]
    for analyzer in phrases.keys() | {analyzer for each in weights for analyzer in each}:
        for found, located, each in zip(spans, analyzer.spans(texts), weights, strict=True):
            of_terms = each.get(analyzer, {})
            here = {term for term, _, _ in located} & of_terms.keys()
            kept = set(sorted(here, key=lambda term: (-of_terms[term], term))[:MAX_TERMS])
            found += [(start, end) for term, start, end in located if term in kept]
            for terms in phrases.get(analyzer, ()):
                found += phrase_spans(located, terms)
    return [merged(found) for found in spans]


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return rising spans, with those that overlap joined.

    >>> merged([(4, 7), (0, 2), (1, 3)])
    [(0, 3), (4, 7)]
    """
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def sentence_spans(text: str) -> list[Span]:
    """Return the start and end of each sentence of a text.

    >>> sentence_spans("It holds.  See p. 3.")
    [(0, 9), (11, 20)]
    >>> sentence_spans("租约终止。租客搬走！")
    [(0, 5), (5, 10)]
    """
    words = [found.span() for found in re.finditer(r"\S+", text)]
    ends = [0, *accumulate(len(sentence) for sentence in sentences(text))]
    spans = [(words[start][0], words[end - 1][1]) for start, end in pairwise(ends)]
    # Where no space follows a sentence, as in Chinese and Japanese, its full stop has a character of its own.
    return [found.span() for start, end in spans for found in _UNSPACED_SENTENCE.finditer(text, start, end)]


def nearest_sentences(encoder: Encodes, paragraphs: Sequence[str], texts: Sequence[str]) -> list[Span | None]:
    """Return the sentence of each text whose vector is nearest to one of the query's paragraphs; None for no sentence.

    All sentences are encoded at once.
    """
    spans = [sentence_spans(text) for text in texts]
    flat = [text[start:end] for text, each in zip(texts, spans, strict=True) for start, end in each]
    if not flat:
        return [None] * len(texts)
    near = encode_queries(encoder, list(paragraphs)) @ encoder.encode(flat).T
    best = np.asarray(to_numpy(near.max(axis=0).toarray() if hasattr(near, "toarray") else near.max(axis=0))).ravel()
    ends = np.cumsum([0, *map(len, spans)])
    parts = [best[start:end] for start, end in pairwise(ends)]
    return [each[int(part.argmax())] if each else None for each, part in zip(spans, parts, strict=True)]
