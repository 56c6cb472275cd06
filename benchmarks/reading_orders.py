"""Simulate reviews of topics whose documents all have labels, and keep the order in which documents were read."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from provenance import commit

from haybale.review import TopicFeatures, TopicLearner

RECORDS = "reviews of their own collection"
LARGE, FIRST = 5000, 0.02  # of a collection with more documents, this share is read one by one
FURTHER = 0.25  # of a smaller one, all until the last relevant document, and this share of the collection
GROWTH = 0.05  # the probabilities are kept whenever the judged documents grew by this share


@dataclass(frozen=True)
class ReadingOrder:
    """The order in which one simulated review read a topic's documents, without the two that it began with.

    Parameters
    ----------
    labels : (n,) bool
        Relevant or not, in reading order.
    probabilities : (n,) float
        The learner's at the end, in reading order.
    kept_at, recall, deviation : (n_kept,) arrays
        Numbers of documents read, and the recall that the learner's probabilities then implied.
    """

    topic: str
    seed: int
    labels: NDArray[np.bool_]
    probabilities: NDArray[np.float64]
    kept_at: NDArray[np.int64]
    recall: NDArray[np.float64]
    deviation: NDArray[np.float64]

    def oracle(self, target: float) -> int:
        """Return the fewest documents, in this order, that reach a recall."""
        needed = int(np.ceil(target * self.labels.sum() - 1e-9))
        return int(np.searchsorted(np.cumsum(self.labels), needed)) + 1

    def recall_at(self, n: int) -> float:
        return float(self.labels[:n].sum() / self.labels.sum())


def orders_of(folder: Path, seeds: int, corpus_seeds: int, kept: Path | None) -> dict[str, list[ReadingOrder]]:
    """Return reading orders by group of topics; those in the folder ``kept`` are read, new ones are written there."""
    groups: dict[str, list[ReadingOrder]] = {}
    for group, name, make in topics(folder):
        texts: Any = None
        for seed in range(1, 1 + (seeds if group == RECORDS else corpus_seeds)):
            file = None if kept is None else kept / f"{name}-{seed}.npz"
            if file is not None and file.exists():
                order = _read(file, name, seed)
            else:
                texts = texts or make()
                order = simulate(name, seed, *texts)
                if file is not None:
                    file.parent.mkdir(parents=True, exist_ok=True)
                    with (file.parent / "commits").open("a", encoding="utf-8") as commits:
                        commits.write(f"{commit()}\n")
                    np.savez_compressed(file, **{k: v for k, v in vars(order).items() if isinstance(v, np.ndarray)})
            groups.setdefault(group, []).append(order)
            print(f"  {name} {seed}: 95 % after {order.oracle(0.95):,} of {len(order.labels):,}", flush=True)
    return groups


def learner_commits(kept: Path | None) -> list[str]:
    """Return the commits of the learner that made the reading orders."""
    return [commit()] if kept is None else sorted(set((kept / "commits").read_text(encoding="utf-8").splitlines()))


def _read(file: Path, name: str, seed: int) -> ReadingOrder:
    with np.load(file) as arrays:
        return ReadingOrder(name, seed, **dict(arrays))


def topics(folder: Path) -> Iterator[tuple[str, str, Any]]:
    """Yield each topic's group, its name, and what makes its vectors and labels."""
    for records in sorted(folder.glob("*/records.csv.gz")):
        yield RECORDS, records.parent.name, lambda path=records: _records(path)
    for corpus in sorted(folder.glob("*/corpus.jsonl.gz")):
        vectors: list[Any] = []
        qrels = pd.read_csv(corpus.parent / "qrels" / "all.tsv", sep="\t", dtype=str)
        query, document = qrels.columns[0], qrels.columns[-2]
        for topic, rows in qrels[qrels.iloc[:, -1].astype(int) > 0].groupby(query):
            ids = set(rows[document])
            yield corpus.parent.name, str(topic), lambda path=corpus, ids=ids, kept=vectors: _corpus(path, ids, kept)


def _records(path: Path) -> tuple[TopicFeatures, NDArray[np.bool_]]:
    frame = pd.read_csv(path, keep_default_na=False)
    texts = (frame["title"] + " " + frame["abstract"]).tolist()
    return TopicFeatures.of(texts), frame["label_included"].to_numpy() > 0


def _corpus(path: Path, relevant: set[str], kept: list[Any]) -> tuple[TopicFeatures, NDArray[np.bool_]]:
    """Return the vectors of a corpus, which all its topics share, and one topic's labels."""
    if not kept:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            documents = [json.loads(line) for line in lines]
        kept += [[each["_id"] for each in documents], TopicFeatures.of([each["text"] for each in documents])]
    return kept[1], np.array([name in relevant for name in kept[0]])


def simulate(topic: str, seed: int, features: TopicFeatures, labels: NDArray[np.bool_]) -> ReadingOrder:
    """Simulate a review from one relevant and one irrelevant document."""
    rng, learner = np.random.default_rng(seed), TopicLearner(features, random_state=seed)
    known = [int(rng.choice(np.flatnonzero(labels == wanted))) for wanted in (True, False)]
    unread, read = np.ones(len(labels), dtype=bool), []
    unread[known] = False
    for document in known:
        learner.judge(document, float(labels[document]))
    most = round(FIRST * len(labels)) if len(labels) > LARGE else len(labels) - 2
    kept, next_kept = [], 1
    while len(read) < most:
        if len(read) >= next_kept:
            kept.append((len(read), *implied_recall(learner.probabilities(), read)))
            next_kept = len(read) + max(1, round(GROWTH * len(read)))
        rows = np.flatnonzero(unread)
        document = int(rows[np.argmax(learner.scores()[rows])])  # of equal scores the first
        learner.judge(document, float(labels[document]))
        unread[document] = False
        read.append(document)
        if len(labels) <= LARGE and labels[document] and not labels[unread].any():
            most = min(most, len(read) + round(FURTHER * len(labels)))
    rows, p = np.flatnonzero(unread), learner.probabilities()
    order = np.array([*read, *rows[np.argsort(-learner.scores()[rows], kind="stable")]])
    kept += [(n, *implied_recall(p, order[:n])) for n in range(len(read), len(order), max(1, len(order) // 200))]
    at, recall, deviation = (np.array(values) for values in zip(*kept, strict=True))
    return ReadingOrder(topic, seed, labels[order], p[order], at, recall, deviation)


def implied_recall(p: NDArray[np.float64], read: Any) -> tuple[float, float]:
    """Return the recall that probabilities imply, and its standard deviation; see haybale.review.Quant."""
    known, total, variance = p[read].sum(), p.sum(), p * (1 - p)
    return float(known / total), float(np.sqrt(known**2 / total**4 * variance.sum() + variance[read].sum() / total**2))
