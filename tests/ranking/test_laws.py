"""Properties of all rankers, over sparse and over dense vectors."""

from __future__ import annotations

import json
from contextlib import nullcontext

import numpy as np
import pytest
from support.engines import assert_same
from support.ranker_cases import PAPER, PASSAGE_SVR, Fitted, every_ranker
from support.topics import LEARNING, NEW, RANKERS, SVR, TWINS

from haybale import Engine
from haybale.collections import Collection
from haybale.errors import InputError
from haybale.rankers import EmptyRankingWarning, parse

pytestmark = pytest.mark.filterwarnings("ignore:.* bags have no relevant row")


@every_ranker
def test_the_first_documents_do_not_depend_on_depth(fitted: Fitted, name: str, encoder: str) -> None:
    ranker = fitted(name, encoder)
    whole = ranker.rank("dev", depth=1000)
    assert len(whole) == 15
    assert len(whole.flat()[0]) > 70
    for depth in (1, 2, 3, 7, 20, 41):
        assert_same(ranker.rank("dev", depth=depth), whole.top(depth))


@every_ranker
def test_a_ranking_does_not_depend_on_other_queries(
    fitted: Fitted, topics: Collection, name: str, encoder: str
) -> None:
    ranker = fitted(name, encoder)
    numbers = topics.split("dev").queries
    whole = ranker.rank(topics.queries.take(numbers))
    backwards = ranker.rank(topics.queries.take(numbers[::-1].copy()))
    assert backwards.query_ids == whole.query_ids[::-1]
    for number, query in zip(numbers[:5], whole.query_ids, strict=False):
        for run in (ranker.rank(topics.queries.take([number])), backwards):
            if encoder == "tfidf":
                assert run[query] == whole[query]
            else:  # products of dense matrices of other shapes may differ in the last bits
                assert dict(run[query]) == pytest.approx(dict(whole[query]), rel=1e-5, abs=1e-6)


@every_ranker
@pytest.mark.filterwarnings("ignore::haybale.rankers.EmptyRankingWarning")
def test_rankings_within_some_documents(fitted: Fitted, topics: Collection, name: str, encoder: str) -> None:
    """Only these documents are found, and never the document that a query was taken from."""
    ranker = fitted(name, encoder)
    own = {
        query: topics.doc_ids[int(document)].as_py()
        for query, document in zip(topics.queries.ids.to_pylist(), topics.queries.own, strict=True)
        if document >= 0
    }
    ids = topics.doc_ids.to_pylist()
    some = ids[1::3]
    whole, part = ranker.rank("dev"), ranker.rank("dev", within=some)
    assert_same(ranker.rank("dev", within=np.isin(ids, some)), part)
    assert set(part.flat()[2].to_pylist()) <= set(some)
    assert len(part.flat()[0]) > 20
    for run in (whole, part):
        for query in run.query_ids:
            assert own.get(query) not in dict(run[query])
    assert_same(ranker.rank("dev", within=ids), whole)
    if name.startswith("knn-queries"):
        for query in whole.query_ids:
            assert part[query] == [(doc, score) for doc, score in whole[query] if doc in some]


@every_ranker
def test_out_of_fold_only_matters_for_training_queries(fitted: Fitted, name: str, encoder: str) -> None:
    ranker = fitted(name, encoder)
    assert_same(ranker.out_of_fold("dev"), ranker.rank("dev"))
    assert ranker.needs_training == (name in LEARNING or name == PAPER)
    assert bool(ranker.learned_from()) == ranker.needs_training
    if not ranker.needs_training:
        assert_same(ranker.out_of_fold("train"), ranker.rank("train"))


@pytest.mark.parametrize("name", [*(name for name in RANKERS if "rrf" not in name), PASSAGE_SVR])
def test_ties_are_broken_by_document_id(fitted: Fitted, topics: Collection, name: str) -> None:
    """Twins have equal texts. Unless judgements differ, they are adjacent, the smaller id first."""
    ranker = fitted(name, "tfidf")
    text = topics.document_texts()[topics.document_numbers([TWINS[0]])[0]]
    found = [doc for doc, _ in ranker.rank({"q": text.split("\n")})["q"]]
    if any(part in name for part in ("queries", "unseen")) or ("svr" in name and name != PASSAGE_SVR):
        return  # only one of the twins was relevant to training queries
    place = found.index(TWINS[1])
    assert found[place + 1] == TWINS[0]
    for depth in (place + 1, place + 2):
        assert [doc for doc, _ in ranker.rank({"q": text.split("\n")}, depth=depth)["q"]] == found[:depth]


@pytest.mark.parametrize("name", RANKERS)
def test_empty_rankings(fitted: Fitted, name: str) -> None:
    ranker = fitted(name, "tfidf")
    queries = {"known": "lababasox kodubakox", "strange": "zzzz", "another": "yyyy"}
    if "candidates=none" in name:  # ranks all documents
        assert {len(ranker.rank(queries)[query]) for query in queries} == {41}
        return
    warned = pytest.warns(EmptyRankingWarning, match=r"2 of 3 queries.* 'strange'")
    with nullcontext() if ranker.may_answer_nothing else warned:
        run = ranker.rank(queries)
    assert run.query_ids == list(queries)
    assert run["strange"] == run["another"] == []
    assert len(run["known"]) > 0


@pytest.mark.parametrize("name", RANKERS)
def test_added_and_removed_documents(topics: Collection, name: str) -> None:
    """A fitted ranker finds added documents at once, and removed ones no more."""
    engine = Engine(topics)
    ranker = parse(name).fit(engine)
    before = ranker.rank("dev")
    engine.add(NEW)
    grown = ranker.rank("dev")
    gone = [doc for doc, _ in before["dev0"]][:2]
    engine.remove([*gone, *NEW])
    shrunk = ranker.rank("dev")
    assert not {*gone, *NEW} & set(shrunk.flat()[2].to_pylist())
    assert grown.query_ids == shrunk.query_ids == before.query_ids
    with pytest.raises(InputError, match=gone[0]):
        ranker.explain("text", gone[0])


def test_fitting_does_not_change_parameters(topics: Collection) -> None:
    engine = Engine(topics)
    for name in RANKERS:
        ranker = parse(name)
        assert ranker.fit(engine) is ranker
        assert ranker == parse(name)
        assert not any(hasattr(each, "engine_") for each in [ranker.clone(), *ranker.nested()])
        json.dumps(ranker.fit_report_)


def test_many_queries_are_ranked_in_blocks(fitted: Fitted, topics: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    ranker = fitted(f"rrf(bm25,svr-memory({SVR}),k=20)", "tfidf")
    whole = ranker.rank("train")
    monkeypatch.setattr("haybale.ranking.ranker._QUERIES_PER_BATCH", 7)
    blocks = ranker.rank("train")
    assert blocks.query_ids == whole.query_ids
    for query in whole.query_ids:
        assert dict(blocks[query]) == pytest.approx(dict(whole[query]))
