"""Several threads and processes: each answer is of one state of the engine; replaced documents, and refresh()."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.engines import UNTRAINED, assert_same, assert_same_runs, runs_of
from support.storm import (
    FEW,
    check_answers,
    documents_of_storm,
    prepared,
    read_storm,
    replaying,
    storm_of_threads,
)
from support.topics import NEW, topic_collection

from haybale import Engine, parse
from haybale.collections import Collection, CollectionBuilder
from haybale.errors import InputError, StoreError
from haybale.rankers import KNN, QueryBatch, Training

pytestmark = pytest.mark.filterwarnings("ignore::haybale.rankers.EmptyRankingWarning")


def test_answers_of_threads_are_of_one_state(tmp_path: Path) -> None:
    engine, rankers, queries = prepared(FEW, "tfidf", tmp_path, in_folder=False)
    changes, answers = storm_of_threads(engine, rankers, queries, rounds=20)
    assert len(changes) == 40
    counts = check_answers(*replaying(engine, FEW, "tfidf", tmp_path), changes, answers)
    assert set(counts) == set(FEW)


PROCESSES = """
import sys, warnings
from pathlib import Path
from support.storm import FEW, prepared, storm_of_processes
warnings.simplefilter("ignore")
folder = Path(sys.argv[1])
_, _, queries = prepared(FEW, "tfidf", folder, in_folder=True)
storm_of_processes(folder, FEW, queries, rounds=8, n_askers=3)
"""


@pytest.mark.thorough
def test_answers_of_processes_are_of_one_state(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROCESSES, str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    changes, answers = read_storm(tmp_path)
    assert len(changes) == 16
    engine = Engine.open(tmp_path / "engine")
    check_answers(*replaying(engine, FEW, "tfidf", tmp_path), changes, answers)


def test_no_change_of_a_thread_is_lost(topics: Collection) -> None:
    engine = Engine(topics).prepare()
    barrier = threading.Barrier(4)

    def change(writer: int) -> None:
        barrier.wait()
        for number in range(15):
            engine.add({f"w{writer}-{number}": f"text {writer} {number}"})
            engine.replace({f"w{writer}-0": f"again {number}"})
            if number:
                engine.remove([f"w{writer}-{number}"] if number % 2 else [f"w{writer}-0"])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(change, range(4)))
    expected = {f"w{writer}-{number}" for writer in range(4) for number in range(2, 15, 2)}
    assert set(engine.collection.doc_ids.to_pylist()) - set(topics.doc_ids.to_pylist()) == expected


def test_changes_need_no_lock_of_searches(topics: Collection, tmp_path: Path) -> None:
    """A search that makes an index holds the snapshot's lock, and may wait for the change that holds the storage's."""
    engine = Engine.build(topics, tmp_path / "engine")
    Engine.open(tmp_path / "engine").remove(["d09"])
    changes = [
        engine.refresh,
        lambda: engine.add(NEW),
        lambda: engine.replace({"d01": "text"}),
        lambda: engine.remove(["d02"]),
        lambda: engine.replace({"d02": "text"}),
    ]
    for change in changes:
        with engine._documents._lock:
            thread = threading.Thread(target=change, daemon=True)
            thread.start()
            thread.join(30)
            assert not thread.is_alive()
    assert engine.collection.n_documents == topics.n_documents + 1


def test_threads_that_rank_out_of_fold_learn_once(topics: Collection) -> None:
    ranker = parse("learned(bm25,knn-queries)").fit(Engine(topics))
    expected = parse("learned(bm25,knn-queries)").fit(Engine(topics)).out_of_fold()
    barrier = threading.Barrier(6)

    def rank(_: int) -> Any:
        barrier.wait()
        return ranker.out_of_fold()

    with ThreadPoolExecutor(6) as threads:
        for run in threads.map(rank, range(6)):
            assert_same(run, expected)


def test_a_batch_and_a_fit_keep_the_documents_of_their_beginning(topics: Collection) -> None:
    engine, unchanged = Engine(topics), Engine(topics)
    names = [*UNTRAINED, "knn-queries", "rrf(bm25,knn-queries)"]
    training = Training.of(engine)
    batch = QueryBatch(engine, engine.collection.queries.take(engine.collection.split("dev").queries))
    engine.remove(["d05", "d07"])
    engine.replace({"d01": NEW["n1"]})
    engine.add(NEW)
    for name in names:
        ranker = parse(name)._fitted_copy(training)
        assert_same(ranker.run(batch, 50), parse(name).fit(unchanged).rank("dev", depth=50))
        assert ranker.engine_ is engine
        again = ranker.rank("dev", depth=50)  # by what was learned, on the present documents
        assert {"d05", "d07"}.isdisjoint(again.flat()[2].to_pylist())
    assert_same(parse("bm25")._fitted_copy(training).rank("dev"), parse("bm25").fit(engine).rank("dev"))


def test_fitted_rankers_rank_a_replaced_document_by_its_id(topics: Collection) -> None:
    """A document that is replaced by its own text keeps its judgements; another document does not get them."""
    engine = Engine(topics)
    relevant = topics.relevant_ids("train")[0][0]
    ranker = parse("knn-queries(k=3)").fit(engine)
    before = ranker.rank("train")
    assert relevant in dict(before["train0"])
    engine.remove(["d05"] if relevant != "d05" else ["d06"])  # renumbers documents
    engine.replace({relevant: "a text without a word of the query"})
    after = ranker.rank("train")
    assert dict(after["train0"])[relevant] == dict(before["train0"])[relevant]
    assert relevant in parse("knn-queries(k=3)").fit(engine).rank("train").flat()[2].to_pylist()


@pytest.mark.parametrize("where", ["memory", "folder"])
def test_ids_of_removed_documents(topics: Collection, tmp_path: Path, where: str) -> None:
    engine = Engine(topics) if where == "memory" else Engine.build(topics, tmp_path / "engine")
    engine.prepare()
    engine.remove(["d05"])
    with pytest.raises(InputError, match=r"'d05'.*removed.*replace\(\)"):
        engine.add({"d05": "back again"})
    with pytest.raises(InputError, match=r"'d06'.*replace\(\)"):
        engine.add({"d06": "twice"})
    assert engine.replace({"d05": "newword back again", "d06": "newword", "n9": "newword"}) == 1
    for each in (engine, *([Engine.open(tmp_path / "engine")] if where == "folder" else [])):
        found = [doc for doc, _ in parse("bm25").fit(each).rank({"q": "newword"})["q"]]
        assert sorted(found) == ["d05", "d06", "n9"]
        texts = dict(zip(each.whole.doc_ids.to_pylist(), each.whole.document_texts(), strict=True))
        assert texts["d05"] == "newword back again"
        assert len(texts) == topics.n_documents + 1
    engine.remove(["d05"])
    engine.replace({"d05": "third text"})
    assert engine.collection.document_numbers(["d05"]).tolist() == [engine.collection.n_documents - 1]


def test_ids_of_passages_and_sections_may_only_be_taken_from_replaced_documents() -> None:
    def collection(doc_id: str, passage_id: str, section_id: str) -> Collection:
        builder = CollectionBuilder("parts", language="english")
        number = builder.add_document(doc_id)
        builder.add_passage(
            number, f"{doc_id} {passage_id}", passage_id, builder.add_section(number, section_id, "t", None)
        )
        return builder.build()

    engine = Engine(collection("a", "p1", "s1"), encoder="tfidf(min_df=1)")
    engine.add(collection("b", "p2", "s2"))
    for passage, section, named in (("p2", "s3", "'p2'"), ("p3", "s2", "'s2'")):
        for change in (engine.replace, engine.add):
            with pytest.raises(InputError, match=named):
                change(collection("a" if change == engine.replace else "c", passage, section))
    assert engine.replace(collection("a", "p1", "s1")) == 1
    engine.remove(["b"])
    engine.add(collection("c", "p2", "s2"))  # of a removed document
    assert engine.collection.passages.ids.to_pylist() == ["p1", "p2"]
    assert engine.collection.sections is not None
    assert engine.collection.sections.ids.to_pylist() == ["s1", "s2"]


def test_judgements_links_and_queries_refer_to_the_new_document() -> None:
    engine = Engine(documents_of_storm())
    before = engine.collection
    doc_id = before.relevant_ids("train")[0][0]
    engine.replace({doc_id: "new text"})
    after = engine.collection
    assert after.relevant_ids("train") == before.relevant_ids("train")
    for old, new in ((before.queries.own, after.queries.own), (cited(before), cited(after))):
        assert after.doc_ids.take(new).to_pylist() == before.doc_ids.take(old).to_pylist()


def cited(collection: Collection) -> np.ndarray:
    """Return the cited documents, without those that the replaced document cites."""
    assert collection.links is not None
    sections = collection.sections
    assert sections is not None
    of = np.searchsorted(sections.doc_offsets, collection.links.section_to_document[:, 0], side="right") - 1
    first = collection.relevant_ids("train")[0][0]
    kept = collection.doc_ids.take(of).to_numpy() != first
    return collection.links.section_to_document[kept, 1]


def test_other_engines_of_a_folder_see_changes_after_refresh(topics: Collection, tmp_path: Path) -> None:
    engine = Engine.build(topics, tmp_path / "engine").prepare()
    other = Engine.open(tmp_path / "engine").prepare()
    ranker = parse("bm25").fit(other)
    before = ranker.rank("dev")
    assert not other.refresh()
    engine.add(NEW)
    engine.remove(["d05"])
    engine.replace({"d06": "newword"})
    assert_same(ranker.rank("dev"), before)
    for change in (lambda: other.add({"x": "text"}), lambda: other.remove(["d01"]), lambda: other.replace({"x": "t"})):
        with pytest.raises(StoreError, match=r"refresh\(\)"):
            change()
    snapshot = other.snapshot()
    assert other.refresh()
    assert not other.refresh()
    assert_same_runs(other, engine)
    assert_same_runs(snapshot, Engine(topics))
    other.remove(["d01"])
    assert engine.refresh()
    assert_same_runs(engine, other)
    assert not Engine(topics).refresh()


def test_an_engine_that_was_built_again_must_be_opened_again(topics: Collection, tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    Engine.build(topics, folder).add(NEW)
    opened = Engine.open(folder)
    run = runs_of(opened)
    for rebuild in (
        lambda: Engine.build(topics, folder),  # without the addition
        lambda: Engine.build(topics, folder).add({"n3": "another addition"}),
        lambda: Engine.build(topic_collection(seed=4), folder).add(NEW),
    ):
        shutil.rmtree(folder)
        rebuild()
        with pytest.raises(StoreError, match="open it again"):
            opened.refresh()
        for name, expected in run.items():  # which were in memory
            assert_same(runs_of(opened, names=[name])[name], expected)
    shutil.rmtree(folder)
    with pytest.raises(ValueError, match=r"engine\.json"):
        opened.refresh()


@pytest.mark.parametrize("name", ["linked(knn)", "parm-rrf", "bm25", "knn-doc"])
def test_scores_within_some_documents(name: str) -> None:
    """BM25 and kNN keep scores; context rankers see only the links among the documents, as in an engine of these."""
    engine = Engine(documents_of_storm())
    some = engine.collection.doc_ids.to_pylist()[::2]
    ranker = parse(name).fit(engine)
    whole, within = ranker.rank("dev", depth=100), ranker.rank("dev", depth=100, within=some)
    found = {query: [hit for hit in whole[query] if hit[0] in some] for query in whole.query_ids}
    unchanged = all(within[query] == found[query] for query in whole.query_ids)
    assert unchanged == (name in ("bm25", "knn-doc"))
    if name not in ("bm25", "knn-doc"):
        alone = Engine(engine.collection.take(engine.collection.document_numbers(sorted(some))), encoder=engine.encoder)
        expected = parse(name).fit(alone).rank(engine.snapshot().within(some).collection.queries.take(range(3)))
        again = ranker.rank(engine.collection.queries.take(range(3)), within=some)
        for query in expected.query_ids:
            assert dict(again[query]) == pytest.approx(dict(expected[query]), abs=1e-6)


def test_knn_with_another_copy_of_the_text(topics: Collection) -> None:
    """Vectors of replaced documents are not used any more."""
    engine = Engine(topics).prepare()
    texts = dict(zip(topics.doc_ids.to_pylist(), topics.document_texts(), strict=True))
    engine.replace({"d01": texts["d02"], "d02": texts["d01"]})
    swapped = KNN("document").fit(engine).rank("dev")
    before = KNN("document").fit(Engine(topics)).rank("dev")
    names = {"d01": "d02", "d02": "d01"}
    for query in before.query_ids:
        own = topics.queries.own[topics.query_numbers([query])[0]]
        if own >= 0 and topics.doc_ids[int(own)].as_py() in names:
            continue
        assert dict(swapped[query]) == {names.get(doc, doc): score for doc, score in before[query]}
