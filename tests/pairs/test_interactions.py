"""Blocks of interactions against a double loop over paragraphs, and changes that must not affect them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rerank_cases import HashPairs

from haybale import Engine, Interactions, Reading, Run, parse
from haybale.collections import Collection, CollectionBuilder, Queries
from haybale.errors import InputError, UnknownNameError


@pytest.fixture(scope="module")
def run(engine: Engine) -> Run:
    return parse("bm25-doc").fit(engine).rank("dev")


def dev(engine: Engine) -> Queries:
    return engine.collection.queries.take(engine.collection.split("dev").queries)


def texts(engine: Engine, query: str, document: str) -> tuple[list[str], list[str]]:
    found = engine.collection
    number = int(found.document_numbers([document])[0])
    start, end = found.passages.doc_offsets[number : number + 2]
    paragraphs = found.queries.paragraphs_of(int(found.query_numbers([query])[0]))
    return paragraphs, found.passages.texts[start:end].to_pylist()


@pytest.mark.parametrize(("select", "n", "m"), [("first", 2, 2), ("first", None, None), ("best", 2, 1), ("best", 1, 3)])
def test_blocks_equal_a_double_loop(engine: Engine, run: Run, select: str, n: int | None, m: int | None) -> None:
    pairs = HashPairs()
    reading = Reading(engine, dev(engine), run, pairs, k=7, n=n, m=m, select=select)
    found = reading.all()
    n, m = reading.n, reading.m
    assert len(found) == sum(min(7, len(run[query])) for query in run.query_ids)
    assert (found.padding == 0.125).all()
    offsets = found.offsets
    for number, block in enumerate(found.blocks.to_dict("records")):
        first, second = texts(engine, block["query_id"], block["doc_id"])
        near = np.zeros((len(first), len(second)))
        for i, one in enumerate(first):
            for j, two in enumerate(second):
                a, b = (engine.encoder.encode([text]).toarray()[0] for text in (one, two))
                near[i, j] = np.float32(a.astype(float) @ b.astype(float))
        rows, columns = list(range(len(first)))[:n], {i: list(range(len(second)))[:m] for i in range(len(first))}
        if select == "best":
            rows = sorted(np.argsort(-near.max(axis=1), kind="stable")[:n].tolist())
            columns = {i: np.argsort(-near[i], kind="stable")[:m].tolist() for i in rows}
        mine = slice(offsets[number], offsets[number + 1])
        assert found.paragraphs[mine].tolist() == rows
        assert block["passages"] == min(m, len(second))
        assert block["cut"] == max(0, len(first) - n)
        for place, i in enumerate(rows, offsets[number]):
            values = np.stack([pairs.one(first[i], second[j]) for j in columns[i]])
            np.testing.assert_array_equal(found.values[place], values.max(axis=0))
            won = np.bincount(values.argmax(axis=0), minlength=len(values))
            assert won[columns[i].index(found.passages[place])] == won.max()
    assert dict(zip(found.blocks["doc_id"], found.blocks["score"], strict=False)) != {}
    by_query = found.blocks.groupby("query_id")
    np.testing.assert_allclose(by_query["level"].mean(), 0, atol=1e-12)
    np.testing.assert_allclose(by_query["level"].std(ddof=0), 1)


def test_chunks_hold_whole_blocks(engine: Engine, run: Run) -> None:
    reading = Reading(engine, dev(engine), run, HashPairs(), k=9)
    whole = reading.all()
    for size in (1, 5, 17):
        chunks = reading.chunks(size)
        assert np.concatenate(chunks).tolist() == list(range(len(whole)))
        assert all(reading.n_pairs[chunk].sum() <= size or len(chunk) == 1 for chunk in chunks)
        same(Interactions.joined([reading.read(chunk) for chunk in chunks]), whole)
    some = np.array([5, 0, 17])
    same(reading.read(some), whole.take(some))


def same(found: Interactions, expected: Interactions) -> None:
    pd.testing.assert_frame_equal(found.blocks, expected.blocks)
    for name in ("values", "paragraphs", "passages", "padding"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def one_document(passages: list[str], query: list[str]) -> tuple[Engine, Run]:
    builder = CollectionBuilder("one", language="english")
    builder.add_document("d", passages)
    builder.add_query("q", query)
    builder.add_judgement("test", "q", "d")
    run = Run.from_frame(pd.DataFrame({"query_id": ["q"], "doc_id": ["d"], "score": [1.0]}))
    return Engine(builder.build(), encoder=LengthEncoder()), run


class LengthEncoder:
    """Encodes a text by three numbers that depend on its length."""

    def encode(self, texts: Any) -> np.ndarray:
        lengths = np.array([[len(text) % 3, len(text) % 5, 1] for text in texts], dtype=np.float32)
        return lengths / np.linalg.norm(lengths, axis=1, keepdims=True)


@given(st.permutations(range(6)), st.lists(st.integers(0, 5), max_size=4))
@settings(max_examples=40, deadline=None)
def test_permuted_or_repeated_passages_change_nothing(order: list[int], more: list[int]) -> None:
    words = ["alpha", "beta beta", "gamma rays are", "delta", "epsilon eps", "zeta"]
    query = ["what is beta", "and gamma"]
    engine, run = one_document(words, query)
    expected = Reading(engine, engine.collection.queries, run, HashPairs()).all()
    changed, run = one_document([words[i] for i in (*order, *more)], query)
    found = Reading(changed, changed.collection.queries, run, HashPairs()).all()
    np.testing.assert_array_equal(found.values, expected.values)


def test_what_is_refused(engine: Engine, run: Run, topics: Collection) -> None:
    pairs, queries = HashPairs(), dev(engine)

    own = topics.doc_ids[int(queries.own[0])].as_py()
    for query, document, message in (
        ("x", "d01", "query 'x'"),
        ("dev1", "x", "document id 'x'"),
        ("dev0", own, "'dev0'"),
        ("dev1", "blank", "passage"),
    ):
        frame = pd.DataFrame({"query_id": [query], "doc_id": [document], "score": [1.0]})
        with pytest.raises((InputError, UnknownNameError), match=message):
            Reading(engine, queries, Run.from_frame(frame), pairs)
    for wrong in ({"k": 0}, {"n": 0}, {"m": -1}, {"select": "last"}):
        with pytest.raises(InputError, match=f"'{next(iter(wrong))}' parameter of interactions"):
            Reading(engine, queries, run, pairs, **wrong)
