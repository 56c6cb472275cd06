"""BM25's k1 and b by a grid on judged queries, so that a baseline is as strong as its parameters allow.

Texts and queries are analysed once; a setting only weighs the counted terms anew and ranks.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from haybale.analysis import guess_language
from haybale.collections import Collection
from haybale.collections.collection import pick
from haybale.errors import InputError
from haybale.evaluation.measures import evaluate, parsed
from haybale.parameters import (
    BM25_RANGES,
    COUNT_OR_NONE,
    RANDOM_STATE,
    SEQUENCE,
    TEXT_OR_NONE,
    check_parameters,
    one_of,
)
from haybale.progress import track
from haybale.rankers import BM25
from haybale.retrieval import BM25Index, Run
from haybale.retrieval.run import DEPTH as RUN_DEPTH

K1 = (0.6, 0.9, 1.2, 1.6, 2.0, 3.0, 4.5, 6.0)
B = (0.3, 0.5, 0.75, 0.9)
DEFAULT = (BM25().k1, BM25().b)
_RANGES = {
    "unit": one_of(["passage", "document"]),
    "k1": SEQUENCE,
    "b": SEQUENCE,
    "language": TEXT_OR_NONE,
    "n_queries": COUNT_OR_NONE,
    "random_state": RANDOM_STATE,
}


@dataclass(frozen=True)
class Tuned:
    """The best pair of a grid, and the measure's mean at every pair of it."""

    unit: str  # "passage" or "document"
    split: str
    measure: str
    language: str
    n_queries: int  # those with a relevant document that were ranked
    k1: float  # of the best
    b: float
    value: float
    default: float  # the value at the ranker's own k1 and b
    grid: list[tuple[float, float, float]]  # (k1, b, value), ascending

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; the grid as records."""
        grid = [dict(zip(("k1", "b", "value"), row, strict=True)) for row in self.grid]
        return asdict(self) | {"default_k1": DEFAULT[0], "default_b": DEFAULT[1], "grid": grid}

    @property
    def options(self) -> str:
        """What to give to ``haybale compare``.

        >>> Tuned("document", "dev", "nDCG@10", "english", 9, 0.9, 0.3, 0.5, 0.4, []).options
        '--set bm25-doc.k1=0.9 --set bm25-doc.b=0.3'
        """
        name = "bm25-doc" if self.unit == "document" else "bm25"
        return f"--set {name}.k1={self.k1:g} --set {name}.b={self.b:g}"


def tune_bm25(
    collection: Collection,
    unit: str = "passage",
    split: str = "dev",
    *,
    k1: Sequence[float] = K1,
    b: Sequence[float] = B,
    measure: str = "nDCG@10",
    language: str | None = None,
    n_queries: int | None = None,
    random_state: int = 0,
) -> Tuned:
    """Rank the split's queries by BM25 with every pair of ``k1`` and ``b``; the best mean wins.

    Parameters
    ----------
    collection : Collection
    unit : {"passage", "document"}, default "passage"
        Documents by their best passage, or each as a whole: as the rankers ``bm25`` and ``bm25-doc``.
    split : str, default "dev"
    k1, b : sequence of float
        Among equals the smaller k1 wins, then the smaller b.
    measure : str, default "nDCG@10"
        Any that :func:`~haybale.evaluation.evaluate` knows.
    language : str, optional
        Default: that of the collection, else guessed.
    n_queries : int, optional
        So many of those with a relevant document, drawn by ``random_state``; default: all.
    random_state : int, default 0

    Raises
    ------
    InputError
        An unknown split, measure or unit; a split without a relevant document; an empty grid, k1 < 0, b outside 0..1.
    """
    check_parameters("tune_bm25", locals(), _RANGES)
    if not len(k1) or not len(b):
        raise InputError("the grid needs at least one k1 and one b")
    for x, y in itertools.product(k1, b):
        check_parameters("tune_bm25", {"k1": x, "b": y}, BM25_RANGES)
    parsed(measure)
    part = collection.split(split)
    judged = part.queries[np.isin(part.queries, part.relevant()[0])]
    if not len(judged):
        raise InputError(f"split {split!r} has no query with a relevant document: nothing can be tuned")
    if n_queries is not None and n_queries < len(judged):
        judged = np.sort(np.random.default_rng(random_state).choice(judged, size=n_queries, replace=False))
    texts = collection.passages.texts
    language = language or collection.language or guess_language(texts[:: max(1, len(texts) // 1000)].to_pylist())
    pairs = sorted({(float(x), float(y)) for x, y in itertools.product(k1, b)})
    index = BM25Index.from_collection(collection, unit, language=language)
    terms, own = index.analysed(collection.queries.texts(judged)), collection.queries.own[judged]
    ids, qrels = pick(collection.queries.ids, judged), collection.qrels_frame(split)
    qrels = qrels[qrels["query_id"].isin(ids)]
    cutoff = measure.partition("@")[2]
    depth = int(cutoff) if cutoff else RUN_DEPTH

    def value(pair: tuple[float, float]) -> float:
        rows, documents, scores = index.with_parameters(*pair).documents(terms, depth, exclude=own)
        run = Run.from_numbers(ids, collection.doc_ids, rows, documents, scores, depth)
        return float(evaluate(run, qrels, [measure])[measure].mean())

    tried = list(dict.fromkeys([*pairs, DEFAULT]))
    values = dict(zip(tried, map(value, track(tried, f"tuning BM25 ({unit}s)")), strict=True))
    best = max(pairs, key=lambda pair: values[pair])  # the first of equals
    grid = [(*pair, values[pair]) for pair in pairs]
    found = {"k1": best[0], "b": best[1], "value": values[best], "default": values[DEFAULT]}
    return Tuned(unit, split, measure, language, len(judged), grid=grid, **found)
