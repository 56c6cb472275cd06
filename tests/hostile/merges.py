"""Add to engines until their segments are merged: answers are those of an engine in memory, which has no segments."""

from __future__ import annotations

import os
import random
import signal
import time
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

from hostile.segments import RANKERS, WORDS
from hostile.target import CORRECT, Cases, Target

import haybale
from haybale import Chunking, Engine
from haybale.engine import merging_segments
from haybale.errors import HaybaleError

ENCODERS = ("tfidf(min_df=1)", "tfidf(min_df=1)", "tfidf(min_df=1)", "lsa(n_components=2)")


def merges(target: Target, rng: random.Random) -> Cases:
    for number in count():
        seed = rng.randrange(2**32)
        kind = rng.choice((grown, grown, grown, killed))
        yield f"{kind.__name__} seed {seed} {number}", partial(kind, target.new(), seed)


def grown(folder: Path, seed: int) -> str:
    """Change an engine in a folder, whose segments are merged early, and one in memory; compare all they answer."""
    rng = random.Random(seed)
    how: dict[str, Any] = {"language": "english", "encoder": rng.choice(ENCODERS)}
    how |= {"chunking": Chunking(2)} if rng.random() < 0.2 else {}
    documents = {f"d{n}": _document(rng) for n in range(4)}
    memory = Engine(documents, **how)
    segments = rng.choice((1, 1, 2))
    with mock.patch.object(merging_segments, "MAX_OF_ONE_SIZE", rng.randint(2, 4)):
        engine = Engine.build(documents, folder, segments=segments, **how)
        other = Engine.open(folder)
        old, expected = engine.snapshot(), _answers(memory.snapshot(), seed)
        if rng.random() < 0.3:
            engine.prepare()
        for step in range(rng.randint(4, 7)):
            _change(engine, memory, rng, step)
            if rng.random() < 0.2:
                engine.write_indexes()
            if rng.random() < 0.2:
                engine = Engine.open(folder)
            if rng.random() < 0.1:
                other.refresh()
                assert _answers(other, seed) == _answers(memory, seed), "another answer after refresh()"
        for each in (engine, Engine.open(folder)):
            assert _answers(each, seed) == _answers(memory, seed), "another answer"
        assert _answers(old, seed) == expected, "another answer of an old snapshot"
        other.refresh()
        assert _answers(other, seed) == _answers(memory, seed), "another answer after refresh()"
    return CORRECT


def killed(folder: Path, seed: int) -> str:
    """Kill a process that adds documents one by one: the engine has the first ones, and goes on."""
    rng = random.Random(seed)
    how: dict[str, Any] = {"language": "english", "encoder": "tfidf(min_df=1)"}
    documents = {f"n{n}": _document(rng) for n in range(12)}
    with mock.patch.object(merging_segments, "MAX_OF_ONE_SIZE", 2):
        engine, memory = Engine.build({"d": "land and sea"}, folder, **how), Engine({"d": "land and sea"}, **how)
        child = os.fork()
        if not child:
            try:
                for doc_id, document in documents.items():
                    engine.add({doc_id: document})
                    engine.write_indexes()
            finally:
                os._exit(0)
        time.sleep(rng.uniform(0.0, 0.3))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        reopened = Engine.open(folder)
        added = reopened.whole.doc_ids.to_pylist()[1:]
        assert added == list(documents)[: len(added)], "not the first documents"
        for doc_id in added:
            memory.add({doc_id: documents[doc_id]})
        assert _answers(reopened, seed) == _answers(memory, seed), "another answer after a kill"
        for each in (reopened, memory):
            for n in range(3):
                each.add({f"later{n}": "a late zebra"})
        assert _answers(Engine.open(folder), seed) == _answers(memory, seed), "another answer after more additions"
    return CORRECT


def _document(rng: random.Random) -> dict[str, Any]:
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(1, 5))) + " sea" for _ in range(rng.randint(1, 3))]
    more: dict[str, Any] = {"year": rng.choice((2001, 2.5, "old"))} if rng.random() < 0.5 else {}
    more |= {"topics": rng.choice((["tax"], "land", ["a", "b"]))} if rng.random() < 0.5 else {}
    return {"text": texts, "title": rng.choice(WORDS)} | more


def _change(engine: Engine, memory: Engine, rng: random.Random, step: int) -> None:
    ids = memory.whole.doc_ids.to_pylist()
    kind, one, more = rng.choice(("add",) * 5 + ("replace", "remove", "set", "judge")), rng.choice(ids), _document(rng)
    for each in (engine, memory):
        if kind == "add":
            each.add({f"n{step}": more})
        elif kind == "replace":
            each.replace({one: more})
        elif kind == "remove" and len(ids) > 3:
            each.remove([one])
        elif kind == "set":
            each.set_metadata({one: {"year": 1999}})
        elif kind == "judge":
            import pandas as pd

            each.judge(pd.DataFrame({"query_id": [f"q{step}"], "doc_id": [one], "relevance": [1]}), {f"q{step}": "sea"})


def _answers(engine: Engine, seed: int) -> list[Any]:
    rng = random.Random(seed)
    query = " ".join(rng.choices(WORDS, k=3))
    answers: list[Any] = []
    for name in rng.sample(RANKERS, 1):
        ranker = haybale.parse(name).fit(engine)
        answers.append(ranker.rank([query]).to_frame().to_numpy().tolist())
        hits = ranker.search(query).hits
        answers.append([(hit.doc_id, hit.metadata, [part.text for part in hit.snippets]) for hit in hits])
    for where in ("year > 2000", "'tax' in topics"):
        try:
            answers.append(engine.documents_where(where).tolist())
        except HaybaleError:
            answers.append("refused")
    table = engine.documents_table()
    names = sorted(table.column_names)
    splits = {name: split.judged_documents.tolist() for name, split in engine.collection.splits.items()}
    texts = engine.collection.passages.texts.to_pylist()
    return [*answers, table.select(names).to_pylist(), splits, texts, engine.collection.passages.ids.to_pylist()]
