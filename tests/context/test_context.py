"""Context rankers: the contract of rankers, slow oracles, planted relations, and links that leak the answers."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.engines import assert_same
from support.ranker_contract import check_explanations, check_ranking, check_saved, queries_of
from support.structured import ANSWERING, planted_collection, share_right, structured_collection, without_links_of

from haybale import Engine, Run, TfidfEncoder, evaluate, load
from haybale.collections import Collection
from haybale.context import PATHS, SectionPropagation
from haybale.context.candidates import best_passages
from haybale.context.engine_graph import graph_of
from haybale.context.linear_context import LinearContext
from haybale.context.masks import hidden_links
from haybale.errors import InputError
from haybale.rankers import BM25, KNN, QueryBatch, Training, parse
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
    return lambda name, encoder="tfidf": parse(name)._fitted_copy(training[encoder])


NEEDS_TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="no torch")
CASES = [(name, encoder) for name in NAMES for encoder in ENCODERS] + [(name, "lsa") for name in ATTENTION]
every = pytest.mark.parametrize(
    ("name", "encoder"),
    [pytest.param(*case, id=" ".join(case), marks=[NEEDS_TORCH] * (case[0] in ATTENTION)) for case in CASES],
)


@every
def test_the_contract_of_rankers(
    engines: dict[str, Engine], fitted: Any, tmp_path: Path, name: str, encoder: str
) -> None:
    ranker = fitted(name, encoder)
    check_ranking(ranker, depths=(1, 3, 7, 8, 12), exact=encoder == "tfidf")
    assert ranker.needs_training == (name in LEARNING)
    check_saved(ranker, engines[encoder], tmp_path / "ranker")


@every
def test_shares_sum_to_the_score(fitted: Any, name: str, encoder: str) -> None:
    ranker = fitted(name, encoder)
    explanations = check_explanations(ranker, "dev1", "dev3", "dev7")
    relations = {share.what.partition(":")[0] for found in explanations for share in found.shares}
    if "paper" in name:
        assert relations >= {"order", "order_i", "structural_i"}
    elif name in LEARNING:
        assert relations >= {"previous passage", "next passage", "siblings", "citing documents"}
    unknown = {"q": "nothing like it"}
    assert ranker.explain(unknown, "d01").score is None or ranker.explain(unknown, "d01").shares


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


def test_section_propagation_mixes_passages_and_sections(engines: dict[str, Engine], structured: Collection) -> None:
    """λ = 0 gives the run of the vectors alone. A document scores by its best passage."""
    engine = engines["tfidf"]
    plain = KNN().fit(engine).rank("dev")
    again = SectionPropagation(KNN(), share=0.0).fit(engine).rank("dev")
    for query in plain.query_ids:
        assert dict(again[query]) == pytest.approx(dict(plain[query]), abs=1e-6)
    ranker = SectionPropagation(KNN(), share=0.4).fit(engine)
    batch = QueryBatch(engine, queries_of(structured, "dev"))
    graph, run = graph_of(engine), ranker.rank("dev")
    nodes: list[Any] = [graph.vectors.passages, graph.vectors.titles]
    for row, scores in enumerate(np.concatenate([(batch.vectors @ part.T).toarray() for part in nodes], axis=1)):
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
    batch = QueryBatch(engine, queries_of(structured, "dev"))
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
    queries = queries_of(structured, "train")
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


def test_masks_prevent_the_leak() -> None:
    """Only documents of training queries cite relevant ones. So without a mask, training looks better, dev is worse."""
    collection = structured_collection(11, n_documents=30, n_queries=60, own_words=2)
    engine = Engine(collection)
    found = {mask: LinearContext(KNN(), mask=mask).fit(engine) for mask in ("own", "relevant", "off")}
    seen = {mask: ndcg(ranker.out_of_fold("train"), collection, "train") for mask, ranker in found.items()}
    dev = {mask: ndcg(ranker.rank("dev"), collection) for mask, ranker in found.items()}
    assert seen["off"] > max(seen["own"], seen["relevant"]) + 0.03
    assert dev["off"] < min(dev["own"], dev["relevant"])
    citing = 1 + PATHS.index("citing documents")
    for mask in ("own", "relevant"):
        assert abs(found[mask].weights_[-1][citing]) < found["off"].weights_[-1][citing]


@pytest.mark.parametrize(
    "name", ["linear-context(knn)", *(pytest.param(name, marks=NEEDS_TORCH) for name in (ATTENTION[0], ATTENTION[3]))]
)
def test_masked_links_are_hidden(engines: dict[str, Engine], structured: Collection, fitted: Any, name: str) -> None:
    """Training and other queries are ranked as if their documents had no links; without the mask they are not."""
    ranker = fitted(name, "lsa")
    differ = 0
    for query in ("train1", "train3", "dev5", "dev6"):
        queries = queries_of(structured, [query])
        bare = Engine(without_links_of(structured, int(queries.own[0])), encoder=engines["lsa"].encoder)
        twin = parse(name)
        known = ranker.__dict__ | {"mask": "off", "_contexts": None}
        twin.__dict__.update(known | {"engine_": bare, "rankers_": [twin.ranker.fit(bare)]})
        expected = dict(twin.rank(queries)[query])
        assert dict(ranker.rank(queries)[query]) == pytest.approx(expected, abs=1e-5)
        twin.__dict__.update(known | {"rankers_": ranker.rankers_})
        differ += dict(twin.rank(queries)[query]) != pytest.approx(expected, abs=1e-5)
    assert differ


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
