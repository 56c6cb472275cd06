"""BM25 compared with its formula and with bm25s; restricted, extended and saved indexes."""

from __future__ import annotations

import json
import math
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haybale.analysis import Analyzer
from haybale.collections import Collection
from haybale.embeddings.counting import TermCounts
from haybale.errors import FileFormatError, InputError, OutputExistsError
from haybale.manifest import with_checksum
from haybale.retrieval import BM25Index


def formula(query: str, texts: list[str], k1: float, b: float, k3: float | None) -> list[float]:
    """Return Lucene's BM25 (Kamphuis et al.), with Robertson's k3, computed one term at a time."""
    analyze = Analyzer("english").terms
    documents = [analyze(text) for text in texts]
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for document in documents:
        counts, score = Counter(document), 0.0
        for term, t in Counter(analyze(query)).items():
            df = sum(term in other for other in documents)
            idf = math.log(1 + (len(documents) - df + 0.5) / (df + 0.5))
            tf = counts[term]
            times = t if k3 is None else (k3 + 1) * t / (k3 + t)
            score += times * idf * tf / (tf + k1 * (1 - b + b * len(document) / mean))
        scores.append(score)
    return scores


@pytest.mark.parametrize(("k1", "b", "k3"), [(1.2, 0.75, None), (0.5, 0.9, None), (1.2, 0.75, 0), (3, 0.5, 2.5)])
def test_scores_follow_the_formula(pydocs: Collection, k1: float, b: float, k3: float | None) -> None:
    texts = pydocs.passages.texts[:300].to_pylist()
    query = "the shape of the returned array, and the array's axis"
    index = BM25Index(texts, k1=k1, b=b, k3=k3, language="english")
    hits = index.search([query], 300)
    expected = formula(query, texts, k1, b, k3)
    found = dict(zip(hits.passages[0].tolist(), hits.scores[0].tolist(), strict=True))
    found.pop(-1, None)
    assert set(found) == {i for i, score in enumerate(expected) if score > 0}
    for passage, score in found.items():
        assert score == pytest.approx(expected[passage], rel=1e-5)
        assert index.similarities([query], passage)[0, 0] == score
        assert np.float32(sum(index.term_shares(query, passage).values())) == score
    ranked = hits.passages[0][hits.passages[0] >= 0]
    assert ranked.tolist() == sorted(found, key=lambda p: (-found[p], str(p)))


@pytest.mark.parametrize("k3", [None, 0, 2.5])
def test_weighted_queries_add_factors_times_the_weights_of_terms(pydocs: Collection, k3: float | None) -> None:
    """A factor replaces k3; terms that no text has are dropped, and a document scores as in a search of one term."""
    texts, rng = pydocs.passages.texts[:300].to_pylist(), np.random.default_rng(0)
    index = BM25Index(texts, [0, *range(2, 301, 2)], k3=k3, language="english")
    terms = [["array", "unheardof", "axi", "return"], [], ["shape"]]
    factors = [rng.random(len(each)).astype(np.float32) for each in terms]
    queries = index.weighted(terms, factors)
    alone = {term: np.zeros(300) for each in terms for term in each}
    for term in alone:
        if term in index.vocabulary:
            hits = index.search(index.weighted([[term]], [np.ones(1, dtype=np.float32)]), 300)
            found = hits.passages[0] >= 0
            alone[term][hits.passages[0][found]] = hits.scores[0][found]
        assert index.text_frequencies([term]).tolist() == [int((alone[term] > 0).sum())]
        assert index.share_table([term], np.arange(300))[0] == pytest.approx(alone[term])
    hits = index.search(queries, 300)
    for row, (each, of) in enumerate(zip(terms, factors, strict=True)):
        scores = sum((factor * alone[term] for term, factor in zip(each, of, strict=True)), np.zeros(300))
        found = hits.passages[row] >= 0
        assert found.sum() == (scores > 0).sum()
        assert hits.scores[row][found] == pytest.approx(scores[hits.passages[row][found]], rel=1e-5)
        assert index.similarities(queries, 3)[row] == pytest.approx(scores[6:8], rel=1e-5, abs=1e-6)
        rows, documents, best = index.documents(queries, 150)
        expected = scores.reshape(150, 2).max(axis=1)
        assert best[rows == row] == pytest.approx(expected[documents[rows == row]], rel=1e-5)


def test_excluded_documents_and_unknown_words(toy: Collection) -> None:
    index, queries = BM25Index.from_collection(toy), ["salt in winter", "xylophone"]
    hits = index.search(queries, 15, exclude=[4, -1])  # soup
    assert index.ids(hits) == [["roads:0"], []]
    assert index.ids(index.search(queries[:1], 15, exclude=["soup"])) == [["roads:0"]]
    rows, documents, _ = index.documents(queries, 10, exclude=[4, -1])
    assert (rows.tolist(), documents.tolist()) == ([0], [3])


def test_documents_without_passages_are_never_found() -> None:
    index = BM25Index(["dog", "cat"], np.array([0, 1, 1, 2]), language="english")
    rows, documents, _ = index.documents(["dog cat"], 10)
    assert (rows.tolist(), documents.tolist()) == ([0, 0], [0, 2])


def test_invalid_arguments_are_rejected(toy: Collection) -> None:
    index, other = BM25Index.from_collection(toy), BM25Index(["a dog and a cat"], language="english")
    for call, named in [
        (lambda: index.search(["dog", "  "], 3), "query 1 of 2"),
        (lambda: index.search(["dog"], 16), "k must.* 15; found 16"),
        (lambda: index.search(["dog"], 3, exclude=[77]), "exclude"),
        (lambda: BM25Index([]), "at least one.* 0"),
        (lambda: BM25Index(["the", "and"], language="english"), "'english'"),
        (lambda: BM25Index.from_collection(toy, "chapter"), "'unit'"),
        (lambda: BM25Index(["a"], analyzer=str.split, language="english"), "'language' or 'analyzer'"),
        (lambda: BM25Index(["a b"], analyzer=str.upper), "list of terms"),
        (lambda: BM25Index(["dog"], language="english").search(other.analysed(["cat"]), 1), "terms below 1.* 1"),
        (lambda: other.term_shares("dog", 1), "passage must.* 1"),
    ]:
        with pytest.raises(InputError, match=named):
            call()


def index_of_bm25s(index: BM25Index, texts: list[str], k1: float = 1.2, b: float = 0.75) -> bm25s.BM25:
    terms = index.analyzer(texts)
    made = bm25s.BM25(k1=k1, b=b)
    made.index((terms.ids, terms.vocabulary), create_empty_token=False, show_progress=False)
    return made


def by_bm25s(made: bm25s.BM25, index: BM25Index, query: str) -> np.ndarray:
    """Return the scores of bm25s, (n,), which rejects queries without a known term."""
    ids = index.analysed([query]).ids[0]
    return made.get_scores(ids) if ids else np.zeros(len(index), dtype=np.float32)


def ranked(
    scores: np.ndarray, doc_of: np.ndarray, k: int, excluded: slice = slice(0, 0)
) -> tuple[list[int], list[float]]:
    scores = scores.copy()
    scores[excluded] = 0
    order = sorted(np.flatnonzero(scores > 0).tolist(), key=lambda i: (-scores[i], str(doc_of[i]), i))[:k]
    return order, scores[order].tolist()


@pytest.fixture(scope="module")
def sample(pydocs: Collection) -> tuple[list[str], np.ndarray, list[str]]:
    """Return passages, document offsets, and queries with few terms, many terms and many repetitions."""
    texts = pydocs.passages.texts[:700].to_pylist()
    offsets = pydocs.passages.doc_offsets
    offsets = np.append(offsets[offsets < 700], 700)
    longer = pydocs.queries.texts(pydocs.split("dev").queries[:12])
    repeated = [" ".join([text] * 30) for text in longer[:4]] + ["array of numbers " * 400]
    return texts, offsets, ["rarefied", "file name", "xylophone", "axis", *longer, *repeated]


@pytest.mark.parametrize(("k1", "b"), [(1.2, 0.75), (0.0, 1.0), (3.0, 0.2), (1e6, 0.5)])
def test_scores_are_bit_identical_to_bm25s(sample, k1: float, b: float) -> None:
    texts, offsets, queries = sample
    index = BM25Index(texts, offsets, k1=k1, b=b, language="english")
    made = index_of_bm25s(index, texts, k1, b)
    own = np.arange(len(queries)) % 9 - 1
    documents = index.documents(queries, 7, exclude=own)
    for k in (1, 10, 300, 700):
        hits = index.search(queries, k, exclude=own)
        for row, query in enumerate(queries):
            excluded = slice(*offsets[own[row] : own[row] + 2]) if own[row] >= 0 else slice(0, 0)
            numbers, scores = ranked(by_bm25s(made, index, query), index.doc_of, k, excluded)
            missing = k - len(numbers)
            assert hits.passages[row].tolist() == numbers + [-1] * missing
            assert hits.scores[row].tolist() == scores + [-math.inf] * missing
    for row, query in enumerate(queries):
        scores = by_bm25s(made, index, query)
        best = np.maximum.reduceat(scores, offsets[:-1])
        if own[row] >= 0:
            best[own[row]] = 0
        least = np.sort(best)[-7]
        expected = np.flatnonzero((best >= least) & (best > 0))
        of_row = documents[0] == row
        assert documents[1][of_row].tolist() == expected.tolist()
        assert documents[2][of_row].tolist() == best[expected].tolist()
        part = index.similarities([query], 5)
        assert part[0].tolist() == scores[offsets[5] : offsets[6]].tolist()


words = st.lists(st.sampled_from(["dog", "cat", "tax", "road", "salt", "law"]), max_size=9).map(" ".join)


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(words, min_size=1, max_size=70), query=words, times=st.integers(1, 90), k=st.integers(1, 70))
def test_ties_and_repetitions(texts: list[str], query: str, times: int, k: int) -> None:
    texts, query = [*texts, "dog law"], f"{query} dog " * times
    index = BM25Index(texts, language="english")
    k = min(k, len(texts))
    hits = index.search([query], k)
    numbers, scores = ranked(by_bm25s(index_of_bm25s(index, texts), index, query), index.doc_of, k)
    assert hits.passages[0, : len(numbers)].tolist() == numbers
    assert hits.scores[0, : len(numbers)].tolist() == scores
    assert (hits.passages[0, len(numbers) :] == -1).all()
    shares = index.term_shares(query, numbers[-1])
    assert np.float32(sum(shares.values())) == hits.scores[0, len(numbers) - 1]
    assert set(shares) <= set(query.split())


def assert_equal(one: BM25Index, other: BM25Index, queries: list[str]) -> None:
    assert list(one.vocabulary) == list(other.vocabulary)
    assert one.passage_ids.to_pylist() == other.passage_ids.to_pylist()
    assert one.doc_ids.to_pylist() == other.doc_ids.to_pylist()
    for left, right in zip(one.documents(queries, 5), other.documents(queries, 5), strict=True):
        np.testing.assert_array_equal(left, right)
    hits = [index.search(queries, len(one)) for index in (one, other)]
    np.testing.assert_array_equal(hits[0].passages, hits[1].passages)
    np.testing.assert_array_equal(hits[0].scores, hits[1].scores)


def test_with_parameters_equals_a_new_index(sample) -> None:
    texts, offsets, queries = sample
    index = BM25Index(texts, offsets, language="english")
    assert_equal(index.with_parameters(0.6, 0.3), BM25Index(texts, offsets, k1=0.6, b=0.3, language="english"), queries)
    assert (index.k1, index.b) == (1.2, 0.75)
    invalid = {"k1": (-1, math.inf, math.nan), "b": (1.1, -0.1, math.nan), "k3": (-1, math.inf, math.nan, True, "once")}
    for name, value in ((name, value) for name, values in invalid.items() for value in values):
        parameters: dict[str, Any] = {"k1": 1, "b": 0.5, name: value}
        for make in (index.with_parameters, partial(BM25Index, texts)):
            with pytest.raises(InputError, match=f"'{name}' parameter"):
                make(**parameters)


def ids(first: int, end: int, first_document: int, end_document: int) -> dict[str, list[str]]:
    return {
        "passage_ids": [str(i) for i in range(first, end)],
        "doc_ids": [str(i) for i in range(first_document, end_document)],
    }


@pytest.mark.parametrize("cut", [1, 40, 99])
def test_extended_index_equals_one_made_at_once(sample, cut: int) -> None:
    texts, offsets, queries = sample
    place = int(offsets[cut])
    first = BM25Index(texts[:place], offsets[: cut + 1], language="english")
    extended = first.extended(texts[place:], offsets[cut:] - place, **ids(place, len(texts), cut, len(offsets) - 1))
    assert_equal(extended, BM25Index(texts, offsets, language="english"), queries)
    with pytest.raises(InputError, match="document id '0'"):
        first.extended(["a dog"], None, passage_ids=["new"], doc_ids=["0"])


def test_restricted_index_keeps_scores(sample) -> None:
    texts, offsets, queries = sample
    index = BM25Index(texts, offsets, language="english")
    chosen = np.arange(3, len(offsets) - 1, 4)
    part = index.take(chosen)
    assert part.doc_ids.to_pylist() == [str(i) for i in chosen]
    whole = index.documents(queries, len(chosen) * 9)
    inside = np.isin(whole[1], chosen)
    found = part.documents(queries, len(chosen))
    np.testing.assert_array_equal(found[0], whole[0][inside])
    np.testing.assert_array_equal(chosen[found[1]], whole[1][inside])
    np.testing.assert_array_equal(found[2], whole[2][inside])
    more = part.extended(["array of arrays"], None, doc_ids=["new"], passage_ids=["new"])
    assert more._postings.n_texts == len(texts) + 1  # statistics stay those of all texts
    for invalid in ([4, 3], [3, 3], [-1], [len(offsets)]):
        with pytest.raises(InputError, match="document number"):
            index.take(np.array(invalid))


def test_whole_documents(toy: Collection) -> None:
    counts, ids = TermCounts.of(toy.passages.texts, Analyzer("english")), {"passage_ids": toy.doc_ids}
    index = BM25Index(toy.document_texts(), doc_ids=toy.doc_ids, language="english", **ids)
    assert index.search(["puppies bark"], 5).passages[0].tolist() == [0, -1, -1, -1, -1]
    queries = ["barking dogs at the gate", "salt"]
    assert_equal(BM25Index(counts.merged(toy.passages.doc_offsets), doc_ids=toy.doc_ids, **ids), index, queries)
    assert_equal(BM25Index.from_collection(toy, "document"), index, queries)


def test_custom_analyzers() -> None:
    index = BM25Index(["§ 1 BGB", "§ 2 BGB"], analyzer=str.split)
    assert index.search(["1 bgb"], 2).passages.tolist() == [[0, -1]]
    german = BM25Index(["der Hund", "die Katze"], analyzer=Analyzer("german", ["hund"]))
    assert list(german.vocabulary) == ["der", "die", "katz"]


def test_language_is_guessed_from_any_texts() -> None:
    texts = ["Der Hund ist an der Leine.", "Die Katze schläft auf dem Sofa."]
    for each in (texts, pa.chunked_array([texts])):
        assert BM25Index(each).analyzer.language == "german"


def test_saved_index_equals_the_original(sample, tmp_path: Path) -> None:
    texts, offsets, queries = sample
    index = BM25Index(texts, offsets, k1=0.9, k3=2, analyzer=Analyzer("english", ["the", "array"]))
    index.save(tmp_path / "saved")
    opened = BM25Index.open(tmp_path / "saved")
    assert_equal(opened, index, queries)
    assert (opened.k1, opened.b, opened.k3, opened.analyzer) == (0.9, 0.75, 2, index.analyzer)
    assert_equal(opened.with_parameters(2, 0.1), index.with_parameters(2, 0.1), queries)
    half = len(offsets) // 2
    assert_equal(opened.take(np.arange(half)), index.take(np.arange(half)), queries)
    place = int(offsets[half])
    grown = BM25Index(texts[:place], offsets[: half + 1], k1=0.9, k3=2, analyzer=index.analyzer)
    more = ids(place, len(texts), half, len(offsets) - 1)
    grown.extended(texts[place:], offsets[half:] - place, **more).save(tmp_path / "grown")
    for file in (tmp_path / "saved").iterdir():
        assert file.read_bytes() == (tmp_path / "grown" / file.name).read_bytes()  # equal indexes, equal bytes
    with pytest.raises(OutputExistsError):
        index.save(tmp_path / "saved")
    with pytest.raises(InputError, match=r"function.*split"):
        BM25Index(["a b"], analyzer=str.split).save(tmp_path / "own")
    assert not (tmp_path / "own").exists()


def test_index_saved_before_k3_opens(sample, tmp_path: Path) -> None:
    texts, offsets, queries = sample
    index = BM25Index(texts, offsets, language="english")
    index.save(tmp_path)
    path = tmp_path / "manifest.json"
    path.write_bytes(with_new_checksum(path.read_bytes().replace(b'"k3": null,', b"")))
    assert "k3" not in json.loads(path.read_text())
    assert_equal(BM25Index.open(tmp_path), index, queries)


def with_new_checksum(manifest: bytes) -> bytes:
    return json.dumps(with_checksum(json.loads(manifest))).encode()


@pytest.mark.parametrize(
    ("file", "change", "named"),
    [
        ("manifest.json", lambda text: with_new_checksum(text.replace(b"english", b"klingon")), "klingon"),
        ("manifest.json", lambda text: with_new_checksum(text.replace(b'"k3": null', b'"k3": -1')), "k3"),
        ("tensors.safetensors", lambda content: content[:-1], "tensors.safetensors"),
        ("vocabulary.parquet", None, "vocabulary.parquet"),
    ],
)
def test_damaged_index_is_rejected(file: str, change, named: str, tmp_path: Path) -> None:
    BM25Index(["a dog", "a cat"], language="english").save(tmp_path / "saved")
    path = tmp_path / "saved" / file
    path.unlink() if change is None else path.write_bytes(change(path.read_bytes()))
    with pytest.raises(FileFormatError, match=named):
        BM25Index.open(tmp_path / "saved")
