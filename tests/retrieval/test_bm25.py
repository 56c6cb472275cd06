"""BM25 against the formula and, to the bit, against bm25s; parts, extensions and files of an index."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import bm25s
import numpy as np
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
    """Lucene's BM25 as Kamphuis et al. write it, one term at a time; repeated ones as Robertson's k3 says, or again."""
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
    assert ranked.tolist() == sorted(found, key=lambda p: (-found[p], p))


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
    with pytest.raises(InputError, match="'unit' parameter"):
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


# against bm25s, to the bit ------------------------------------------------------------------------------------


def peer(index: BM25Index, texts: list[str], k1: float = 1.2, b: float = 0.75) -> bm25s.BM25:
    terms = index.analyzer(texts)
    made = bm25s.BM25(k1=k1, b=b)
    made.index((terms.ids, terms.vocabulary), create_empty_token=False, show_progress=False)
    return made


def by_bm25s(made: bm25s.BM25, index: BM25Index, query: str) -> np.ndarray:
    """(n,) scores; a query without a known term has none."""
    ids = index.analysed([query]).ids[0]
    return made.get_scores(ids) if ids else np.zeros(len(index), dtype=np.float32)


def ranked(scores: np.ndarray, k: int, left_out: slice = slice(0, 0)) -> tuple[list[int], list[float]]:
    scores = scores.copy()
    scores[left_out] = 0
    order = [i for i in np.lexsort((np.arange(len(scores)), -scores)) if scores[i] > 0][:k]
    return order, scores[order].tolist()


@pytest.fixture(scope="module")
def world(pydocs: Collection) -> tuple[list[str], np.ndarray, list[str]]:
    """Passages, document offsets, and queries of every kind: of few terms, of many, and with many repetitions."""
    texts = pydocs.passages.texts[:700].to_pylist()
    offsets = pydocs.passages.doc_offsets
    offsets = np.append(offsets[offsets < 700], 700)
    longer = pydocs.queries.texts(pydocs.split("dev").queries[:12])
    repeated = [" ".join([text] * 30) for text in longer[:4]] + ["array of numbers " * 400]
    return texts, offsets, ["rarefied", "file name", "xylophone", "axis", *longer, *repeated]


@pytest.mark.parametrize(("k1", "b"), [(1.2, 0.75), (0.0, 1.0), (3.0, 0.2), (1e6, 0.5)])
def test_scores_are_those_of_bm25s_to_the_bit(world, k1: float, b: float) -> None:
    texts, offsets, queries = world
    index = BM25Index(texts, offsets, k1=k1, b=b, language="english")
    made = peer(index, texts, k1, b)
    own = np.arange(len(queries)) % 9 - 1
    documents = index.documents(queries, 7, exclude=own)
    for k in (1, 10, 300, 700):
        hits = index.search(queries, k, exclude=own)
        for row, query in enumerate(queries):
            left_out = slice(*offsets[own[row] : own[row] + 2]) if own[row] >= 0 else slice(0, 0)
            numbers, scores = ranked(by_bm25s(made, index, query), k, left_out)
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
    numbers, scores = ranked(by_bm25s(peer(index, texts), index, query), k)
    assert hits.passages[0, : len(numbers)].tolist() == numbers
    assert hits.scores[0, : len(numbers)].tolist() == scores
    assert (hits.passages[0, len(numbers) :] == -1).all()
    shares = index.term_shares(query, numbers[-1])
    assert np.float32(sum(shares.values())) == hits.scores[0, len(numbers) - 1]
    assert set(shares) <= set(query.split())


# other indexes --------------------------------------------------------------------------------------------


def same(one: BM25Index, other: BM25Index, queries: list[str]) -> None:
    assert list(one.vocabulary) == list(other.vocabulary)
    assert one.passage_ids.to_pylist() == other.passage_ids.to_pylist()
    assert one.doc_ids.to_pylist() == other.doc_ids.to_pylist()
    for left, right in zip(one.documents(queries, 5), other.documents(queries, 5), strict=True):
        np.testing.assert_array_equal(left, right)
    hits = [index.search(queries, len(one)) for index in (one, other)]
    np.testing.assert_array_equal(hits[0].passages, hits[1].passages)
    np.testing.assert_array_equal(hits[0].scores, hits[1].scores)


def test_other_parameters_are_those_of_a_new_index(world) -> None:
    texts, offsets, queries = world
    index = BM25Index(texts, offsets, language="english")
    same(index.with_parameters(0.6, 0.3), BM25Index(texts, offsets, k1=0.6, b=0.3, language="english"), queries)
    assert (index.k1, index.b) == (1.2, 0.75)
    for k1, b in ((-1, 0.5), (math.inf, 0.5), (math.nan, 0.5), (1, 1.1), (1, -0.1), (1, math.nan)):
        with pytest.raises(InputError, match="parameter of BM25Index must be"):
            index.with_parameters(k1, b)
        with pytest.raises(InputError, match="parameter of BM25Index must be"):
            BM25Index(texts, k1=k1, b=b)
    for k3 in (-1, math.inf, math.nan, True, "once"):
        with pytest.raises(InputError, match="'k3' parameter of BM25Index must be"):
            index.with_parameters(1, 0.5, k3)  # type: ignore[arg-type]


def ids(first: int, end: int, first_document: int, end_document: int) -> dict[str, list[str]]:
    return {
        "passage_ids": [str(i) for i in range(first, end)],
        "doc_ids": [str(i) for i in range(first_document, end_document)],
    }


@pytest.mark.parametrize("cut", [1, 40, 99])
def test_extended_is_an_index_of_all(world, cut: int) -> None:
    texts, offsets, queries = world
    place = int(offsets[cut])
    first = BM25Index(texts[:place], offsets[: cut + 1], language="english")
    extended = first.extended(texts[place:], offsets[cut:] - place, **ids(place, len(texts), cut, len(offsets) - 1))
    same(extended, BM25Index(texts, offsets, language="english"), queries)
    with pytest.raises(InputError, match="document id '0' is in the index already"):
        first.extended(["a dog"], None, passage_ids=["new"], doc_ids=["0"])


def test_part_of_an_index_scores_as_the_whole(world) -> None:
    texts, offsets, queries = world
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
    assert more._postings.n_texts == len(texts) + 1  # of all that were counted
    for wrong in ([4, 3], [3, 3], [-1], [len(offsets)]):
        with pytest.raises(InputError, match="document number"):
            index.take(np.array(wrong))


def test_documents_from_counts_of_passages(toy: Collection) -> None:
    passages = toy.passages
    counts = TermCounts.of(passages.texts, Analyzer("english"))
    of_documents = BM25Index(toy.document_texts(), passage_ids=toy.doc_ids, doc_ids=toy.doc_ids, language="english")
    queries = ["barking dogs at the gate", "salt"]
    merged = BM25Index(counts.merged(passages.doc_offsets), passage_ids=toy.doc_ids, doc_ids=toy.doc_ids)
    same(merged, of_documents, queries)
    same(BM25Index.from_collection(toy, "document"), of_documents, queries)


def test_an_own_analyzer() -> None:
    index = BM25Index(["§ 1 BGB", "§ 2 BGB"], analyzer=str.split)
    assert index.search(["1 bgb"], 2).passages.tolist() == [[0, -1]]
    german = BM25Index(["der Hund", "die Katze"], analyzer=Analyzer("german", ["hund"]))
    assert list(german.vocabulary) == ["der", "die", "katz"]
    with pytest.raises(InputError, match="not both"):
        BM25Index(["a"], analyzer=str.split, language="english")
    with pytest.raises(InputError, match=r"must give a list of terms, found the string"):
        BM25Index(["a b"], analyzer=str.upper)


def test_terms_of_another_index_are_refused() -> None:
    other = BM25Index(["a dog and a cat"], language="english")
    with pytest.raises(InputError, match="numbered by another index"):
        BM25Index(["dog"], language="english").search(other.analysed(["cat"]), 1)
    with pytest.raises(InputError, match="passage must be a number below 1"):
        other.term_shares("dog", 1)


# files ----------------------------------------------------------------------------------------------------


def test_a_saved_index_is_the_same(world, tmp_path: Path) -> None:
    texts, offsets, queries = world
    index = BM25Index(texts, offsets, k1=0.9, k3=2, analyzer=Analyzer("english", ["the", "array"]))
    index.save(tmp_path / "saved")
    opened = BM25Index.open(tmp_path / "saved")
    same(opened, index, queries)
    assert (opened.k1, opened.b, opened.k3, opened.analyzer) == (0.9, 0.75, 2, index.analyzer)
    same(opened.with_parameters(2, 0.1), index.with_parameters(2, 0.1), queries)
    half = len(offsets) // 2
    same(opened.take(np.arange(half)), index.take(np.arange(half)), queries)
    place = int(offsets[half])
    grown = BM25Index(texts[:place], offsets[: half + 1], k1=0.9, k3=2, analyzer=index.analyzer)
    more = ids(place, len(texts), half, len(offsets) - 1)
    grown.extended(texts[place:], offsets[half:] - place, **more).save(tmp_path / "grown")  # equal, so equal bytes
    for file in (tmp_path / "saved").iterdir():
        assert file.read_bytes() == (tmp_path / "grown" / file.name).read_bytes()
    with pytest.raises(OutputExistsError):
        index.save(tmp_path / "saved")
    with pytest.raises(InputError, match=r"a function cannot be saved: .*split"):
        BM25Index(["a b"], analyzer=str.split).save(tmp_path / "own")
    assert not (tmp_path / "own").exists()


def test_an_index_from_before_k3_opens(world, tmp_path: Path) -> None:
    texts, offsets, queries = world
    index = BM25Index(texts, offsets, language="english")
    index.save(tmp_path)
    path = tmp_path / "manifest.json"
    path.write_bytes(resigned(path.read_bytes().replace(b'"k3": null,', b"")))
    assert "k3" not in json.loads(path.read_text())
    same(BM25Index.open(tmp_path), index, queries)


def resigned(manifest: bytes) -> bytes:
    """Changed by somebody who knows how manifests are signed."""
    return json.dumps(with_checksum(json.loads(manifest))).encode()


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("manifest.json", lambda text: resigned(text.replace(b"english", b"klingon")), "unknown language"),
        ("manifest.json", lambda text: resigned(text.replace(b'"k3": null', b'"k3": -1')), "not of a BM25 index"),
        ("tensors.safetensors", lambda content: content[:-1], "the SHA-256 differs"),
        ("vocabulary.parquet", None, "not found"),
    ],
)
def test_a_damaged_index_is_refused(file: str, change, message: str, tmp_path: Path) -> None:
    BM25Index(["a dog", "a cat"], language="english").save(tmp_path / "saved")
    path = tmp_path / "saved" / file
    path.unlink() if change is None else path.write_bytes(change(path.read_bytes()))
    with pytest.raises(FileFormatError, match=message):
        BM25Index.open(tmp_path / "saved")
