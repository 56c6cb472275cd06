"""Measure how well the probabilities of a review agree with what is relevant, over topics and stages.

    python benchmarks/bench_calibration.py FOLDER [--seeds 1]

FOLDER is that of bench_review.py; its record files are reviewed. Finished reviews are kept in ``calibration.json``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from bench_review import priors
from provenance import commit, options, provenance, read_json, shown, table, write_json, write_page
from sklearn.isotonic import IsotonicRegression

from haybale.drawing import draw_lines
from haybale.review import TopicFeatures, TopicLearner, read_records
from haybale.review.calibration import calibration_targets, fit_probabilities

STAGES = (0.05, 0.1, 0.2, 0.4)  # shares of the documents that were read
EDGES = (0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # of the bins of probabilities
GROWTH = 0.1  # the probability of the proposed document is kept whenever the judged documents grew by this share
WAYS = {"sigmoid": "the sigmoid of the package", "isotonic": "isotonic regression of the same values and weights"}
TEXT = """
Each topic is reviewed one document at a time, from its text, one relevant and one irrelevant document. When 5, 10, 20
and 40 % of the documents have been read, the probabilities of the unread documents are compared with their labels,
which no fit sees. *expected* is the sum of the probabilities, *relevant* the number of relevant documents.""".strip()
PROPOSED = """
Whenever the judged documents grew by 10 %, the probability of the document that is proposed next is kept: those are the
probabilities that a judge sees.""".strip()


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    a = parser.parse_args()
    path = a.results / "calibration.json"
    reviews: list[dict[str, Any]] = read_json(path, [])
    done = {(each["topic"], each["seed"]) for each in reviews}
    texts = pd.read_csv(a.folder / "topics.csv").set_index("topic").title
    for records in sorted(a.folder.glob("*/records.csv.gz")):
        for seed in range(1, a.seeds + 1):
            topic = records.parent.name
            if (topic, seed) not in done:
                found = reviewed(records, texts[topic], seed)
                reviews.append({"topic": topic, "seed": seed, "commit": commit(), **found})
                print(topic, seed, flush=True)
                write_json(path, reviews, indent=None)
    draw(reviews, a.results / "calibration.svg")
    where_from = provenance(shown("bench_calibration.py", sys.argv[1:]), more=("scipy",))
    write_page(a.results / "calibration.md", [*page(reviews), "", where_from])


def reviewed(records: Path, text: str, seed: int) -> dict[str, Any]:
    """Return sums over bins of probabilities of the unread documents, by way and stage, and proposed documents."""
    read = read_records(records)
    relevant = np.isin(read.collection.doc_ids.to_pylist(), read.relevant)
    learner = TopicLearner(TopicFeatures.of(read.collection), text, random_state=seed)
    left = np.ones(len(relevant), dtype=bool)
    for document in priors(relevant, seed):
        learner.judge(document, float(relevant[document]))
        left[document] = False
    bins: dict[str, Any] = {way: {} for way in WAYS}
    proposed, next_kept, n = [], 1, 0
    stages = {round(share * len(relevant)): share for share in STAGES}
    while n < max(stages):
        document = int(np.where(left, learner.scores(), -np.inf).argmax())
        if n >= next_kept:
            proposed.append([float(learner.probabilities()[document]), int(relevant[document])])
            next_kept = n + max(1, round(GROWTH * n))
        learner.judge(document, float(relevant[document]))
        left[document], n = False, n + 1
        if n in stages:
            for way, p in both_ways(learner, left).items():
                bins[way][str(stages[n])] = binned(p, relevant[left])
    return {"bins": bins, "proposed": proposed}


def both_ways(learner: TopicLearner, left: Any) -> dict[str, Any]:
    """Return the probabilities of the unread documents, by way."""
    with recorded_fits() as fits:
        by_sigmoid = learner.probabilities()[left]
    if not fits:  # only relevant or only irrelevant documents were judged
        return dict.fromkeys(WAYS, by_sigmoid)
    [(values, labels, share, rest)] = fits
    scores, targets, weights = calibration_targets(values, labels, share, rest)
    isotonic = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(scores, targets, sample_weight=weights)
    return {"sigmoid": by_sigmoid, "isotonic": isotonic.predict(rest)}


@contextmanager
def recorded_fits() -> Iterator[list[tuple[Any, ...]]]:
    """Yield the arguments of each fit of probabilities."""
    fits: list[tuple[Any, ...]] = []

    def recording(*values: Any) -> tuple[float, float]:
        fits.append(values)
        return fit_probabilities(*values)

    with patch("haybale.review.learner.fit_probabilities", recording):
        yield fits


def binned(p: Any, relevant: Any) -> dict[str, list[float]]:
    """Return by bin the number of documents, the sum of their probabilities and how many are relevant; and Brier."""
    place = np.clip(np.searchsorted(EDGES, p, side="right") - 1, 0, len(EDGES) - 2)
    n = len(EDGES) - 1
    return {
        "documents": np.bincount(place, minlength=n).tolist(),
        "expected": np.bincount(place, p, n).tolist(),
        "relevant": np.bincount(place, relevant, n).tolist(),
        "squares": [float(((p - relevant) ** 2).sum())],
    }


def summed(reviews: list[dict[str, Any]], way: str, stages: tuple[float, ...] = STAGES) -> dict[str, Any]:
    """Return the sums over reviews and stages."""
    parts = [each["bins"][way][str(stage)] for each in reviews for stage in stages]
    return {name: np.sum([part[name] for part in parts], axis=0) for name in parts[0]}


def draw(reviews: list[dict[str, Any]], path: Path) -> None:
    """Draw the share of relevant documents over the mean probability of each bin."""
    curves: dict[str, Any] = {"equal": (np.array(EDGES[1:]), np.array(EDGES[1:]))}
    for way in WAYS:
        found = summed(reviews, way)
        kept = found["expected"] > 0
        curves[way] = (
            found["expected"][kept] / found["documents"][kept],
            found["relevant"][kept] / found["documents"][kept],
        )
    proposed = np.array([pair for each in reviews for pair in each["proposed"]])
    curves["proposed documents"] = np.array([part.mean(axis=0) for part in proposed_bins(proposed)]).T
    draw_lines(curves, x_label="mean probability", y_label="share that is relevant", log_x=True, path=path)


def proposed_bins(proposed: Any) -> list[Any]:
    """Return the proposed documents in five bins of equal size, by their probability."""
    return np.array_split(proposed[np.argsort(proposed[:, 0], kind="stable")], 5)


def page(reviews: list[dict[str, Any]]) -> list[str]:
    """Return the page."""
    lines = ["# Probabilities of a review", "", TEXT, "", "![Reliability](calibration.svg)"]
    rows: list[Any] = []
    for way, what in WAYS.items():
        for stage in STAGES:
            found = summed(reviews, way, (stage,))
            n = found["documents"].sum()
            brier = float(found["squares"][0] / n)
            rows.append(
                (what, f"{stage:.0%}", int(n), float(found["expected"].sum()), int(found["relevant"].sum()), brier)
            )
    lines += ["", "## Unread documents, all topics together"]
    lines += table("way | read | documents | expected | relevant | Brier score", rows, words=2)
    lines += ["", "## Reliability of the unread documents, all stages together"]
    rows = []
    for place, (low, high) in enumerate(pairwise(EDGES)):
        cells: list[Any] = [f"{low:g} to {high:g}"]
        for way in WAYS:
            found = summed(reviews, way)
            n = int(found["documents"][place])
            shares = [float(found[name][place] / n) for name in ("expected", "relevant")] if n else ["", ""]
            cells += [n, *shares]
        rows.append(cells)
    names = " | ".join(f"{way}: documents | mean probability | relevant" for way in WAYS)
    lines += table(f"probability | {names}", rows)
    lines += ["", "## Documents proposed to a judge", "", PROPOSED]
    proposed = np.array([pair for each in reviews for pair in each["proposed"]])
    rows = [(len(part), float(part[:, 0].mean()), float(part[:, 1].mean())) for part in proposed_bins(proposed)]
    lines += table("documents | mean probability | relevant", rows, words=0)
    lines += ["", "## By topic, sigmoid, all stages together"]
    rows = []
    for topic in sorted({each["topic"] for each in reviews}):
        found = summed([each for each in reviews if each["topic"] == topic], "sigmoid")
        n = found["documents"].sum()
        rows.append((topic, float(found["expected"].sum() / n), float(found["relevant"].sum() / n)))
    lines += table("topic | mean probability | relevant", rows)
    seeds = max(each["seed"] for each in reviews)
    commits = ", ".join(sorted({each["commit"] for each in reviews}))
    return [*lines, "", f"Seeds: {seeds}. The learner is that of revision {commits}."]


if __name__ == "__main__":
    main()
