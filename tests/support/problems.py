"""Random problems for tests of kernels and solvers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from haybale.device import Device
from haybale.ensemble.kernel import Points
from haybale.ensemble.problem import Dual, Problem
from support.worlds import random_rows

CUDA = Device("cuda", 0)


def points(seed: int, n: int, d: int = 7, kind: str = "dense") -> Points:
    """Return random points with dense vectors, sparse vectors, or both."""
    rng = np.random.default_rng(seed)
    dense = 0.4 * rng.normal(size=(n, d)).astype(np.float32)
    wide = sparse.random(n, 30, density=0.15, random_state=seed, dtype=np.float32).tocsr()
    return Points(None if kind == "sparse" else dense, None if kind == "dense" else wide)


def matrix_of(of: Points) -> np.ndarray:
    """Return all spaces of points side by side (n, d), float64."""
    parts = [of.dense, None if of.sparse is None else of.sparse.toarray()]
    return np.concatenate([part for part in parts if part is not None], axis=1).astype(np.float64)


def rbf(a: np.ndarray, b: np.ndarray, gamma: float = 1.0) -> np.ndarray:
    """Return the RBF kernel of all pairs of rows, from its definition."""
    return np.exp(-gamma * np.sum((a[:, None].astype(np.float64) - b[None]) ** 2, axis=-1))


def random_problem(
    seed: int,
    n: int,
    features: bool = False,
    n_queries: int = 5,
    n_passages: int = 9,
    kind: str = "dense",
    **changes: Any,
) -> Problem:
    """Return a problem of random rows, some of them equal."""
    rng = np.random.default_rng(seed)
    rows = random_rows(seed, n, n_queries, n_passages)
    if features:
        changes["features"] = np.where(rng.random((n, 1)) < 0.8, 0.5 * rng.normal(size=(n, 3)), 0).astype(np.float32)
    return Problem(
        points(seed, n_queries, 3, kind),
        points(seed + 1, n_passages, 3, kind),
        rows.query.astype(np.int64),
        rows.passage.astype(np.int64),
        label=rows.label.astype(np.float64),
        weight=rng.uniform(0.5, 3, size=n),
        **({"tol": 1e-5} | changes),
    )


def realistic(n: int, d: int = 64, each: int = 20) -> Problem:
    """Return queries and passages near topics, with decaying variances; a query has its ``each`` nearest passages."""
    rng = np.random.default_rng(0)
    scale = np.arange(1, d + 1) ** -0.4
    topics = rng.normal(size=(max(5, n // 5 // each), d)) * scale

    def around(count: int) -> tuple[np.ndarray, np.ndarray]:
        topic = rng.integers(len(topics), size=count)
        vectors = topics[topic] + 0.6 * rng.normal(size=(count, d)) * scale
        return topic, (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    (topic_q, queries), (topic_p, passages) = around(n // each), around(n)
    nearest = np.argsort(-(queries @ passages.T), axis=1)[:, :each]
    query, passage = np.repeat(np.arange(len(queries)), each), nearest.ravel()
    relevant = (topic_q[query] == topic_p[passage]) & (rng.random(len(query)) < 0.12)
    used, passage = np.unique(passage, return_inverse=True)
    return Problem(
        Points(queries), Points(passages[used]), query, passage, relevant.astype(np.float64), np.ones(len(query))
    )


def moved(of: Any) -> Any:
    """Return a problem, a support or pairs with vectors on the device."""
    return replace(of, queries=of.queries.to(CUDA), passages=of.passages.to(CUDA))


def check_same(problem: Problem, found: Dual, expected: Dual, atol: float = 2e-4) -> None:
    """Check that two solutions predict the same for the rows of a problem on the CPU."""
    kernel = problem.gram()
    np.testing.assert_allclose(
        kernel @ found.coef + found.intercept, kernel @ expected.coef + expected.intercept, atol=atol
    )
