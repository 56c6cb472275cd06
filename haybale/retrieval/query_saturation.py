"""The saturation of terms that a query repeats, by the length of the query.

Robertson et al., "Okapi at TREC-3", 1994, have the formula of k3. docs/findings.md has the measurement of its values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from haybale.analysis import Terms
from haybale.retrieval.bm25_index import check_queries, query_factors
from haybale.retrieval.segmented_indexes import AnyBM25
from haybale.vectors import Floats

K3_BY_LENGTH = "auto"  # the value of k3 that stands for that of k3_of_length
_TERMS_PER_UNIT, _MAX_K3 = 16, 8.0


def k3_of_length(n_terms: int) -> float:
    """Return the k3 of a query of ``n_terms`` terms, repetitions included: min(n_terms / 16, 8).

    >>> k3_of_length(4), k3_of_length(40), k3_of_length(3000)
    (0.25, 2.5, 8.0)
    """
    return min(n_terms / _TERMS_PER_UNIT, _MAX_K3)


def saturated_by_length(index: AnyBM25, texts: Sequence[str]) -> Terms:
    """Return queries for searches of an index, in which repeated terms saturate by the k3 of each query's length.

    All terms of a query count for its length, even those that no text has.
    """
    return index.weighted(*_distinct_terms(index, texts))


def counted_by_length(index: AnyBM25, text: str) -> list[tuple[str, np.float32]]:
    """Return the terms of a query that the index has, each with its factor, for :meth:`BM25Index.shares_of_terms`."""
    (terms,), (factors,) = _distinct_terms(index, [text])
    occurs = index.text_frequencies(terms) > 0
    return [(term, factor) for term, factor, is_used in zip(terms, factors, occurs, strict=True) if is_used]


def _distinct_terms(index: AnyBM25, texts: Sequence[str]) -> tuple[list[list[str]], list[Floats]]:
    """Return the distinct terms of each query, in the order of first occurrence, and their factors (n,) float32."""
    check_queries(texts)
    analysed = index.analyzer(texts)
    names = list(analysed.vocabulary)
    terms, factors = [], []
    for numbers in analysed.ids:
        counts = Counter(numbers)
        terms.append([names[number] for number in counts])
        n_occurrences = np.array(list(counts.values()), dtype=np.int64)
        factors.append(query_factors(n_occurrences, k3_of_length(len(numbers))))
    return terms, factors
