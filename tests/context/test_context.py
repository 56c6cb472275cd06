"""Context rankers: the contract of rankers, slow oracles, planted relations, and links that leak the answers."""

from __future__ import annotations

import json
import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.engines import assert_same
from support.structured import ANSWERING, planted_collection, share_right, structured_collection, without_links_of

from haybale import Engine, Run, TfidfEncoder, evaluate, load
from haybale.collections import Collection
from haybale.context import PATHS, SectionPropagation
from haybale.context.candidates import best_passages
from haybale.context.engine_graph import graph_of
from haybale.context.linear_context import LinearContext
from haybale.context.masks import hidden_links
from haybale.errors import InputError
from haybale.rankers import BM25, KNN, QueryBatch, Ranker, Training, from_spec, parse
from haybale.timing import record_timings

pytestmark = pytest.mark.filterwarnings("ignore::haybale.rankers.EmptyRankingWarning")
NAMES = (
    "section-propagation(knn,share=0.3,n_documents=6)",
    "linear-context(bm25-doc,n_documents=7,n_train=4)",
    "linear-context(knn-queries,mask=relevant)",
    "linear-context(rrf(knn,knn-queries),mask=off)",
)
ATTENTION = (  # these need dense vectors
    "lim(knn,epochs=2,heads=2,n_documents=7)",
    "mim(knn-queries,epochs=1,heads=1,mask=relevant)",
    "mix-im-paper(bm25-doc,epochs=1,heads=1,mask=off)",
    "lim-paper(knn,epochs=1,heads=2,context_query=type)",
)
LEARNING = (*NAMES[1:], *ATTENTION)
ENCODERS: dict[str, dict[str, Any]] = {"tfidf": {}, "lsa": {"encoder": "lsa(n_components=10)"}}


@pytest.fixture(scope="module")
def engines(structured: Collection) -> dict[str, Engine]:
    return {name: Engine(structured, **settings) for name, settings in ENCODERS.items()}


@pytest.fixture(scope="module")
def fitted(engines: dict[str, Engine]) -> Any:
    training = {name: Training.of(engine) for name, engine in engines.items()}
    return lambda name, encoder="tfidf": parse(name).fitted(training[encoder])


NEEDS_TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="no torch")
CASES = [(name, encoder) for name in NAMES for encoder in ENCODERS] + [(name, "lsa") for name in ATTENTION]
every = pytest.mark.parametrize(
    ("name", "encoder"),
    [pytest.param(*case, id=" ".join(case), marks=[NEEDS_TORCH] * (case[0] in ATTENTION)) for case in CASES],
)


@every
def test_the_contract_of_rankers(fitted: Any, structured: Collection, name: str, encoder: str) -> None:
    """Check depth, queries alone or together, ``within``, out-of-fold runs, and that re-ranking keeps the documents."""
    ranker: Ranker = fitted(name, encoder)
    whole = ranker.rank("dev")
    for depth in (1, 3, 7, 8, 12):
        assert_same(ranker.rank("dev", depth=depth), whole.top(depth))
    numbers = structured.split("dev").queries
    backwards = ranker.rank(structured.queries.take(numbers[::-1].copy()))
    for number, query in zip(numbers[:5], whole.query_ids, strict=False):
        for run in (ranker.rank(structured.queries.take([number])), backwards):
            if encoder == "tfidf":
                assert run[query] == whole[query]
            else:
                assert dict(run[query]) == pytest.approx(dict(whole[query]), rel=1e-5, abs=1e-6)
    some = structured.doc_ids.to_pylist()[::2]
    assert set(ranker.rank("dev", within=some).flat()[2].to_pylist()) <= set(some)
    assert_same(ranker.rank("dev", within=structured.doc_ids.to_pylist()), whole)
    for query, own in zip(whole.query_ids, structured.queries.own[numbers].tolist(), strict=True):
        assert structured.doc_ids[own].as_py() not in dict(whole[query])
        first = dict(ranker.rankers_[0].rank("dev")[query])
        assert set(dict(whole[query])) == set(first), "a re-ranker keeps the documents"
    assert_same(ranker.out_of_fold("dev"), whole)
    assert ranker.needs_training == (name in LEARNING)
    assert bool(ranker.learned_from()) == ranker.needs_training


@every
def test_shares_sum_to_the_score(fitted: Any, structured: Collection, name: str, encoder: str) -> None:
    ranker = fitted(name, encoder)
    relations = set()
    for query in ("dev1", "dev3", "dev7"):
        queries = structured.queries.take(structured.query_numbers([query]))
        for rank, (doc, score) in enumerate(ranker.rank(queries)[query], 1):
            found = ranker.explain(queries, doc)
            assert (found.rank, found.score) == (rank, score)
            size = max(abs(score), math.fsum(abs(share.share) for share in found.shares))
            assert math.fsum(share.share for share in found.shares) == pytest.approx(score, abs=1e-5 * size)
            assert math.fsum(found.to_frame()["share"]) == pytest.approx(score, abs=1e-5 * size)
            json.dumps(found.to_dict())
            relations |= {share.what.partition(":")[0] for share in found.shares}
    if "paper" in name:
        assert relations >= {"order", "order_i", "structural_i"}
    elif name in LEARNING:
        assert relations >= {"previous passage", "next passage", "siblings", "citing documents"}
    unknown = {"q": "nothing like it"}
    assert ranker.explain(unknown, "d01").score is None or ranker.explain(unknown, "d01").shares


@every
def test_saved_and_loaded(engines: dict[str, Engine], fitted: Any, tmp_path: Path, name: str, encoder: str) -> None:
    ranker = fitted(name, encoder)
    assert from_spec(json.loads(json.dumps(ranker.to_dict()))) == ranker == parse(str(ranker))
    ranker.save(tmp_path / "ranker")
    again = load(tmp_path / "ranker", engines[encoder])
    assert (again, again.fit_report_, again.learned_from()) == (ranker, ranker.fit_report_, ranker.learned_from())
    assert_same(again.rank("dev"), ranker.rank("dev"))
    assert_same(again.out_of_fold("train"), ranker.out_of_fold("train"))


def test_the_graph_follows_added_and_removed_documents(structured: Collection, tmp_path: Path) -> None:
    """A document that is added without sections gets a root section."""
    engine = Engine.build(structured, tmp_path / "engine")
    ranker = parse(LEARNING[0]).fit(engine)
    before = graph_of(engine).graph
    engine.add({"new": [structured.passages.texts[0].as_py(), "more of it"]})
    engine.remove(["d01"])
    after = graph_of(engine).graph
    assert (after.n_documents, after.n_sections < before.n_sections + 1) == (before.n_documents, True)
    found = ranker.rank({"q": structured.passages.texts[0].as_py()})["q"]
    assert "new" in dict(found)
    assert "d01" not in dict(found)
    ranker.save(tmp_path / "ranker")
    opened = Engine.open(tmp_path / "engine")
    assert_same(load(tmp_path / "ranker", opened).rank("dev"), ranker.rank("dev"))


def dense(engine: Engine, batch: QueryBatch) -> np.ndarray:
    """Return the inner products (m, n_nodes) of queries and nodes."""
    vectors: Any = graph_of(engine).vectors
    return np.concatenate([(batch.vectors @ part.T).toarray() for part in (vectors.passages, vectors.titles)], axis=1)


def test_section_propagation_mixes_passages_and_sections(engines: dict[str, Engine], structured: Collection) -> None:
    """λ = 0 gives the run of the vectors alone. A document scores by its best passage."""
    engine = engines["tfidf"]
    plain = KNN().fit(engine).rank("dev")
    again = SectionPropagation(KNN(), share=0.0).fit(engine).rank("dev")
    for query in plain.query_ids:
        assert dict(again[query]) == pytest.approx(dict(plain[query]), abs=1e-6)
    ranker = SectionPropagation(KNN(), share=0.4).fit(engine)
    batch = QueryBatch(engine, structured.queries.take(structured.split("dev").queries))
    graph, run = graph_of(engine), ranker.rank("dev")
    for row, scores in enumerate(dense(engine, batch)):
        passages = np.arange(graph.graph.n_passages)
        mixed = 0.6 * scores[passages] + 0.4 * graph.paths.propagated(scores, passages)
        for doc, score in run[batch.ids[row]]:
            number = int(structured.document_numbers([doc])[0])
            assert score == pytest.approx(mixed[graph.graph.doc_of[passages] == number].max(), abs=1e-6)


def test_linear_context_is_linear(engines: dict[str, Engine], structured: Collection, fitted: Any) -> None:
    """A score is the inner product with one vector for each passage, Σ weight · mean over a path."""
    ranker, engine = fitted("linear-context(knn)", "lsa"), engines["lsa"]
    view = graph_of(engine)
    vectors, passages = view.vectors.dense(), np.arange(view.graph.n_passages)
    batch = QueryBatch(engine, structured.queries.take(structured.split("dev").queries))
    run, weights = ranker.rank("dev"), ranker.weights_[-1]
    for row, query in enumerate(batch.ids):
        means = view.paths.means(vectors, passages, int(batch.own[row]), hidden_links(ranker, engine))
        context = weights[0] * vectors[passages] + np.einsum("r,prd->pd", weights[1:], means)
        scores = context @ batch.vectors[row]
        for doc, score in run[query]:
            number = int(structured.document_numbers([doc])[0])
            assert score == pytest.approx(scores[view.graph.doc_of[passages] == number].max(), abs=1e-5)
    assert set(ranker.fit_report_) == {"training queries", "loss", "passage", *PATHS}


def test_out_of_fold_uses_the_weights_of_the_other_folds(fitted: Any, structured: Collection) -> None:
    ranker: Any = fitted("linear-context(knn)")
    queries = structured.queries.take(structured.split("train").queries)
    for group in np.unique(queries.groups):
        assert len(set(ranker.fold_of_[queries.groups == group])) == 1
    run = ranker.out_of_fold("train")
    assert run != ranker.rank("train")
    for fold in range(5):
        only = type(ranker)(KNN())
        only.__dict__.update(ranker.__dict__ | {"weights_": np.tile(ranker.weights_[fold], (6, 1)), "n_train": 49})
        mine = np.array(run.query_ids)[ranker.fold_of_ == fold].tolist()
        assert_same(run.take(mine), only.rank("train").take(mine))
    # The weights of a fold equal those of a ranker that was trained without its queries.
    inside = ranker.fold_of_ == 0
    ids = np.array(run.query_ids)
    frame = structured.qrels_frame("train")
    others = LinearContext(KNN()).fit(ranker.engine_, None, frame[~frame["query_id"].isin(ids[inside])])
    np.testing.assert_allclose(others.weights_[-1], ranker.weights_[0], rtol=1e-6)


def ndcg(run: Run, collection: Collection, split: str = "dev") -> float:
    return float(evaluate(run, collection.qrels_frame(split), ["nDCG@10"])["nDCG@10"].mean())


@pytest.mark.parametrize("relation", ANSWERING)
def test_the_relation_with_the_answer_is_learned(relation: str) -> None:
    """All candidate passages are equal, so that only this relation leads to the answer."""
    collection = planted_collection(relation)
    engine = Engine(collection, encoder=TfidfEncoder(min_df=1))
    ranker: Any = LinearContext(BM25()).fit(engine)
    assert share_right(ranker, collection) == 1
    known = {}
    for path in PATHS:
        only = np.zeros(11)
        only[[0, 1 + PATHS.index(path)]] = 1.0, 0.9
        alone = LinearContext(BM25())
        alone.__dict__.update(ranker.__dict__ | {"weights_": np.tile(only, (6, 1))})
        known[path] = share_right(alone, collection)
    assert known.pop(relation) == 1
    if relation == "previous passage":  # it is part of the rest, and its own next passage has the common words
        assert known.pop("rest of the document") == known.pop("next passage") == 1
    assert max(known.values()) < 0.3


def leaking(n: int = 30) -> Collection:
    """Return a collection in which only the documents of training queries cite the relevant documents."""
    return structured_collection(11, n_documents=n, n_queries=60, own_words=2)


def test_masks_prevent_the_leak() -> None:
    """Without a mask, training queries rank better and dev queries worse. A mask equals removing the links."""
    collection = leaking()
    engine = Engine(collection)
    found = {mask: LinearContext(KNN(), mask=mask).fit(engine) for mask in ("own", "relevant", "off")}
    seen = {mask: ndcg(ranker.out_of_fold("train"), collection, "train") for mask, ranker in found.items()}
    dev = {mask: ndcg(ranker.rank("dev"), collection) for mask, ranker in found.items()}
    assert seen["off"] > max(seen["own"], seen["relevant"]) + 0.03
    assert dev["off"] < min(dev["own"], dev["relevant"])
    citing = 1 + PATHS.index("citing documents")
    for mask in ("own", "relevant"):
        assert abs(found[mask].weights_[-1][citing]) < found["off"].weights_[-1][citing]
    # A masked query is ranked as if its document had no links.
    for query in ("train3", "dev5"):
        queries = collection.queries.take(collection.query_numbers([query]))
        bare = Engine(without_links_of(collection, int(queries.own[0])))
        twin = LinearContext(KNN(), mask="off")
        twin.__dict__.update(found["own"].__dict__ | {"engine_": bare, "mask": "off", "rankers_": [KNN().fit(bare)]})
        assert dict(found["own"].rank(queries)[query]) == pytest.approx(dict(twin.rank(queries)[query]), abs=1e-5)
        assert found["off"].rank(queries) != found["own"].rank(queries) or not len(
            graph_of(engine).graph.cited(queries.own[0])
        )


def test_best_passages() -> None:
    scores, begins = np.array([1.0, 3, 3, 2, 5, -1, -1]), np.array([0, 4, 5, 7])
    assert best_passages(scores, begins).tolist() == [1, 4, 5]


def test_what_is_refused(topics: Collection) -> None:
    with record_timings() as stages, pytest.raises(InputError, match="topics"):
        parse("linear-context(bm25)").fit(Engine(topics))
    assert set(stages.seconds) <= {"build graph"}, "before any work"
    for text, name in (
        ("section-propagation(knn,share=1.5)", "share"),
        ("linear-context(knn,mask=all)", "mask"),
        ("linear-context(knn,l2=-1)", "l2"),
        ("lim(knn,dropout=1)", "dropout"),
        ("lim(knn,setting=edges)", "setting"),
        ("lim(knn,epochs=0)", "epochs"),
    ):
        with pytest.raises(InputError, match=f"'{name}' parameter of"):
            parse(text)
    holes = structured_collection(1)
    empty = holes.doc_ids[int(np.argmin(np.diff(holes.passages.doc_offsets)))].as_py()
    frame = holes.qrels_frame("train").assign(doc_id=empty).drop_duplicates("query_id")
    with pytest.raises(InputError, match="linear-context"):
        LinearContext(KNN()).fit(Engine(holes), "train", frame)
