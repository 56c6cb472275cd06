"""Training pairs against slow loops; relevant documents never provide negatives, neither in a row nor in a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from support.topics import topic_collection
from support.worlds import backwards

from haybale import CollectionBuilder, Engine
from haybale.collections import Collection
from haybale.embeddings import TfidfEncoder
from haybale.errors import InputError
from haybale.finetune.batches import plan_batches
from haybale.finetune.training_pairs import training_pairs
from haybale.rankers import Training


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(topic_collection())


def relevant_of(collection: Collection, query: str) -> set[str]:
    frame = collection.qrels_frame("train")
    return set(frame["doc_id"][(frame["query_id"] == query) & (frame["relevance"] > 0)])


def own_of(collection: Collection, query: str) -> str | None:
    own = int(collection.queries.own[collection.query_numbers([query])[0]])
    return None if own < 0 else collection.doc_ids[own].as_py()


@pytest.mark.parametrize("match", ["bm25", "vectors"])
@pytest.mark.parametrize(("per_paragraph", "per_document"), [(1, None), (2, 3), (None, 2)])
def test_paragraphs_are_paired_with_their_best_passages(
    engine: Engine, match: str, per_paragraph: int | None, per_document: int | None
) -> None:
    settings: dict[str, Any] = {"per_paragraph": per_paragraph, "per_document": per_document, "match": match}
    table = training_pairs(engine, negatives="none", **settings)
    found: dict[str, list[tuple[str, str]]] = {}
    for row in table.to_pylist():
        found.setdefault(row["query_id"], []).append((row["anchor"], row["positive"]))
    collection, bm25 = engine.collection, engine.bm25()
    texts, offsets = collection.passages.texts.to_pylist(), collection.passages.doc_offsets
    for query, relevant in zip(engine.collection.split("train").queries, collection.relevant_ids("train"), strict=True):
        expected: list[tuple[str, str]] = []
        name, paragraphs = collection.queries.ids[query].as_py(), collection.queries.paragraphs_of(query)
        for doc in relevant:
            number = int(collection.document_numbers([doc])[0])
            rows = range(offsets[number], offsets[number + 1])
            scored = []
            for i, paragraph in enumerate(paragraphs):
                if match == "bm25":
                    hits = bm25.search([paragraph], len(bm25))
                    known = dict(zip(hits.passages[0].tolist(), hits.scores[0].tolist(), strict=True))
                    values = {row: known.get(row, 0.0) for row in rows}
                else:
                    cosines = (engine.encoder.encode([paragraph]) @ engine.passages.vectors.T).toarray()[0]
                    values = {row: float(cosines[row]) for row in rows}
                best = sorted(rows, key=lambda row, values=values: -values[row])[:per_paragraph]
                scored += [(values[row], i, row) for row in best if values[row] > 0]
            scored.sort(key=lambda each: -each[0])
            expected += [(paragraphs[i], texts[row]) for _, i, row in scored[:per_document]]
        assert sorted(found.get(name, [])) == sorted(expected), name


@pytest.mark.parametrize("negatives", ["random", "bm25", "vectors"])
def test_the_order_of_documents_changes_neither_pairs_nor_batches(engine: Engine, negatives: str) -> None:
    """Only the numbers of the groups may differ; the batches show that their order does not."""
    other = Engine(backwards(engine.collection), encoder=engine.encoder)
    one, same = (training_pairs(each, negatives=negatives, n_negatives=2, n_pairs=150) for each in (engine, other))
    assert one.drop(["group"]) == same.drop(["group"])
    assert plan_batches(one, 8, 2) == plan_batches(same, 8, 2)


WORDS = [f"w{i}" for i in range(12)]


@st.composite
def collections(draw: Any) -> Collection:
    """A small collection in which queries may share their own document, or be judged relevant to it."""
    text = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)
    builder = CollectionBuilder("drawn", language="english")
    documents = [f"d{i}" for i in range(draw(st.integers(3, 7)))]
    for doc in documents:
        builder.add_document(doc, draw(st.lists(text, min_size=1, max_size=3)))
    for i in range(draw(st.integers(2, 8))):
        own = draw(st.sampled_from([None, *documents]))
        builder.add_query(f"q{i}", draw(st.lists(text, min_size=1, max_size=2)), own=own, split="train")
        for doc in draw(st.lists(st.sampled_from(documents), max_size=2, unique=True)):
            builder.add_judgement("train", f"q{i}", doc)
    return builder.build()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    collection=collections(),
    negatives=st.sampled_from(["none", "random", "bm25", "vectors"]),
    n_negatives=st.integers(1, 2),
    skip=st.integers(0, 2),
    n_pairs=st.none() | st.integers(1, 9),
    batch_size=st.integers(2, 6),
    seed=st.integers(0, 3),
)
def test_relevant_documents_never_provide_negatives(
    collection: Collection, negatives: str, n_negatives: int, skip: int, n_pairs: int | None, batch_size: int, seed: int
) -> None:
    engine = Engine(collection, encoder=TfidfEncoder(min_df=1), language="english")
    options: dict[str, Any] = {"negatives": negatives, "n_negatives": n_negatives, "skip": skip, "n_pairs": n_pairs}
    try:
        table = training_pairs(engine, **options, random_state=seed)
    except InputError:
        reject()
    assert table.equals(training_pairs(engine, **options, random_state=seed))
    own = {query: own_of(collection, query) for query in collection.queries.ids.to_pylist()}
    same = {query: {other for other in own if other == query or own[other] == own[query] is not None} for query in own}
    forbidden = {
        query: set().union(*(relevant_of(collection, other) for other in same[query])) | ({own[query]} - {None})
        for query in own
    }
    twins = Training.of(engine).twins
    rows = table.to_pylist()
    assert n_pairs is None or len(rows) <= n_pairs
    columns = [name for name in table.column_names if name.startswith("negative")]
    assert len(columns) == (0 if negatives == "none" else n_negatives)
    texts = collection.passages.texts.to_pylist()
    docs_of: dict[str, set[str]] = {}
    for text, doc in zip(texts, collection.passages.doc_of, strict=True):
        docs_of.setdefault(text, set()).add(collection.doc_ids[int(doc)].as_py())
    for row in rows:
        positive, *others = row["documents"][: 1 + len(columns)]
        questions = twins.with_twins({row["query_id"]})
        relevant = set().union(*(relevant_of(collection, query) for query in questions))
        assert positive in relevant - {own[row["query_id"]]}
        assert positive in docs_of[row["positive"]]
        assert not forbidden[row["query_id"]] & set(others)
        assert len({row["positive"], *(row[name] for name in columns)}) == 1 + len(columns)
        assert all(doc in docs_of[row[name]] for doc, name in zip(others, columns, strict=True))
        assert row["anchor"] not in [row[name] for name in columns]
        for name in columns:  # nor does the text of a negative stand in a relevant document
            assert docs_of[row[name]].isdisjoint(forbidden[row["query_id"]])
    for batch in plan_batches(table, batch_size, 2, seed):
        assert len(batch) == len({rows[i]["group"] for i in batch}) <= batch_size
        for i in batch:
            for j in set(batch) - {i}:
                assert same[rows[i]["query_id"]].isdisjoint([rows[j]["query_id"]])
                assert not forbidden[rows[i]["query_id"]] & set(rows[j]["documents"])
                for name in ("positive", *columns):
                    assert docs_of[rows[j][name]].isdisjoint(forbidden[rows[i]["query_id"]])
                assert rows[i]["positive"] not in [rows[j]["positive"], *(rows[j][name] for name in columns)]


@pytest.mark.thorough
def test_texts_of_relevant_documents_are_not_negatives_of_pydocs(pydocs: Collection) -> None:
    """Docstrings repeat each other's paragraphs: of 3,000 negatives, 44 also stood in a relevant document."""
    engine = Engine(pydocs)
    texts, doc_of = engine.collection.passages.texts.to_pylist(), engine.collection.passages.doc_of.tolist()
    ids, docs_of = engine.collection.doc_ids.to_pylist(), dict[str, set[str]]()
    for text, doc in zip(texts, doc_of, strict=True):
        docs_of.setdefault(text, set()).add(ids[doc])
    table = training_pairs(engine, "dev", negatives="bm25", n_negatives=5, per_paragraph=1, n_pairs=400)
    for row in table.to_pylist():
        for number in range(1, 6):
            assert docs_of[row[f"negative_{number}"]].isdisjoint(row["forbidden"])


def test_hard_negatives_are_first_hits(engine: Engine) -> None:
    table = training_pairs(engine, negatives="bm25", n_negatives=2, skip=1, per_paragraph=1)
    collection, bm25, checked = engine.collection, engine.bm25(), 0
    texts = collection.passages.texts.to_pylist()
    for row in table.to_pylist()[:40]:
        found = [int(each) for each in bm25.search([row["anchor"]], len(bm25)).passages[0] if each >= 0]
        docs = [collection.doc_ids[int(collection.passages.doc_of[each])].as_py() for each in found]
        allowed = [texts[each] for each, doc in zip(found, docs, strict=True) if doc not in row["forbidden"]][1:51]
        for name in ("negative_1", "negative_2"):
            assert row[name] in allowed or len(set(allowed)) < 2
            checked += row[name] in allowed
    assert checked > 60
    other = training_pairs(engine, negatives="bm25", n_negatives=2, skip=1, per_paragraph=1, random_state=1)
    assert other.column("positive").equals(table.column("positive"))
    assert not other.equals(table)


def test_pairs_and_batches_are_even_over_query_documents(engine: Engine) -> None:
    whole, some = training_pairs(engine), training_pairs(engine, n_pairs=90)
    counts = [pd.Series(table.column("group").to_numpy()).value_counts() for table in (whole, some)]
    assert len(some) == 90
    smallest = counts[1].min()
    assert all(counts[1][group] in (smallest, smallest + 1, counts[0][group]) for group in counts[1].index)
    rows = [row for batch in plan_batches(whole, 8, 3) for row in batch]
    assert max(np.bincount(rows)) <= 3  # at most once in each epoch
    assert len(rows) > 2 * len(whole)
    halves = np.array_split(np.array([whole.column("group")[row].as_py() for row in rows[: len(rows) // 3]]), 2)
    largest = int(counts[0].index[0])
    early, late = ((half == largest).sum() for half in halves)
    assert abs(int(early) - int(late)) <= 2


def test_marked_paragraphs_and_labels_of_passages(engine: Engine) -> None:
    collection = engine.collection
    word = collection.queries.paragraphs_of(int(collection.split("train").queries[0]))[0].split()[0]
    for row in training_pairs(engine, negatives="none", marker=word).to_pylist():
        number = int(collection.query_numbers([row["query_id"]])[0])
        marked = any(word in text for text in collection.queries.paragraphs_of(number))
        assert (word in row["anchor"]) == marked
    ids = collection.passages.ids.to_pylist()[:3]
    labels = pd.DataFrame({"query_id": ["train1", "train1", "dev0"], "passage_id": ids})
    queries = collection.queries.take(collection.query_numbers(["train1", "dev0"]))
    table = training_pairs(engine, queries, labels.assign(relevance=1))
    texts = collection.passages.texts.to_pylist()[:3]
    pairs = {(row["query_id"], row["anchor"], row["positive"]) for row in table.to_pylist()}
    expected = {
        (query, paragraph, text)
        for query, text in zip(labels["query_id"], texts, strict=True)
        for paragraph in collection.queries.paragraphs_of(int(collection.query_numbers([query])[0]))
    }
    assert pairs == expected
    for row in table.to_pylist():
        assert set(row["forbidden"]).isdisjoint(row["documents"][1:2])


def small_engine(own: str | None, relevant: dict[str, int]) -> Engine:
    builder = CollectionBuilder("two", language="english")
    builder.add_document("a", ["dogs bark", "dogs sleep"])
    builder.add_document("b", ["cats sleep"])
    builder.add_query("q", ["dogs bark"], own=own, split="train")
    for doc, grade in relevant.items():
        builder.add_judgement("train", "q", doc, grade)
    return Engine(builder.build(), encoder=TfidfEncoder(min_df=1), language="english")


def test_bad_judgements_and_settings_are_refused(engine: Engine) -> None:
    for own, relevant, named in (
        (None, {"a": 0}, "none of 1"),
        ("a", {"a": 1}, "none of 1"),
        ("b", {"a": 1}, "'q'"),
        (None, {"b": 1}, "match='bm25'"),
    ):
        with pytest.raises(InputError, match=named):
            training_pairs(small_engine(own, relevant))
    assert len(training_pairs(small_engine("b", {"a": 1}), negatives="none")) == 2
    settings: dict[str, Any] = {"negatives": "hard", "per_paragraph": 0, "n_pairs": -1, "queries": "nothing"}
    for name, value in settings.items():
        with pytest.raises(InputError, match="split" if name == "queries" else name):
            training_pairs(engine, **{name: value})


def test_twins_share_a_group_and_give_each_other_no_negatives() -> None:
    """Copies of a query under other ids add no pairs; what one of them judges relevant is no negative of another."""
    collection = topic_collection(20, 4, 1)
    engine = Engine(collection)
    queries = collection.queries.take(collection.split("train").queries)
    texts = dict(zip(queries.ids.to_pylist(), queries.texts(range(len(queries))), strict=True))
    qrels = collection.qrels_frame("train")
    alone = training_pairs(engine, texts, qrels, n_negatives=2)
    twice = texts | {f"{query}-2": f"{text.upper()}?" for query, text in texts.items()}
    others = qrels.assign(query_id=qrels["query_id"] + "-2")
    assert training_pairs(engine, twice, pd.concat([qrels, others]), n_negatives=2).equals(alone)
    first = next(iter(texts))
    complement = pd.DataFrame({"query_id": [f"{first}-2"], "doc_id": ["d01"], "relevance": [1]})
    rows = training_pairs(engine, twice, pd.concat([qrels, complement]), n_negatives=2).to_pylist()
    mine = [row for row in rows if row["query_id"] == first]
    assert mine
    assert all("d01" in row["forbidden"] for row in mine)
    assert {"d01", *qrels["doc_id"][(qrels["query_id"] == first) & (qrels["relevance"] > 0)]} == {
        row["documents"][0] for row in mine
    }
