"""Judge in random sequences by several judges, and compare everything that counts with a slow count of what was done.

Beside it: files of judgements that are opened by another engine, and logs of other files beside them.
"""

from __future__ import annotations

import csv
import io
import json
import os
import random
import shutil
import warnings
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hostile.target import CORRECT, Cases, Target
from support.learners import CountingLearner

from haybale import Engine, Review
from haybale.errors import StoreError
from haybale.review import Judgement, JudgementStore, judgement_file_of, restore
from haybale.service.imported_judgements import grades_of_file

JUDGES = ("ann", "bob", "", "=cmd()")
NOTES = (None, "=1+1", "@x", "-1", "a\r=2", "plain; note", "'=x")
DOCUMENTS = {f"{'=-@'[number % 3]}d{number}": f"Dog number {number} barks." for number in range(9)}


def judging(target: Target, rng: random.Random) -> Cases:
    engines = [
        Engine.build(documents, target.folder / name, language="english", encoder="tfidf(min_df=1)")
        for name, documents in (
            ("dogs", DOCUMENTS),
            ("tax", {name: f"Tax {text}" for name, text in DOCUMENTS.items()}),
        )
    ]
    for number in count():
        kind, seed = rng.choice((_sequence, _sequence, _sequence, _swapped, _mixed_logs)), rng.randrange(2**32)
        yield f"{kind.__name__} {number}", partial(kind, target, engines, random.Random(seed))


def _sequence(target: Target, engines: list[Engine], rng: random.Random) -> str:
    """Judge, skip, undo, draw, import, export and open again; every count must be that of the rows in order."""
    path, said, drawn = target.new().with_suffix(".sqlite"), list[tuple[str, str, int | None]](), set[str]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        review = _review(engines[0], path)
        for _ in range(rng.randint(1, 14)):
            judge, doc_id, action = rng.choice(JUDGES), rng.choice(sorted(DOCUMENTS)), rng.random()
            if action < 0.5:
                grade = rng.choice((0, 1, 2))
                review.judge(doc_id, grade, judge, rng.choice(NOTES))
                said.append((judge, doc_id, grade))
            elif action < 0.65:
                review.skip(doc_id, judge)
                said.append((judge, doc_id, None))
            elif action < 0.75 and any(row[0] == judge for row in said):
                review.undo(judge)
                del said[max(place for place, row in enumerate(said) if row[0] == judge)]
            elif action < 0.85 and len(drawn) < len(DOCUMENTS):
                left = len(review._sync().to_draw()[0])
                drawn |= set(review.draw_sample(rng.randint(1, left))) if left else set()
            else:
                review.close()
                review = _review(engines[0], path)
        grades: dict[str, dict[str, int]] = {}
        for judge, doc_id, grade in said:
            if grade is not None:
                of_document = grades.setdefault(doc_id, {})
                of_document.pop(judge, None)
                of_document[judge] = grade
        expected = {
            doc_id: next((grade for grade in reversed(of_document.values()) if grade), 0)
            for doc_id, of_document in grades.items()
        }
        differing = sorted(
            doc_id for doc_id, given in grades.items() if len({grade > 0 for grade in given.values()}) > 1
        )
        progress = review.progress(["qbcb(target=0.3,confidence=0.5)"])
        assert progress.contradictory == differing, "other contradictions"
        n_relevant = sum(grade > 0 for grade in expected.values())
        assert (progress.n_judged, progress.n_relevant) == (len(expected), n_relevant), "other counts"
        (advice,) = progress.advice.values()
        if drawn - expected.keys():
            assert advice.low is None, "a certificate of a sample that was not judged"
            assert not advice.stop, "stopped by a sample that was not judged"
        exported = review.export("csv")
        rows = {row["doc_id"]: row for row in csv.DictReader(io.StringIO(exported, newline=""))}
        assert len(rows) == len(expected), "other rows"
        if expected:
            assert grades_of_file(exported.encode()) == expected, "read back otherwise"
        for row in rows.values():
            for cell in row.values():
                assert not cell.startswith(("=", "@", "\t", "\r")), f"a formula: {cell!r}"
        review.close()
    return CORRECT


def _review(engine: Engine, path: Path) -> Review:
    return Review(engine, "dogs", judgements=path, learner=CountingLearner)


def _swapped(target: Target, engines: list[Engine], rng: random.Random) -> str:
    """A file of judgements is used by the engine that it belongs to, and by no other, wherever it lies."""
    folder = target.new()
    places = [shutil.copytree(str(engine.folder), folder / name) for engine, name in zip(engines, "ab", strict=True)]
    opened = [Engine.open(place) for place in places]
    paths = [judgement_file_of(place) for place in places]
    for engine, path in zip(opened, paths, strict=True):
        with _review(engine, path) as review:
            review.judge(rng.choice(sorted(DOCUMENTS)), 1, "ann", note="secret")
    if rng.random() < 0.5:
        os.rename(paths[0], aside := folder / "aside.sqlite")
        os.rename(paths[1], paths[0])
        os.rename(aside, paths[1])
        paths.reverse()
    for number, path in enumerate(paths):
        with _review(opened[number], path) as review:
            assert review.progress([]).n_judged == 1
        before = path.read_bytes()
        with pytest.raises(StoreError) as refused:
            _review(opened[1 - number], path)
        assert "secret" not in str(refused.value)
        assert path.read_bytes() == before, "the file of another engine was written"
    return CORRECT


def _mixed_logs(target: Target, engines: list[Engine], rng: random.Random) -> str:
    """A file beside a log of another file, of a former state, or of noise opens with its own rows, or is refused."""
    folder = target.new()
    folder.mkdir()
    kept: dict[str, Any] = {}
    for name in ("one", "two"):
        with JudgementStore(folder / f"{name}.sqlite") as store:
            topic = store.add_topic(name)
            for number in range(rng.randint(1, 5)):
                store.add(topic, Judgement(f"{name}{number}", "judged", 1, note="n" * rng.randrange(3000)))
            store.backup(folder / f"{name}.bak")
            for number in range(10, 10 + rng.randint(1, 5)):
                store.add(topic, Judgement(f"{name}{number}", "judged", 1))
            kept[name] = [row.doc_id for row in store.judgements(topic)]
            for suffix in ("", "-wal"):  # as a process that is killed leaves them
                shutil.copy(folder / f"{name}.sqlite{suffix}", folder / f"{name}.left{suffix}")
    name, log = rng.choice(("one", "two")), rng.choice(("one", "two"))
    path, source = folder / "j.sqlite", folder / f"{name}.{rng.choice(('sqlite', 'bak', 'left'))}"
    with JudgementStore(source, read_only=True) if source.suffix != ".left" else JudgementStore() as store:
        own = [row.doc_id for topic in store.topics() for row in store.judgements(topic)]
    if source.suffix == ".left":
        log = name  # so young a file is empty: all that it has is in its log
    shutil.copy(source, path)
    data = bytearray((folder / f"{log}.left-wal").read_bytes())
    if rng.random() < 0.4:
        del data[rng.randrange(len(data)) :]
    (folder / "j.sqlite-wal").write_bytes(data)
    if rng.random() < 0.3:
        restore(folder / f"{name}.bak", path)
        own = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        store = JudgementStore(path)
    with store:
        found = [row.doc_id for topic in store.topics() for row in store.judgements(topic)]
        assert json.dumps(found).count(name) == len(found), "rows of another file"
        if own and source.suffix != ".left":
            assert found in (own, kept[name]), "neither the file nor the file with its log"
    return CORRECT
