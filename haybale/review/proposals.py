"""Choose the documents that a review proposes next: the learner's scores, with ties by places, such as those of ids."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from haybale.arrow import numbers_of
from haybale.collections.collection import Ints, Strings
from haybale.engine import Engine

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


class Learner(Protocol):
    """What a review needs of a learner; :class:`~haybale.review.TopicLearner` is the one that it uses by default.

    Documents are numbers in the collection of the engine's snapshot.
    """

    def judge(self, document: int, grade: float) -> None:
        """Learn that a document is relevant (a grade above 0) or irrelevant."""

    def unjudge(self, document: int) -> None:
        """Forget what was judged about a document."""

    def scores(self) -> Floats:
        """Return a score for each document, (n_documents,); a higher one is more likely relevant."""

    def probabilities(self) -> Floats:
        """Return the probability, (n_documents,), that each document is relevant."""

    def disagreement(self) -> Floats:
        """Return how unsure the learner is about each document, (n_documents,)."""

    def best_passage(self, document: int) -> int:
        """Return the number of the passage by which a document has its score."""


class MakesLearner(Protocol):
    """A function that makes the learner of a topic."""

    def __call__(self, engine: Engine, text: str | None, random_state: int) -> Learner: ...


def topic_learner(engine: Engine, text: str | None, random_state: int) -> Learner:
    """Return the learner that reviews and simulations use by default."""
    from haybale.review.learner import TopicFeatures, TopicLearner

    return TopicLearner(TopicFeatures.of(engine), text, random_state=random_state)


def id_places(doc_ids: Strings) -> Ints:
    """Return the place of each document in the order of ids, (n_documents,)."""
    order = numbers_of(pc.sort_indices(doc_ids)).astype(np.int64)
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return places


def top_documents(scores: Floats, candidates: Bools, places: Ints, n: int) -> Ints:
    """Return the n candidates with the highest scores; of equal scores the one with the lowest of ``places``.

    >>> top_documents(np.array([1.0, 3.0, 3.0, 2.0]), np.array([True, True, True, False]), np.array([0, 2, 1, 3]), 2)
    array([2, 1])
    """
    rows = np.flatnonzero(candidates)
    if 0 < n < len(rows):
        least = np.partition(scores[rows], len(rows) - n)[len(rows) - n]
        rows = rows[scores[rows] >= least]
    return rows[np.lexsort((places[rows], -scores[rows]))][:n]
