"""TokenContext with a tiny random model."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support.ranker_contract import check_explanations, check_ranking, check_saved, queries_of
from support.structured import structured_collection
from support.tiny_models import save_bi_encoder

from haybale import Engine, MaxSim, load
from haybale.collections import Collection
from haybale.context import GraphContext, LinearContext, LinkedDocuments, SectionPropagation, TokenContext
from haybale.errors import FileFormatError, InputError
from haybale.rankers import BM25, KNN

torch = pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")
pytestmark = pytest.mark.filterwarnings("default", "ignore::haybale.rankers.EmptyRankingWarning")
SMALL: dict[str, Any] = {"heads": 2, "epochs": 1, "n_documents": 5, "n_passages": 2, "n_queries": 4}
SMALL |= {"query_length": 12, "passage_length": 16, "batch_size": 2, "n_negatives": 3}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_bi_encoder(tmp_path_factory.mktemp("models") / "bi")


@pytest.fixture(scope="module")
def structured() -> Collection:
    return structured_collection(5, n_documents=8, n_queries=8)


@pytest.fixture(scope="module")
def engine(structured: Collection) -> Engine:
    return Engine(structured)


def test_without_context_the_score_is_late_interaction(engine: Engine, structured: Collection, model: str) -> None:
    """λ = 0 gives the MaxSim of the nearest passages by the engine's vectors. The other documents keep their order."""
    ranker: Any = TokenContext(KNN(), model, **SMALL).fit(engine)
    with torch.no_grad():
        ranker.networks_[-1].balance.fill_(-torch.inf)
    texts, library = structured.passages.texts.to_pylist(), ranker._tokens.model
    queries = queries_of(structured, ["dev0", "dev1", "dev2"])
    first, run = KNN().fit(engine).rank(queries), ranker.rank(queries)
    for row, query in enumerate(run.query_ids):
        listed, vector = [doc for doc, _ in first[query]], engine.encoder.encode(queries.texts([row]))
        tokens, expected = [library.encode_query(queries.texts([row]))[0][:12]], {}
        for doc in listed[:5]:
            start, end = engine.passages.doc_offsets[int(structured.document_numbers([doc])[0]) :][:2]
            near = (vector @ engine.passages.vectors[start:end].T).toarray()[0]
            chosen = [texts[start + place] for place in np.argsort(-near, kind="stable")[:2]]
            scores = library.similarity(tokens, [each[:16] for each in library.encode_document(chosen)]) / 12
            expected[doc] = float(scores.max())
        assert dict(run[query][:5]) == pytest.approx(expected, abs=2e-3)  # tokens are cached in half precision
        assert [doc for doc, _ in run[query]][5:] == listed[5:]


@pytest.mark.parametrize("kind", ["lim", "mim"])
def test_the_contract_of_rankers(engine: Engine, structured: Collection, model: str, tmp_path: Path, kind: str) -> None:
    ranker: Any = TokenContext(KNN(), model, kind=kind, **SMALL).fit(engine)
    check_ranking(ranker, ["dev0", "dev1", "dev2"], depths=(1, 4, 6))
    assert list(check_explanations(ranker, "dev1", n=6))
    trained = queries_of(structured, ranker.query_ids_[:2])
    assert ranker.out_of_fold(trained) != ranker.rank(trained)
    check_saved(ranker, engine, tmp_path / "ranker")
    path = Path(model, "model.safetensors")
    weights, tensors = path.read_bytes(), load_file(path)
    save_file({name: value + 1 for name, value in tensors.items()}, path, {"format": "pt"})
    with pytest.raises(FileFormatError, match=re.escape(model)):
        load(tmp_path / "ranker", engine)
    path.write_bytes(weights)


def test_queries_that_an_encoder_was_trained_on_are_not_learned_from(
    engine: Engine, structured: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither those of the model nor those of the engine's encoder are ranked out of fold."""
    model, more = save_bi_encoder(tmp_path), SMALL | {"n_queries": 100}
    everything = TokenContext(KNN(), model, **more).fit(engine).query_ids_
    trained = everything[:4]
    Path(model, "training.json").write_text(json.dumps({"trained_on": trained, "selected_on": []}))
    ranker = TokenContext(KNN(), model, **more).fit(engine)
    assert ranker.query_ids_ == everything[4:]
    assert len(ranker.out_of_fold(queries_of(structured, everything[4:]))) == len(everything) - 4
    with pytest.raises(InputError, match=repr(trained[0])):
        ranker.out_of_fold(queries_of(structured, trained))
    with pytest.raises(InputError, match=repr(trained[0])):
        MaxSim(BM25(), model, device="cpu").fit(engine).out_of_fold(queries_of(structured, trained))
    monkeypatch.setattr("haybale.ranking.contract.trained_queries", lambda encoder: frozenset(trained))
    for each in (LinearContext(BM25()), SectionPropagation(BM25())):
        with pytest.raises(InputError, match=repr(trained[0])):
            each.fit(engine).out_of_fold(queries_of(structured, trained))
        assert not set(each.query_ids_) & set(trained)
    links = LinkedDocuments(BM25()).fit(engine)
    assert links.out_of_fold(queries_of(structured, trained)) == links.rank(queries_of(structured, trained))


def test_what_is_refused(engine: Engine, model: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing"):
        TokenContext(KNN(), str(tmp_path / "nothing")).fit(engine)
    with pytest.raises(InputError, match=r"heads .*16.* 3"):
        TokenContext(KNN(), model, heads=3).fit(engine)


def test_parameters_that_are_documented_once_have_equal_defaults() -> None:
    shared = ["kind", "heads", "dropout", "learning_rate", "weight_decay", "mask", "device", "random_state"]
    tokens, vectors = (inspect.signature(kind).parameters for kind in (TokenContext, GraphContext))
    assert {name: tokens[name].default for name in shared} == {name: vectors[name].default for name in shared}
