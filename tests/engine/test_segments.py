"""Engines that are indexed in segments rank as engines of one segment, to the bit, also after changes."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from hostile.segments import RANKERS as KINDS
from hostile.segments import TRAINED as LEARNING
from hostile.segments import segmented
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engines import UNTRAINED, CountingEncoder, assert_same_runs, tree_of_build
from support.topics import NEW, topic_collection

import haybale
from haybale import Chunking, Engine, TfidfEncoder
from haybale.engine import indexing_segments
from haybale.engine.indexing_segments import range_edges
from haybale.errors import InputError, StoreError
from haybale.retrieval import BM25Index, PassageIndex, index_segments
from haybale.retrieval.segmented_indexes import SegmentedBM25, SegmentedPassages

RANKERS = (
    *UNTRAINED,
    "parm-vmax",
    "bm25(top=2,k3=1)",
    "knn(top=2)",
    "rrf(bm25-doc,knn)",
    "bm25-weighted",
    "knn-queries",
)
TRAINED = ("svr(n_bags=3)", "svr-memory(n_bags=2,candidates=none)", "learned(bm25-doc,knn,svr-memory)")
BUILDS: dict[str, dict[str, Any]] = {
    "tfidf": {},
    "compounds": {"language": "german"},
    "pieces": {"chunking": Chunking(4)},
    "lsa": {"encoder": "lsa(n_components=6)"},
    "dense": {"encoder": CountingEncoder()},
    "other terms": {"encoder": TfidfEncoder(char_ngrams=(2, 3))},
}


@pytest.mark.parametrize("how", BUILDS)
@pytest.mark.filterwarnings("ignore:.* training queries for")
def test_rankings_are_those_of_one_segment(how: str, tmp_path: Path) -> None:
    topics, given = topic_collection(), BUILDS[how]
    one, many = (Engine.build(topics, tmp_path / str(n), segments=n, **given) for n in (1, 4))
    assert many.id == one.id
    assert many.analyzer == one.analyzer
    assert isinstance(many.bm25(), SegmentedBM25)
    assert isinstance(many.documents, SegmentedPassages)
    assert_same_runs(many, one, (*RANKERS, *(TRAINED if how == "tfidf" else ())))
    query = topics.queries.texts([0])[0]
    for name in RANKERS[:-1]:
        rankers = [haybale.parse(name).fit(engine) for engine in (one, many)]
        best = rankers[0].rank({"q": query})["q"][0][0]
        assert rankers[1].explain(query, best).text() == rankers[0].explain(query, best).text()


@pytest.fixture(scope="module")
def one() -> Engine:
    return Engine(topic_collection()).prepare()


@settings(deadline=None, max_examples=8)
@given(n=st.sampled_from([2, 5]), k=st.integers(1, 41), seed=st.integers(0, 99), bytes=st.sampled_from([1.0, 1e9]))
def test_searches_are_those_of_one_segment(
    n: int, k: int, seed: int, bytes: float, one: Engine, tmp_path_factory: Any
) -> None:
    """With a budget of one byte, each part is closed when the next one is opened."""
    topics, rng = topic_collection(), np.random.default_rng(seed)
    many = Engine.build(topics, tmp_path_factory.getbasetemp() / f"segments-{n}", segments=n)
    texts = topics.queries.texts(rng.choice(topics.n_queries, 5))
    exclude = rng.integers(-1, topics.n_documents, 5)
    vectors = one.encoder.encode(texts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_segments, "half_of_memory", lambda: bytes)
        patch.setattr(index_segments, "_QUERIES_PER_SEGMENT_SEARCH", int(rng.integers(1, 6)))
        pairs: list[tuple[Any, Any, Any]] = [
            (one.bm25(unit, 0.9, 0.4), many.bm25(unit, 0.9, 0.4), texts) for unit in ("passage", "document")
        ]
        pairs += [(of(one), of(many), vectors) for of in (lambda e: e.passages, lambda e: e.documents)]
        for expected, found, queries in pairs:
            hits, other = (index.search(queries, k, exclude=exclude) for index in (expected, found))
            np.testing.assert_array_equal(other.passages, hits.passages)
            np.testing.assert_array_equal(other.scores.view(np.int32), hits.scores.view(np.int32))
            top = int(rng.integers(1, 4))
            ranked = (index.documents(queries, k, exclude=exclude, top=top) for index in (expected, found))
            for mine, theirs in zip(*ranked, strict=True):
                np.testing.assert_array_equal(theirs, mine)
        rows = rng.integers(0, len(one.passages), 9)
        for chosen in (rows, slice(3, 30, 2), slice(0, 0), np.arange(104) % 5 > 2):
            assert (many.passages.vectors[chosen] != one.passages.vectors[chosen]).nnz == 0
        terms = one.analyzer.terms(texts[0])[:2]
        np.testing.assert_array_equal(many.bm25().passages_with_all(terms), one.bm25().passages_with_all(terms))
        assert many.bm25().term_counts(terms, 2, 40) == one.bm25().term_counts(terms, 2, 40)


def changes(engine: Engine) -> list[Callable[[], Any]]:
    return [
        lambda: engine.add(NEW),
        lambda: engine.remove(["d01", "d30"]),
        lambda: engine.replace({"d03": ["newword topic1", "two"], "again": "newword"}),
        lambda: engine.remove(["d02", *NEW]),
    ]


@pytest.mark.parametrize("before", [True, False])
def test_changes_and_filters(before: bool, tmp_path: Path) -> None:
    """``before`` the changes, or after them, the indexes are opened."""
    engines = [Engine.build(topic_collection(), tmp_path / str(n), segments=n) for n in (1, 3)]
    for number in range(4):
        if before:
            for engine in engines:
                engine.prepare()
        for engine in engines:
            changes(engine)[number]()
    assert_same_runs(engines[1], engines[0], RANKERS)
    reopened = Engine.open(tmp_path / "3")
    assert_same_runs(reopened, engines[0])
    some = engines[0].collection.doc_ids.to_pylist()[5::7]
    assert_same_runs(reopened.within(some), engines[0].within(some))
    few = engines[0].collection.doc_ids.to_pylist()[-3:]
    assert_same_runs(reopened.within(few), engines[0].within(few))


@pytest.mark.parametrize("failing", ["count_segment", "index_segment"])
def test_a_full_disk_is_named_and_finished_segments_are_kept(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics, folder, done = topic_collection(), tmp_path / "engine", []
    original = getattr(indexing_segments, failing)

    def write(segment: Any, *more: Any) -> None:
        done.append(segment.number)
        original(segment, *more)

    def write_some(segment: Any, *more: Any) -> None:
        if segment.number == 2:
            raise OSError(errno.ENOSPC, "No space left on device", str(segment.folder / "x"))
        write(segment, *more)

    monkeypatch.setattr(indexing_segments, failing, write_some)
    with pytest.raises(StoreError, match=r"No space left on device.*free space"):
        Engine.build(topics, folder, segments=4)
    with pytest.raises(StoreError, match="not finished"):
        Engine.open(folder)
    assert done == [0, 1]
    monkeypatch.setattr(indexing_segments, failing, write)
    Engine.build(topics, folder, segments=4)
    assert done == [0, 1, 2, 3]
    monkeypatch.undo()
    Engine.build(topics, tmp_path / "whole", segments=4)
    files, whole = (
        {name: data for name, data in tree_of_build(path).items() if name != ".lock"}
        for path in (folder, tmp_path / "whole")
    )
    assert files == whole


def test_other_processes_and_other_settings(tmp_path: Path) -> None:
    topics, folder = topic_collection(), tmp_path / "engine"
    with joblib.parallel_config(backend="loky", n_jobs=2):
        engine = Engine.build(topics, folder, segments=2, language="german")
        there = engine.bm25().search(["topic1", "topic2"], 5)
    here = engine.bm25().search(["topic1", "topic2"], 5)
    np.testing.assert_array_equal(there.passages, here.passages)
    np.testing.assert_array_equal(there.scores, here.scores)
    with pytest.raises(StoreError, match="segments"):
        Engine.build(topics, folder, segments=3, language="german")
    assert Engine.build(topics, folder, segments=2, language="german").id == engine.id
    for more, match in (
        ({"segments": 50}, "number of documents"),
        ({"segments": 0}, "segments"),
        ({"segments": 2, "store": "x"}, "'store'"),
    ):
        with pytest.raises(InputError, match=match):
            Engine.build(topics, tmp_path / "other", **more)
    assert not (tmp_path / "other").exists()


def test_a_part_of_another_engine_is_refused(tmp_path: Path) -> None:
    topics = topic_collection()
    Engine.build(topics, tmp_path / "engine", segments=3)
    segment = tmp_path / "engine" / "0" / "parts"
    (segment / "1" / "bm25-passage").rename(segment / "old")
    with pytest.raises(InputError, match="build the engine again"):
        Engine.open(tmp_path / "engine").bm25()
    Engine.build(topics.take(np.arange(3)), tmp_path / "few", segments=2)
    (tmp_path / "few" / "0" / "parts" / "1" / "bm25-passage").rename(segment / "1" / "bm25-passage")
    with pytest.raises(InputError, match="expected an index of"):
        Engine.open(tmp_path / "engine").bm25().search(["topic1"], 1)


@given(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=12), n=st.integers(1, 12))
def test_every_range_has_a_passage(sizes: list[int], n: int) -> None:
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    if n > np.count_nonzero(sizes):
        with pytest.raises(InputError):
            range_edges(offsets, n)
        return
    edges = range_edges(offsets, n)
    assert len(edges) == n + 1
    assert (edges[0], edges[-1]) == (0, len(sizes))
    assert (np.diff(offsets[edges]) > 0).all()


@pytest.mark.filterwarnings("ignore:.* finds no document")
def test_a_query_without_a_hit_in_the_first_segment(tmp_path: Path) -> None:
    documents = {"a": "land law", "b": "tax law", "c": "cats and dogs", "d": "a zebra in the zoo"}
    engine, whole = Engine.build(documents, tmp_path / "engine", segments=2), Engine(documents)
    for name in ("bm25", "bm25-doc", "knn", "knn-doc", "parm-rrf", "rrf(bm25,knn-doc)"):
        found, expected = (haybale.parse(name).fit(each) for each in (engine, whole))
        for query in ("zebra", "nowhere", "the", "zebra nowhere tax"):
            assert found.rank([query]) == expected.rank([query])
            assert [hit.doc_id for hit in found.search(query).hits] == [
                hit.doc_id for hit in expected.search(query).hits
            ]


@pytest.mark.filterwarnings("ignore:.* finds no document")
def test_a_segment_without_a_term(tmp_path: Path) -> None:
    documents = {"a": "the", "b": "the and of", "c": "a zebra", "d": "tax law"}
    engine, whole = Engine.build(documents, tmp_path / "engine", segments=3), Engine(documents)
    for name in ("bm25", "bm25-doc", "bm25(k3=1)"):
        found, expected = (haybale.parse(name).fit(each) for each in (engine, whole))
        assert found.rank(["zebra tax", "the", "nowhere"]) == expected.rank(["zebra tax", "the", "nowhere"])


@settings(deadline=None, max_examples=12)
@given(seed=st.integers(0, 10**6), name=st.sampled_from(KINDS + LEARNING))
@pytest.mark.filterwarnings("ignore")
def test_random_engines_in_segments_answer_as_one_segment(seed: int, name: str, tmp_path_factory: Any) -> None:
    segmented(tmp_path_factory.mktemp("law") / "engine", seed, (name,), trained=name in LEARNING)


def test_indexes_in_segments_have_what_callers_use() -> None:
    """All but what makes an index from texts, vectors or files, and what only its holder in a segment needs."""
    makes = {"from_collection", "open", "of_postings", "with_later", "nbytes", "from_store", "of_columns"}
    for whole, in_segments in ((BM25Index, SegmentedBM25), (PassageIndex, SegmentedPassages)):
        public = {name for name in dir(whole) if not name.startswith("_")}
        assert public - makes <= set(dir(in_segments))
