"""The same question under many ids: it changes nothing of what is learned, in any order, case and punctuation."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from itertools import count
from typing import Any

import pandas as pd
from hostile.target import CORRECT, Cases, Target
from support.topics import topic_collection

import haybale
from haybale import Engine
from haybale.collections import Collection
from haybale.rankers import Training
from haybale.ranking.twins import ContradictoryTwinsWarning

RANKERS = ("knn-queries(k=7)", "bm25-weighted(min_count=2)", "rrf(bm25,knn-queries)", "learned(bm25,knn-queries)")
N_TRAIN = 20
Row = tuple[str, str, str | None]  # query id, text, own document


class _World:
    """A collection with its engine, its training queries and their judgements."""

    def __init__(self, seed: int) -> None:
        self.collection: Collection = topic_collection(N_TRAIN, 8, 1, seed)
        self.engine = Engine(self.collection)
        self.engine.prepare()
        queries = self.collection.queries.take(self.collection.split("train").queries)
        doc_ids = self.collection.doc_ids.to_pylist()
        own = [doc_ids[number] if number >= 0 else None for number in queries.own.tolist()]
        self.rows: list[Row] = list(zip(queries.ids.to_pylist(), queries.texts(range(len(queries))), own, strict=True))
        judged = self.collection.qrels_frame("train").itertuples(index=False)
        self.judged = [(str(query), str(document), int(grade)) for query, document, grade in judged]
        self.run = cache(lambda name: self.ranker(name, self.rows, self.judged).rank("dev", depth=30))

    def ranker(self, name: str, rows: list[Row], judged: list[tuple[str, str, int]]) -> Any:
        return haybale.parse(name).fit(self.engine, *_frames(rows, judged))

    def copies(self, rng: random.Random) -> tuple[list[Row], list[tuple[str, str, int]], dict[str, str]]:
        """Return the queries with copies of some, their judgements, and the query that each is a copy of."""
        rows, judged = list(self.rows), list(self.judged)
        of = {query: query for query, _, _ in rows}
        for query, text, own in self.rows:
            for number in range(rng.choice((0, 0, 1, 2, 9))):
                of[copy := f"{query}~{number}"] = query
                rows.append((copy, _other_form(text, rng), rng.choice((own, None))))
                judged += [(copy, document, grade) for name, document, grade in self.judged if name == query]
        return rows, judged, of


def _frames(rows: list[Row], judged: list[tuple[str, str, int]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    return (
        pd.DataFrame(rows, columns=["query_id", "text", "own"]),
        pd.DataFrame(judged, columns=["query_id", "doc_id", "relevance"]),
    )


def _other_form(text: str, rng: random.Random) -> str:
    """Return a text with the same words: in another case, order, and with other punctuation and white space."""
    words = text.split()
    if rng.random() < 0.5:
        rng.shuffle(words)
    words = [rng.choice((str.upper, str.title, str))(word) for word in words]
    between = rng.choice((" ", "  ", "\n", " - ", ", ", "\u00a0", "; "))
    return rng.choice(("", "¿", '"')) + between.join(words) + rng.choice(("", "?", "!!", " …", '"'))


def _copied(world: _World, rng: random.Random) -> str:
    rows, judged, of = world.copies(rng)
    name = rng.choice(RANKERS)
    ranker = world.ranker(name, rows, judged)
    assert ranker.rank("dev", depth=30) == world.run(name), f"{name}: copies change the ranking"
    assert ranker.learned_from() == set(of), "a copy is forgotten"
    copy = rng.choice(list(of))
    out = ranker.out_of_fold({copy: "any text", of[copy]: "any text"}, depth=30)
    assert out[copy] == out[of[copy]], "a copy is ranked by what it taught"
    return CORRECT


def _saved(world: _World, rng: random.Random, target: Target) -> str:
    rows, judged, of = world.copies(rng)
    ranker = world.ranker(rng.choice(RANKERS[:3]), rows, judged)
    ranker.save(folder := target.new())
    again = haybale.load(folder, world.engine)
    assert again.learned_from() == set(of)
    assert again.fit_report_ == ranker.fit_report_
    return CORRECT


def _grouped(world: _World, rng: random.Random) -> str:
    """Copies with a word more share the group, the fold and the query that stands for them, in any order."""
    rows, judged, of = world.copies(rng)
    rows = [(query, text + rng.choice(("", " please")) * (query != of[query]), own) for query, text, own in rows]
    rng.shuffle(rows)
    training = Training.of(world.engine, *_frames(rows, judged))
    twins = training.twins
    assert {query: twins.representative(query) for query in of} == of, "another query stands for a copy"
    groups = dict(zip(training.all_queries.ids, training.all_queries.groups.tolist(), strict=True))
    assert all(groups[query] == groups[of[query]] for query in of), "a copy is in another group"
    folds = training.batch.folds(5, 0)
    assert len({*zip(training.batch.groups.tolist(), folds.tolist(), strict=True)}) == len(set(training.batch.groups))
    return CORRECT


def _judged(world: _World, rng: random.Random) -> str:
    """The majority of the judgements of twins decides; of as many of both, relevance."""
    rows, _, of = world.copies(rng)
    documents = rng.sample(world.collection.doc_ids.to_pylist(), 3)
    judged = [(query, document, rng.randint(0, 2)) for query in of for document in documents if rng.random() < 0.7]
    if not any(grade for *_, grade in judged):
        return CORRECT
    votes: Counter[tuple[str, str]] = Counter()
    for query, document, grade in judged:
        votes[of[query], document] += 1 if grade else -1
    seen = {(of[query], document) for query, document, grade in judged if grade}
    against = {(of[query], document) for query, document, grade in judged if not grade}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        training = Training.of(world.engine, *_frames(rows, judged))
        relevant = dict(zip(training.batch.ids, training.relevant, strict=True))
    for query, *_ in world.rows:
        expected = {document for document in documents if (query, document) in seen and votes[query, document] >= 0}
        assert set(relevant[query]) == expected, f"{query}: {relevant[query]}, not {expected}"
    told = [each for each in caught if issubclass(each.category, ContradictoryTwinsWarning)]
    assert bool(told) == bool(seen & against), "contradictions are not told"
    assert len(training.twins.contradictions) == len(seen & against)
    return CORRECT


LAWS: tuple[Callable[..., str], ...] = (_copied, _grouped, _grouped, _judged, _judged, _saved)


def twins(target: Target, rng: random.Random) -> Cases:
    worlds = [_World(rng.randrange(1000)) for _ in range(3)]
    for number in count():
        law, world, seed = rng.choice(LAWS), rng.choice(worlds), rng.randrange(2**32)
        more = (target,) if law is _saved else ()
        yield f"{law.__name__} {number}", partial(law, world, random.Random(seed), *more)
