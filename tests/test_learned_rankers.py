"""The rankers that learn from training queries beside the ensemble of passages: svr-doc, knn-queries, learned(…)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_parts import settings
from worlds import word_collection

from haybale.collections import Collection, CollectionBuilder
from haybale.ensemble import LearnedFusion, novel_queries
from haybale.errors import InputError, UnknownNameError
from haybale.experiments import Settings, compare
from haybale.experiments.document_ensemble import SEARCHES, pooled
from haybale.experiments.rankers import learns, parts_of, remembers, run_of
from haybale.experiments.workbench import TRAIN_SAMPLE, Workbench
from haybale.retrieval import QueryNeighbours

PARTS = ["bm25", "knn", "knn-queries", "svr-doc"]
LEARNED = f"learned({','.join(PARTS)})"

pytestmark = pytest.mark.filterwarnings("ignore:.* bags have no relevant row")


@pytest.fixture(scope="module")
def words() -> Collection:
    return word_collection()


@pytest.fixture(params=["tfidf", "lsa"])
def bench(words: Collection, request: Any) -> Workbench:
    return Workbench(words, settings(rankers=(LEARNED,), encoder=request.param))


def test_learned_is_the_fusion_of_out_of_bag_runs(words: Collection, bench: Workbench) -> None:
    run = run_of(bench, LEARNED, "dev")
    relevant = words.relevant_ids("train")
    novel = novel_queries(relevant)
    places, ids = bench.places(TRAIN_SAMPLE), bench.query_ids(TRAIN_SAMPLE)
    fusion = LearnedFusion(depth=100, cold=0.3).fit(
        {name: run_of(bench, name, TRAIN_SAMPLE) for name in PARTS},
        {query: relevant[place] for query, place in zip(ids, places, strict=True)},
        memories=["knn-queries", "svr-doc"],
        novel=[query for query, place in zip(ids, places, strict=True) if novel[place]],
    )
    assert run == fusion.fuse({name: run_of(bench, name, "dev") for name in PARTS})
    facts = bench.facts[LEARNED]
    assert facts["training queries"] == fusion.n_queries_
    assert facts["svr-doc score"] == fusion.weights_.set_index(["run", "feature"]).standardised["svr-doc", "score"]


def test_a_training_query_is_no_neighbour_of_itself(words: Collection, bench: Workbench) -> None:
    run, train = run_of(bench, "knn-queries", TRAIN_SAMPLE), "train"
    vectors, relevant = bench.query_vectors(train), words.relevant_ids(train)
    for place, query in zip(bench.places(TRAIN_SAMPLE), bench.query_ids(TRAIN_SAMPLE), strict=True):
        others = np.arange(len(relevant)) != place
        without = QueryNeighbours(
            vectors[others], [ids for ids, other in zip(relevant, others, strict=True) if other], words.doc_ids
        )
        own = bench.own(train)[[place]]
        assert dict(run[query]) == pytest.approx(dict(without.rank(vectors[[place]], [query], exclude=own)[query]))


def test_the_ensemble_of_documents_scores_its_pool(words: Collection, bench: Workbench) -> None:
    for part in ("dev", TRAIN_SAMPLE):
        run = run_of(bench, "svr-doc", part)
        candidates = pooled(bench, part, bench.settings.document_candidates, run_of)
        index, ensemble = bench.whole_documents, bench.made[("svr-doc",)]
        for row, query in enumerate(bench.query_ids(part)):
            tops = [run_of(bench, name, part).top(bench.settings.document_candidates)[query] for name in SEARCHES]
            numbers = candidates.passages[row]
            numbers = numbers[numbers >= 0]
            assert set(index.doc_ids.take(numbers).to_pylist()) == {doc for top in tops for doc, _ in top}
            vector = bench.query_vectors(part)[[row]]
            if part == "dev":
                scores = ensemble.memory(vector, numbers[None])[0]
            else:
                scores = ensemble.out_of_bag_memory(bench.places(part)[[row]], vector, numbers[None])[0]
            expected = dict(zip(index.doc_ids.take(numbers).to_pylist(), scores, strict=True))
            assert dict(run[query]) == pytest.approx(expected, abs=1e-5)


def test_no_label_of_the_ranked_split_is_seen(words: Collection) -> None:
    dev = words.splits["dev"]
    turned = type(dev)(dev.name, dev.queries, dev.judged_queries, np.roll(dev.judged_documents, 1), dev.grades)
    other = Collection(**{**vars(words), "splits": {**words.splits, "dev": turned}})
    chosen = settings(rankers=(*PARTS, LEARNED), encoder="tfidf")
    first, second = compare(words, chosen), compare(other, chosen)
    assert all(first.runs[name] == second.runs[name] for name in chosen.rankers)


def test_what_learns_and_what_remembers() -> None:
    assert parts_of("learned(bm25,rrf(knn,svr))") == ["bm25", "rrf(knn,svr)"]
    assert learns("learned(bm25,knn)")
    assert not remembers("learned(bm25,knn)")
    assert remembers("rrf(bm25,rrf(knn,knn-queries))")
    assert not learns("rrf(bm25,knn)")
    with pytest.raises(UnknownNameError, match=r"unknown ranker 'bm26'.*learned\(…,…\)"):
        parts_of("learned(bm25,bm26)")
    with pytest.raises(UnknownNameError, match="unknown ranker 'learn"):
        parts_of("learn(bm25,knn)")


def test_training_queries_are_not_ranked_by_what_was_learned_on_them(words: Collection) -> None:
    bench = Workbench(words, settings(rankers=("learned(bm25,knn)",), encoder="tfidf"))
    with pytest.raises(InputError, match=r"learned\(bm25,knn\) is learned on the training queries"):
        run_of(bench, "learned(bm25,knn)", TRAIN_SAMPLE)
    builder = CollectionBuilder("no train")
    builder.add_document("d", ["a dog barks", "a dog sleeps"])
    builder.add_query("q", ["dog"], split="test")
    builder.add_judgement("test", "q", "d")
    for name in ("learned(bm25,knn)", "knn-queries", "svr-doc"):
        with pytest.raises(InputError, match="needs a split to learn from"):
            compare(builder.build(), Settings(split="test", rankers=(name,), encoder="tfidf"))


def test_a_relevant_document_without_a_passage_is_no_candidate() -> None:
    builder = CollectionBuilder("gap", language="english")
    builder.add_document("empty", [])
    for d in range(6):
        builder.add_document(f"d{d}", [f"topic{d} word{d % 3}"])
    for split in ("train", "dev"):
        for i in range(6):
            builder.add_query(f"{split}{i}", [f"topic{i} word{i % 3}"], split=split)
            builder.add_judgement(split, f"{split}{i}", f"d{i}")
            builder.add_judgement(split, f"{split}{i}", "empty")
    small = {"n_bags": 3, "k": 3, "overlap": 0.0}
    outcome = compare(builder.build(), Settings(rankers=("svr-doc",), encoder="tfidf", ensemble=small, n_jobs=1))
    assert all("empty" not in dict(outcome.runs["svr-doc"][query]) for query in outcome.runs["svr-doc"].query_ids)
