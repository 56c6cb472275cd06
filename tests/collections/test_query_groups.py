"""Groups of queries that are one question: words, nearly the same terms, and links, against slow loops."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from haybale.collections import Collection, CollectionBuilder
from haybale.collections.query_groups import NEAR, joined_groups, near_pairs, same_words, term_counts, words_key

TEXT = "Who must pay the dog tax, and how much?"


@pytest.mark.parametrize(
    "same",
    [
        TEXT.upper(),
        TEXT.rstrip("?") + " …",
        "  " + TEXT.replace(" ", " \u00a0\n\t"),
        "how much, and who must pay the dog-tax",
        "\uff37ho must pay the dog ta\u00adx and how much",  # a full-width letter and a soft hyphen
        "«Who» must “pay” the (dog) tax; and: how much?!",
    ],
)
def test_the_same_words(same: str) -> None:
    assert words_key(same) == words_key(TEXT)


@pytest.mark.parametrize(
    ("one", "other"),
    [("a list in C++", "a list in C#"), ("dog tax", "dog dog tax"), ("1 < 2", "1 > 2"), ("???", "…"), ("a_b", "a b")],
)
def test_other_words(one: str, other: str) -> None:
    assert words_key(one) != words_key(other)
    assert same_words([one, other, one]).tolist() == [0, 1, 0]


@given(st.text(max_size=20))
@settings(max_examples=200)
def test_keys_do_not_change_with_order_and_case(text: str) -> None:
    words = words_key(text).split()
    assert words_key(" ".join(reversed(words))) == words_key(" ".join(words))
    assert words_key(text + " ") == words_key(text) or not text.strip()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("threshold", [NEAR, 0.7])
def test_near_pairs_are_those_of_all_cosines(seed: int, threshold: float) -> None:
    """With few and with many common columns; some rows are copies with a change, some are empty."""
    rng = np.random.default_rng(seed)
    n, width = int(rng.integers(1, 60)), int(rng.integers(1, 200))
    rows = rng.random((n, width)) * (rng.random((n, width)) < rng.choice([0.02, 0.2, 0.9]))
    copies = rng.integers(n, size=n // 2)
    rows[rng.permutation(n)[: n // 2]] = rows[copies] + (rng.random((n // 2, width)) < 0.02)
    lengths = np.linalg.norm(rows, axis=1)
    cosines = (rows @ rows.T) / np.maximum(np.outer(lengths, lengths), 1e-30)
    expected = [[i, j] for i in range(n) for j in range(i + 1, n) if cosines[i, j] >= threshold - 1e-9]
    assert near_pairs(sparse.csr_matrix(rows), threshold).tolist() == expected


def test_near_pairs_of_many_queries_read_few_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 queries are not compared one by one: two of three words are common ones."""
    rng = np.random.default_rng(0)
    terms = [[*rng.integers(50, size=8).tolist(), *rng.integers(50, 9000, size=4).tolist()] for _ in range(20_000)]
    terms[7] = terms[19_999]
    assert [7, 19_999] in near_pairs(term_counts(terms)).tolist()


@pytest.mark.parametrize("seed", range(20))
def test_linked_queries_share_a_group(seed: int) -> None:
    rng = random.Random(seed)
    n = rng.randint(1, 30)
    numbers = [rng.choice([rng.randrange(n), -1 - i]) for i in range(n)]
    label = [rng.randrange(2 * n) for _ in range(n)]
    pairs = [(rng.randrange(n), rng.randrange(n)) for _ in range(rng.randrange(n))]
    expected = list(range(n))
    links = [(i, j) for i in range(n) for j in range(n) if numbers[i] == numbers[j] or label[i] == label[j]]
    for i, j in 5 * n * [*links, *pairs]:
        expected[i] = expected[j] = min(expected[i], expected[j])
    groups = joined_groups(np.array(numbers), [np.array(label)], np.array(pairs, dtype=np.int64).reshape(-1, 2))
    assert [[a == b for b in groups] for a in groups] == [[a == b for b in expected] for a in expected]
    assert sorted(set(groups.tolist())) == list(range(len(set(expected))))


def test_without_links_groups_are_those_of_the_documents(topics: Collection) -> None:
    queries = topics.queries
    alone = np.where(queries.own >= 0, queries.own, -1 - np.arange(len(queries)))
    assert queries.groups.tolist() == np.unique(alone, return_inverse=True)[1].tolist()


def test_groups_of_queries() -> None:
    builder = CollectionBuilder("c", language="english")
    builder.add_document("a", ["a text"])
    builder.add_document("b", ["another text"])
    builder.add_query("1", ["dog tax?"], own="a", split="train")
    builder.add_query("2", ["cats"], own="a", split="train")
    builder.add_query("3", ["cats", "purr"], split="train")
    builder.add_query("4", ["Tax, dog"], own="b", split="train")
    builder.add_query("5", ["purr cats"], split="train")
    queries = builder.build().queries
    assert queries.groups[[0, 1, 3]].tolist() == [queries.groups[0]] * 3
    assert queries.groups[2] == queries.groups[4] != queries.groups[0]
    part = queries.take([4, 0, 2])
    assert part.groups[0] == part.groups[2] != part.groups[1]
