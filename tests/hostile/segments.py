"""Build tiny engines in segments, add and remove documents: every answer is that of an engine of one segment."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from hostile.target import CORRECT, Cases, Target

import haybale
from haybale import Engine
from haybale.collections import CollectionBuilder
from haybale.errors import HaybaleError, InputError

WORDS = ("land", "tax", "dog", "cat", "zebra", "moon", "the", "tree", "river", "stone", "bird", "rain")
RANKERS = ("bm25", "bm25-doc", "bm25(k1=0.7,k3=1)", "bm25(top=2)", "knn", "knn-doc", "knn(top=2)", "knn-firstp")
RANKERS += ("parm-rrf", "parm-vrrf", "parm-combsum", "bm25-parm-rrf", "rrf(bm25,knn-doc)", "rrf(bm25-doc,parm-vrrf)")
TRAINED = ("knn-queries", "bm25-weighted", "svr(n_bags=2,n_jobs=1)", "svr-memory(n_bags=2,n_jobs=1,candidates=none)")
TRAINED += ("learned(bm25,knn-queries)",)


def segments(target: Target, rng: random.Random) -> Cases:
    for number in count():
        seed = rng.randrange(2**32)
        yield f"seed {seed} {number}", partial(segmented, target.new(), seed)


def segmented(folder: Path, seed: int, names: Sequence[str] = RANKERS, trained: bool | None = None) -> str:
    """Compare an engine in segments with one of one segment, from random documents and changes."""
    rng = random.Random(seed)
    trained = rng.random() < 0.15 if trained is None else trained
    collection = _collection(rng, judged=trained)
    with_passages = sum(n > 0 for n in np.diff(collection.passages.doc_offsets).tolist())
    encoder = rng.choice((*["tfidf(min_df=1)"] * 5, "lsa(n_components=2)"))
    how: dict[str, Any] = {"encoder": encoder, "language": "english"}
    in_segments = Engine.build(collection, folder, segments=min(rng.randint(1, 6), with_passages), **how)
    engines = [Engine(collection, **how), in_segments]
    if rng.random() < 0.5:
        for engine in engines:
            engine.prepare()
    for step in range(rng.randrange(4)):
        _change(engines, rng, step)
    if rng.random() < 0.3:
        engines[1] = Engine.open(folder)
    queries = {f"q{n}": _text(rng, ("nowhere", "unseen")) for n in range(rng.randint(1, 4))}
    for name in rng.sample(names, min(2, len(names))) + ([rng.choice(TRAINED)] if trained else []):
        _compare(engines, name, queries, rng)
    return CORRECT


def _collection(rng: random.Random, judged: bool) -> haybale.Collection:
    builder = CollectionBuilder("tiny", language="english")
    n = rng.randint(2, 9)
    for number in range(n):
        empty = number > 1 and rng.random() < 0.15
        builder.add_document(f"d{number}", [] if empty else [_text(rng) for _ in range(rng.randint(1, 3))])
    builder.add_document("last", ["land and sea"])  # so that a text has a term
    for number in range(4 if judged else 0):
        builder.add_query(f"t{number}", _text(rng), split="train")
        for document in {0, rng.randrange(n)}:
            builder.add_judgement("train", f"t{number}", f"d{document}", rng.randint(0, 2) or 1)
    return builder.build()


def _text(rng: random.Random, more: Sequence[str] = ()) -> str:
    return " ".join(rng.choices((*WORDS, *more * 4), k=rng.randint(1, 4)))


def _change(engines: list[Engine], rng: random.Random, step: int) -> None:
    """Make one random change of all engines; each accepts it, or each refuses it."""
    ids = engines[0].collection.doc_ids.to_pylist()
    added = {f"n{step}": [_text(rng) for _ in range(rng.randint(1, 2))]}
    changed = {rng.choice(ids): _text(rng)}
    gone = rng.sample(ids, rng.randint(1, len(ids)))
    kind = rng.choice(("add", "replace", "remove", "remove"))
    change = {"add": added, "replace": changed, "remove": gone}[kind]
    outcomes = [_outcome(partial(getattr(engine, kind), change)) for engine in engines]
    assert outcomes[0] == outcomes[1], f"{kind} of {change}: {outcomes}"


def _outcome(call: Any) -> Any:
    try:
        return call()
    except HaybaleError as error:
        return type(error)


def _compare(engines: list[Engine], name: str, queries: dict[str, str], rng: random.Random) -> None:
    within = None
    ids = engines[0].collection.doc_ids.to_pylist()
    if rng.random() < 0.3:
        within = rng.sample(ids, rng.randint(1, len(ids)))
    depth, phrase = rng.choice((1, 3, 1000)), f'"{_text(rng, ("unseen",))}"'
    answers = []
    for engine in engines:
        try:
            ranker = haybale.parse(name).fit(engine)
        except InputError as error:
            answers.append([type(error)])
            continue
        asked: list[Callable[[], Any]] = [lambda r=ranker: r.rank(queries, depth=depth, within=within).to_frame()]
        asked += [lambda r=ranker, t=text: _shown(r, t) for text in ("", "nowhere", phrase, *queries.values())]
        asked += [lambda r=ranker: r.explain(queries["q0"], ids[0]).text()]
        results = [_outcome(call) for call in asked]
        answers.append([one.to_numpy().tolist() if hasattr(one, "to_numpy") else one for one in results])
    assert answers[0] == answers[1], f"{name}: {answers[1]} in segments, {answers[0]} in one"


def _shown(ranker: haybale.Ranker, text: str) -> list[Any]:
    return [
        (hit.doc_id, hit.score, [(snippet.text, snippet.highlights) for snippet in hit.snippets], hit.shares)
        for hit in ranker.search(text).hits
    ]
