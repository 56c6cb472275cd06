"""A wrong value that a user's own class returns is an InputError that names the class, at each place that calls one."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from haybale import BM25, KNN, PARM, RRF, Encoder, Engine, Run
from haybale.collections import CollectionBuilder, open_collection
from haybale.collections import open as opening
from haybale.collections.files.file_document import FileDocument
from haybale.collections.files.file_reader import read_documents
from haybale.collections.open import read_documents as documents_of
from haybale.collections.readers.beir import BEIR
from haybale.embeddings import embed
from haybale.errors import InputError
from haybale.evaluation import evaluate
from haybale.evaluation.own_measures import OWN_MEASURES
from haybale.pairs.interaction_store import interact
from haybale.rankers import queries_from
from haybale.retrieval.backends import BACKENDS
from haybale.returned_values import returned_vectors
from haybale.review import LabelledTopic, Screening, simulate
from haybale.review.stopping import StoppingRule

ROOT = Path(__file__).parents[1]
TEXTS = {"a": ["dogs bark", "cats purr"], "b": ["taxes are due"], "c": ["roads need salt"]}
QRELS = pd.DataFrame({"query_id": ["q", "r", "s"], "doc_id": ["a", "b", "c"], "relevance": 1})
QUERIES = {"q": "dogs", "r": "taxes", "s": "roads"}
# What is wrong wherever something is returned.
OBJECTS: dict[str, Any] = {"None": None, "text": "a", "list": [1.0], "tuple": (), "set": {1}, "function": len}
GENERATOR = "generator"  # made anew in each call
VECTORS: dict[str, Callable[[int], Any]] = {
    "lists": lambda n: [[1.0, 0.0]] * n,
    "generator": lambda n: (np.ones(2) for _ in range(n)),
    "one row": lambda n: np.ones(2, np.float32),
    "three dimensions": lambda n: np.ones((n, 2, 2), np.float32),
    "too many rows": lambda n: np.ones((n + 1, 2), np.float32),
    "too few rows": lambda n: np.ones((n - 1, 2), np.float32),
    "too many sparse rows": lambda n: sparse.csr_matrix(np.ones((n + 1, 2), np.float32)),
    "texts": lambda n: np.array([["a", "b"]] * n),
    "objects": lambda n: np.array([[None, 1]] * n, dtype=object),
    "complex": lambda n: np.ones((n, 2), complex),
    "dates": lambda n: np.ones((n, 2), "datetime64[D]"),
    "NaN": lambda n: np.full((n, 2), np.nan, np.float32),
    "infinity": lambda n: np.full((n, 2), np.inf),
    "sparse NaN": lambda n: sparse.csr_matrix(np.full((n, 2), np.nan, np.float32)),
} | {name: lambda n, value=value: value for name, value in OBJECTS.items()}


class Mine(Encoder):
    """An encoder whose passages, queries or description may be wrong."""

    dim = 2

    def __init__(self, passages: Any = None, queries: Any = None, description: Any = None) -> None:
        self.passages, self.queries, self.description = passages, queries, description

    def encode(self, texts: Any) -> Any:
        return np.eye(len(texts), 2, dtype=np.float32) if self.passages is None else self.passages(len(texts))

    def encode_queries(self, texts: Any) -> Any:
        return self.encode(texts) if self.queries is None else self.queries(len(texts))

    def describe(self) -> Any:
        return {"class": "Mine"} if self.description is None else self.description


@pytest.mark.parametrize("vectors", VECTORS.values(), ids=VECTORS)
def test_vectors_of_encoders(vectors: Any, tmp_path: Path) -> None:
    engine = Engine(TEXTS, encoder=Mine(queries=vectors))
    for ranker in (KNN(), KNN("document"), PARM()):
        with pytest.raises(InputError, match=r"Mine\.encode must return .*; "):
            ranker.fit(Engine(TEXTS, encoder=Mine(vectors))).rank(QUERIES)
        with pytest.raises(InputError, match=r"Mine\.encode_queries must return .*; "):
            ranker.fit(engine).rank(QUERIES)
    with pytest.raises(InputError, match=r"Mine\.encode must return"):
        embed(engine.collection, Mine(vectors), tmp_path / "store")


@pytest.mark.parametrize("n", [1, 3])
def test_good_vectors_stay_as_they_are(n: int) -> None:
    for kind in (np.float32, np.float64, np.float16, np.int64, bool):
        vectors = np.ones((n, 2), kind)
        assert returned_vectors(vectors, n, "Mine.encode") is vectors
    rows = sparse.coo_matrix(np.eye(n, 2, dtype=np.float32))
    assert returned_vectors(rows, n, "Mine.encode").format == "csr"


@pytest.mark.parametrize("value", [[1], "a", {"f": len}, {"vectors": np.ones(2)}], ids=str)
def test_descriptions_of_encoders(value: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Mine\.describe must return"):
        embed(Engine(TEXTS).collection, Mine(description=value), tmp_path / "store")
    with pytest.raises(InputError, match=r"Mine\.describe must return"):
        Engine.build(TEXTS, tmp_path / "engine", encoder=Mine(description=value))


def own_ranker(method: str, value: Any) -> BM25:
    kind = type("MyRanker", (BM25,), {method: lambda self, *arguments: value})
    return kind()  # type: ignore[no-any-return]


def rank(value: Any, tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    own_ranker("rank_batch", value).fit(Engine(TEXTS)).rank(QUERIES)


def rank_within_another(value: Any, tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    RRF(own_ranker("rank_batch", value), KNN()).fit(Engine(TEXTS)).rank(QUERIES)


def rank_out_of_fold(value: Any, tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    kind = type("MyRanker", (BM25,), {"needs_training": True, "out_of_fold_batch": lambda self, *_: value})
    kind().fit(Engine(TEXTS), QUERIES, QRELS).out_of_fold(QUERIES)


def explain(value: Any, tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    own_ranker("explain_document", value).fit(Engine(TEXTS)).explain("dogs", "a")


def save(value: Any, tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    own_ranker("save_state", value).fit(Engine(TEXTS)).save(tmp_path / "ranker")


def read(value: Any, tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    reader = type("MyReader", (BEIR,), {"read": lambda self, *_, **__: value})()
    patch.setattr(opening, "find_reader", lambda *_: reader)
    with pytest.raises(InputError, match=r"MyReader\.read must return"):
        documents_of(tmp_path)
    open_collection(tmp_path)


class MyFileReader:
    name = "mine"

    def __init__(self, value: Any) -> None:
        self.value = value

    def read(self, data: bytes, options: Any) -> Any:
        return self.value


def read_a_file(value: Any, tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"MyFileReader\.read must return"):
        read_documents(MyFileReader([FileDocument(parts=[]), value]), b"content", {})  # type: ignore[arg-type]
    read_documents(MyFileReader(value if value not in ("a", ()) else 5), b"content", {})  # type: ignore[arg-type]


def advise(value: Any, tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    methods = {"advise": lambda self, screening: value, "promise": property(lambda self: "nothing")}
    rule = type("MyRule", (StoppingRule,), methods)()
    with pytest.raises(InputError, match=r"MyRule\.advise must return"):
        rule.first_stop([True, False], 3)
    rule.check(Screening(labels=[True, False], n_documents=3))


def measure(value: Any, tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setitem(OWN_MEASURES, "MyMeasure", lambda judged, ranked, n: value)
    evaluate(BM25().fit(Engine(TEXTS)).rank(QUERIES), QRELS, ["MyMeasure@5"])


def propose(value: Any, tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(type(BACKENDS["numpy"]), "propose", lambda self, queries, passages, k: value)
    KNN().fit(Engine(TEXTS, encoder=Mine())).rank(QUERIES)


class MyPairs:
    dim = 2

    def __init__(self, value: Any) -> None:
        self.value = value

    def encode(self, firsts: Any, seconds: Any, which: Any) -> Any:
        return self.value

    def padding(self) -> Any:
        return np.zeros(2, np.float32)

    def describe(self) -> dict[str, Any]:
        return {"class": "MyPairs"}


def encode_pairs(value: Any, tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    engine = Engine(TEXTS)
    run = BM25().fit(engine).rank(QUERIES)
    interact(engine, queries_from(engine.collection, QUERIES), run, MyPairs(value), tmp_path / "pairs")


class MyLearner:
    def __init__(self, scores: Any) -> None:
        self.scores_of_documents = scores

    def judge(self, document: int, grade: float) -> None: ...

    def scores(self) -> Any:
        return self.scores_of_documents

    probabilities = disagreement = scores


def review(value: Any, tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    simulate(
        Engine(TEXTS | {"d": ["rain"]}),
        topics=[LabelledTopic("t", ["a", "b"])],
        seeds=1,
        learner=lambda *_, **__: MyLearner(value),
    )


# The group of entry points of each place, or what else registers the class; the class and the method in the message.
PLACES: dict[Callable[..., None], tuple[str, str]] = {
    rank: ("haybale.rankers", "MyRanker.rank_batch"),
    rank_within_another: ("haybale.rankers", "MyRanker.rank_batch"),
    rank_out_of_fold: ("haybale.rankers", "MyRanker.out_of_fold_batch"),
    explain: ("haybale.rankers", "MyRanker.explain_document"),
    save: ("haybale.rankers", "MyRanker.save_state"),
    read: ("haybale.readers", "MyReader.read"),
    read_a_file: ("haybale.file_readers", "MyFileReader.read"),
    advise: ("haybale.stopping_rules", "MyRule.advise"),
    measure: ("register_measure", "the measure MyMeasure@5"),
    propose: ("Backend", f"{type(BACKENDS['numpy']).__name__}.propose"),
    encode_pairs: ("PairEncoder", "MyPairs.encode"),
    review: ("MakesLearner", "MyLearner.scores"),
}


@pytest.mark.parametrize("name", [*OBJECTS, GENERATOR])
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_objects(place: Callable[..., None], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value = (number for number in "ab") if name == GENERATOR else OBJECTS[name]
    with pytest.raises(InputError) as caught:
        place(value, tmp_path, monkeypatch)
    found = "None" if value is None else type(value).__name__
    assert str(caught.value).startswith(f"{PLACES[place][1]} must return "), caught.value
    assert "found " in str(caught.value)
    assert place is read_a_file or found in str(caught.value)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (rank, Run.joined([])),
        (rank, Run.from_frame(pd.DataFrame({"query_id": ["q"], "doc_id": ["a"], "score": [1.0]}))),
        (measure, float("nan")),
        (measure, np.ones(2)),
        (save, {"weights": np.ones(2)}),
        (propose, (np.zeros((3, 1), np.int64), np.zeros((3, 2), np.float32))),
        (encode_pairs, np.ones((2, 2), np.float32)),
        (review, np.ones(2)),
        (review, np.full(4, np.nan)),
    ],
)
def test_values_of_the_wrong_size(
    place: Callable[..., None], value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=PLACES[place][1]):
        place(value, tmp_path, monkeypatch)


@pytest.mark.parametrize("value", [None, 5, [1], [None], ["a", b"b"]])
def test_texts_that_readers_add(value: Any) -> None:
    """A folder reader returns nothing, and gives texts to the builder."""
    builder = CollectionBuilder("mine")
    builder.add_document("a", ["one"])
    for add in (builder.add_document, builder.add_query):
        with pytest.raises(InputError, match="string"):
            add("b", value)  # type: ignore[operator]
    for ids in (5, None, ("a",)):
        with pytest.raises(InputError, match="string"):
            builder.add_document(ids, ["one"])  # type: ignore[arg-type]


def test_every_kind_of_part_is_listed() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    # test_vectors_of_encoders is about encoders, and nothing that a command returns is used.
    covered = {group for group, _ in PLACES.values()} | {"haybale.encoders", "haybale.commands"}
    assert {group for group in groups if group.startswith("haybale.")} <= covered
