"""Build an engine anew below an open one: each answer is that of the engine that was opened, or an error says so."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from hostile.segments import WORDS
from hostile.target import CORRECT, Cases, Target

import haybale
from haybale import Engine
from haybale.errors import HaybaleError

RANKERS = ("bm25", "bm25-doc", "knn", "knn-doc", "parm-rrf", "rrf(bm25,knn)")
Documents = dict[str, Any]


def rebuilt(target: Target, rng: random.Random) -> Cases:
    for number in count():
        seed = rng.randrange(2**32)
        yield f"seed {seed} {number}", partial(built_anew, target.new(), seed)


def built_anew(folder: Path, seed: int) -> str:
    """Use a part of an open engine, change its folder, and compare the rest with an engine that nobody changed."""
    rng = random.Random(seed)
    documents = {f"d{n}": {"text": _text(rng), "year": 2000 + n} for n in range(rng.randint(2, 6))}
    how: dict[str, Any] = {"segments": rng.choice((1, 1, 2)), "language": "english"}
    how |= {"encoder": rng.choice(("tfidf(min_df=1)", "tfidf(min_df=1)", "lsa(n_components=2)"))}
    engine, expected = (_build(documents, folder / name, how) for name in ("engine", "copy"))
    if rng.random() < 0.4:
        Engine.open(folder / "engine").prepare()
    if rng.random() < 0.4:
        for each in (engine, expected):
            each.add({"new": "zebra and moon", "newer": "river"})
    engine = Engine.open(folder / "engine") if rng.random() < 0.7 else engine
    calls = _calls(rng, list(documents))
    n_before = rng.randrange(3)
    for call in calls[:n_before]:
        assert call(engine) == call(expected), "another answer before the change"
    _change(folder / "engine", documents, how, rng)
    for call in calls[n_before:]:
        try:
            answer = call(engine)
        except HaybaleError:
            continue
        assert answer == call(expected), f"{answer} in place of {call(expected)}"
    return CORRECT


def _build(documents: Documents, folder: Path, how: dict[str, Any]) -> Engine:
    return Engine.build(documents, folder, **how)


def _text(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=3)) + " land"


def _calls(rng: random.Random, ids: Sequence[str]) -> list[Callable[[Engine], Any]]:
    """Return calls in random order, each of which opens some files of an engine."""

    def rank(name: str, text: str, engine: Engine) -> Any:
        return haybale.parse(name).fit(engine).rank([text]).to_frame().to_numpy().tolist()

    def search(text: str, engine: Engine) -> Any:
        hits = haybale.parse("bm25").fit(engine).search(text).hits
        return [(hit.doc_id, hit.score, [snippet.text for snippet in hit.snippets]) for hit in hits]

    calls: list[Callable[[Engine], Any]] = [partial(rank, name, _text(rng)) for name in RANKERS]
    calls += [partial(search, _text(rng)), lambda engine: engine.collection.passages.texts.to_pylist()]
    calls += [lambda engine: engine.documents_table().to_pylist(), lambda engine: engine.encoder.encode(["dog"]).shape]
    calls += [lambda engine: engine.whole.doc_ids.to_pylist(), lambda engine: engine.prepare() and None]
    return rng.sample(calls, len(calls))


def _change(folder: Path, documents: Documents, how: dict[str, Any], rng: random.Random) -> None:
    """Remove or move a folder, and build or copy another engine to its place."""
    if rng.random() < 0.7:
        shutil.rmtree(folder)
    else:
        folder.rename(folder.with_name("moved"))
    ids = rng.sample(list(documents), len(documents))
    other = {doc_id: documents[doc_id] for doc_id in ids}
    if rng.random() < 0.3:
        other = {doc_id: {"text": _text(rng)} for doc_id in ids}
    kind = rng.choice(("nothing", "built", "built", "prepared", "larger", "language"))
    if kind == "language":
        how = how | {"language": "none"}
    if kind != "nothing":
        made = _build(other, folder, how)
        if kind == "prepared":
            made.prepare()
        if kind == "larger":
            made.add({"new": "dog", "last": "moon"})
