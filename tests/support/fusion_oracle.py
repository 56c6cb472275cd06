"""Runs as dictionaries, and what learned fusion makes of them, document by document."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st
from scipy.special import log_softmax

from haybale.rankers.learned_fusion import LearnedFusion
from haybale.retrieval import Run

QUERIES, DOCS = ["q1", "q2", "q10"], list("abcdefgh")
Scores = dict[str, dict[str, float]]  # by query, by document
values = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 0.5]), st.integers(-40, 40).map(lambda x: x / 8))
listings = st.fixed_dictionaries({query: st.dictionaries(st.sampled_from(DOCS), values) for query in QUERIES})
several = st.dictionaries(st.sampled_from(["bm25", "knn", "svr"]), listings, min_size=1)
judgements = st.fixed_dictionaries({query: st.lists(st.sampled_from([*DOCS, "zz"]), max_size=3) for query in QUERIES})


def run(scores: Scores) -> Run:
    ids = sorted({document for docs in scores.values() for document in docs})
    listed = [(row, ids.index(d), s) for row, docs in enumerate(scores.values()) for d, s in docs.items()]
    return Run.from_numbers(list(scores), ids, *([line[column] for line in listed] for column in range(3)))


def runs_of(world: dict[str, Scores]) -> dict[str, Run]:
    return {name: run(scores) for name, scores in world.items()}


def first(scores: dict[str, float], depth: int) -> list[tuple[str, float]]:
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:depth]


def qrels(relevant: dict[str, list[str]]) -> pd.DataFrame:
    rows = [(query, document, 1) for query, documents in relevant.items() for document in documents]
    return pd.DataFrame(rows, columns=["query_id", "doc_id", "relevance"])


def oracle(
    world: dict[str, Scores], query: str, depth: int, trained: set[str]
) -> dict[str, dict[tuple[str, str], float]]:
    """Features by document, then by run and kind."""
    table: dict[str, dict[tuple[str, str], float]] = {}
    for name, scores in world.items():
        listed = first(scores[query], depth)
        for rank, (document, score) in enumerate(listed, start=1):
            best, lowest = listed[0][1], listed[-1][1]
            row = table.setdefault(document, {})
            row[name, "level"] = (score - lowest) / (best - lowest) if best > lowest else 1.0
            row[name, "rank"], row[name, "first"] = 61 / (60 + rank), 1 / rank
            if name in trained:
                row[name, "score"] = score
    return table


def oracle_loss(
    world: dict[str, Scores],
    relevant: dict[str, list[str]],
    depth: int,
    trained: set[str],
    unseen: set[str],
    unseen_share: float,
    w: Any,
) -> float:
    """The loss without its penalty, document by document."""
    losses: dict[str, float] = {}
    for query in QUERIES:
        table = oracle(world, query, depth, trained)
        right = [document in relevant[query] for document in table]
        if any(right):
            scores = [sum(w.get(key, 0.0) * value for key, value in row.items()) for row in table.values()]
            losses[query] = -float(log_softmax(scores)[right].mean())
    new = [loss for query, loss in losses.items() if query in unseen]
    whole = float(np.mean(list(losses.values())))
    return (1 - unseen_share) * whole + unseen_share * float(np.mean(new)) if new else whole


def trust(fusion: LearnedFusion, runs: dict[str, Run], name: str) -> float:
    """How much more a run adds to its first document of a query than to one that it does not have; the mean."""
    shares = [
        fusion.explain(runs, query, runs[name][query][0][0]).set_index("run").loc[name, "share"]
        for query in runs[name].query_ids
    ]
    return float(np.mean(shares))


def sample(seed: int = 0, n_queries: int = 30, n_docs: int = 40) -> tuple[dict[str, Run], dict[str, list[str]]]:
    """Three runs of random depth; ``good`` is near the truth, ``fair`` less so, ``noise`` not at all."""
    rng = np.random.default_rng(seed)
    query_ids = [f"q{i}" for i in range(n_queries)]
    ids = [f"d{i}" for i in range(n_docs)]
    relevant = {q: [ids[j] for j in rng.choice(n_docs, size=2, replace=False)] for q in query_ids}
    scores: dict[str, Scores] = {}
    for name, signal in (("good", 3.0), ("fair", 1.0), ("noise", 0.0)):
        scores[name] = {
            q: {d: float(rng.normal() + signal * (d in relevant[q])) for d in ids if rng.random() < 0.7}
            for q in query_ids
        }
    return runs_of(scores), relevant
