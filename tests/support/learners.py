"""A tiny learner for the tests of reviews: the terms of the topic and of relevant documents, counted.

Its scores depend on which documents are judged and how, and on nothing else, so they are easy to check.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np

from haybale import Engine


class CountingLearner:
    """Score a document by its terms: 1 for each of the topic, 1 more for each relevant document with it."""

    def __init__(self, engine: Engine, text: str | None, random_state: int) -> None:
        collection, self.analyzer = engine.collection, engine.analyzer
        self.offsets = collection.passages.doc_offsets
        self.passages = [set(self.analyzer.terms(text)) for text in collection.passages.texts.to_pylist()]
        self.terms = [set().union(*self.passages[a:b]) for a, b in pairwise(self.offsets)]
        self.topic = set(self.analyzer.terms(text or ""))
        self.judged: dict[int, float] = {}
        self.calls: list[Any] = []

    def judge(self, document: int, grade: float) -> None:
        assert document not in self.judged
        self.calls.append(("judge", document, grade))
        self.judged[document] = grade

    def unjudge(self, document: int) -> None:
        self.calls.append(("unjudge", document))
        del self.judged[document]

    def _weights(self) -> Counter[str]:
        weights: Counter[str] = Counter(dict.fromkeys(self.topic, 1.0))
        for document, grade in sorted(self.judged.items()):
            for term in self.terms[document]:
                weights[term] += 1.0 if grade > 0 else -0.25
        return weights

    def scores(self) -> np.ndarray:
        weights = self._weights()
        return np.array([sum(weights[t] for t in sorted(terms)) / (len(terms) or 1) for terms in self.terms])

    def probabilities(self) -> np.ndarray:
        return 1 / (1 + np.exp(-self.scores()))

    def disagreement(self) -> np.ndarray:
        return -np.abs(self.scores())

    def best_passage(self, document: int) -> int:
        weights, start, end = self._weights(), *self.offsets[document : document + 2]
        return int(start) + int(np.argmax([sum(weights[t] for t in terms) for terms in self.passages[start:end]]))
