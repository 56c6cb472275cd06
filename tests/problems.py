"""Problems for the tests of the solvers."""

from __future__ import annotations

import numpy as np
from worlds import random_rows

from haybale.ensemble.half import Half
from haybale.ensemble.problem import Problem


def problem(
    seed: int,
    n: int,
    evidence: bool = False,
    interactions: bool = False,
    n_queries: int = 5,
    n_passages: int = 9,
    **changes,
) -> Problem:
    """Random rows, equal ones among them."""
    rng = np.random.default_rng(seed)
    rows = random_rows(seed, n, n_queries, n_passages)
    if evidence:
        changes["evidence"] = rng.normal(size=(n, 3)).astype(np.float32)
        changes["evidence_root"] = np.where(rng.random(n) < 0.8, np.sqrt(0.7), 0).astype(np.float32)
    halves = [Half(0.6 * rng.normal(size=(m, 3)).astype(np.float32)) for m in (n_queries, n_passages)]
    columns = {"query": rows.query.astype(np.int64), "passage": rows.passage.astype(np.int64)}
    if interactions:  # of the two halves, as they are: equal rows have equal ones
        q, p = halves[0].dense[columns["query"]], halves[1].dense[columns["passage"]]
        changes["interactions"] = 0.5 * np.abs(q - p)
    return Problem(
        *halves,
        **columns,
        label=rows.label.astype(np.float64),
        weight=rng.uniform(0.5, 3, size=n),
        **({"tol": 1e-5} | changes),
    )


def realistic(n: int, d: int = 64, each: int = 20) -> Problem:
    """Queries and passages around topics, of a spectrum that decays; ``each`` query with the passages nearest to it."""
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
    halves = Half(queries), Half(passages[used])
    return Problem(*halves, query, passage, relevant.astype(np.float64), np.ones(len(query)))
