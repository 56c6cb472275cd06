"""Call every class and function with unusual parameters; accepted values must give finite results."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from hostile.target import CORRECT, REJECTED, Cases, Target, finite, finite_scores

import haybale
from haybale import Engine, Run, evaluate
from haybale.errors import HaybaleError
from haybale.reports import write_report

BAD_VALUES: tuple[Any, ...] = (
    *(math.nan, math.inf, -math.inf, -1, 0, 0.5, 2**70, 1e308, -1e-300, True, None, "x", "", "\0", b"x", [], {}, 1j),
    *(np.nan, np.float32(-2), np.array([1, 2]), object()),
)
PLAIN = (bool, int, float, str, type(None), np.floating)
Use = Callable[..., str]


def parameters(target: Target, rng: random.Random) -> Cases:
    for name, (use, names) in uses(target).items():
        for parameter, value in product(names.split(), BAD_VALUES):
            yield f"{name}({parameter}={value!r})", partial(given, use, parameter, value)


def given(use: Use, parameter: str, value: Any) -> str:
    try:
        return use(**{parameter: value})
    except HaybaleError:
        raise
    except (TypeError, AttributeError, ValueError) as error:
        # Errors of Python are acceptable for a parameter that does not exist, and for an absurd type.
        if "unexpected keyword argument" in str(error) or not isinstance(value, PLAIN):
            return REJECTED
        raise


def uses(target: Target) -> dict[str, tuple[Use, str]]:
    """Return functions that take one setting, each with the names of its settings."""
    collection, encoder, q, p = target.collection, target.encoder, target.vectors[:6], target.vectors
    texts, index = collection.passages.texts.to_pylist(), haybale.BM25Index
    X, y = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 2
    trec = target.folder / "run.trec"
    runs = {"a": target.run, "b": target.rankers["svr(n_bags=4)"].rank("dev", depth=5)}
    target.run.to_trec(trec)
    qrels = collection.qrels_frame("dev")

    def ranker(make: Callable[..., Any]) -> Use:
        def rank(**settings: Any) -> str:
            run = make(**settings).fit(target.engine).rank({"a": "ba ko"}, depth=3)
            return finite([score for _, score in run["a"]])

        return rank

    def scored(make: Callable[..., Run]) -> Use:
        return lambda **settings: finite(make(**settings).to_frame()["score"])

    def no_error(make: Callable[..., Any]) -> Use:
        return lambda **settings: str(make(**settings)) and CORRECT

    def ensemble(**settings: Any) -> str:
        model = haybale.SVREnsemble(**{"n_bags": 2, "k": 5} | settings)
        model.fit(haybale.PassageIndex(p), q, [[str(row)] for row in range(6)])
        return finite_scores(model.rank(q, list("abcdef"), k=3).to_frame()["score"])

    def report(**settings: Any) -> Any:
        how = {"collection": collection, "picture": "none"} | settings
        return write_report([trec], f"{target.new()}.html", **how)

    return {
        "BM25": (ranker(haybale.BM25), "unit k1 b k3"),
        "KNN": (ranker(haybale.KNN), "unit"),
        "PARM": (ranker(haybale.PARM), "aggregation over n_hits rrf_k"),
        "SimilarQueries": (ranker(haybale.SimilarQueries), "k power"),
        "RRF": (ranker(partial(haybale.RRF, haybale.BM25(), haybale.KNN())), "k depth"),
        "SVR": (
            ranker(lambda **s: haybale.SVR(**{"n_bags": 2} | s)),
            "n_bags overlap strategy rows_per_bag n_candidates gamma C epsilon tol positive_weight random_state n_jobs"
            " memory_budget unit",
        ),
        "Learned": (ranker(partial(haybale.Learned, haybale.BM25(), haybale.KNN())), "depth unseen_share l2"),
        "ProductKernelSVR": (
            lambda **s: finite(haybale.ProductKernelSVR(**{"split": 2} | s).fit(X, y).predict(X)),
            "C epsilon gamma tol split max_iter memory_budget solver device n_jobs",
        ),
        "BM25Index": (
            lambda **s: finite_scores(index.from_collection(collection, **s).search(["ba"], 3).scores),
            "k1 b k3 unit",
        ),
        "BM25Index.search": (
            lambda **s: finite(index.from_collection(collection).search(["ba"], **s).scores[:, :1]),
            "k",
        ),
        "PassageIndex": (
            lambda **s: finite(haybale.PassageIndex(p, **s).search(q, 2).scores),
            "doc_offsets passage_ids doc_ids backend device",
        ),
        "PassageIndex.search": (
            lambda **s: finite(haybale.PassageIndex(p).search(q, **{"k": 2} | s).scores),
            "k exclude",
        ),
        "LSAEncoder": (
            lambda **s: finite(haybale.LSAEncoder(**{"n_components": 4} | s).fit(texts).encode(texts[:2])),
            "n_components language min_df char_ngrams random_state max_fit_texts",
        ),
        "TfidfEncoder": (
            lambda **s: finite(haybale.TfidfEncoder(**s).fit(texts).encode(texts[:2]).data),
            "language min_df char_ngrams sublinear_tf",
        ),
        "Chunking": (no_error(lambda **s: haybale.Chunking(**{"length": 3} | s)), "length stride unit"),
        "fusion": (scored(partial(haybale.reciprocal_rank_fusion, [target.run])), "rrf_k weights k"),
        "evaluate": (lambda **s: finite(evaluate(target.run, qrels, **s)), "measures"),
        "rank": (scored(partial(target.rankers["bm25-doc"].rank, "dev")), "depth within"),
        "embed": (
            no_error(lambda **s: haybale.embed(collection, encoder, target.new(), **s)),
            "rows_per_chunk dtype chunking shard",
        ),
        "tune_bm25": (
            no_error(partial(haybale.tune_bm25, collection)),
            "k1 b k3 n_queries measure unit random_state language split",
        ),
        "Engine": (
            no_error(lambda **s: Engine(collection, **s).prepare()),
            "language analyzer paragraphs chunking store device",
        ),
        "compare": (
            no_error(lambda **s: haybale.compare(target.engine, **{"rankers": "bm25"} | s)),
            "rankers split train baseline measures report",
        ),
        "SVREnsemble": (ensemble, " ".join(haybale.SVREnsemble._parameter_constraints)),
        "LearnedFusion": (
            scored(lambda **s: haybale.LearnedFusion(**s).fit(runs, qrels).fuse(runs)),
            "depth unseen_share l2 max_iter",
        ),
        "ParagraphSearch": (
            scored(lambda **s: haybale.ParagraphSearch(haybale.PassageIndex(p), **s).rank(["a"], [q])),
            "aggregation n_hits rrf_k occurrences k",
        ),
        "Run.top": (scored(target.run.top), "k"),
        "Run": (scored(partial(Run.from_frame, target.run.to_frame())), "k"),
        "ConcatEncoder": (lambda **s: finite(haybale.ConcatEncoder([encoder], **s).encode(texts[:2])), "weights"),
        "write_report": (no_error(report), "queries picture split baseline ranker query title"),
    }
