"""A storm: rankers are asked while others add, replace and remove documents; each answer must be of one state.

    python -m support.storm threads|processes ENCODER ROUNDS        (in the folder tests)

State k is the engine after k changes. The changes are repeated one by one on an engine of their own, with rankers that
were saved before the storm: each answer must be the one of a state between its call and its return.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from haybale import Engine, Ranker, load
from haybale.collections import Collection
from haybale.errors import StoreError
from haybale.rankers import Training, parse
from haybale.ranking.ranker import batches_of
from support.structured import structured_collection
from support.topics import EVIDENCE, LEARNED, RANKERS, word

CONTEXT = (
    "section-propagation(knn,share=0.3,n_documents=6)",
    "linear-context(bm25-doc,n_documents=7,n_train=4)",
    "linear-context(knn-queries,mask=relevant)",
    "linked(bm25)",
    "linked-cited(knn-queries)",
)
NEURAL = (  # these need dense vectors and torch
    "lim(knn,epochs=1,heads=2,n_documents=7)",
    "mix-im-paper(bm25-doc,epochs=1,heads=1)",
    "pli(bm25,n_documents=5,epochs=1,n_seeds=1,hidden=8)",
)
MODELS = ("cross-encoder(bm25,model='{cross}',n_documents=3)", "maxsim(knn,model='{bi}',n_documents=3)")
MODELS += ("token-lim(knn,model='{bi}',epochs=1,heads=2,n_documents=4)",)
FEW = ("bm25", "bm25-doc(k1=0.9,b=0.4,k3=0.5)", "knn", "parm-vrrf", "knn-queries(k=7)", f"svr({EVIDENCE})")
FEW += (LEARNED, CONTEXT[1], CONTEXT[3])
ENCODERS = {"tfidf": "tfidf(min_df=1)", "lsa": "lsa(n_components=10)"}
QUERIES = 6
DEPTH = 8
KEPT = ("d00", "d01")  # documents that are never removed


class Answer(NamedTuple):
    """An answer, and the numbers of changes that were finished before the call and begun before the return."""

    ranker: str
    query: str
    before: int
    after: int
    found: list[tuple[str, float]]


def documents_of_storm() -> Collection:
    return structured_collection(5, n_documents=30, n_queries=20)


def next_change(rng: random.Random, collection: Collection, number: int, writer: int) -> tuple[str, Any]:
    """Return the next change of a writer: new documents, other texts for known ids, or ids to remove."""
    present = [doc_id for doc_id in collection.doc_ids.to_pylist() if doc_id not in KEPT]

    def text() -> list[str]:
        topic = 100 * rng.randrange(30)
        words = ([word(topic + rng.randrange(6)) for _ in range(4)] for _ in range(rng.randrange(1, 4)))
        return [" ".join([*part, word(5000 + rng.randrange(15))]) for part in words]

    kind = rng.choice(["add", "replace", "remove"] if len(present) > 25 else ["add", "replace"])
    if kind == "remove":
        return kind, rng.sample(present, 2)
    if kind == "add":
        return kind, {f"w{writer}n{number}": text()}
    return kind, {rng.choice(present): text(), f"d{rng.randrange(2, 30):02d}": text()}


def make(engine: Engine, change: tuple[str, Any]) -> None:
    getattr(engine, change[0])(change[1])


def ask(ranker: Ranker, query: str, how: int) -> list[tuple[str, float]]:
    """Return a ranking of one query; with ``how``, explain the first document on the same snapshot, or out of fold."""
    queries = ranker.engine_.collection.queries.take(ranker.engine_.collection.query_numbers([query]))
    text = {query: queries.paragraphs_of(0)}
    if how == 2:
        return ranker.out_of_fold(text, depth=DEPTH)[query]
    (batch,) = batches_of(ranker, text)
    found = ranker.run(batch, DEPTH)[query]
    if how == 1 and found:
        why = ranker.explained(batch.take([0]), int(batch.engine.collection.document_numbers([found[0][0]])[0]))
        assert why.rank == 1
        assert sum(share.share for share in why.shares) == pytest.approx(found[0][1], abs=1e-4)
        known = ranker.explain(text, KEPT[0])  # on a snapshot of its own
        assert known.rank is None or known.score is not None
    return found


def storm_of_threads(
    engine: Engine, rankers: dict[str, Ranker], queries: Sequence[str], rounds: int, n_askers: int = 16
) -> tuple[list[tuple[str, Any]], list[Answer]]:
    """Change the engine in two threads, ``rounds`` times each, while others ask; return the changes and the answers."""
    changes: list[tuple[str, Any]] = []
    n_begun, n_done, over = [0], [0], threading.Event()

    def change(writer: int) -> None:
        rng = random.Random(writer)
        for number in range(rounds):
            with engine._live.storage.lock:
                new = next_change(rng, engine.collection, number, writer)
                n_begun[0] += 1
                make(engine, new)
                changes.append(new)
                n_done[0] += 1
            time.sleep(0.001)

    def keep_asking(asker: int) -> list[Answer]:
        rng, answers, names = random.Random(100 + asker), [], list(rankers)
        number = asker
        while not over.is_set() or len(answers) < 3:
            name, query = names[number % len(names)], rng.choice(queries)
            before = n_done[0]
            found = ask(rankers[name], query, rng.choice([0, 0, 1, 2]))
            answers.append(Answer(name, query, before, n_begun[0], found))
            number += n_askers + 1
        return answers

    with ThreadPoolExecutor(n_askers + 2) as threads:
        asking = [threads.submit(keep_asking, asker) for asker in range(n_askers)]
        changing = [threads.submit(change, writer) for writer in (0, 1)]
        try:
            for each in changing:
                each.result()
        finally:
            over.set()
        return changes, [answer for each in asking for answer in each.result()]


def check_answers(
    replayed: Engine, rankers: dict[str, Ranker], changes: Sequence[tuple[str, Any]], answers: Sequence[Answer]
) -> Counter[str]:
    """Check each answer against the states between its call and its return; return the number of answers by ranker."""
    waiting = list(answers)
    for state in range(len(changes) + 1):
        if state:
            make(replayed, changes[state - 1])
        known: dict[tuple[str, str], list[tuple[str, float]]] = {}
        rest = []
        for answer in waiting:
            if answer.before <= state:
                key = answer.ranker, answer.query
                if key not in known:
                    known[key] = ask(rankers[answer.ranker], answer.query, 0)
                if same(answer.found, known[key]):
                    continue
                assert answer.after > state, f"{answer} is of no state from {answer.before} to {answer.after}"
            rest.append(answer)
        waiting = rest
    assert not waiting
    return Counter(answer.ranker for answer in answers)


def same(found: Sequence[Sequence[Any]], expected: Sequence[Sequence[Any]]) -> bool:
    """Return whether two rankings are equal; documents whose scores differ by rounding may change places."""
    if [doc for doc, _ in found] != [doc for doc, _ in expected] and sorted(found) != sorted(map(tuple, expected)):
        return False
    return all(
        abs(one - other) <= 1e-5 * max(1, abs(one)) for (_, one), (_, other) in zip(found, expected, strict=True)
    )


def prepared(
    names: Sequence[str], encoder: str, folder: Path, in_folder: bool
) -> tuple[Engine, dict[str, Ranker], list[str]]:
    """Return an engine with fitted rankers, which are saved in ``folder / "models"``, and the queries to ask."""
    collection = documents_of_storm()
    settings: dict[str, Any] = {"encoder": ENCODERS[encoder]}
    engine = Engine.build(collection, folder / "engine", **settings) if in_folder else Engine(collection, **settings)
    training = Training.of(engine)
    rankers = {name: parse(name)._fitted_copy(training) for name in names}
    for number, ranker in enumerate(rankers.values()):
        ranker.save(folder / "models" / str(number))
    return engine, rankers, [f"dev{number}" for number in range(QUERIES)]


def replaying(engine: Engine, names: Sequence[str], encoder: str, folder: Path) -> tuple[Engine, dict[str, Ranker]]:
    """Return an engine of the first state, with the saved rankers."""
    replayed = Engine(documents_of_storm(), encoder=engine.encoder)
    if replayed.id != engine.id:  # an encoder text and its object are described differently
        replayed._digests["id"] = engine.id
    return replayed, {name: load(folder / "models" / str(number), replayed) for number, name in enumerate(names)}


def storm_of_processes(folder: Path, names: Sequence[str], queries: Sequence[str], rounds: int, n_askers: int) -> None:
    """Change the engine in two forked processes while others ask; write the changes and the answers into files."""
    log = folder / "log"
    log.touch()
    pids = {}
    for number in range(n_askers + 2):
        pid = os.fork()
        if not pid:
            status = 1
            try:
                if number < 2:
                    _change_in_process(folder, log, number, rounds)
                else:
                    _ask_in_process(folder, log, names, queries, number)
                status = 0
            except BaseException:  # a failure of a process is one of the test
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        pids[pid] = number
    failed = False
    writers = 2
    while pids:
        pid, status = os.wait()
        failed |= status != 0
        writers -= pids.pop(pid) < 2
        if not writers:
            (folder / "over").touch()
    assert not failed


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("r") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _lines(log: Path) -> tuple[int, int]:
    """Return the numbers of changes that were begun and finished."""
    text = log.read_text()
    return text.count("begin\n"), text.count("]\n")


def _change_in_process(folder: Path, log: Path, writer: int, rounds: int) -> None:
    engine, rng = Engine.open(folder / "engine"), random.Random(writer)
    for number in range(rounds):
        with locked(log):
            engine.refresh()
            change = next_change(rng, engine.collection, number, writer)
            with log.open("a") as file:
                file.write("begin\n")
            while True:
                try:
                    make(engine, change)
                    break
                except StoreError:  # an asker writes an index
                    time.sleep(0.002)
            with log.open("a") as file:
                file.write(json.dumps(change) + "\n")
        time.sleep(0.002)


def _ask_in_process(folder: Path, log: Path, names: Sequence[str], queries: Sequence[str], asker: int) -> None:
    engine, rng, answers = Engine.open(folder / "engine"), random.Random(asker), []
    rankers = {name: load(folder / "models" / str(number), engine) for number, name in enumerate(names)}
    number = asker
    while not (folder / "over").exists() or len(answers) < 3:
        name, query = names[number % len(names)], rng.choice(queries)
        _, before = _lines(log)
        engine.refresh()
        found = ask(rankers[name], query, rng.choice([0, 0, 1, 2]))
        after, _ = _lines(log)
        answers.append(Answer(name, query, before, after, found))
        number += 7
    (folder / f"answers{asker}.json").write_text(json.dumps(answers))


def read_storm(folder: Path) -> tuple[list[tuple[str, Any]], list[Answer]]:
    """Return the changes and the answers that processes wrote."""
    lines = (folder / "log").read_text().splitlines()
    changes = [tuple(json.loads(line)) for line in lines if line != "begin"]
    answers = [Answer(*each) for path in sorted(folder.glob("answers*.json")) for each in json.loads(path.read_text())]
    return changes, [each._replace(found=[tuple(pair) for pair in each.found]) for each in answers]


def main(kind: str, encoder: str, rounds: str) -> None:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        names = [*RANKERS, *CONTEXT]
        if encoder == "lsa":
            from support.tiny_models import save_bi_encoder, save_cross_encoder

            models = {"cross": save_cross_encoder(folder / "cross"), "bi": save_bi_encoder(folder / "bi")}
            names += [*NEURAL, *(each.format(**models) for each in MODELS)]
        Engine.build(documents_of_storm(), folder / "other", encoder=ENCODERS["lsa"])
        names += [f"space(knn,engine='{folder / 'other'}')"]
        start = time.perf_counter()
        engine, rankers, queries = prepared(names, encoder, folder, kind == "processes")
        print(f"fitted {len(rankers)} rankers in {time.perf_counter() - start:.0f} s", flush=True)
        start = time.perf_counter()
        if kind == "threads":
            changes, answers = storm_of_threads(engine, rankers, queries, int(rounds))
        else:
            storm_of_processes(folder, names, queries, int(rounds), 4)
            changes, answers = read_storm(folder)
        print(f"{len(changes)} changes, {len(answers)} answers in {time.perf_counter() - start:.0f} s", flush=True)
        widths = [answer.after - answer.before for answer in answers]
        print(f"changes during an answer: mean {sum(widths) / len(widths):.1f}, largest {max(widths)}", flush=True)
        counts = check_answers(*replaying(engine, names, encoder, folder), changes, answers)
        print(f"each answer is of a state between call and return; by ranker {sorted(counts.values())}")


if __name__ == "__main__":
    main(*sys.argv[1:])
