"""The rankers pli and maxsim: scores, out-of-fold runs, explanations, stores and saved models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.engines import assert_same
from support.ranker_contract import check_explanations, check_ranking, check_saved, queries_of
from support.tiny_models import save_bi_encoder

from haybale import (
    BERTPLI,
    PLI,
    CrossPairs,
    Engine,
    LSAEncoder,
    MaxSim,
    Reading,
    VectorPairs,
    interact,
    load,
)
from haybale.collections import Collection
from haybale.errors import InputError
from haybale.rankers import BM25, Learned, Training, parse

pytest.importorskip("sentence_transformers")
pytestmark = [
    pytest.mark.filterwarnings("default"),  # transformers and torch warn about themselves
    pytest.mark.filterwarnings("ignore::haybale.rankers.EmptyRankingWarning"),
]
SMALL: dict[str, Any] = {"hidden": 6, "epochs": 3, "n_seeds": 1, "learning_rate": 0.02, "n_documents": 6}


@pytest.fixture(scope="module")
def ranker(engine: Engine) -> PLI:
    return PLI(BM25("document"), **SMALL).fit(engine)


def test_scores_are_those_of_networks_over_the_interactions(engine: Engine, ranker: PLI, topics: Collection) -> None:
    """Out of fold, they are those of a network that was trained without the fold."""
    train, dev = queries_of(topics, "train"), queries_of(topics, "dev")
    relevant = dict(zip(train.ids.to_pylist(), topics.relevant_ids("train"), strict=True))
    pairs = VectorPairs(LSAEncoder(128, language="english").fit(topics.passages.texts))
    first = ranker.rankers_[0]
    learned, of_dev = (
        Reading(engine, each, first.rank(each), pairs, k=6, select="best").all() for each in (train, dev)
    )
    inside = [query for query, fold in zip(relevant, ranker.fold_of_, strict=True) if fold == 3]
    outside = {query: documents for query, documents in relevant.items() if query not in inside}
    unseen = ranker.out_of_fold("train")
    for run, before, found, ids, judged in (
        (ranker.rank("dev"), first.rank("dev"), of_dev, dev.ids.to_pylist(), relevant),
        (unseen, first.rank("train"), learned, inside, outside),
    ):
        network = BERTPLI(**{name: SMALL[name] for name in ("hidden", "epochs", "n_seeds", "learning_rate")})
        blocks = found.blocks.assign(new=network.fit(learned, judged).score(found))
        for query in ids:
            expected = blocks[blocks["query_id"] == query].set_index("doc_id")["new"].to_dict()
            assert dict(run[query][: len(expected)]) == pytest.approx(expected, abs=1e-5)
            assert [doc for doc, _ in run[query][6:]] == [doc for doc, _ in before[query][6:]]
    assert unseen != ranker.rank("train")
    assert len(np.unique(train.groups)) < len(train)
    for group in np.unique(train.groups):
        assert len(set(ranker.fold_of_[train.groups == group])) == 1


def test_the_contract_of_rankers(ranker: PLI, topics: Collection, tmp_path: Path) -> None:
    check_ranking(ranker, depths=(1, 5, 6, 9))
    assert ranker.needs_training
    assert not ranker.learns_documents
    assert ranker.learned_from() == {f"train{i}" for i in range(60)}
    check_saved(ranker, Engine(topics), tmp_path / "model")


def test_shares_name_the_paragraphs_and_sum_to_the_score(engine: Engine, ranker: PLI) -> None:
    paper = parse("pli-paper(bm25-doc,epochs=2,hidden=5,n_seeds=2,n_documents=6,n=3,m=2)").fit(engine)
    for each in (ranker, paper):
        for found in check_explanations(each, "dev1", n=8):
            assert any("before" in note for note in found.notes)
            if found.rank <= 6:
                named = [share.what for share in found.shares]
                assert any(what.startswith(f"paragraph 0 → passage {found.doc_id}") for what in named)
                assert any(what.startswith("bm25-doc, rank") for what in named) == (each is ranker)
                assert ("paragraphs that are missing" in named) == (each is paper)
            else:
                assert found.shares[0].what == "not re-ranked"


def test_fusion_encodes_no_pair_of_a_training_query_twice(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    count, encode = 0, VectorPairs.encode

    def counted(self: Any, firsts: Any, seconds: Any, which: Any) -> Any:
        nonlocal count
        count += len(which)
        return encode(self, firsts, seconds, which)

    monkeypatch.setattr(VectorPairs, "encode", counted)
    fused = Learned(BM25("document"), PLI(BM25("document"), **SMALL)).fit(engine)
    of_training = count
    assert of_training > 0
    fused.rankers_[1].out_of_fold("train")
    assert count == of_training
    assert "dev1" in fused.rank("dev").query_ids


def test_pairs_in_a_store_are_not_encoded_again(
    engine: Engine, topics: Collection, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scores differ from those without a store only by the precision of float16."""
    how = {**SMALL, "n": 2, "m": 1, "max_length": 16, "device": "cpu", "n_documents": 4}
    plain = PLI(BM25("document"), model, **how).fit(engine)
    first = plain.rankers_[0]
    pairs = CrossPairs(model, max_length=16, device="cpu")
    every = topics.queries
    for split, out in (("train", tmp_path / "train"), ("dev", tmp_path / "dev")):
        interact(engine, every, first.rank(split), pairs, out, k=4, n=2, m=1, select="best")
    monkeypatch.setattr(CrossPairs, "encode", refuse)
    stored = PLI(BM25("document"), model, store=str(tmp_path / "train"), **how).fit(engine)
    expected, found = plain.out_of_fold("train"), stored.out_of_fold("train")
    for query in expected.query_ids[:10]:
        assert dict(found[query]) == pytest.approx(dict(expected[query]), abs=0.05)
    with pytest.raises(AssertionError, match="encoded again"):
        stored.rank("dev")
    both = PLI(BM25("document"), model, store=(str(tmp_path / "train"), str(tmp_path / "dev")), **how).fit(engine)
    assert len(both.rank("dev").flat()[0]) > 40
    both.save(tmp_path / "model")
    assert_same(load(tmp_path / "model", engine).rank("dev"), both.rank("dev"))
    monkeypatch.undo()
    for other, message in (
        ({"n": 3}, "n 3, found 2"),
        ({"select": "first"}, "found 'best'"),
        ({"model": None}, "pairs"),
    ):
        with pytest.raises(InputError, match=message):
            PLI(BM25("document"), **{"model": model, "store": str(tmp_path / "train"), **how, **other}).fit(engine)


def refuse(*_: Any) -> Any:
    raise AssertionError("encoded again")


def test_maxsim(engine: Engine, topics: Collection, tmp_path: Path) -> None:
    name = save_bi_encoder(tmp_path / "bi")
    ranker = MaxSim(BM25("document"), name, n_documents=5, n_pairs=3, aggregation="mean", top=2, device="cpu").fit(
        engine
    )
    run, first = ranker.rank("dev"), ranker.rankers_[0].rank("dev")
    assert [doc for doc, _ in run["dev1"][5:]] == [doc for doc, _ in first["dev1"][5:]]
    (found,) = check_explanations(ranker, "dev1", n=1)
    assert -1 <= found.score <= 1
    assert len(found.shares) <= 2
    check_saved(ranker, engine, tmp_path / "model")


def test_what_is_refused(engine: Engine, topics: Collection, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing"):
        PLI(parse("svr-memory"), str(tmp_path / "nothing")).fit(engine)
    frame = topics.qrels_frame("train").head(1).assign(relevance=1)
    with pytest.raises(InputError, match="at least 2 documents"):
        PLI(BM25("document"), **SMALL).fit(engine, topics.queries.take([0]), frame)
    for wrong in ({"n_folds": 1}, {"n_documents": 0}, {"select": "x"}, {"store": 3}, {"ranker": "bm25"}):
        with pytest.raises(InputError, match=f"'{next(iter(wrong))}' parameter of PLI"):
            PLI(**({"ranker": BM25()} | wrong)).fit(engine)
    assert len(Training.of(engine)) == 60


def test_fitting_again_replaces_the_pair_encoder(engine: Engine, topics: Collection, model: str) -> None:
    other = Engine(topics, encoder="lsa(n_components=8)")
    ranker = PLI(BM25("document"), **SMALL)
    assert ranker.fit(engine).pairs(engine).dim > 8
    assert ranker.fit(other).pairs(other).dim == 8
    ranker.set_params(model=model, n=1, m=1, max_length=16, device="cpu", n_documents=2).fit(engine)
    assert isinstance(ranker.pairs(engine), CrossPairs)
