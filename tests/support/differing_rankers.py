"""Pairs of fitted rankers that differ in one thing, and the law that neither gets the rankings of the other."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd

import haybale
from haybale import CrossEncoder, Engine, Learned, Run, SimilarQueries, compare
from haybale.rankers import InSpace, QueryBatch, Ranker, in_space, parse
from support.rerank_cases import HashPairs
from support.topics import NEW, topic_collection

SMALL_SVR = "svr(evidence=[bm25-doc,knn-queries],n_candidates=8,n_bags=3,n_jobs=1)"
LEARNING = ("knn-queries(k=7)", "rrf(bm25,knn-queries(k=7))", "rrf(knn,rrf(bm25-doc,knn-queries))")
SLOW = ("bm25-weighted(min_count=2)", "learned(bm25,knn-queries)", SMALL_SVR, f"rrf(bm25,{SMALL_SVR})")
DEPTH = 20


def _load_hashed(ranker: CrossEncoder, model: str) -> Any:
    return HashPairs(1, salt=Path(model, "salt").read_text())


class HashedModels:
    """Cross-encoders whose model is a folder with a salt; patches the class while it is open."""

    def __enter__(self) -> HashedModels:
        self._patch = patch.object(CrossEncoder, "load_encoder", _load_hashed)
        self._patch.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._patch.stop()

    @staticmethod
    def write(folder: Path, salt: str) -> str:
        folder.mkdir(exist_ok=True)
        (folder / "salt").write_text(salt)
        return str(folder)


class World:
    """An engine in a folder with judged queries, of which pairs of rankers are fitted."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.collection = topic_collection(24, 8, 4, seed)
        self.engine = Engine.build(self.collection, folder)
        self.train = self.collection.queries.take(self.collection.split("train").queries)
        self.dev = self.collection.queries.take(self.collection.split("dev").queries)
        self.qrels = self.collection.qrels_frame("train")

    def fit(self, name: str, queries: Any = None, qrels: Any = None, engine: Engine | None = None) -> Ranker:
        return parse(name).fit(engine or self.engine, queries or self.train, self.qrels if qrels is None else qrels)


Pair = tuple[Ranker, Ranker]
Differ = Callable[[World, str, random.Random, Path], Pair]


def other_judgements(world: World, name: str, rng: random.Random, folder: Path) -> Pair:
    qrels = world.qrels.assign(doc_id=np.roll(world.qrels["doc_id"].to_numpy(), 1 + rng.randrange(5)))
    return world.fit(name), world.fit(name, qrels=qrels.drop_duplicates(["query_id", "doc_id"]))


def one_grade(world: World, name: str, rng: random.Random, folder: Path) -> Pair:
    relevant = np.flatnonzero(world.qrels["relevance"] > 0)
    grades = world.qrels["relevance"].to_numpy().copy()
    grades[rng.sample(relevant.tolist(), 3)] = 0
    return world.fit(name), world.fit(name, qrels=world.qrels.assign(relevance=grades))


def other_texts(world: World, name: str, rng: random.Random, folder: Path) -> Pair:
    """The same query ids, each with the text of another query."""
    texts = world.train.texts(range(len(world.train)))
    shift = 1 + rng.randrange(len(texts) - 1)
    one = dict(zip(world.train.ids.to_pylist(), texts, strict=True))
    two = dict(zip(one, [*texts[shift:], *texts[:shift]], strict=True))
    return world.fit(name, one), world.fit(name, two)


def other_own(world: World, name: str, rng: random.Random, folder: Path) -> Pair:
    """The same queries, taken from other documents or from none."""
    own = np.array([rng.randrange(-1, 20) for _ in range(len(world.train))])
    return world.fit(name), world.fit(name, replace(world.train, own=own))


def other_parameter(world: World, name: str, rng: random.Random, folder: Path) -> Pair:
    k = rng.randint(1, 9)
    return world.fit(f"rrf(bm25,knn-queries(k={k}))"), world.fit(f"rrf(bm25,knn-queries(k={k + 20},power=0.5))")


def other_random_state(world: World, name: str, rng: random.Random, folder: Path) -> Pair:
    one, two = (f"learned(bm25,knn,n_queries=9,random_state={state})" for state in ("none", rng.randrange(99)))
    return world.fit(one), world.fit(rng.choice((one, two)))


def other_documents(world: World, name: str, rng: random.Random, folder: Path) -> Pair:
    """The second is fitted after documents were added or removed."""
    engine = Engine(world.collection)
    one = world.fit(name, engine=engine)
    if rng.random() < 0.5:
        engine.add(NEW)
    else:
        engine.remove([rng.choice(sorted(set(engine.collection.doc_ids.to_pylist()) - set(world.qrels["doc_id"])))])
    return one, world.fit(name, engine=engine)


def fitted_again(world: World, name: str, rng: random.Random, folder: Path) -> Pair:
    """A copy of a ranker that is fitted again on other judgements."""
    one, (_, two) = world.fit(name), other_judgements(world, name, rng, folder)
    again = copy(one)
    again.fit(world.engine, world.train, world.qrels.assign(doc_id=world.qrels["doc_id"].to_numpy()[::-1]))
    return rng.choice(((one, again), (again, two)))


def other_learned_part(world: World, name: str, rng: random.Random, folder: Path) -> Pair:
    """A copy of a ranker that gets the fitted part of another."""
    one: Any
    other: Any
    if rng.random() < 0.7:
        one, other = other_judgements(world, "knn-queries", rng, folder)
        two = copy(one)
        two.relevant_, two.offsets_ = other.relevant_, other.offsets_
    else:
        one, other = other_judgements(world, "learned(bm25,knn-queries)", rng, folder)
        two = copy(one)
        two.fusion_ = other.fusion_
    return one, two


def saved_and_loaded(world: World, name: str, rng: random.Random, folder: Path) -> Pair:
    """Two rankers are saved one after the other to one folder, and loaded in between."""
    loaded = []
    for ranker in other_judgements(world, name, rng, folder):
        shutil.rmtree(folder / "model", ignore_errors=True)
        ranker.save(folder / "model")
        loaded.append(rng.choice((ranker, haybale.load(folder / "model", world.engine))))
    return loaded[0], loaded[1]


def other_model(world: World, name: str, rng: random.Random, folder: Path) -> Pair:
    """Two cross-encoders of one path, whose model was replaced in between."""
    text = f"cross-encoder(bm25,model='{folder / 'encoder'}',n_documents=6)"
    text = rng.choice((text, f"rrf(knn,{text})"))
    with HashedModels() as models:
        models.write(folder / "encoder", str(rng.random()))
        one = world.fit(text)
        models.write(folder / "encoder", str(rng.random()))
        return one, world.fit(text)


def other_space(world: World, name: str, rng: random.Random, folder: Path) -> Pair:
    """Two rankers on another engine of one path, which was built again in between."""
    text = f"space(knn,engine='{folder / 'space'}')"
    text = rng.choice((text, f"rrf(bm25,{text})"))
    fitted = []
    for n in (3, 5):
        shutil.rmtree(folder / "space", ignore_errors=True)
        Engine.build(world.collection, folder / f"built{n}", encoder=f"lsa(n_components={n})")
        (folder / f"built{n}").rename(folder / "space")
        fitted.append(world.fit(text))
        (folder / f"kept{n}").symlink_to(folder / "space")
    in_space._engines.clear()
    return fitted[0], fitted[1]


ANY: tuple[Differ, ...] = (other_judgements, one_grade, other_texts, other_own, other_documents, fitted_again)
ANY += (saved_and_loaded,)
GIVEN: tuple[Differ, ...] = (other_parameter, other_random_state, other_learned_part, other_model)


def ranked(ranker: Ranker, batch: QueryBatch) -> Run:
    return ranker.run(batch, DEPTH)


def check_apart(world: World, pair: Pair, rng: random.Random, compared: bool = True) -> None:
    """Check that both rank as they do alone: in one batch, in any order, out of fold, explained and compared."""
    one, two = pair
    engine = one.engine_.snapshot()
    train, queries = (
        engine.collection.queries.take(engine.collection.split(name).queries) for name in ("train", "dev")
    )
    alone = [ranker.rank(queries, depth=DEPTH) for ranker in pair]
    for order in ((0, 1), (1, 0)):
        batch = QueryBatch(engine, queries)
        runs = {number: ranked(pair[number], batch) for number in order}
        assert [runs[0], runs[1]] == alone, "another run in one batch"
        batch = QueryBatch(engine, train, "train")
        found = {number: pair[number].run(batch, DEPTH, out_of_fold=True) for number in order}
        expected = [each.run(QueryBatch(engine, train, "train"), DEPTH, out_of_fold=True) for each in pair]
        assert [found[0], found[1]] == expected, "another run out of fold"
    row = rng.randrange(len(queries))
    batch = QueryBatch(engine, queries.take(np.array([row])))
    for ranker, run in zip(pair, alone, strict=True):
        for doc_id, score in run[queries.ids[row].as_py()][:2]:
            number = int(engine.collection.document_numbers([doc_id])[0])
            explanation = ranker.explained(batch, number)
            assert np.isclose(explanation.score or 0.0, score, rtol=1e-5), f"{doc_id}: another explanation"
    if compared:
        outcome = compare(one.engine_, {"one": one, "two": two}, measures=["nDCG@10"])
        for name, run in zip(("one", "two"), alone, strict=True):
            assert {query: run[query] for query in run.query_ids} == {
                query: outcome.runs[name][query][:DEPTH] for query in run.query_ids
            }, f"{name} has another run in a comparison"


def tiny_engine() -> tuple[Engine, SimilarQueries, SimilarQueries]:
    """Return an engine, and two rankers that differ only in the text of their training query."""
    engine = Engine(
        {"a": "A dog barks.", "b": "The tax is due.", "c": "Rain."}, language="english", encoder="tfidf(min_df=1)"
    )
    qrels = pd.DataFrame({"query_id": ["q"], "doc_id": ["c"], "relevance": [1]})
    fits = (SimilarQueries().fit(engine, {"q": text}, qrels) for text in ("dog", "tax"))
    return engine, *fits  # type: ignore[return-value]


__all__ = [
    "ANY",
    "GIVEN",
    "LEARNING",
    "SLOW",
    "HashedModels",
    "InSpace",
    "Learned",
    "World",
    "check_apart",
    "tiny_engine",
]
