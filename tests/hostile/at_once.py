"""Rank in threads and processes while others add, replace and remove documents: each answer is of one state."""

from __future__ import annotations

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from hostile.target import CORRECT, Cases, Target
from support.topics import word

import haybale
from haybale import Engine, Ranker
from haybale.errors import StoreError

RANKERS = ("bm25", "bm25-doc", "knn", "knn-doc", "parm-vrrf", "bm25-parm-rrf", "rrf(bm25,knn)", "bm25(k1=0.7)", "MODEL")
Change = tuple[str, Any]
Ranked = list[tuple[str, float]]


def at_once(target: Target, rng: random.Random) -> Cases:
    for number in count():
        kind, name = rng.choice((_threads, _processes, _objects)), rng.choice(RANKERS)
        yield f"{kind.__name__} with {name} {number}", partial(_changed, target, kind, name, rng.randrange(2**32))


def _changed(target: Target, kind: Any, name: str, seed: int) -> str:
    """Compare the answers during changes with those after each change on a copy."""
    rng, changes, mine = random.Random(seed), [], list[str]()
    for number in range(5):
        kind_of_change, texts = rng.choice(("add", "replace", "remove")) if mine else "add", [_text(rng), _text(rng)]
        doc_id = f"n{number}" if kind_of_change == "add" else rng.choice(mine)
        changes.append((kind_of_change, [doc_id] if kind_of_change == "remove" else {doc_id: texts}))
        mine = (
            [*mine, doc_id] if kind_of_change == "add" else [each for each in mine if each in texts or each != doc_id]
        )
        mine += [doc_id] * (kind_of_change == "replace")

    def ask(engine: Engine, ranker: Ranker | None = None) -> Ranked:
        return (ranker or fitted(engine)).rank({"q": query}, depth=12)["q"]

    def fitted(engine: Engine) -> Ranker:
        return haybale.load(target.folder / "svr", engine) if name == "MODEL" else haybale.parse(name).fit(engine)

    query, engine, folder = _text(rng), Engine.open(target.copy("engine")), target.copy("engine")
    states = [ask(engine)]
    for change in changes:
        _make(engine, change)
        states.append(ask(engine))
    for found, before, after in kind(folder, changes, fitted, ask):
        possible = states[before : after + 1]
        assert any(_equal(found, state) for state in possible), f"an answer of no state from {before} to {after}"
    return CORRECT


def _text(rng: random.Random) -> str:
    return " ".join(word(rng.randrange(40)) for _ in range(5))


def _equal(found: Ranked, expected: Ranked) -> bool:
    """Compare answers; documents with equal scores but for rounding may change places."""
    one, other = dict(found), dict(expected)
    return one.keys() == other.keys() and all(abs(one[doc] - other[doc]) <= 1e-5 for doc in one)


def _make(engine: Engine, change: Change) -> None:
    for attempt in range(800):
        try:
            getattr(engine, change[0])(change[1])
            return
        except StoreError:  # a reader writes an index
            if attempt == 799:
                raise
            time.sleep(0.01)


def _threads(folder: Path, changes: list[Change], fitted: Any, ask: Any) -> list[tuple[Ranked, int, int]]:
    engine = Engine.open(folder)
    ranker, n_begun, n_done = fitted(engine), [0], [0]

    def change() -> None:
        for each in changes:
            n_begun[0] += 1
            _make(engine, each)
            n_done[0] += 1
            time.sleep(0.005)

    def keep_asking() -> list[tuple[Ranked, int, int]]:
        answers = []
        while not changing.done() or not answers:
            before = n_done[0]
            answers.append((ask(engine, ranker), before, n_begun[0]))
        return answers

    with ThreadPoolExecutor(4) as threads:
        changing = threads.submit(change)
        asking = [threads.submit(keep_asking) for _ in range(3)]
        changing.result()
        return [answer for each in asking for answer in each.result()] + [(ask(engine, ranker), 5, 5)]


def _processes(folder: Path, changes: list[Change], fitted: Any, ask: Any) -> list[tuple[Ranked, int, int]]:
    """Another process changes the engine; this one sees all of a change or nothing, and after a refresh the last."""
    child = os.fork()
    if not child:
        try:
            engine = Engine.open(folder)
            for each in changes:
                _make(engine, each)
                time.sleep(0.01)
        finally:
            os._exit(0)
    engine, answers = Engine.open(folder), []
    ranker = fitted(engine)
    while not os.waitpid(child, os.WNOHANG)[0]:
        engine.refresh()
        answers.append((ask(engine, ranker), 0, 5))
    engine.refresh()
    return [*answers, (ask(engine, ranker), 5, 5), (ask(Engine.open(folder)), 5, 5)]


def _objects(folder: Path, changes: list[Change], fitted: Any, ask: Any) -> list[tuple[Ranked, int, int]]:
    """Two objects of one folder change it in turn; both give the answers of the newest state after a refresh."""
    engines, answers = [Engine.open(folder) for _ in range(2)], []
    rankers = [fitted(engine) for engine in engines]
    for number, change in enumerate(changes):
        engines[number % 2].refresh()
        answers.append((ask(engines[number % 2], rankers[number % 2]), number, number))
        _make(engines[number % 2], change)
        engines[1 - number % 2].refresh()
        answers += [(ask(engines[each], rankers[each]), number + 1, number + 1) for each in (0, 1)]
    return answers
