"""LiM, MiM and Mix-iM: scores and planted relations."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from support.structured import ANSWERING, planted_collection, share_right

from haybale import Engine
from haybale.collections import Collection
from haybale.context import PATHS, GraphContext
from haybale.errors import InputError
from haybale.rankers import KNN, parse

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("default", "ignore::haybale.rankers.EmptyRankingWarning")


class WordEncoder:
    """Encodes a text as the sum of random vectors of its distinct words."""

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        words = [sorted(set(text.split())) for text in texts]
        rows = [
            sum(np.random.default_rng(zlib.crc32(word.encode())).normal(size=64) for word in each) for each in words
        ]
        vectors = np.array(rows, dtype=np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def engine(structured: Collection) -> Engine:
    return Engine(structured, encoder=WordEncoder())


@pytest.mark.parametrize("kind", ["lim", "mim", "mix-im"])
def test_scores_are_products_with_vectors_in_context(engine: Engine, structured: Collection, kind: str) -> None:
    """This holds for queries that were taken from no document. λ = 0 gives the run of the vectors alone."""
    ranker: Any = GraphContext(KNN(), kind=kind, epochs=2).fit(engine)
    texts = {f"q{i}": text for i, text in enumerate(structured.queries.texts(range(4)))}
    contexts, own = ranker.context_vectors(), np.asarray(engine.passages.vectors)
    share = float(ranker.networks_[-1].share.detach()) if kind != "mim" else 1.0
    run = ranker.rank(texts)
    for query, text in texts.items():
        vector = engine.encoder.encode([text])[0]
        scores = (1 - share) * own @ vector + share * contexts @ vector
        for doc, score in run[query]:
            number = int(structured.document_numbers([doc])[0])
            assert score == pytest.approx(scores[engine.passages.doc_of == number].max(), abs=1e-5)
    if kind != "mim":
        with torch.no_grad():
            for network in ranker.networks_.values():
                network.balance.fill_(-torch.inf)
        plain = KNN().fit(engine).rank(texts)
        for query in texts:
            assert dict(ranker.rank(texts)[query]) == pytest.approx(dict(plain[query]), abs=1e-6)


@pytest.mark.parametrize("relation", ANSWERING)
def test_the_relation_with_the_answer_is_learned(relation: str) -> None:
    """Its weight is the largest; the passages alone do not have the answer."""
    collection = planted_collection(relation, n_queries=80)
    engine = Engine(collection, encoder=WordEncoder())
    how = {"epochs": 15, "heads": 1, "batch_size": 8, "learning_rate": 3e-3, "weight_decay": 30}
    ranker: Any = GraphContext(KNN(), **how).fit(engine)
    assert share_right(ranker, collection) > 0.95
    if relation != "previous passage":  # it is a passage of the document, which KNN finds itself
        assert share_right(KNN().fit(engine), collection) < 0.3
    weights = {path: ranker.fit_report_[f"w of {path}"] for path in PATHS}
    parts = {"previous passage": {"previous passage", "rest of the document"}}
    assert max(weights, key=weights.get) in parts.get(relation, {relation})  # type: ignore[arg-type]


def test_the_random_state_determines_the_result(engine: Engine) -> None:
    how: dict[str, Any] = {"epochs": 1, "setting": "paper"}
    one, two, other = (GraphContext(KNN(), random_state=seed, **how).fit(engine) for seed in (0, 0, 1))
    assert one.rank("dev") == two.rank("dev")
    assert one.rank("dev") != other.rank("dev")


def test_what_is_refused(structured: Collection, engine: Engine) -> None:
    with pytest.raises(InputError, match="dense"):
        parse("lim(knn)").fit(Engine(structured))
    with pytest.raises(InputError, match=r"heads .*64.* 3"):
        parse("lim(knn,heads=3)").fit(engine)
