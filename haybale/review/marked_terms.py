"""Choose the terms to mark in a passage that is judged: those of the topic, and those typical of relevant documents."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence, Set

from haybale.engine import Engine
from haybale.search.highlights import term_highlights
from haybale.search.snippets import Span

_MIN_LIFT = 4  # least ratio of the share of relevant passages that have a term to that of all passages
_MAX_LEARNED_TERMS = 20  # typical terms that are marked beside those of the topic


def marked_terms(engine: Engine, text: str, passage: str, relevant: Sequence[Set[str]]) -> list[Span]:
    """Return the spans of a passage with terms of the topic's text, or with terms typical of relevant passages.

    A term is typical if at least two relevant passages have it, and its share of them is at least four times its share
    of all passages. At most the 20 most typical terms are marked.

    Parameters
    ----------
    engine : Engine
    text : str
        The text of the topic; it may be empty.
    passage : str
    relevant : sequence of sets of str
        The terms of each passage by which a document was judged relevant.
    """
    analyzer = engine.analyzer
    weights = dict.fromkeys(analyzer.terms(text), 1e6)  # before all learned terms
    here, index = set(analyzer.terms(passage)), engine.bm25("passage")
    counts = Counter(term for passage_terms in relevant for term in here & passage_terms)
    typical = {}
    for term in counts.keys() - weights.keys():
        if counts[term] >= 2:
            share = max(len(index.passages_with_all([term])), 1) / len(index)
            lift = counts[term] / len(relevant) / share
            if lift >= _MIN_LIFT:
                typical[term] = counts[term] * math.log(lift)
    best = sorted(typical, key=lambda term: (-typical[term], term))[:_MAX_LEARNED_TERMS]
    (spans,) = term_highlights([passage], [{analyzer: weights | {term: typical[term] for term in best}}])
    return spans
