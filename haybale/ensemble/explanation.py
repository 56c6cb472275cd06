"""Why a passage got its score: the training pairs whose support vectors carry it, with shares that sum to it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from haybale.collections import Collection
from haybale.ensemble.support import Pairs, Support


@dataclass(frozen=True)
class Evidence:
    """One training pair and what it adds to the prediction."""

    query_id: str
    passage_id: str
    label: float  # what was taught: 1 relevant, 0 not
    share: float  # signed; of the overall prediction
    by_bag: dict[int, float]  # bag -> what it adds to that bag's own prediction
    query_text: str | None = None
    passage_text: str | None = None


@dataclass(frozen=True)
class Explanation:
    """The score of one passage for one query, taken apart.

    ``prediction`` is ``math.fsum`` of the listed shares, ``others`` (the pairs not listed), ``intercept`` and, for an
    ensemble with a blend, what each pair feature adds (``blend``), exactly.
    ``bags`` are the predictions of the single bags, whose weighted sum it is; ``votes`` the bags over the threshold.
    """

    passage_id: str
    prediction: float
    evidence: list[Evidence]  # by the size of the share
    others: float
    n_others: int
    intercept: float
    bags: NDArray[np.float64]  # (n_bags,)
    weights: NDArray[np.float64]  # (n_bags,)
    votes: list[int]
    blend: list[float] = field(default_factory=list)  # (f,)

    def to_frame(self) -> pd.DataFrame:
        """One row a listed pair: query, passage, label, share, number of bags."""
        columns = ["query_id", "passage_id", "label", "share", "n_bags", "query_text", "passage_text"]
        return pd.DataFrame([self._row(item) for item in self.evidence], columns=columns)

    @staticmethod
    def _row(item: Evidence) -> tuple[Any, ...]:
        texts = item.query_text, item.passage_text
        return item.query_id, item.passage_id, item.label, item.share, len(item.by_bag), *texts

    def __str__(self) -> str:
        lines = [f"{self.passage_id}: {self.prediction:+.4f}, {len(self.votes)} of {len(self.bags)} bags vote for it"]
        for item in self.evidence:
            taught = "relevant" if item.label > 0 else "not relevant"
            lines.append(f"  {item.share:+.4f}  {item.query_id} → {item.passage_id}, {taught}; {len(item.by_bag)} bags")
            lines += [f"           {_shortened(t)}" for t in (item.query_text, item.passage_text) if t]
        lines.append(f"  {self.others:+.4f}  {self.n_others:,} other training pairs")
        lines.append(f"  {self.intercept:+.4f}  intercept")
        lines += [f"  {share:+.4f}  pair feature {number}" for number, share in enumerate(self.blend)]
        return "\n".join(lines)


def explained(
    support: Support,
    pair: Pairs,
    bag_weights: NDArray[np.float64],
    ids: tuple[list[str], list[str]],
    passage_id: str,
    threshold: float,
    top: int,
    collection: Collection | None,
    blend: NDArray[np.float64] | None = None,
) -> Explanation:
    """Take one pair's score apart; ``ids`` of the support queries and passages, ``bag_weights`` (n_bags,)."""
    by_row = support.shares(pair)
    bags = np.array([math.fsum(by_row[a:b]) for a, b in zip(support.offsets, support.offsets[1:], strict=False)])
    bags += support.intercept
    weighted = by_row * bag_weights[support.bag]
    # A training pair that several bags learned from is listed once; with another label it is another pair, as the
    # injected protocol has them.
    key = np.stack([support.query, support.passage, support.label])
    _, first, where = np.unique(key, axis=1, return_index=True, return_inverse=True)
    where = where.ravel()
    shares = np.bincount(where, weighted)
    listed = np.lexsort((np.arange(len(shares)), -np.abs(shares)))[:top]
    listed = listed[shares[listed] != 0]
    evidence = []
    for number in listed:
        rows = np.flatnonzero(where == number)
        by_bag: dict[int, float] = {}
        for row in rows:  # a bag drawn with replacement may hold the pair more than once
            bag = int(support.bag[row])
            if bag_weights[bag] > 0:
                by_bag[bag] = by_bag.get(bag, 0.0) + float(by_row[row])
        query, passage = int(support.query[first[number]]), int(support.passage[first[number]])
        evidence.append(
            Evidence(
                query_id=ids[0][query],
                passage_id=ids[1][passage],
                label=float(support.label[first[number]]),
                share=float(shares[number]),
                by_bag=by_bag,
                **_texts(collection, ids[0][query], ids[1][passage]),
            )
        )
    rest = math.fsum(np.delete(shares, listed))
    intercept = math.fsum(support.intercept * bag_weights)
    added = [] if blend is None else blend.tolist()
    return Explanation(
        passage_id=passage_id,
        prediction=math.fsum([*(item.share for item in evidence), rest, intercept, *added]),
        evidence=evidence,
        others=rest,
        n_others=len(shares) - len(listed),
        intercept=intercept,
        bags=bags,
        weights=bag_weights,
        votes=[int(bag) for bag in np.flatnonzero((bags > threshold) & (bag_weights > 0))],
        blend=added,
    )


def _texts(collection: Collection | None, query_id: str, passage_id: str) -> dict[str, str]:
    if collection is None:
        return {}
    query, passage = collection.query_numbers([query_id]), collection.passage_numbers([passage_id])
    return {
        "query_text": collection.queries.texts(query)[0],
        "passage_text": collection.passages.texts[int(passage[0])].as_py(),
    }


def _shortened(text: str, width: int = 100) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"
