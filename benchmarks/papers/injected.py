"""The ensemble paper's own protocol: classify injected passages. It repeats the paper's table and ranks nothing.

    python benchmarks/papers/injected.py FOLDER [--split dev] [--width 256] [--rows-per-bag 8000]

FOLDER may be pydocs. For each query of the split, the candidates are its k nearest passages, all labelled negative, and
the last passage of each relevant document, labelled positive. The figures are those of the positive class, under the
vote of the ensemble. They measure how well injected passages are told from neighbours, not how well a user finds
anything: the candidates depend on the labels. They cannot be compared with end-to-end results.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, precision_recall_fscore_support

from haybale import Engine, InputError, SVREnsemble
from haybale.ensemble import candidate_rows
from haybale.rankers import QueryBatch, Training
from haybale.retrieval.hits import from_flat
from haybale.timing import timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", help="pydocs, or a folder")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--width", type=int, default=256, help="width of the LSA vectors")
    parser.add_argument("--rows-per-bag", type=int, default=8000)
    a = parser.parse_args()
    engine = Engine(a.collection, encoder=f"lsa(n_components={a.width})")
    print(classify_injected(engine, a.split, rows_per_bag=a.rows_per_bag))


@dataclass(frozen=True)
class Classification:
    """Measures of the positive class over (query, passage) rows; 0 where a ratio divides by 0."""

    precision: float
    recall: float
    f1: float
    accuracy: float
    n_positive: int
    n_rows: int


def classify(decision: NDArray[np.bool_], label: NDArray[np.bool_]) -> Classification:
    """Compare decisions with labels, (n,) each."""
    figures = precision_recall_fscore_support(label, decision, average="binary", zero_division=0)[:3]
    precision, recall, f1, accuracy = map(float, (*figures, accuracy_score(label, decision)))
    return Classification(precision, recall, f1, accuracy, int(label.sum()), len(label))


def classify_injected(engine: Engine, split: str = "dev", train: str = "train", **settings: Any) -> Classification:
    """Train on injected candidates of the training queries, and classify those of a split.

    Parameters
    ----------
    engine : Engine
        With dense vectors, because the paper's settings standardise features.
    split, train : str
    **settings
        Parameters of the ensemble other than those of :meth:`SVREnsemble.as_published`.
    """
    part = engine.collection.split(split)  # raises for an unknown split before training
    if train == split:
        raise InputError(f"the ensemble would be trained and evaluated on the same split, {split!r}")
    ensemble = SVREnsemble.as_published(**({"protocol": "injected", "n_jobs": -1} | settings))
    training, index = Training.of(engine, train), engine.passages
    with timed("train svr-paper"):
        ensemble.fit(index, training.batch.vectors, training.relevant, exclude=training.batch.own)
    batch = QueryBatch(engine, engine.collection.queries.take(part.queries))
    vectors = batch.vectors
    with timed("classify"):
        near = index.search(vectors, min(ensemble.k, len(index)), exclude=batch.own)
        rows = candidate_rows("injected", near, engine.collection.relevant_ids(split), index, vectors)
        # The table has the labels as its scores.
        table = from_flat(int(vectors.shape[0]), rows.query, rows.passage, rows.label.astype(np.float32))
        real = table.passages >= 0
        return classify(ensemble.relevant(vectors, table.passages)[real], table.scores[real] > 0)


if __name__ == "__main__":
    main()
