"""Where a passage has what carried the score: terms, phrases, or the sentence that is nearest to the query."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np

from haybale.analysis import Analyzer
from haybale.collections.splitters import sentences
from haybale.device import to_numpy
from haybale.embeddings import encode_queries, encode_texts
from haybale.embeddings.encoder import Encodes
from haybale.search.phrases import Phrases, phrase_spans
from haybale.search.snippets import Span

_UNSPACED_SENTENCE = re.compile(r"(?=\S)(?:[^。！？｡]*[。！？｡]+[」』”’）]*|[^。！？｡]+)")
MAX_TERMS = 20  # different terms that are highlighted in a passage, those with the largest weights


def term_highlights(
    texts: Sequence[str], weights: Sequence[Mapping[Analyzer, Mapping[str, float]]], phrases: Phrases | None = None
) -> list[list[Span]]:
    """Return where texts have the terms with the largest weights, and phrases from their first to their last word.

    ``weights`` has the weights of the terms of each text by analyzer.
    """
    spans: list[list[Span]] = [[] for _ in texts]
    for analyzer in {analyzer for by_analyzer in weights for analyzer in by_analyzer}:
        for text_spans, located, by_analyzer in zip(spans, analyzer.spans(texts), weights, strict=True):
            of_terms = by_analyzer.get(analyzer, {})
            located_terms = {term for term, _, _ in located} & of_terms.keys()
            top_terms = set(sorted(located_terms, key=lambda term: (-of_terms[term], term))[:MAX_TERMS])
            text_spans += [(start, end) for term, start, end in located if term in top_terms]
    if phrases is not None:
        for text_spans, located in zip(spans, phrases.analyzer.phrase_spans(texts), strict=True):
            for terms in phrases.terms:
                text_spans += phrase_spans(located, terms)
    return [merged(text_spans) for text_spans in spans]


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return spans in ascending order, with overlapping ones joined.

    >>> merged([(4, 7), (0, 2), (1, 3)])
    [(0, 3), (4, 7)]
    """
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def sentence_spans(text: str) -> list[Span]:
    """Return the start and end of each sentence of a text.

    >>> sentence_spans("It holds.  See p. 3.")
    [(0, 9), (11, 20)]
    >>> sentence_spans("租约终止。租客搬走！")
    [(0, 5), (5, 10)]
    """
    words = [word.span() for word in re.finditer(r"\S+", text)]
    ends = [0, *accumulate(len(sentence) for sentence in sentences(text))]
    spans = [(words[start][0], words[end - 1][1]) for start, end in pairwise(ends)]
    # Where no space follows a sentence, as in Chinese and Japanese, its full stop has a character of its own.
    return [sentence.span() for start, end in spans for sentence in _UNSPACED_SENTENCE.finditer(text, start, end)]


def nearest_sentences(encoder: Encodes, paragraphs: Sequence[str], texts: Sequence[str]) -> list[Span | None]:
    """Return the sentence of each text whose vector is nearest to one of the query's paragraphs; None for no sentence.

    All sentences are encoded at once.
    """
    spans = [sentence_spans(text) for text in texts]
    flat = [text[start:end] for text, text_spans in zip(texts, spans, strict=True) for start, end in text_spans]
    if not flat:
        return [None] * len(texts)
    near = encode_queries(encoder, list(paragraphs)) @ encode_texts(encoder, flat).T
    best = np.asarray(to_numpy(near.max(axis=0).toarray() if hasattr(near, "toarray") else near.max(axis=0))).ravel()
    ends = np.cumsum([0, *map(len, spans)])
    cosines = [best[start:end] for start, end in pairwise(ends)]  # of the sentences of each text
    return [
        text_spans[int(text_cosines.argmax())] if text_spans else None
        for text_spans, text_cosines in zip(spans, cosines, strict=True)
    ]
