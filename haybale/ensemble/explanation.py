"""Why a passage got its score: the training pairs whose support vectors carry it, with shares that sum to it."""

from __future__ import annotations

import math
from dataclasses import dataclass
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

    ``prediction`` is ``math.fsum`` of the listed shares, ``others`` (the pairs not listed) and ``intercept``, exactly;
    it is the mean of ``bags``, the predictions of the single bags. ``votes`` are the bags over the threshold.
    """

    passage_id: str
    prediction: float
    evidence: list[Evidence]  # by the size of the share
    others: float
    n_others: int
    intercept: float
    bags: NDArray[np.float64]  # (n_bags,)
    votes: list[int]

    def to_frame(self) -> pd.DataFrame:
        """One row a listed pair: query, passage, label, share, number of bags, texts."""
        columns = ["query_id", "passage_id", "label", "share", "n_bags", "query_text", "passage_text"]
        rows = [vars(item) | {"n_bags": len(item.by_bag)} for item in self.evidence]
        return pd.DataFrame(rows, columns=columns)

    def __str__(self) -> str:
        lines = [f"{self.passage_id}: {self.prediction:+.4f}, {len(self.votes)} of {len(self.bags)} bags vote for it"]
        for item in self.evidence:
            taught = "relevant" if item.label > 0 else "not relevant"
            lines.append(f"  {item.share:+.4f}  {item.query_id} → {item.passage_id}, {taught}; {len(item.by_bag)} bags")
            for text in filter(None, (item.query_text, item.passage_text)):
                flat = " ".join(text.split())
                lines.append(f"           {flat if len(flat) <= 100 else flat[:99] + '…'}")
        lines.append(f"  {self.others:+.4f}  {self.n_others:,} other training pairs")
        lines.append(f"  {self.intercept:+.4f}  intercept")
        return "\n".join(lines)


def explained(
    support: Support,
    pair: Pairs,
    ids: tuple[list[str], list[str]],
    passage_id: str,
    threshold: float,
    top: int,
    collection: Collection | None,
) -> Explanation:
    """Take one pair's score apart; ``ids`` of the support queries and passages."""
    by_row = support.shares(pair)
    bags = np.array([math.fsum(by_row[a:b]) for a, b in zip(support.offsets, support.offsets[1:], strict=False)])
    bags += support.intercept
    # A training pair that several bags learned from is listed once; with another label it is another pair, as the
    # injected protocol has them.
    key = np.stack([support.query, support.passage, support.label])
    _, first, where = np.unique(key, axis=1, return_index=True, return_inverse=True)
    where = where.ravel()
    shares = np.bincount(where, by_row * (1 / support.n_bags))
    listed = np.lexsort((np.arange(len(shares)), -np.abs(shares)))[:top]
    listed = listed[shares[listed] != 0]
    evidence = []
    for number in listed:
        by_bag: dict[int, float] = {}
        for row in np.flatnonzero(where == number):  # a bag drawn with replacement may hold the pair more than once
            bag = int(support.bag[row])
            by_bag[bag] = by_bag.get(bag, 0.0) + float(by_row[row])
        query_id, taught = ids[0][int(support.query[first[number]])], ids[1][int(support.passage[first[number]])]
        label, share = float(support.label[first[number]]), float(shares[number])
        evidence.append(Evidence(query_id, taught, label, share, by_bag, **_texts(collection, query_id, taught)))
    rest = math.fsum(np.delete(shares, listed))
    intercept = math.fsum(support.intercept * (1 / support.n_bags))
    return Explanation(
        passage_id=passage_id,
        prediction=math.fsum([*(item.share for item in evidence), rest, intercept]),
        evidence=evidence,
        others=rest,
        n_others=len(shares) - len(listed),
        intercept=intercept,
        bags=bags,
        votes=np.flatnonzero(bags > threshold).tolist(),
    )


def _texts(collection: Collection | None, query_id: str, passage_id: str) -> dict[str, Any]:
    if collection is None:
        return {}
    query, passage = collection.query_numbers([query_id]), collection.passage_numbers([passage_id])
    text = collection.passages.texts[int(passage[0])].as_py()
    return {"query_text": collection.queries.texts(query)[0], "passage_text": text}
