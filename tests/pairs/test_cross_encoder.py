"""Re-ranking by a cross-encoder, and engines with a neural encoder, with tiny random models."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file
from support.engines import assert_same_runs
from support.ranker_contract import check_explanations, check_ranking, check_saved, queries_of
from support.tiny_models import save_bi_encoder, save_cross_encoder
from support.topics import NEW, SVR, topic_collection

from haybale import CrossEncoder, Engine, MaxSim, load
from haybale.collections import Collection
from haybale.embeddings import SentenceTransformerEncoder
from haybale.errors import FileFormatError, InputError
from haybale.pairs.pair_encoders import CrossPairs
from haybale.rankers import BM25, RRF, SimilarQueries, parse
from haybale.timing import record_timings

SentenceCrossEncoder = pytest.importorskip("sentence_transformers").CrossEncoder
pytestmark = [
    pytest.mark.filterwarnings("default"),  # transformers and torch warn about themselves
    pytest.mark.filterwarnings("ignore::haybale.rankers.EmptyRankingWarning"),
    pytest.mark.filterwarnings("ignore::haybale.errors.TruncationWarning"),
]


@pytest.mark.parametrize(("within", "aggregation"), [("knn-queries", "max"), ("parm-rrf", "mean")])
def test_the_first_documents_are_reranked_by_their_best_pairs(
    topics: Collection, engine: Engine, model: str, within: str, aggregation: str
) -> None:
    """The most similar pairs are read. The other documents keep their order."""
    how = {"n_documents": 5, "n_pairs": 4, "top": 3, "device": "cpu"}
    ranker = CrossEncoder(parse(within), model, aggregation=aggregation, **how)
    numbers = topics.split("dev").queries[:4]
    queries = topics.queries.take(numbers)
    run, first = ranker.fit(engine).rank(queries), parse(within).fit(engine).rank(queries)
    loaded = SentenceCrossEncoder(model, device="cpu")
    index, passages = engine.passages, topics.passages.texts.to_pylist()
    for row, query in enumerate(run.query_ids):
        listed = [doc for doc, _ in first[query]]
        texts = topics.queries.paragraphs_of(numbers[row])
        vectors: Any = engine.encoder.encode(texts)
        expected = {}
        for doc in listed[:5]:
            number = int(topics.document_numbers([doc])[0])
            rows = range(*index.doc_offsets[number : number + 2])
            near = (vectors.astype(float) @ index.vectors[list(rows)].astype(float).T).toarray().astype(np.float32)
            places = [(i, j) for i in range(len(texts)) for j in range(len(rows))]
            chosen = sorted(places, key=lambda place: -near[place])[:4]
            values = sorted(loaded.predict([(texts[i], passages[rows[j]]) for i, j in chosen]), reverse=True)
            expected[doc] = float(values[0] if aggregation == "max" else np.mean(values[:3]))
        found = run[query]
        assert dict(found[:5]) == pytest.approx(expected, abs=1e-5)
        assert [doc for doc, _ in found[5:]] == listed[5:]
        assert sorted(dict(found)) == sorted(listed)
        values = [value for _, value in found]
        assert values == sorted(values, reverse=True)


def test_the_contract_of_rankers(topics: Collection, engine: Engine, model: str, tmp_path: Path) -> None:
    inner = parse(f"rrf(bm25,svr-memory({SVR}))")
    ranker = CrossEncoder(inner, model, n_documents=4, n_pairs=1, device="cpu").fit(engine)
    assert ranker.needs_training
    assert ranker.learns_documents
    check_ranking(ranker, [f"dev{i}" for i in range(4)], depths=(1, 4, 5, 12))
    learned = queries_of(topics, [f"train{i}" for i in range(8)])
    unseen = ranker.out_of_fold(learned)
    assert unseen != ranker.rank(learned)
    before = ranker.rankers_[0].out_of_fold(learned)
    assert {doc for doc, _ in unseen["train1"]} == {doc for doc, _ in before["train1"]}
    assert ranker.learned_from() == {f"train{i}" for i in range(60)}
    assert ranker.rank({"q": "zzzz"})["q"] == []
    other = CrossEncoder(SimilarQueries(5), model, n_documents=4, device="cpu").fit(engine)
    check_saved(other, Engine(topics), tmp_path / "ranker")


@pytest.mark.parametrize("kind", [CrossEncoder, MaxSim])
def test_a_saved_ranker_knows_its_weights(topics: Collection, engine: Engine, tmp_path: Path, kind: Any) -> None:
    """A model with other weights in the same folder is refused, instead of ranking otherwise."""
    model, fold = (save_cross_encoder(tmp_path / name) for name in ("model", "fold"))
    folds = {"folds": (fold,)} if kind is CrossEncoder else {}
    ranker = kind(BM25(), model, n_documents=3, n_pairs=1, device="cpu", **folds).fit(engine)
    expected = ranker.rank("dev")
    ranker.save(tmp_path / "ranker")
    assert load(tmp_path / "ranker", engine).rank("dev") == expected

    def replace_weights(folder: str) -> bytes:
        path = Path(folder, "model.safetensors")
        before, tensors = path.read_bytes(), load_file(path)
        name = next(name for name in tensors if "word_embeddings" in name)
        save_file(tensors | {name: tensors[name][::-1].copy()}, path, {"format": "pt"})
        return before

    before = replace_weights(model)
    with pytest.raises(FileFormatError, match=re.escape(model)):
        load(tmp_path / "ranker", engine)
    Path(model, "model.safetensors").write_bytes(before)
    Path(model, "training.json").write_text(json.dumps({"trained_on": ["dev1"], "selected_on": []}))
    replace_weights(fold)
    again = load(tmp_path / "ranker", engine)
    assert again.rank("dev") == expected
    if folds:
        with pytest.raises(FileFormatError, match=re.escape(fold)):
            again.out_of_fold("dev")
        assert again.fit(engine).out_of_fold("dev") != expected  # fitting again takes the weights there are


@pytest.mark.parametrize("kind", [CrossEncoder, MaxSim])
def test_a_saved_ranker_knows_its_tokenizer(topics: Collection, engine: Engine, tmp_path: Path, kind: Any) -> None:
    """Two words that change places in the vocabulary give a text other tokens, which would rank otherwise."""
    model = save_cross_encoder(tmp_path / "model")
    kind(BM25(), model, n_documents=3, n_pairs=1, device="cpu").fit(engine).save(tmp_path / "ranker")
    path = Path(model, "tokenizer.json")
    tokenizer = json.loads(path.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    one, other = list(vocabulary)[-2:]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
    path.write_text(json.dumps(tokenizer))
    with pytest.raises(FileFormatError, match=f"{re.escape(model)}.*tokenizer"):
        load(tmp_path / "ranker", engine)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", b"\xff" * 90),
        ("tokenizer.json", b'{"added_tokens": "x"}'),
        ("tokenizer_config.json", b"1.5"),
        ("config.json", b"[]"),
    ],
)
def test_a_damaged_model_is_one_clear_error(tmp_path: Path, name: str, content: bytes) -> None:
    """The libraries raise errors of four classes for these."""
    model = save_cross_encoder(tmp_path / "model")
    Path(model, name).write_bytes(content)
    with pytest.raises(InputError, match=re.escape(model)):
        CrossPairs(model, read="score", device="cpu")


def test_shares_sum_to_the_score(topics: Collection, engine: Engine, model: str) -> None:
    how: dict[str, Any] = {"n_documents": 4, "device": "cpu"}
    for aggregation in ("max", "mean"):
        ranker = CrossEncoder(RRF(BM25(), SimilarQueries()), model, aggregation=aggregation, **how).fit(engine)
        for found in check_explanations(ranker, "dev1", n=8):
            assert any("before" in note for note in found.notes)
            assert (found.shares[0].what == "not re-ranked") == (found.rank > 4)
        assert ranker.explain(queries_of(topics, ["dev1"]), "blank").score is None


def test_a_document_without_a_passage_follows_those_that_are_read(topics: Collection, model: str) -> None:
    """The ranker within knows it from judgements only."""
    relevant = topics.qrels_frame("train").query("relevance > 0 and doc_id != 'blank'")
    qrels = pd.concat([relevant.drop_duplicates("query_id").assign(doc_id="blank"), relevant])
    ranker = CrossEncoder(SimilarQueries(), model, n_documents=5, device="cpu").fit(Engine(topics), "train", qrels)
    assert ranker.rankers_[0].rank("dev")["dev1"][0][0] == "blank"
    query = queries_of(topics, ["dev1"])
    found = ranker.rank(query)["dev1"]
    assert found[4][0] == "blank"
    assert np.isfinite([score for _, score in found]).all()
    assert ranker.explain(query, "blank").shares[0].what == "not re-ranked"


def test_what_is_refused(topics: Collection, engine: Engine, tmp_path: Path) -> None:
    missing = CrossEncoder(parse(f"svr-memory({SVR})"), str(tmp_path / "nothing"), device="cpu")
    with pytest.raises(InputError, match="nothing"), record_timings(refuse):
        missing.fit(engine)
    wide = save_cross_encoder(tmp_path / "wide", n_labels=3)
    with pytest.raises(InputError, match="wide"):
        CrossEncoder(BM25(), wide, device="cpu").fit(engine)
    for given in ({"n_documents": 0}, {"ranker": "bm25"}, {"max_length": 7}, {"n_pairs": math.nan}):
        with pytest.raises(InputError, match=f"'{next(iter(given))}' parameter of CrossEncoder"):
            CrossEncoder(**({"ranker": BM25(), "model": "m"} | given)).fit(engine)


def refuse(stage: str, seconds: float) -> None:
    raise AssertionError(f"{stage} was run first")


def test_a_neural_engine_is_built_and_opened(tmp_path: Path) -> None:
    """It is opened by the name of its encoder, without encoding documents again."""
    encoder = save_bi_encoder(tmp_path / "bi")
    topics, text = topic_collection().take(np.arange(20)), f"sentence-transformers('{encoder}',query_prompt='q ')"
    built = Engine.build(topics, tmp_path / "engine", encoder=text).prepare()
    assert isinstance(built.encoder, SentenceTransformerEncoder)
    assert built.encoder.query_prompt == "q "
    assert not (tmp_path / "engine" / "encoder").exists()
    assert built.id == Engine(topics, encoder=text).id
    built.add(NEW)
    with record_timings() as stages:
        again = Engine.open(tmp_path / "engine").prepare()
    assert not [stage for stage in stages.seconds if stage.startswith("encode")]
    assert_same_runs(again, built, ("knn", "knn-doc", "parm-vrrf"))
    found = parse("knn").fit(again).rank({"q": NEW["n1"][0]}, depth=22)
    assert "n1" in dict(found["q"])
