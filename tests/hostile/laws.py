"""Metamorphic laws: what changes nothing about a ranking must change nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache, partial
from itertools import count
from typing import Any

import numpy as np
from hostile.target import CORRECT, Cases, Target
from support.topics import SVR, topic_collection

import haybale
from haybale import Collection, Engine, Run, evaluate
from haybale.collections import CollectionBuilder

UNTRAINED = ("bm25", "bm25-doc", "knn", "knn-doc", "knn-firstp", "parm-rrf", "parm-vrrf", "parm-vmin", "bm25-parm-rrf")
UNTRAINED += ("rrf(bm25,knn-doc)", "rrf(bm25-doc,parm-vrrf,k=20)", "rrf(knn,rrf(bm25,parm-rrf),depth=15)")
TRAINED = ("knn-queries(k=7)", f"svr({SVR})", "learned(bm25,knn,knn-queries)", "rrf(bm25,knn-queries)")
DEPTH = 60


class _World:
    """A collection with its engine, rankers and runs; each law changes something about it."""

    def __init__(self, target: Target, seed: int) -> None:
        self.target, self.collection = target, topic_collection(30, 8, 4, seed)
        self.engine = Engine(self.collection).prepare()
        self.ids, self.queries = self.collection.doc_ids.to_pylist(), self.asked(self.collection)
        self.ranker = cache(lambda name: haybale.parse(name).fit(self.engine))
        self.run = cache(lambda name: self.ranker(name).rank(self.queries, depth=DEPTH))

    @staticmethod
    def asked(collection: Collection) -> Any:
        return collection.queries.take(collection.split("dev").queries)

    def texts(self, row: int) -> list[str]:
        start, end = self.collection.passages.doc_offsets[row : row + 2]
        return self.collection.passages.texts[int(start) : int(end)].to_pylist()

    def changed(
        self, name: str, order: list[int] | None = None, prefix: str = "", spoil: str = "", **more: list[str]
    ) -> Run:
        """Return the run with documents in another order, other ids, more documents, or wrong judgements of a split."""
        old, builder = self.collection, CollectionBuilder("changed", language="english")
        for row in order or range(len(self.ids)):
            builder.add_document(prefix + self.ids[row], self.texts(row))
        for doc_id, texts in more.items():
            builder.add_document(doc_id, texts)
        for split in old.splits:
            queries = old.queries.take(old.split(split).queries)
            for row, query in enumerate(queries.ids.to_pylist()):
                own = prefix + self.ids[queries.own[row]] if queries.own[row] >= 0 else None
                paragraphs = queries.paragraphs[int(queries.offsets[row]) : int(queries.offsets[row + 1])]
                builder.add_query(query, paragraphs.to_pylist(), own=own, split=split)
            for query, doc_id, grade in old.qrels_frame(split).itertuples(index=False):
                builder.add_judgement(split, query, prefix + doc_id, 3 - int(grade) if split == spoil else int(grade))
        collection = builder.build()
        engine = Engine(collection, encoder=self.engine.encoder)
        return haybale.parse(name).fit(engine).rank(self.asked(collection), depth=DEPTH)


def _same(found: Run, expected: Run, prefix: str = "", tolerance: float = 1e-6) -> str:
    """Check that runs have the same documents and scores; those beyond the depth may differ by rounding."""
    for query in expected.query_ids:
        one, other = dict(found[query]), {prefix + doc: score for doc, score in expected[query]}
        least = min(other.values(), default=0.0) + (tolerance if len(other) == DEPTH else -np.inf)
        missing = [doc for doc in one.keys() ^ other.keys() if {**one, **other}[doc] > least]
        assert not missing, f"{query}: other documents, {missing[:3]}"
        for doc in one.keys() & other.keys():
            assert np.isclose(one[doc], other[doc], rtol=tolerance, atol=tolerance), f"{query}: {doc} {one[doc]}"
    return CORRECT


def _permuted(world: _World, name: str, rng: random.Random) -> str:
    order = rng.sample(range(len(world.ids)), len(world.ids))
    return _same(world.changed(name, order), world.run(name), tolerance=1e-5)


def _renamed(world: _World, name: str, rng: random.Random) -> str:
    prefix = rng.choice(("x", "É", "0", "z z"))
    return _same(world.changed(name, prefix=prefix), world.run(name), prefix)


def _twin(world: _World, name: str, rng: random.Random) -> str:
    """A copy of a document has the score of the document, if that is no function of ranks, which are all distinct."""
    row = rng.choice([row for row in range(len(world.ids)) if world.texts(row)])
    found = world.changed(name, copy=world.texts(row))
    for query, own in zip(world.queries.ids.to_pylist(), world.queries.own.tolist(), strict=True):
        scores = dict(found[query])
        if own != row and {world.ids[row], "copy"} <= scores.keys():
            assert np.isclose(scores[world.ids[row]], scores["copy"], rtol=1e-6), f"{query}: {world.ids[row]}"
    return CORRECT


def _empty(world: _World, name: str, rng: random.Random) -> str:
    return _same(world.changed(name, empty=[]), world.run(name))


def _unrelated(world: _World, name: str, rng: random.Random) -> str:
    """A document without a word of a query is not found for it by terms, and has no similarity to it."""
    found = world.changed(name, unrelated=["unrelatedword anotherword"]).to_frame()
    is_new = found["doc_id"] == "unrelated"
    if "bm25" in name:
        assert not is_new.any(), "found without a common word"
        return CORRECT
    assert (found["score"][is_new] <= 1e-6).all(), "similar without a common word"
    return _same(Run.from_frame(found[~is_new]), world.run(name))


def _alone(world: _World, name: str, rng: random.Random) -> str:
    row = np.array([rng.randrange(len(world.queries.ids))])
    query = world.queries.ids[int(row[0])].as_py()
    found, expected = world.ranker(name).rank(world.queries.take(row), depth=DEPTH)[query], world.run(name)[query]
    assert [doc for doc, _ in found] == [doc for doc, _ in expected], f"{query}: another order"
    assert np.allclose([s for _, s in found], [s for _, s in expected], rtol=1e-6), f"{query}: other scores"
    return CORRECT


def _prefix(world: _World, name: str, rng: random.Random) -> str:
    run = world.ranker(name).rank(world.queries, depth=(depth := rng.randint(1, DEPTH - 1)))
    for query in run.query_ids:
        assert run[query] == world.run(name)[query][:depth], f"{query}: the first {depth} are not those of {DEPTH}"
    return CORRECT


def _saved(world: _World, name: str, rng: random.Random) -> str:
    world.ranker(name).save(folder := world.target.new())
    found = haybale.load(folder, world.engine).rank(world.queries, depth=DEPTH)
    assert found == world.run(name), "a saved ranker ranks differently"
    return CORRECT


def _within(world: _World, name: str, rng: random.Random) -> str:
    """All documents are no limit; each found document is one of the chosen ones."""
    run = world.ranker(name).rank(world.queries, depth=DEPTH, within=world.ids)
    assert run == world.run(name), "within all documents is another ranking"
    chosen = rng.sample([doc_id for row, doc_id in enumerate(world.ids) if world.texts(row)], 15)
    run = world.ranker(name).rank(world.queries, depth=DEPTH, within=chosen)
    assert set(run.to_frame()["doc_id"]) <= set(chosen), "found outside"
    return CORRECT


def _spoilt(world: _World, name: str, rng: random.Random) -> str:
    """Wrong judgements of the queries that are ranked change nothing: nobody learns from them."""
    return _same(world.changed(name, spoil="dev"), world.run(name))


def _explained(world: _World, name: str, rng: random.Random) -> str:
    row = rng.randrange(len(world.queries.ids))
    for doc, score in world.run(name)[world.queries.ids[row].as_py()][: rng.randint(1, 9)][-1:]:
        found = world.ranker(name).explain(world.queries.take(np.array([row])), doc)
        assert np.isclose(found.score, score, rtol=1e-5, atol=1e-7), f"{doc}: {found.score} explained, {score} ranked"
        assert np.isclose(sum(share.share for share in found.shares), score, rtol=1e-4, atol=1e-6), f"{doc}: the sum"
    return CORRECT


def _measured(world: _World, name: str, rng: random.Random) -> str:
    """Measures are the same after a run is written and read, and after its rows and judgements are shuffled."""
    run, qrels = world.run(name), world.collection.qrels_frame("dev")
    run.to_trec(path := world.target.new().with_suffix(".trec"))
    rows = run.to_frame().sample(frac=1, random_state=rng.randrange(2**31))
    expected = evaluate(run, qrels).mean(numeric_only=True)
    for other in (Run.from_trec(path), Run.from_frame(rows[["query_id", "doc_id", "score"]])):
        found = evaluate(other, qrels.sample(frac=1, random_state=0)).mean(numeric_only=True)
        assert np.allclose(found, expected, rtol=1e-9), "other measures"
    return CORRECT


NOT_SVR = tuple(name for name in UNTRAINED + TRAINED if not name.startswith("svr"))  # its bags are drawn by row
LAWS: dict[Callable[[_World, str, random.Random], str], tuple[str, ...]] = {
    **dict.fromkeys((_alone, _prefix, _saved, _within, _explained, _measured), UNTRAINED + TRAINED),
    _permuted: NOT_SVR,
    _renamed: UNTRAINED,
    _spoilt: TRAINED,
    _twin: (*UNTRAINED[:5], "parm-combsum", "parm-vsum", "parm-vscores"),
    _empty: tuple(name for name in UNTRAINED if "bm25-doc" not in name),  # which counts empty documents, too
    _unrelated: (*UNTRAINED[:5], "bm25-parm-rrf"),
}


def laws(target: Target, rng: random.Random) -> Cases:
    worlds = [_World(target, rng.randrange(1000)) for _ in range(2)]
    for number in count():
        law, world = rng.choice(list(LAWS)), rng.choice(worlds)
        name, seed = rng.choice(LAWS[law]), rng.randrange(2**32)
        yield f"{law.__name__} by {name} {number}", partial(law, world, name, random.Random(seed))
