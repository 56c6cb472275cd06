"""BM25 against the formula, its documents against all passages, and exclusions."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from haybale.analysis import Analyzer
from haybale.collections import Collection
from haybale.errors import InputError
from haybale.retrieval import BM25Index


def formula(query: str, texts: list[str], k1: float, b: float) -> list[float]:
    """Lucene's BM25 as Kamphuis et al. write it, one term at a time; a repeated query term counts again."""
    analyze = Analyzer("english").terms
    documents = [analyze(text) for text in texts]
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for document in documents:
        counts, score = Counter(document), 0.0
        for term in analyze(query):
            df = sum(term in other for other in documents)
            idf = math.log(1 + (len(documents) - df + 0.5) / (df + 0.5))
            tf = counts[term]
            score += idf * tf / (tf + k1 * (1 - b + b * len(document) / mean))
        scores.append(score)
    return scores


@pytest.mark.parametrize(("k1", "b"), [(1.2, 0.75), (0.5, 0.9)])
def test_scores_follow_the_formula(pydocs: Collection, k1: float, b: float) -> None:
    texts = pydocs.passages.texts[:300].to_pylist()
    query = "the shape of the returned array, and the array's axis"
    hits = BM25Index(texts, k1=k1, b=b, language="english").search([query], 300)
    expected = formula(query, texts, k1, b)
    found = dict(zip(hits.passages[0].tolist(), hits.scores[0].tolist(), strict=True))
    found.pop(-1, None)
    assert set(found) == {i for i, score in enumerate(expected) if score > 0}
    for passage, score in found.items():
        assert score == pytest.approx(expected[passage], rel=1e-5)
    ranked = hits.passages[0][hits.passages[0] >= 0]
    assert ranked.tolist() == sorted(found, key=lambda p: (-found[p], p))


def test_documents_rank_by_their_best_passage_of_all(pydocs: Collection) -> None:
    texts = pydocs.passages.texts[:500].to_pylist()
    offsets = pydocs.passages.doc_offsets
    offsets = np.append(offsets[offsets < 500], 500)
    index = BM25Index(texts, offsets, language="english")
    queries = ["array of complex numbers", "file name"]
    scores = index.search(queries, 500)
    rows, documents, best = index.documents(queries, depth=10)
    for row in (0, 1):
        expected: dict[int, float] = {}
        for passage, score in zip(scores.passages[row], scores.scores[row], strict=True):
            if passage >= 0:
                document = int(np.searchsorted(offsets, passage, side="right") - 1)
                expected[document] = max(expected.get(document, -np.inf), float(score))
        threshold = sorted(expected.values(), reverse=True)[:10][-1]
        found = dict(zip(documents[rows == row].tolist(), best[rows == row].tolist(), strict=True))
        assert found == {d: s for d, s in expected.items() if s >= threshold}


def test_own_document_and_unknown_words(toy: Collection) -> None:
    index = BM25Index.from_collection(toy)
    hits = index.search(["salt in winter", "xylophone"], 15, exclude=[4, -1])
    assert set(hits.passages[0][hits.passages[0] >= 0].tolist()) == {9}  # soup's passages are left out
    assert index.ids(hits) == [["roads:0"], []]
    assert index.ids(index.search(["salt in winter"], 15, exclude=["soup"])) == [["roads:0"]]
    rows, documents, _ = index.documents(["salt in winter", "xylophone"], 10, exclude=[4, -1])
    assert rows.tolist() == [0]
    assert documents.tolist() == [3]


def test_documents_without_passages_are_never_found() -> None:
    index = BM25Index(["dog", "cat"], np.array([0, 1, 1, 2]), language="english")
    rows, documents, _ = index.documents(["dog cat"], 10)
    assert rows.tolist() == [0, 0]
    assert documents.tolist() == [0, 2]


def test_whole_documents(toy: Collection) -> None:
    index = BM25Index.from_collection(toy, "document")
    assert len(index) == 5
    assert index.search(["puppies bark"], 5).passages[0].tolist() == [0, -1, -1, -1, -1]
    with pytest.raises(InputError, match="'passage' or 'document'"):
        BM25Index.from_collection(toy, "chapter")


def test_bad_input_is_refused(toy: Collection) -> None:
    index = BM25Index.from_collection(toy)
    with pytest.raises(InputError, match="query 1 of 2 is empty"):
        index.search(["dog", "  "], 3)
    with pytest.raises(InputError, match="between 1 and the number of passages in the index, 15; found 16"):
        index.search(["dog"], 16)
    with pytest.raises(InputError, match="at least one passage"):
        BM25Index([])
    with pytest.raises(InputError, match="not a stop word"):
        BM25Index(["the", "and"], language="english")
    with pytest.raises(InputError, match="exclude must hold 1"):
        index.search(["dog"], 3, exclude=[77])
