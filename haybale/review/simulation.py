"""Simulate reviews whose judgements are known: how early are the relevant documents found, and when do rules stop?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from haybale.collections import Collection, open_collection
from haybale.collections.collection import Ints
from haybale.collections.ids import as_ids
from haybale.engine import Engine
from haybale.errors import InputError, UnknownNameError
from haybale.parameters import (
    BOOLEAN,
    COUNT,
    COUNT_OR_NONE,
    FROM_0,
    RANDOM_STATE,
    TEXT_OR_NONE,
    Interval,
    check_parameters,
)
from haybale.progress import track
from haybale.returned_values import method_of, returned_numbers
from haybale.review.proposals import Bools, Floats, MakesLearner, top_documents, topic_learner
from haybale.review.records import LabelledRecords, is_record_file, read_records
from haybale.review.screening import Screening
from haybale.review.simulation_results import SimulatedRun, Simulation
from haybale.review.stopping import StoppingRule, parse_rule

STARTS = ("random", "text", "both")
_PARAMETERS = {
    "text": TEXT_OR_NONE,
    "split": TEXT_OR_NONE,
    "seeds": COUNT,
    "target": [Interval(float, 0, 1, closed="right"), Interval(Integral, 1, 1, closed="both")],
    "sample": FROM_0,
    "explore_every": COUNT_OR_NONE,
    "learn_from": COUNT_OR_NONE,
    "duplicates": BOOLEAN,
    "random_state": RANDOM_STATE,
}


@dataclass(frozen=True)
class LabelledTopic:
    """A topic whose relevant documents are known.

    Parameters
    ----------
    name : str
    relevant : sequence of str
        Ids of the relevant documents; all others are irrelevant.
    text : str, optional
        What was looked for. Only the start ``"random"`` can do without it.
    own : str, optional
        The document that the text was taken from, which is left out.
    """

    name: str
    relevant: Sequence[str]
    text: str | None = None
    own: str | None = None


@dataclass
class _Reader:
    """One simulated reading: the labels, the documents that can still be proposed, and the learner."""

    engine: Engine
    is_relevant: Bools
    open: Bools  # the documents that can be proposed
    places: Ints  # the order of documents with equal scores, drawn at random
    drawn: Bools
    explore_every: int | None
    learner: Any
    order: list[int] = field(default_factory=list)

    def read_next(self) -> None:
        """Propose the next document, and learn its label."""
        if self.explore_every is not None and (len(self.order) + 1) % self.explore_every == 0:
            scores = self.numbers("disagreement")
        else:
            scores = self.numbers("scores")
        number = int(top_documents(scores, self.open, self.places, 1)[0])
        self.open[number] = False
        self.order.append(number)
        self.learner.judge(number, float(self.is_relevant[number]))

    def numbers(self, method: str) -> Floats:
        """Return a number for each document by a method of the learner."""
        values = getattr(self.learner, method)()
        checked: Floats = returned_numbers(values, self.open.shape, method_of(self.learner, method))
        return checked

    def screening(self, n_documents: int) -> Screening:
        """Return what stopping rules see now, with the probabilities of the learner."""
        read, rest = np.array(self.order, dtype=int), np.flatnonzero(self.open)
        probabilities = self.numbers("probabilities")
        return Screening(
            self.is_relevant[read],
            n_documents,
            self.drawn[read],
            probabilities[np.concatenate([read, rest])],
            self.is_relevant[rest[self.drawn[rest]]],
        )


def simulate(
    source: Engine | Collection | str | Path,
    *,
    start: str | Sequence[str] | None = None,
    seeds: int = 5,
    target: float = 0.95,
    rules: Sequence[str | StoppingRule] = (),
    topics: Sequence[LabelledTopic] | None = None,
    text: str | None = None,
    split: str | None = None,
    sample: int = 0,
    explore_every: int | None = None,
    learn_from: int | None = None,
    duplicates: bool = True,
    random_state: int = 0,
    learner: MakesLearner | None = None,
) -> Simulation:
    """Simulate the review of topics whose judgements are known, one document at a time.

    Each simulation reads until all relevant documents are found; the documents that would be left count as read in the
    order of their last scores, which changes no measure. Documents of equal scores are read in an order that the seed
    draws, since the order of ids often is that of the labels. Equal arguments give equal results.

    Parameters
    ----------
    source : Engine, Collection, str or Path
        Documents with judgements: an engine or its folder, a collection or its folder, where each judged query is a
        topic; or a record file of ASReview (:func:`~haybale.review.read_records`), which is one topic.
    start : {"random", "text", "both"} or several of them, optional
        What is known before the first judgement. ``"random"``: one relevant and one irrelevant document drawn at
        random, as ASReview simulates. ``"text"``: the topic's text. ``"both"``: the text and the two documents.
        Default: ``"text"`` if every topic has a text, else ``"random"``.
    seeds : int, default 5
        Number of simulations of each topic, with different random choices. For the start ``"text"`` without a sample it
        is the number of seeds of the learner.
    target : float, default 0.95
        The recall that ``WSS@95`` and the stops are measured at.
    rules : sequence of str or StoppingRule, default none
        Stopping rules, such as ``"cmh(target=0.95)"``: where they would have stopped, and the recall there.
    topics : sequence of LabelledTopic, optional
        Topics to simulate in place of the judged queries of the collection.
    text : str, optional
        The text of the topic of a record file.
    split : str, optional
        Only the judged queries of this split. Default: those of all splits.
    sample : int, default 0
        The number of documents drawn at random and judged before the reading, for rules with a certificate.
    explore_every : int, optional
        As in :class:`~haybale.Review`.
    learn_from : int, optional
        Learn from at most this many judgements, which saves time in large collections: the documents that are left are
        read in the order of the last scores. Default: learn until all relevant documents are found.
    duplicates : bool, default True
        Read and count each group of duplicates (:meth:`~haybale.Engine.duplicates`) as one document, which is relevant
        if one of them is, as a review does. If false, all documents are read and counted.
    random_state : int, default 0
        The first seed.
    learner : callable, optional
        As in :class:`~haybale.Review`.

    Returns
    -------
    Simulation
        All runs, with their measures and stops.

    Raises
    ------
    InputError
        If a topic has no relevant document, all documents are relevant, a text is needed and missing, or a parameter
        is out of range. Nothing is simulated then.
    """
    check_parameters("simulate", locals(), _PARAMETERS)
    starts = [] if start is None else [start] if isinstance(start, str) else list(start)
    for start_name in starts:
        if start_name not in STARTS:
            raise UnknownNameError("start", start_name, STARTS)
    parsed = [parse_rule(rule) if isinstance(rule, str) else rule for rule in rules]
    engine, labelled = _opened(source, topics, text, split)
    starts = starts or ["text" if all(topic.text for topic in labelled) else "random"]
    has_passage = np.diff(engine.collection.passages.doc_offsets) > 0
    prepared = [
        (start_name, *_prepared(engine, topic, has_passage, start_name, sample, duplicates))
        for topic in labelled
        for start_name in dict.fromkeys(starts)
    ]
    make, runs = learner or topic_learner, []
    pairs = [(case, seed) for case in prepared for seed in range(random_state, random_state + seeds)]
    for (chosen, topic, is_relevant, others), seed in track(pairs, "simulate"):
        before = time.perf_counter()
        random = np.random.default_rng([seed, 1])
        priors = _priors(is_relevant, others, random) if chosen != "text" else []
        is_open = others.copy()
        is_open[priors] = False
        drawn = np.zeros(len(is_open), dtype=bool)
        drawn[random.choice(np.flatnonzero(is_open), min(sample, int(is_open.sum())), replace=False)] = sample > 0
        run_learner = make(engine, None if chosen == "random" else topic.text, seed)
        for number in priors:
            run_learner.judge(number, float(is_relevant[number]))
        n = int(is_open.sum())
        places = np.random.default_rng([seed, 2]).permutation(len(is_open))
        reader = _Reader(engine, is_relevant, is_open, places, drawn, explore_every, run_learner)
        stops = _read(reader, n, parsed, learn_from or n)
        labels = is_relevant[reader.order]
        ids = [str(engine.collection.doc_ids[number].as_py()) for number in priors]
        seconds = time.perf_counter() - before
        sampled = drawn[reader.order]
        runs.append(SimulatedRun.of(topic.name, chosen, seed, ids, labels, sampled, target, stops, seconds))
    return Simulation(engine.collection.name, target, tuple(map(str, parsed)), tuple(runs))


def _read(reader: _Reader, n: int, rules: Sequence[StoppingRule], learn_from: int) -> dict[str, int | None]:
    """Read until all relevant documents are found and rules that need probabilities have stopped; return the stops.

    After ``learn_from`` documents, the others are read in the order of their scores.
    """
    live = {str(rule): (rule, set(rule.checkpoints(n))) for rule in rules if rule.needs_scores}
    stops: dict[str, int | None] = dict.fromkeys(map(str, rules))
    while reader.open.any() and (live or reader.is_relevant[reader.open].any()) and len(reader.order) < learn_from:
        reader.read_next()
        now = len(reader.order)
        due = [name for name, (_, points) in live.items() if now in points or now == n]
        if due:
            screening = reader.screening(n)
            for name in due:
                if live[name][0].check(screening).stop:
                    stops[name] = now
                    del live[name]
    rest = np.flatnonzero(reader.open)
    if len(rest):
        reader.order += top_documents(reader.numbers("scores"), reader.open, reader.places, len(rest)).tolist()
    labels, sampled = reader.is_relevant[reader.order], reader.drawn[reader.order]
    for rule in rules:
        if stops[str(rule)] is None:
            scores = reader.numbers("probabilities")[reader.order] if str(rule) in live else None
            at = rule.first_stop(labels, n, sampled=sampled, scores=scores)
            stops[str(rule)] = at if scores is None or at is None else max(at, learn_from)
    return stops


def _opened(
    source: Engine | Collection | str | Path,
    topics: Sequence[LabelledTopic] | None,
    text: str | None,
    split: str | None,
) -> tuple[Engine, list[LabelledTopic]]:
    """Return an engine of the documents, and the topics."""
    if isinstance(source, str | Path) and is_record_file(source):
        if split is not None or topics is not None:
            raise InputError(f"{source}: a record file must be one topic, found split or topics; omit them")
        records: LabelledRecords = read_records(source)
        topic = LabelledTopic(records.collection.name, records.relevant, text)
        return Engine(records.collection).snapshot(), [topic]
    if text is not None:
        raise InputError("text= needs a record file; the queries of a collection have texts, so omit it")
    engine = source if isinstance(source, Engine) else _engine_of(source)
    engine = engine.snapshot()
    if topics is not None:
        return engine, list(topics)
    return engine, _judged_queries(engine.collection, split)


def _engine_of(source: Collection | str | Path) -> Engine:
    if not isinstance(source, Collection) and Path(source, "engine.json").is_file():
        return Engine.open(source)
    return Engine(source if isinstance(source, Collection) else open_collection(source))


def _judged_queries(collection: Collection, split: str | None) -> list[LabelledTopic]:
    """Return the queries with a relevant document as topics, in the order of the collection."""
    relevant: dict[int, dict[int, None]] = {}
    for name in collection.splits if split is None else [split]:
        queries, documents = collection.split(name).relevant()
        for query, document in zip(queries.tolist(), documents.tolist(), strict=True):
            relevant.setdefault(query, {})[document] = None
    if not relevant:
        raise InputError(f"{collection.name!r} must have queries with a relevant document, found none; add judgements")

    def id_of(number: int) -> str:
        return str(collection.doc_ids[number].as_py())

    return [
        LabelledTopic(
            str(collection.queries.ids[query].as_py()),
            [id_of(number) for number in relevant[query]],
            collection.queries.texts([query])[0],
            None if collection.queries.own[query] < 0 else id_of(int(collection.queries.own[query])),
        )
        for query in sorted(relevant)
    ]


def _prepared(
    engine: Engine, topic: LabelledTopic, has_passage: Bools, start: str, sample: int, duplicates: bool
) -> tuple[LabelledTopic, Bools, Bools]:
    """Return a topic with the masks of its relevant documents and of all that can be read; check both."""
    n_known = 0 if start == "text" else 1
    others = has_passage.copy()
    if topic.own is not None:
        others[engine.collection.document_numbers([topic.own])] = False
    is_relevant = np.zeros(len(others), dtype=bool)
    is_relevant[engine.collection.document_numbers(as_ids(topic.relevant, f"relevant documents of {topic.name!r}"))] = 1
    is_relevant &= others
    if duplicates:
        _count_groups_once(engine, is_relevant, others)
    n_relevant, n = int(is_relevant.sum()), int(others.sum())
    if n_relevant <= n_known or n_relevant == n:
        which = "both relevant and irrelevant documents" + (", two of each kind" if n_known else "")
        raise InputError(
            f"topic {topic.name!r} must have {which}; found {n_relevant:,} relevant of {n:,}; leave it out"
        )
    if start != "random" and not (topic.text or "").strip():
        raise InputError(f"topic {topic.name!r} needs a text for the start {start!r}, found none; give text=")
    if sample > n:
        raise InputError(f"sample must be at most {n:,}, the documents of topic {topic.name!r}, found {sample:,}")
    return topic, is_relevant, others


def _count_groups_once(engine: Engine, is_relevant: Bools, others: Bools) -> None:
    """Leave out all documents of each group of duplicates but the first, which is relevant if one of them is."""
    for group in engine.duplicates().groups:
        numbers = engine.collection.document_numbers(group.doc_ids)
        numbers = numbers[others[numbers]]
        is_relevant[numbers[:1]] = is_relevant[numbers].any()
        is_relevant[numbers[1:]] = others[numbers[1:]] = False


def _priors(is_relevant: Bools, others: Bools, random: np.random.Generator) -> list[int]:
    """Return a relevant and an irrelevant document, drawn at random."""
    return [int(random.choice(np.flatnonzero(others & mask))) for mask in (is_relevant, ~is_relevant)]
