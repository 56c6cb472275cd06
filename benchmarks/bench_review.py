"""Measure how early reviews find the relevant documents, beside ASReview and BM25, and what a judgement costs.

    python benchmarks/bench_review.py FOLDER [--seeds 5] [--corpus-topics 40] [--peer] [--times]

FOLDER has topics whose documents all have a label: folders with ``records.csv.gz`` (ASReview's columns), their texts in
``topics.csv`` (columns topic and title), and BEIR collections whose queries are topics. ``--peer`` also runs ASReview
where it is installed. Finished simulations are kept in ``review.json`` and are not run again. What is found does not
depend on other work on the machine. Times do: ``--times`` measures them anew, in about three minutes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from provenance import commit, options, provenance, read_json, shown, table, write_json, write_page
from scipy import sparse
from sklearn.svm import LinearSVC

from haybale.collections import open_collection
from haybale.review import TopicFeatures, TopicLearner, read_records
from haybale.review.proposals import top_documents

TARGET = 0.95
STARTS = {"random": "one relevant, one irrelevant", "both": "the same, and the text", "text": "the text alone"}
SHARES = (0.01, 0.05)
TIMED = 4  # of the largest record files
STEPS = 100  # judgements of which the cost is measured
BATCH = 10  # documents judged at once in a large collection
TEXT = """
Each review is simulated, one document at a time, until 95 % of the relevant documents are found. WSS@95 is
95 − 100 n / N, where n documents of N were read until then; what was known at the start counts in neither. Starts:
{starts}.
All with known documents begin with the same ones, drawn at random by the seed. *ASReview* is version 3 with its default
model (ELAS u4), from one relevant and one irrelevant document. Values are means over the seeds, whose number the last
column has, column by column; *text* has nothing random but the bags, which do not rank, and is one run.""".strip()
LIMITS = """
The last few relevant documents decide WSS@95: a topic with 15 to 20 relevant documents needs all or all but one of
them. One document more or less changes its value by ten points and more, so a difference on one topic says little."""


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--corpus-topics", type=int, default=40, help="topics of each BEIR collection, evenly spread")
    parser.add_argument(
        "--copies", type=int, default=43, help="of a BEIR collection, to measure the cost of a judgement"
    )
    parser.add_argument("--peer", action="store_true", help="also run ASReview")
    parser.add_argument("--times", action="store_true", help="only measure times, on a machine without other work")
    a = parser.parse_args()
    path = a.results / "review.json"
    runs: list[dict[str, Any]] = read_json(path, [])
    done = {tuple(run[name] for name in ("topic", "by", "seed")) for run in runs}
    if a.times:
        runs = [run for run in runs if run["by"] != "time"]
    for topic, by, seed, run in timed(a) if a.times else planned(a):
        if (topic, by, seed) not in done or a.times:
            runs.append({"topic": topic, "by": by, "seed": seed, "commit": commit(), **run()})
            print(runs[-1], flush=True)
            write_json(path, runs)
    where_from = provenance(shown("bench_review.py", sys.argv[1:]))
    write_page(a.results / "review.md", [*page(pd.DataFrame(runs)), "", where_from])


def planned(a: Any) -> Iterator[tuple[str, str, int, Callable[[], dict[str, Any]]]]:
    """Yield the topic, what ranks, the seed, and a function that simulates, of each simulation."""
    named = a.folder / "topics.csv"
    texts = pd.read_csv(named).set_index("topic").title if named.exists() else {}
    for seed in range(1, a.seeds + 1):
        for records in sorted(a.folder.glob("*/records.csv.gz")):
            topic = records.parent.name
            for start in ("random", "both", *(["text"] if seed == 1 else [])):
                yield topic, start, seed, lambda at=records, start=start, seed=seed: simulated(at, texts, start, seed)
            if a.peer:
                yield topic, "ASReview", seed, lambda at=records, seed=seed: peer(at, seed)
    for folder in sorted(path.parent for path in a.folder.glob("*/corpus.jsonl*")):
        for number in range(a.corpus_topics):
            for by in ("TopicLearner", "linear", "BM25"):
                name = f"{folder.name} {number}"
                yield name, by, 1, lambda at=folder, n=number, by=by: corpus(at, n, a.corpus_topics, by)


def timed(a: Any) -> Iterator[tuple[str, str, int, Callable[[], dict[str, Any]]]]:
    """Yield the measurements of times like :func:`planned`."""
    texts = pd.read_csv(a.folder / "topics.csv").set_index("topic").title
    files = {path.parent.name: path for path in a.folder.glob("*/records.csv.gz")}
    simulated(files[min(files)], texts, "both", 1)  # compiles
    for topic in sorted(files, key=lambda name: files[name].stat().st_size)[-TIMED:]:
        for target, what in ((TARGET, "95 %"), (1.0, "all")):
            yield f"{topic}, {what}", "time", 1, lambda at=files[topic], to=target: simulated(at, texts, "both", 1, to)
    for folder in sorted(path.parent for path in a.folder.glob("*/corpus.jsonl*")):
        for copies in (1, a.copies):
            yield f"{folder.name} × {copies}", "time", 1, lambda at=folder, n=copies: cost_of(at, n)


def simulated(
    records: Path, texts: Any, start: str, seed: int, target: float = TARGET, **settings: Any
) -> dict[str, Any]:
    """Simulate the review of a record file by :class:`TopicLearner`, with these settings."""
    read = kept(records, lambda: read_records(records))
    relevant = np.isin(read.collection.doc_ids.to_pylist(), read.relevant)
    known = [] if start == "text" else priors(relevant, seed)
    features = kept((records, "features"), lambda: TopicFeatures.of(read.collection))
    began = time.process_time()
    text = None if start == "random" else texts[records.parent.name]
    learner = TopicLearner(features, text, random_state=seed, **settings)
    places = np.random.default_rng([seed, 2]).permutation(len(relevant))  # the order of equal scores
    for document in known:
        learner.judge(document, float(relevant[document]))
    needed, left = needed_of(relevant, known, target), ~np.isin(np.arange(len(relevant)), known)
    n, found, steps = 0, 0, []
    while found < needed:
        step = time.perf_counter()
        document = int(top_documents(learner.scores(), left, places, 1)[0])
        learner.judge(document, float(relevant[document]))
        steps.append(time.perf_counter() - step)
        left[document] = False
        n, found = n + 1, found + int(relevant[document])
    median, most = 1e3 * np.quantile(steps, [0.5, 0.95])
    spent = {"cpu": time.process_time() - began, "ms": median, "most ms": most, "documents": len(relevant)}
    return {"n": n, "wss": 100 * (target - n / (len(relevant) - len(known)))} | spent


def peer(records: Path, seed: int) -> dict[str, Any]:
    """Simulate the same review by ASReview's default."""
    from asreview.learner import ActiveLearningCycle
    from asreview.models.models import get_ai_config
    from asreview.simulation.simulate import Simulate

    frame = pd.read_csv(records)
    relevant = frame["label_included"].to_numpy() > 0
    known = priors(relevant, seed)
    needed = needed_of(relevant, known) + int(relevant[known].sum())

    class Enough:
        def stop(self, results: pd.DataFrame, data: Any) -> bool:
            return int(results["label"].sum()) >= needed

    began = time.process_time()
    cycle = ActiveLearningCycle.from_meta(get_ai_config()["value"])
    texts = frame[["title", "abstract"]].fillna("")
    run = Simulate(texts, relevant.astype(int), cycle, stopper=Enough(), print_progress=False)
    run.label(known)
    run.review()
    n = len(run._results) - len(known)
    return {
        "n": n,
        "wss": 100 * (TARGET - n / (len(relevant) - len(known))),
        "cpu": time.process_time() - began,
        "documents": len(relevant),
        "version": version("asreview"),
    }


def corpus(folder: Path, number: int, of: int, by: str) -> dict[str, Any]:
    """Read 5 % of a BEIR collection for one of its queries, from the query's text, then the rest by the last scores."""
    collection = kept(folder, lambda: open_collection(str(folder)))
    features = kept((folder, "features"), lambda: TopicFeatures.of(collection))
    split = collection.splits[next(iter(collection.splits))]
    query = int(split.queries[number * len(split.queries) // of])
    relevant = np.zeros(collection.n_documents, dtype=bool)
    relevant[split.judged_documents[(split.judged_queries == query) & (split.grades > 0)]] = True
    text, n_read = collection.queries.texts([query])[0], int(max(SHARES) * len(relevant))
    began, steps = time.process_time(), []
    if by == "BM25":
        from haybale import BM25, Engine

        engine = kept((folder, "engine"), lambda: Engine(collection))
        run = BM25("document").fit(engine).rank({"topic": text}, depth=len(relevant))
        order = engine.collection.document_numbers([doc_id for doc_id, _ in run["topic"]]).tolist()
        order += np.setdiff1d(np.arange(len(relevant)), order).tolist()  # those without a word of the text
    else:
        learner = (TopicLearner if by == "TopicLearner" else Linear)(features, text)
        order, left = [], np.ones(len(relevant), dtype=bool)
        while len(order) < n_read:
            step = time.perf_counter()
            scores = np.where(left, learner.scores(), -np.inf)
            for document in np.argsort(-scores, kind="stable")[:BATCH].tolist():
                learner.judge(document, float(relevant[document]))
                order.append(document)
                left[document] = False
            steps.append(time.perf_counter() - step)
        order += np.argsort(-np.where(left, learner.scores(), -np.inf), kind="stable")[: left.sum()].tolist()
    positions = np.flatnonzero(relevant[order]) + 1
    found = {
        f"recall {share}": float(relevant[order[: int(share * len(relevant))]].sum() / relevant.sum())
        for share in SHARES
    }
    return {
        **found,
        "n": int(positions[int(np.ceil(TARGET * relevant.sum() - 1e-9)) - 1]),
        "documents": len(relevant),
        "cpu": time.process_time() - began,
        "ms": 1e3 * float(np.median(steps or [0])),
    }


def cost_of(folder: Path, copies: int) -> dict[str, Any]:
    """Measure the time from a judgement to the next document, in a collection of several copies of each document."""
    features = kept((folder, "features"), lambda: TopicFeatures.of(open_collection(str(folder))))
    text = open_collection(str(folder)).queries.texts([0])[0]
    kernels = {
        name: [replace(space, matrix=sparse.vstack([space.matrix] * copies, format="csr")) for space in spaces]
        for name, spaces in features.kernels.items()
    }
    n_rows = copies * features.row_offsets[-1]
    rows = np.arange(n_rows + 1)
    learner = TopicLearner(replace(features, kernels=kernels, row_offsets=rows, passage_offsets=rows), text)
    random, left = np.random.default_rng(0), np.ones(n_rows, dtype=bool)
    spent: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    learner.scores()
    for _ in range(STEPS):
        is_relevant, document = bool(random.random() < 0.1), int(np.where(left, learner.scores(), -np.inf).argmax())
        wall, cpu = time.perf_counter(), time.process_time()
        learner.judge(document, float(is_relevant))
        left[document] = False
        np.where(left, learner.scores(), -np.inf).argmax()
        spent[is_relevant].append((time.perf_counter() - wall, time.process_time() - cpu))
    relevant, others = (1e3 * np.median(spent[key], axis=0) for key in (True, False))
    names = ("relevant ms", "relevant cpu ms", "irrelevant ms", "irrelevant cpu ms")
    return {"documents": int(n_rows)} | dict(zip(names, map(float, [*relevant, *others]), strict=True))


class Linear:
    """A linear SVM over words and pairs of words, as ASReview's default, to which the text is a relevant document."""

    def __init__(self, features: TopicFeatures, text: str) -> None:
        [self.space] = features.kernels["words"]
        vector = self.space.vector(text)
        shape = (1, self.space.matrix.shape[1])
        self.text = sparse.csr_matrix((vector.weights, vector.columns, [0, len(vector.columns)]), shape=shape)
        self.documents: list[int] = []
        self.labels: list[bool] = [True]

    def judge(self, document: int, grade: float) -> None:
        self.documents.append(document)
        self.labels.append(grade > 0)

    def scores(self) -> Any:
        labels = np.array(self.labels)
        if labels.all():
            return (self.space.matrix @ self.text.T).toarray().ravel()
        weights = np.where(labels, 1.0, labels.sum() / (9.8 * (~labels).sum()))
        rows = sparse.vstack([self.text, self.space.matrix[self.documents]])
        model = LinearSVC(C=0.11).fit(rows, labels, sample_weight=weights * len(labels) / weights.sum())
        return model.decision_function(self.space.matrix)


_KEPT: dict[Any, Any] = {}


def kept(key: Any, make: Callable[[], Any]) -> Any:
    """Return what was made for a key; only the latest 20 values are kept."""
    if key not in _KEPT:
        while len(_KEPT) > 19:
            del _KEPT[next(iter(_KEPT))]
        _KEPT[key] = make()
    return _KEPT[key]


def priors(relevant: Any, seed: int) -> list[int]:
    """Draw one relevant and one irrelevant document."""
    random = np.random.default_rng(seed)
    return [int(random.choice(np.flatnonzero(relevant))), int(random.choice(np.flatnonzero(~relevant)))]


def needed_of(relevant: Any, known: list[int], target: float = TARGET) -> int:
    """Return how many relevant documents are the target share of those that were not known."""
    return int(np.ceil(target * (relevant.sum() - relevant[known].sum()) - 1e-9))


def show_counts(counts: pd.Series) -> str:
    """Return how many seeds each column has."""
    return ", ".join(f"{int(count)}" for count in counts.fillna(0))


def record_files(english: pd.DataFrame) -> list[str]:
    """Return the table of the record files, and how far each start is from ASReview."""
    columns = [name for name in (*STARTS, "ASReview") if name in set(english.by)]
    means = english.pivot_table(index="topic", columns="by", values="wss").reindex(columns=columns)
    counts = english.groupby(["topic", "by"]).size().unstack().reindex(columns=columns)
    documents = english.groupby("topic").documents.first()
    rows = [
        (topic, int(documents[topic]), *(f"{each:.1f}" for each in means.loc[topic]), show_counts(counts.loc[topic]))
        for topic in means.index
    ]
    rows.append(("mean", "", *(f"{value:.1f}" for value in means.mean()), ""))
    lines = ["", "## WSS@95, %", *table("topic | documents | " + " | ".join(columns) + " | seeds", rows), LIMITS]
    if "ASReview" in columns:
        both = english[english.by.isin(columns)].pivot_table(index=["topic", "seed"], columns="by", values="wss")
        lines += ["", "Differences from ASReview in points, over the seeds that both have:", ""]
        for start in columns[:-1]:
            found = (both[start] - both["ASReview"]).dropna().groupby("topic").mean()
            below = [f"{topic} {value:+.1f}" for topic, value in found.items() if value < -1]
            worst = f"; by more than 1 below it: {', '.join(below) or 'none'}"
            lines.append(f"- {start}: {found.mean():+.1f} in the mean of {len(found)} topics{worst}")
    return lines


def large_collection(large: pd.DataFrame) -> list[str]:
    """Return the table of the topics of a large collection."""
    kept = large.groupby("topic").filter(lambda part: part.by.nunique() == 3)
    n = kept.topic.nunique()
    lines = ["", "## Topics of a large collection, from the text", ""]
    lines += [
        f"{n} topics, {int(kept.documents.iloc[0]):,} documents, {BATCH} judged at once until 5 % are read; the rest"
    ]
    lines += [
        "follows in the order of the last scores. *linear*: a linear SVM with ASReview's settings, to which the text is"
    ]
    lines += [f"a relevant document. *read until 95 %* has the median over topics. Runs of commit {commits_of(kept)}."]
    rows = [
        (by, *(f"{part[f'recall {share}'].mean():.3f}" for share in SHARES), int(part.n.median()))
        for by, part in kept.groupby("by")
    ]
    return lines + table("ranked by | recall after 1 % | recall after 5 % | documents read until 95 %", rows)


def times(found: pd.DataFrame) -> list[str]:
    """Return the tables of times."""
    lines = ["", "## From a judgement to the next document", "", f"Runs of commit {commits_of(found)}.", ""]
    lines += ["Simulations from *both*, seed 1, until 95 % or all of the relevant documents are found:"]
    rows = [
        (each.topic, int(each.documents), int(each.n), f"{each.ms:.1f}", f"{each['most ms']:.1f}", f"{each.cpu:.1f}")
        for _, each in found[found.n.notna()].iterrows()
    ]
    lines += table("topic | documents | judged | median ms | ms, 95th percentile | CPU seconds in all", rows)
    costs = found[found.n.isna()]
    if len(costs):
        names = ("irrelevant ms", "irrelevant cpu ms", "relevant ms", "relevant cpu ms")
        lines += ["", f"Copies of a large collection, medians of {STEPS} judgements:"]
        rows = [(int(each["documents"]), *(float(each[name]) for name in names)) for _, each in costs.iterrows()]
        lines += table(
            "documents | irrelevant, ms | irrelevant, CPU ms | relevant, ms | relevant, CPU ms", rows, words=0
        )
    return lines


def commits_of(runs: pd.DataFrame) -> str:
    return ", ".join(sorted(set(runs.commit)))


def page(runs: pd.DataFrame) -> list[str]:
    """Return the page of all simulations."""
    lines = ["# Reviews", "", TEXT.format(starts="; ".join(f"*{name}*: {what}" for name, what in STARTS.items()))]
    english = runs[runs.by.isin([*STARTS, "ASReview"])]
    if len(english):
        lines += record_files(english)
    large = runs[runs.by.isin(["TopicLearner", "linear", "BM25"])]
    if len(large):
        lines += large_collection(large)
    if (runs.by == "time").any():
        lines += times(runs[runs.by == "time"])
    ours = commits_of(english[english.by != "ASReview"]) if len(english) else commits_of(runs)
    peers = ", ".join(sorted({str(each) for each in runs[runs.by == "ASReview"].get("version", [])}))
    return [*lines, "", f"Reviews of record files are of commit {ours}" + (f"; ASReview is {peers}." if peers else ".")]


if __name__ == "__main__":
    main()
