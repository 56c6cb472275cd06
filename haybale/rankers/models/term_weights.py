"""Learn the weights of query terms: a log-linear model of their features, fitted so that relevant documents rank first.

The score of document d for query q is Σ over terms t of w(q, t) · s(t, d), where s(t, d) is what BM25 gives the term,
and w(q, t) = count(q, t) · exp(x(q, t) · θ). The loss is that of a conditional logit over candidates, with a penalty:

    −Σ over queries q of Σ over relevant documents d of y(q, d) · log softmax(score(q, ·))_d + l2 · |θ|²

y(q, d) is 1 / (|R(q)| · √n(d)) for a query with |R(q)| relevant documents, and a document that is relevant to n(d) of
the queries. Because of √n(d), a document that answers many queries does not decide what its words weigh.

Zheng & Callan, "Learning to Reweight Terms with Distributed Representations", SIGIR 2015, learn weights of query terms
by regression on the share of relevant documents that have a term. The loss here is ListNet's (Cao et al., ICML 2007).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from haybale.parallel import in_threads, one_blas_thread
from haybale.retrieval.hits import Ints
from haybale.vectors import Floats

_MAX_EXPONENT = 6.0  # the largest |x·θ|, so that no weight is beyond e^6 times that of BM25
_TERMS_PER_BLOCK = 2**14  # terms of the queries of one block, about; a thread adds up a block at a time
_MAX_MINIMISER_STEPS = 100
_LOSS_TOLERANCE = 1e-6  # relative decrease of the loss at which the minimiser stops

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TermPools:
    """The terms of training queries, and what each adds to the score of the query's candidates."""

    features: sparse.csr_matrix  # (n, f) float32 of the terms of all queries
    counts: Floats  # (n,) float32, how often a term counts in BM25
    blocks: list[int]  # where the blocks of queries begin, and their end
    terms: Ints  # (m + 1,) where the terms of each query begin
    documents: Ints  # (m + 1,) where the candidates of each query begin
    cells: Ints  # (m + 1,) where the table (terms, candidates) of each query begins
    shares: Floats  # (n_cells,) float32, what each term adds to the score of each candidate
    relevant: Ints  # (n_relevant,) row of each relevant candidate among those of all queries
    query: Ints  # (n_relevant,)
    document: Ints  # (n_relevant,) number of the document

    @classmethod
    def of(
        cls,
        features: sparse.csr_matrix,
        counts: Floats,
        offsets: Ints,
        tables: Sequence[Floats],
        relevant: Sequence[Ints],
        document: Sequence[Ints],
    ) -> TermPools:
        """Join the tables (terms, candidates) of the queries, whose terms begin at ``offsets``.

        ``relevant`` has the columns of each query's relevant candidates, and ``document`` their numbers.
        """
        n_documents = [table.shape[1] for table in tables]
        documents, cells = (np.append(0, np.cumsum(sizes)) for sizes in (n_documents, [table.size for table in tables]))
        shares = np.concatenate([np.empty(0, dtype=np.float32), *(table.ravel() for table in tables)])
        blocks = [*np.flatnonzero(np.diff(offsets[:-1] // _TERMS_PER_BLOCK, prepend=-1)).tolist(), len(tables)]
        query = np.repeat(np.arange(len(tables)), [len(rows) for rows in relevant])
        none = np.empty(0, dtype=np.int64)
        rows, numbers = np.concatenate([none, *relevant]) + documents[query], np.concatenate([none, *document])
        return cls(features, counts, blocks, offsets, documents, cells, shares, rows, query, numbers)

    def target(self, queries: NDArray[np.bool_]) -> Array:
        """Return y of the candidates of all queries, (n_documents,); 0 where ``queries`` (m,) is false."""
        is_used = queries[self.query]
        n_relevant, n_queries = np.bincount(self.query[is_used]), np.bincount(self.document[is_used])
        target = np.zeros(self.documents[-1])
        target[self.relevant[is_used]] = n_queries[self.document[is_used]] ** -0.5 / n_relevant[self.query[is_used]]
        return target

    def loss(self, theta: Array, queries: NDArray[np.bool_]) -> tuple[float, Array]:
        """Return the loss of some queries, given as (m,) bool, without penalty; and its gradient (1 + f,)."""
        candidates = self.documents, self.cells, self.shares, self.target(queries)
        terms = self.terms, self.counts, self.features.indptr, self.features.indices, self.features.data

        def of_block(block: tuple[int, int]) -> tuple[float, Array]:
            gradient = np.zeros_like(theta)
            return _add_loss(*block, *candidates, *terms, theta, gradient), gradient

        total, gradient = 0.0, np.zeros_like(theta)
        for loss, part in in_threads(of_block, pairwise(self.blocks)):
            total, gradient = total + loss, gradient + part
        return total, gradient

    @one_blas_thread()  # the vectors of the minimiser are too short for several
    def fit(self, l2: float, queries: NDArray[np.bool_], start: Array) -> Array:
        """Return θ at the minimum of the loss of some queries: (1 + f,), first the intercept, which has no penalty."""
        from scipy.optimize import minimize

        if not queries.any() or not len(self.shares):
            return np.zeros_like(start)
        penalty = np.full(len(start), l2)
        penalty[0] = 0

        def penalised(theta: Array) -> tuple[float, Array]:
            loss, gradient = self.loss(theta, queries)
            return loss + float(penalty @ theta**2), gradient + 2 * penalty * theta

        options = {"maxiter": _MAX_MINIMISER_STEPS, "ftol": _LOSS_TOLERANCE}
        theta: Array = minimize(penalised, start, jac=True, method="L-BFGS-B", options=options).x
        return theta


def term_weights(features: sparse.csr_matrix, counts: Floats, theta: Array) -> Floats:
    """Return the weights of terms, (n,) float32: their counts times exp(θ₀ + x·θ)."""
    weights = np.empty(len(counts), dtype=np.float32)
    _fill_weights(0, counts, features.indptr, features.indices, features.data, theta, weights)
    return weights


@njit(nogil=True, cache=True, error_model="numpy")
def _fill_weights(
    first: int, counts: Any, indptr: Any, columns: Any, values: Any, theta: Any, weights: Any
) -> None:  # pragma: no cover - compiled
    """Write the weights of the terms from ``first`` on, as many as ``weights`` has."""
    for number in range(len(weights)):
        term, exponent = first + number, theta[0]
        for entry in range(indptr[term], indptr[term + 1]):
            exponent += values[entry] * theta[1 + columns[entry]]
        weights[number] = counts[term] * np.exp(min(max(exponent, -_MAX_EXPONENT), _MAX_EXPONENT))


@njit(nogil=True, cache=True, error_model="numpy")
def _add_loss(
    first: int,
    end: int,
    documents: Any,
    cells: Any,
    shares: Any,
    target: Any,
    terms: Any,
    counts: Any,
    indptr: Any,
    columns: Any,
    values: Any,
    theta: Any,
    gradient: Any,
) -> float:  # pragma: no cover - compiled
    """Return the loss of the queries from ``first`` to ``end``, and add its derivatives to the gradient.

    The features of a query's terms are read twice in a row, while the processor has them in its cache. Sums and maxima
    are loops, which take half the time to compile that the methods of arrays take.
    """
    loss = 0.0
    for query in range(first, end):
        start, stop, n = terms[query], terms[query + 1], documents[query + 1] - documents[query]
        relevant = target[documents[query] : documents[query + 1]]
        share = 0.0
        for document in range(n):
            share += relevant[document]
        if share == 0:
            continue
        table = shares[cells[query] : cells[query + 1]].reshape(stop - start, n)
        weights, score = np.empty(stop - start, dtype=np.float32), np.zeros(n, dtype=np.float32)
        _fill_weights(start, counts, indptr, columns, values, theta, weights)
        for number in range(stop - start):
            for document in range(n):
                score[document] += weights[number] * table[number, document]
        highest = score[0]
        for document in range(n):
            highest = max(highest, score[document])
        error, total = np.empty(n, dtype=np.float64), 0.0
        for document in range(n):
            error[document] = np.exp(np.float64(score[document] - highest))
            total += error[document]
        for document in range(n):
            loss -= relevant[document] * (score[document] - highest - np.log(total))
            error[document] = error[document] / total * share - relevant[document]
        for term in range(start, stop):
            slope = 0.0
            for document in range(n):
                slope += table[term - start, document] * error[document]
            slope *= weights[term - start]
            gradient[0] += slope
            for entry in range(indptr[term], indptr[term + 1]):
                gradient[1 + columns[entry]] += values[entry] * slope
    return loss
