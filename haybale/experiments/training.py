"""The ensembles of a comparison, trained on the queries of the training split."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from haybale.ensemble import SVREnsemble, feature_names
from haybale.errors import InputError

if TYPE_CHECKING:
    from haybale.experiments.workbench import Workbench


def check_training(bench: Workbench, name: str) -> None:
    """Refuse to train a ranker where there is nothing to train on but the queries it is measured with."""
    settings = bench.settings
    if settings.train_split == settings.split:
        raise InputError(f"{name} would be trained and evaluated on the same split, {settings.split!r}")
    if settings.train_split not in bench.collection.splits:
        raise InputError(
            f"{name} needs a split to learn from: {bench.collection.name} has no split "
            f"{settings.train_split!r}, only {', '.join(bench.collection.splits)}; leave {name} out"
        )


def train(bench: Workbench, name: str) -> SVREnsemble:
    """A fitted ensemble: ``"svr"`` with the pool and our settings, ``"svr-paper"`` as published."""
    check_training(bench, name)
    settings = bench.settings
    common = {
        "rows_per_bag": settings.rows_per_bag,
        "random_state": settings.random_state,
        "n_jobs": settings.n_jobs,
        "protocol": settings.protocol,
    } | settings.ensemble
    published = name == "svr-paper"
    if not published and any("svr-blend" in ranker for ranker in settings.rankers):
        common["blend"] = True
    ensemble = SVREnsemble.as_published(**common) if published else SVREnsemble(**common)
    index, train = bench.index, settings.train_split
    queries, own = bench.query_vectors(train), bench.own(train)
    given: dict[str, Any] = {"exclude": own}
    if not published:
        given["candidates"] = bench.candidates(train, settings.train_candidates)
        if ensemble.blend or ensemble.eta:
            given["features"] = bench.features(train, settings.train_candidates)
    with bench.stage(f"train {name}"):
        ensemble.fit(index, queries, bench.collection.relevant_ids(train), **given)
    bench.facts[name] = facts_of(ensemble, int(queries.shape[0]))
    if ensemble.blend_ is not None:
        bench.facts["svr-blend"] = {
            "out-of-bag MRR@10 of memory alone": ensemble.blend_.mrr[0],
            "out-of-bag MRR@10 with evidence": max(ensemble.blend_.mrr),
            "weights of " + ", ".join(feature_names()): ensemble.blend_.weights.tolist(),
        }
    return ensemble


def facts_of(ensemble: SVREnsemble, n_queries: int) -> dict[str, Any]:
    """What belongs into the results of a fitted ensemble that learned from ``n_queries``."""
    return {
        "training queries": n_queries,
        "candidate rows": ensemble.n_rows_,
        "bags": ensemble.n_bags,
        "rows a bag is trained on (mean)": float(np.mean(ensemble.bag_sizes_)),
        "support rows": len(ensemble.support_.coef),
        "gamma": list(ensemble.gamma_),
    }
