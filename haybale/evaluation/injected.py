"""The ensemble paper's own protocol: classify injected passages. Repeats its table; says nothing of rankings.

For each test query the candidates are its k nearest passages, all called negative, and the last passage of
each relevant document, called positive. The figures are of the positive class under the vote. What is measured
is how well the injected passages are told from the neighbours, not how well a user finds them: to make the
candidates one must know the answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, precision_recall_fscore_support

from haybale.engine import Engine
from haybale.ensemble import SVREnsemble, candidate_rows
from haybale.errors import InputError
from haybale.rankers import QueryBatch, Training
from haybale.retrieval.hits import from_flat
from haybale.timing import timed

CAVEAT = (
    "protocol 'injected': relevant passages are put among the candidates by their labels, and relevant neighbours "
    "count as negatives. These are classification figures, not retrieval results; they cannot be compared with the "
    "end-to-end table."
)


@dataclass(frozen=True)
class Classification:
    """Figures of the positive class over (query, passage) rows; 0 where a ratio has nothing below the line."""

    precision: float
    recall: float
    f1: float
    accuracy: float
    n_positive: int
    n_rows: int


def classify(decision: NDArray[np.bool_], label: NDArray[np.bool_]) -> Classification:
    """Compare decisions with labels, (n,) each.

    >>> classify(np.array([True, True, False, True]), np.array([True, False, True, True])).accuracy
    0.5
    """
    figures = precision_recall_fscore_support(label, decision, average="binary", zero_division=0)[:3]
    precision, recall, f1, accuracy = map(float, (*figures, accuracy_score(label, decision)))
    return Classification(precision, recall, f1, accuracy, int(label.sum()), len(label))


@dataclass(frozen=True)
class InjectedOutcome:
    """Figures of the positive class for the paper's settings, and the ensemble they are of."""

    figures: Classification
    ensemble: SVREnsemble


def classify_injected(engine: Engine, split: str = "dev", train: str = "train", **settings: Any) -> InjectedOutcome:
    """Train on injected candidates of the training queries, classify those of a split.

    Parameters
    ----------
    engine : Engine
        Of dense vectors, since the paper's settings standardise features.
    split, train : str
    **settings
        Of :meth:`SVREnsemble.as_published`, over the paper's.
    """
    part = engine.collection.split(split)  # an unknown one is refused before the training
    if train == split:
        raise InputError(f"the ensemble would be trained and evaluated on the same split, {split!r}")
    ensemble = SVREnsemble.as_published(**({"protocol": "injected", "n_jobs": -1} | settings))
    training, index = Training.of(engine, train), engine.passages
    with timed("train svr-paper"):
        ensemble.fit(index, training.batch.vectors, training.relevant, exclude=training.batch.own)
    batch = QueryBatch(engine, engine.collection.queries.take(part.queries))
    asked = batch.vectors
    with timed("classify"):
        near = index.search(asked, min(ensemble.k, len(index)), exclude=batch.own)
        rows = candidate_rows("injected", near, engine.collection.relevant_ids(split), index, asked)
        # The labels travel as scores: one table holds the candidates of each query, the other what they are.
        table = from_flat(int(asked.shape[0]), rows.query, rows.passage, rows.label.astype(np.float32))
        real = table.passages >= 0
        figures = classify(ensemble.relevant(asked, table.passages)[real], table.scores[real] > 0)
    return InjectedOutcome(figures, ensemble)
