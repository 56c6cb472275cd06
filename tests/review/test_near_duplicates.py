"""Groups of near-duplicates are those that comparing all pairs finds."""

from __future__ import annotations

import numpy as np
import pytest

from haybale import Engine, InputError
from haybale.review import near_duplicates


def shingles(text: str) -> set[str]:
    words = text.lower().replace(".", "").replace(",", "").split()
    return {" ".join(words[i : i + min(3, len(words))]) for i in range(max(1, len(words) - 2))}


@pytest.mark.parametrize("threshold", [0.5, 0.8, 1.0])
def test_groups_are_those_of_all_pairs(threshold: float) -> None:
    rng = np.random.default_rng(0)
    texts = {}
    for base in range(12):
        words = [f"w{base}x{i}" for i in range(60)]
        for version in range(4):
            changed = [word if rng.random() > 0.02 * version else f"new{version}x{i}" for i, word in enumerate(words)]
            texts[f"{base:02d}-{version}"] = " ".join(changed) + "." * version
    texts |= {"short": "Two words.", "short copy": "two, words", "other": "Three other words"}
    ids = sorted(texts)
    parent = {doc_id: doc_id for doc_id in ids}

    def root(doc_id: str) -> str:
        return doc_id if parent[doc_id] == doc_id else root(parent[doc_id])

    for one in ids:
        for other in ids:
            a, b = shingles(texts[one]), shingles(texts[other])
            if len(a & b) / len(a | b) >= threshold:
                parent[root(other)] = root(one)
    groups: dict[str, list[str]] = {}
    for doc_id in ids:
        groups.setdefault(root(doc_id), []).append(doc_id)
    expected = sorted(group for group in groups.values() if len(group) > 1)
    found = near_duplicates(Engine(texts, language="english"), threshold)
    assert found == expected
    assert ["short", "short copy"] in found


def test_documents_without_words_are_no_duplicates_of_each_other() -> None:
    engine = Engine(
        {"a": "...", "b": "...", "c": "One word", "d": "one word"}, language="none", encoder="tfidf(min_df=1)"
    )
    assert near_duplicates(engine) == [["c", "d"]]
    with pytest.raises(InputError, match="threshold"):
        near_duplicates(engine, 2)
