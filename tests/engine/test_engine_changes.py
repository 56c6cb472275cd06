"""Random additions, replacements, removals, views and reopenings, compared with engines of the same documents."""

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


def passages_of(doc_id: str, version: int) -> list[str]:
    return [*POOL[doc_id], *([f"{word(5000 + version)} {word(100 * version)}"] if version else [])]


class Changes(RuleBasedStateMachine):
    """Compare engines after changes, views and reopening with engines made from the same documents.

    In ``log`` are the versions of all documents in the order of their additions; the last one of an id is present,
    unless it was removed.
    """

    @initialize(n=st.integers(1, 8), dense=st.booleans())
    def build(self, n: int, dense: bool) -> None:
        self.temporary = TemporaryDirectory()
        self.folder = Path(self.temporary.name) / "engine"
        self.encoder = CountingEncoder() if dense else TfidfEncoder(min_df=1).fit(["\n".join(t) for t in POOL.values()])
        self.log = [(doc_id, 0) for doc_id in list(POOL)[:n]]
        self.present = {doc_id for doc_id, _ in self.log}
        self.memory = Engine(self.collection(self.log), encoder=self.encoder)
        self.saved = Engine.build(self.collection(self.log), self.folder, encoder=self.encoder)
        self.other = self.opened()

    def teardown(self) -> None:
        if hasattr(self, "temporary"):
            self.temporary.cleanup()

    def opened(self) -> Engine:
        return Engine.open(self.folder, encoder=self.encoder if isinstance(self.encoder, CountingEncoder) else None)

    def collection(self, versions: list[tuple[str, int]], name: str = "{}") -> Collection:
        builder = CollectionBuilder("pool", language="english")
        for doc_id, version in versions:
            builder.add_document(name.format(doc_id, version), passages_of(doc_id, version))
        for number in range(3):
            builder.add_query(f"q{number}", [f"{word(100 * number)} {word(5001)}", word(100 * number + 1)], split="dev")
            builder.add_judgement("dev", f"q{number}", name.format(*versions[0]))
        return builder.build()

    def new_version(self, doc_id: str) -> tuple[str, int]:
        return doc_id, sum(known == doc_id for known, _ in self.log)

    @rule(data=st.data(), n=st.integers(1, 4))
    def add(self, data: st.DataObject, n: int) -> None:
        added = {doc_id for doc_id, _ in self.log}
        remaining = [doc_id for doc_id in POOL if doc_id not in added]
        if not remaining:
            return
        chosen = data.draw(st.lists(st.sampled_from(remaining), min_size=1, max_size=n, unique=True))
        for engine in (self.memory, self.saved):
            engine.add({doc_id: POOL[doc_id] for doc_id in chosen})
        self.log += [(doc_id, 0) for doc_id in chosen]
        self.present |= set(chosen)

    @rule(data=st.data(), n=st.integers(1, 4))
    def replace(self, data: st.DataObject, n: int) -> None:
        """Present, removed and new ids."""
        chosen = data.draw(st.lists(st.sampled_from(list(POOL)[:12]), min_size=1, max_size=n, unique=True))
        new = list(map(self.new_version, chosen))
        for engine in (self.memory, self.saved):
            n_replaced = engine.replace({doc_id: passages_of(doc_id, version) for doc_id, version in new})
            assert n_replaced == len(self.present.intersection(chosen))
        self.log += new
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
        self.saved = self.opened()

    @rule()
    def refresh(self) -> None:
        """An engine of the same folder that was opened before the changes."""
        self.other.refresh()
        assert not self.other.refresh()
        self.check(sorted(self.present), self.other)

    @rule()
    def prepare(self) -> None:
        self.memory.prepare()

    @rule(data=st.data())
    def within(self, data: st.DataObject) -> None:
        some = data.draw(st.lists(st.sampled_from(sorted(self.present)), min_size=1, unique=True))
        self.check(some, self.memory.within(some), self.saved.within(some))

    @invariant()
    def present_documents(self) -> None:
        if hasattr(self, "log"):
            self.check(sorted(self.present), self.memory, self.saved)

    def check(self, some: list[str], *engines: Engine) -> None:
        last = {doc_id: place for place, (doc_id, _) in enumerate(self.log)}
        current = [self.log[place] for place in sorted(last.values()) if self.log[place][0] in some]
        ids = [doc_id for doc_id, _ in current]
        whole = Engine(self.collection(self.log, "{}#{}"), encoder=self.encoder)
        everything = whole.within([f"{doc_id}#{version}" for doc_id, version in current])
        alone = Engine(self.collection(current), encoder=self.encoder)
        lexical = ("bm25", "bm25-doc", "bm25-parm-rrf")  # whose statistics include hidden documents
        names = (*lexical, "knn", "knn-doc", "knn-firstp", "parm-vrrf")
        with_all, without = runs_of(everything, names=lexical), runs_of(alone, names=names)
        for engine in engines:
            assert engine.collection.doc_ids.to_pylist() == ids
            judged = engine.collection.qrels_frame("dev")["doc_id"].tolist()
            assert judged == 3 * [self.log[0][0]] if self.log[0][0] in some else not judged
            for name, run in runs_of(engine, names=names).items():
                if name in lexical:
                    for query in run.query_ids:
                        assert run[query] == [(doc.partition("#")[0], score) for doc, score in with_all[name][query]]
                if len(current) == len(self.log):
                    assert_same(run, without[name])
                elif name not in lexical:
                    assert_filtered(run, without[name], lambda doc: True, exactly=False)


TestChanges = Changes.TestCase
TestChanges.settings = settings(
    max_examples=10, stateful_step_count=6, deadline=None, suppress_health_check=list(HealthCheck)
)
