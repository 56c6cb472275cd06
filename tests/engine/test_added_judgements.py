"""Judgements that are added to an engine: the same as if it had been built with them, and nothing is indexed again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.engines import assert_same, tree
from support.topics import EVIDENCE, LEARNED

from haybale import Collection, CollectionBuilder, Engine, FileFormatError, InputError, load, parse

DOCUMENTS = {f"d{i}": f"dog{i} cat{i} bird{i}" for i in range(6)}
QUERIES = {"train": ("t0", "t1"), "dev": ("v0",)}
FURTHER = {"n0": "dog1 cat2", "n1": ["dog3", "bird4"], "t0": "dog t0"}


def small(judged: dict[str, dict[tuple[str, str], int]]) -> Collection:
    builder = CollectionBuilder("small", language="english")
    for doc_id, text in DOCUMENTS.items():
        builder.add_document(doc_id, text)
    for split, ids in QUERIES.items():
        for query in ids:
            builder.add_query(query, f"dog {query}", split=split)
    for split, grades in judged.items():
        for (query, document), grade in grades.items():
            builder.add_judgement(split, query, document, grade)
    return builder.build()


FIRST = {"train": {("t0", "d0"): 1, ("t1", "d1"): 2}, "dev": {("v0", "d2"): 1}}


def frame(grades: dict[tuple[str, str], int]) -> pd.DataFrame:
    rows = [(query, document, grade) for (query, document), grade in grades.items()]
    return pd.DataFrame(rows, columns=["query_id", "doc_id", "relevance"])


def grades_of(engine: Engine, split: str) -> dict[tuple[str, str], int]:
    if split not in engine.whole.splits:
        return {}
    return {(q, d): g for q, d, g in engine.whole.qrels_frame(split).itertuples(index=False)}


class Judging(RuleBasedStateMachine):
    """Compare the judgements of engines with a mapping, in any order of judging, removals, additions and reopenings."""

    @initialize()
    def build(self) -> None:
        self.temporary = TemporaryDirectory()
        self.folder = Path(self.temporary.name) / "engine"
        self.memory = Engine(small(FIRST), encoder="tfidf(min_df=1)")
        self.saved = Engine.build(small(FIRST), self.folder, encoder="tfidf(min_df=1)")
        self.other = Engine.open(self.folder)
        self.expected = {split: dict(grades) for split, grades in FIRST.items()}
        self.removed: set[str] = set()

    def teardown(self) -> None:
        if hasattr(self, "temporary"):
            self.temporary.cleanup()

    @rule(
        pairs=st.dictionaries(
            st.tuples(st.sampled_from(["t0", "t1", "n0", "n1"]), st.sampled_from(list(DOCUMENTS))),
            st.integers(-1, 3),
            min_size=1,
            max_size=4,
        ),
        split=st.sampled_from(["train", "mine"]),
    )
    def judge(self, pairs: dict[tuple[str, str], int], split: str) -> None:
        elsewhere = {query for other, grades in self.expected.items() if other != split for query, _ in grades}
        elsewhere |= set() if split == "train" else {"t0", "t1"}
        snapshot = self.memory.snapshot()
        before = grades_of(snapshot, split)
        refused = any(query in elsewhere or document in self.removed for query, document in pairs)
        for engine in (self.memory, self.saved):
            if refused:
                with pytest.raises(InputError, match=r"split|document"):
                    engine.judge(frame(pairs), FURTHER, split=split)
                continue
            done = engine.judge(frame(pairs), FURTHER, split=split)
            assert done.n_judgements == len(pairs)
            assert done.n_replaced == sum(before.get(pair, grade) != grade for pair, grade in pairs.items())
        if not refused:
            self.expected.setdefault(split, {}).update(pairs)
        assert grades_of(snapshot, split) == before

    @rule(doc_id=st.sampled_from(list(DOCUMENTS)))
    def change_document(self, doc_id: str) -> None:
        """Remove a document, or add it again with another text."""
        for engine in (self.memory, self.saved):
            if doc_id in self.removed:
                engine.replace({doc_id: "dog again"})
            elif len(self.removed) < 4:
                engine.remove([doc_id])
        if doc_id in self.removed:
            self.removed.remove(doc_id)
        elif len(self.removed) < 4:
            self.removed.add(doc_id)

    @rule()
    def reopen(self) -> None:
        self.saved = Engine.open(self.folder)

    @invariant()
    def judgements_are_as_expected(self) -> None:
        if not hasattr(self, "expected"):
            return
        self.other.refresh()
        for engine in (self.memory, self.saved, self.other):
            for split, grades in self.expected.items():
                present = {pair: grade for pair, grade in grades.items() if pair[1] not in self.removed}
                assert grades_of(engine, split) == present
            ids = {split: {query for query, _ in grades} for split, grades in self.expected.items()}
            assert {
                split: set(engine.whole.queries.take(part.queries).ids.to_pylist())
                for split, part in engine.whole.splits.items()
            } == ids
        assert len(list((self.folder / "judgements").glob("*"))) <= 2


TestJudging = Judging.TestCase
TestJudging.settings = settings(max_examples=12, stateful_step_count=12, deadline=None)


@pytest.mark.parametrize("ranker", ["knn-queries(k=7)", f"svr({EVIDENCE})", LEARNED])
def test_training_on_added_judgements_equals_training_on_built_ones(
    topics: Collection, tmp_path: Path, ranker: str
) -> None:
    """An engine without training queries gets those of the whole collection; it ranks as if it had had them."""
    train = topics.split("train")
    train = replace(train, queries=np.intersect1d(train.queries, train.judged_queries))
    whole = replace(topics, splits={**topics.splits, "train": train})
    engine = Engine.build(
        _with_splits(topics, ["dev", "test"]), tmp_path / "engine", encoder="tfidf(min_df=1)"
    ).prepare()
    before = tree(tmp_path / "engine")
    indexes = [engine.passages, engine.documents, engine.bm25()]
    engine.judge(topics.qrels_frame("train"), topics.queries.take(train.queries))
    assert [engine.passages, engine.documents, engine.bm25()] == indexes
    changed = {name for name, data in tree(tmp_path / "engine").items() if before.get(name) != data}
    assert {name.partition("/")[0] for name in changed} == {"engine.json", "judgements"}
    expected = parse(ranker).fit(Engine(whole, encoder="tfidf(min_df=1)")).rank("dev")
    for each in (engine, Engine.open(tmp_path / "engine")):
        assert_same(parse(ranker).fit(each).rank("dev"), expected)
    parse(ranker).fit(engine).save(tmp_path / "model")
    engine.judge(pd.DataFrame({"query_id": ["more"], "doc_id": ["d01"], "relevance": [1]}), {"more": "anything"})
    assert_same(load(tmp_path / "model", Engine.open(tmp_path / "engine")).rank("dev"), expected)


def _with_splits(collection: Collection, splits: list[str]) -> Collection:
    """Return a collection without the queries of other splits."""
    builder = CollectionBuilder(collection.name, language=collection.language)
    offsets, texts = collection.passages.doc_offsets, collection.passages.texts.to_pylist()
    for number, doc_id in enumerate(collection.doc_ids.to_pylist()):
        builder.add_document(doc_id, texts[offsets[number] : offsets[number + 1]])
    for name in splits:
        for number in collection.split(name).queries:
            own = int(collection.queries.own[number])
            own_id = None if own < 0 else collection.doc_ids[own].as_py()
            builder.add_query(
                collection.queries.ids[int(number)].as_py(), collection.queries.paragraphs_of(number), own_id, name
            )
        for query, document, grade in collection.qrels_frame(name).itertuples(index=False):
            builder.add_judgement(name, query, document, int(grade))
    return builder.build()


FILES = {
    "qrels.csv": "query_id,doc_id,relevance\nn0,d1,2\nt0,d0,0\n",
    "german.csv": '\ufeffquery;document;grade\r\nn0;"d1";2\r\nt0;d0;0\r\n',
    "beir.tsv": "query-id\tcorpus-id\tscore\nn0\td1\t2\nt0\td0\t0\n",
    "beir.csv": "query-id,corpus-id,score\nn0,d1,2\nt0,d0,0\n",
    "qrels.trec": "n0 0 d1 2\nt0 0 d0 0\n",
}


@pytest.mark.parametrize("name", FILES)
def test_formats_of_files(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(FILES[name].encode())
    (tmp_path / "queries.csv").write_text("query_id,text,own\nn0,bird5 cat2,d5\nignored,bird,\n")
    engine = Engine(small(FIRST), encoder="tfidf(min_df=1)")
    assert engine.judge(tmp_path / name, tmp_path / "queries.csv") == (2, 1, 2, 1)
    assert grades_of(engine, "train") == {("t1", "d1"): 2, ("n0", "d1"): 2, ("t0", "d0"): 0}
    assert grades_of(engine, "dev") == FIRST["dev"]
    assert engine.whole.queries.ids.to_pylist() == ["t0", "t1", "v0", "n0"]
    assert engine.whole.queries.own.tolist() == [-1, -1, -1, 5]
    assert {doc_id for doc_id, _ in parse("bm25").fit(engine).rank(engine.whole.queries.take([3]))["n0"]} == {"d2"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("t0,d0,1\nt0,d9,1\n", r"line 3: .*'d9'"),
        ("t0,d3,1\n", r"line 2: .*'d3'"),  # removed
        ("t0,d0,1\nx0,d0,1\n", r"line 3: .*'x0'"),
        ("t0,d0,1\nt1,d0,1\nt0,d0,2\n", r"line 4: .*'t0'.*'d0'.* 2 and 1 in line 2"),
        ("t0,d0,1.5\n", r"line 2: .*'1\.5'"),
        ("t0,d0,yes\n", r"line 2: .*'yes'"),
        ("t0,d0,4294967296\n", r"line 2: .*32 bits"),
        ("v0,d0,1\n", r"line 2: .*'v0'.*'dev'"),
        ("t1,d0,1\n", r"text.* 't1'"),
        ("", "at least one"),
    ],
)
def test_wrong_judgements_are_one_clear_error_and_change_nothing(tmp_path: Path, text: str, message: str) -> None:
    engine = Engine.build(small(FIRST), tmp_path / "engine", encoder="tfidf(min_df=1)")
    engine.remove(["d3"])
    engine.judge(frame({("n0", "d0"): 1}), FURTHER)
    before = tree(tmp_path / "engine")
    (tmp_path / "qrels.csv").write_text("query_id,doc_id,relevance\n" + text)
    with pytest.raises(InputError, match=message):
        engine.judge(tmp_path / "qrels.csv", {"t1": "another text", "n1": "dog"})
    assert tree(tmp_path / "engine") == before
    assert grades_of(engine, "train") == {**FIRST["train"], ("n0", "d0"): 1}


def test_wrong_arguments() -> None:
    engine = Engine(small(FIRST), encoder="tfidf(min_df=1)")
    pair = frame({("t0", "d0"): 1})
    for split in ("", " ", "a\0b"):
        with pytest.raises(InputError, match="split"):
            engine.judge(pair, split=split)
    with pytest.raises(InputError, match=r"column relevance.* 0\.5"):
        engine.judge(pair.assign(relevance=0.5))
    with pytest.raises(InputError, match="cannot change a snapshot"):
        engine.snapshot().judge(pair)
    with pytest.raises(InputError, match="no such file"):
        engine.judge("none.csv")


def test_damaged_judgements_are_one_clear_error(tmp_path: Path) -> None:
    Engine.build(small(FIRST), tmp_path / "engine", encoder="tfidf(min_df=1)").judge(frame({("t0", "d3"): 1}))
    [path] = (tmp_path / "engine" / "judgements").glob("*.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"queries": []}, indent=1))
    with pytest.raises(FileFormatError, match="SHA-256"):
        Engine.open(tmp_path / "engine")
    path.unlink()
    with pytest.raises(FileFormatError, match="no such file"):
        Engine.open(tmp_path / "engine")
