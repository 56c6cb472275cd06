"""Random additions, removals, views and reopenings, compared with engines made from the same documents."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.engines import CountingEncoder, assert_filtered, assert_same, runs_of
from support.topics import word

from haybale import Engine
from haybale.collections import Collection, CollectionBuilder
from haybale.embeddings import TfidfEncoder

POOL = {
    f"p{number:02d}": [f"{word(100 * (number % 5) + i)} {word(5000 + (number * i) % 7)}" for i in range(number % 3 + 1)]
    for number in range(24)
}


class Changes(RuleBasedStateMachine):
    """Compare engines after additions, removals, views and reopening with engines made from the same documents."""

    @initialize(n=st.integers(1, 8), dense=st.booleans())
    def build(self, n: int, dense: bool) -> None:
        self.temporary = TemporaryDirectory()
        self.folder = Path(self.temporary.name) / "engine"
        self.encoder = CountingEncoder() if dense else TfidfEncoder(min_df=1).fit(["\n".join(t) for t in POOL.values()])
        self.added = list(POOL)[:n]
        self.present = set(self.added)
        self.memory = Engine(self.collection(self.added), encoder=self.encoder)
        self.saved = Engine.build(self.collection(self.added), self.folder, encoder=self.encoder)

    def teardown(self) -> None:
        if hasattr(self, "temporary"):
            self.temporary.cleanup()

    def collection(self, ids: list[str]) -> Collection:
        builder = CollectionBuilder("pool", language="english")
        for doc_id in ids:
            builder.add_document(doc_id, POOL[doc_id])
        for number in range(3):
            builder.add_query(f"q{number}", [f"{word(100 * number)} {word(5001)}", word(100 * number + 1)], split="dev")
            builder.add_judgement("dev", f"q{number}", ids[0])
        return builder.build()

    @rule(data=st.data(), n=st.integers(1, 4))
    def add(self, data: st.DataObject, n: int) -> None:
        remaining = [doc for doc in POOL if doc not in self.added]
        if not remaining:
            return
        chosen = data.draw(st.lists(st.sampled_from(remaining), min_size=1, max_size=n, unique=True))
        for engine in (self.memory, self.saved):
            engine.add({doc: POOL[doc] for doc in chosen})
        self.added += chosen
        self.present |= set(chosen)

    @precondition(lambda self: len(self.present) > 1)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        most = len(self.present) - 1
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.present)), max_size=min(3, most), unique=True))
        for engine in (self.memory, self.saved):
            engine.remove(chosen)
        self.present -= set(chosen)

    @rule()
    def open_again(self) -> None:
        given = self.encoder if isinstance(self.encoder, CountingEncoder) else None
        self.saved = Engine.open(self.folder, encoder=given)

    @rule()
    def prepare(self) -> None:
        self.memory.prepare()

    @rule(data=st.data())
    def within(self, data: st.DataObject) -> None:
        some = data.draw(st.lists(st.sampled_from(sorted(self.present)), min_size=1, unique=True))
        self.check(some, self.memory.within(some), self.saved.within(some))

    @invariant()
    def present_documents(self) -> None:
        if hasattr(self, "added"):
            self.check(sorted(self.present), self.memory, self.saved)

    def check(self, some: list[str], *engines: Engine) -> None:
        ordered = [doc for doc in self.added if doc in some]
        everything = Engine(self.collection(self.added), encoder=self.encoder).within(ordered)
        alone = Engine(self.collection(ordered), encoder=self.encoder)
        lexical = ("bm25", "bm25-doc", "bm25-parm-rrf")  # whose statistics include removed documents
        names = (*lexical, "knn", "knn-doc", "knn-firstp", "parm-vrrf")
        with_all, without = runs_of(everything, names=lexical), runs_of(alone, names=names)
        for engine in engines:
            assert engine.collection.doc_ids.to_pylist() == ordered
            for name, run in runs_of(engine, names=names).items():
                if name in lexical:
                    assert_same(run, with_all[name])
                if len(ordered) == len(self.added):
                    assert_same(run, without[name])
                elif name not in lexical:
                    assert_filtered(run, without[name], lambda doc: True, exactly=False)


TestChanges = Changes.TestCase
TestChanges.settings = settings(
    max_examples=10, stateful_step_count=6, deadline=None, suppress_health_check=list(HealthCheck)
)
