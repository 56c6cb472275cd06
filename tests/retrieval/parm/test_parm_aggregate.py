"""The aggregations compared with an oracle, on the CPU and on a device; invariances and errors.

The oracle computes PARM's aggregations from the paper's definitions, one hit at a time: Althammer et al., "PARM: A
Paragraph Aggregation Retrieval Model for Dense Document-to-Document Retrieval", ECIR 2022, section 3. A query document
has paragraphs i with vectors q_i, and r_i is the list of the first N hits of paragraph i.

The tolerance is 1e-5 · (1 + Σ |terms of the score|). Everything else must be equal.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

from haybale.device import to_numpy
from haybale.errors import DeviceError, InputError, UnknownNameError
from haybale.retrieval import AGGREGATIONS, Hits, PassageIndex, Vectors, aggregate

BY_SCORE_OR_RANK = ("maxp", "firstp", "combsum", "rrf")
BY_VECTOR = ("vsum", "vavg", "vmin", "vmax", "vscores", "vranks", "vrrf")
NAMES = (*BY_SCORE_OR_RANK, *BY_VECTOR)


class Hit(NamedTuple):
    passage: int
    score: float
    rank: int  # from 1


def oracle(name, hits, doc_of, offsets, vectors=None, *, rrf_k=60.0, n_hits=None, occurrences="all"):
    """Return {(query, document): score} for documents with a hit that counts; parameters as in ``aggregate``."""
    n = hits.passages.shape[1] if n_hits is None else n_hits
    scores = {}
    for query in range(len(offsets) - 1):
        paragraphs = range(offsets[query], offsets[query + 1])
        found: dict[int, list[Hit]] = defaultdict(list)
        for i in paragraphs:
            for hit in counting(hit_list(hits, i, n), name, doc_of, occurrences):
                found[int(doc_of[hit.passage])].append(hit)
        for document, its_hits in found.items():
            if name in BY_SCORE_OR_RANK:
                score = SCORES[name](its_hits, rrf_k)
            else:
                queries = [row(vectors.paragraphs, i) for i in paragraphs]
                passages = [row(vectors.passages, hit.passage) for hit in its_hits]
                if name in WEIGHTS:
                    weights = [WEIGHTS[name](hit, rrf_k, n) for hit in its_hits]
                    passages = [[w * value for value in p] for w, p in zip(weights, passages, strict=True)]
                reduce = ELEMENTWISE.get(name, sum)
                values = zip(zip(*queries, strict=True), zip(*passages, strict=True), strict=True)
                score = sum(reduce(q) * reduce(p) for q, p in values)
            scores[query, document] = score
    return scores


def hit_list(hits, paragraph: int, n: int) -> list[Hit]:
    """Return r_i, the first n hits of a paragraph."""
    columns = zip(hits.passages[paragraph].tolist(), hits.scores[paragraph].tolist(), strict=True)
    return [Hit(p, s, rank) for rank, (p, s) in enumerate(columns, start=1) if p >= 0 and rank <= n]


def counting(found: list[Hit], name: str, doc_of, occurrences: str) -> list[Hit]:
    """Return the hits that count: on first passages for firstp; the first of each document for "best"."""
    if name == "firstp":
        found = [hit for hit in found if hit.passage == 0 or doc_of[hit.passage - 1] != doc_of[hit.passage]]
    if occurrences == "best":
        best: dict[int, Hit] = {}
        for hit in found:  # by rank
            best.setdefault(int(doc_of[hit.passage]), hit)
        found = list(best.values())
    return found


def row(matrix, number: int) -> list[float]:
    dense = matrix[[number]].toarray()[0] if sparse.issparse(matrix) else matrix[number]
    return [float(value) for value in dense]


SCORES = {
    "maxp": lambda found, k: max(hit.score for hit in found),
    "firstp": lambda found, k: max(hit.score for hit in found),
    "combsum": lambda found, k: sum(hit.score for hit in found),
    "rrf": lambda found, k: sum(1 / (k + hit.rank) for hit in found),
}
ELEMENTWISE = {"vavg": lambda values: sum(values) / len(values), "vmin": min, "vmax": max}
WEIGHTS = {
    "vscores": lambda hit, k, n: hit.score,
    "vranks": lambda hit, k, n: n + 1 - hit.rank,
    "vrrf": lambda hit, k, n: 1 / (k + hit.rank),
}


@dataclass(frozen=True)
class Case:
    """The arguments of an aggregation."""

    hits: Hits
    doc_of: np.ndarray
    offsets: np.ndarray
    vectors: Vectors
    whole: bool = False  # scores and vectors are integers

    def aggregate(self, name: str, **options):
        return aggregate(self.hits, name, self.doc_of, self.offsets, vectors=self.vectors, **options)

    def oracle(self, name: str, **options):
        return oracle(name, self.hits, self.doc_of, self.offsets, self.vectors, **options)

    def tolerance(self, name: str, **options) -> np.ndarray:
        """Return 1e-5 · (1 + Σ |terms|) for each score, (n,): the oracle computes the sum from absolute values."""
        hits, vectors = Hits(self.hits.passages, np.abs(self.hits.scores)), Vectors(*map(abs, self.vectors))
        terms = replace(self, hits=hits, vectors=vectors).oracle("vmax" if name == "vmin" else name, **options)
        return np.array([1e-5 * (1 + terms[pair]) for pair in sorted(terms)])

    def rows(self, rows: np.ndarray, offsets: np.ndarray) -> Case:
        """Return the case with some paragraphs (rows of the hits), in the given order."""
        hits = Hits(self.hits.passages[rows], self.hits.scores[rows])
        vectors = Vectors(self.vectors.passages, self.vectors.paragraphs[rows])
        return replace(self, hits=hits, offsets=offsets, vectors=vectors)


@st.composite
def cases(draw: st.DrawFn, is_sparse: bool | None = None) -> Case:
    """Draw full, short and empty lists of hits on few documents, with ties in scores."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    whole = draw(st.booleans())
    n, d, width = draw(st.integers(1, 20)), draw(st.integers(1, 5)), draw(st.integers(1, 30))
    lengths = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    m = sum(lengths)
    passages, scores = np.full((m, width), -1), np.full((m, width), -np.inf, dtype=np.float32)
    for row in range(m):
        count = rng.choice([0, min(n, width), rng.integers(min(n, width) + 1)], p=[0.1, 0.4, 0.5])
        passages[row, :count] = rng.permutation(n)[:count]
        values = rng.integers(-3, 6, size=count) if whole else rng.choice([-0.7, 0.1, 0.3, 0.31, 1.4], size=count)
        scores[row, :count] = -np.sort(-values)
    shapes = (n, d), (m, d)
    if whole:
        matrices = [rng.integers(-3, 4, size=shape) for shape in shapes]
    else:
        matrices = [rng.normal(size=shape) * (rng.random(shape) < 0.7) for shape in shapes]
    matrices = [matrix.astype(np.float32) for matrix in matrices]
    if draw(st.booleans()) if is_sparse is None else is_sparse:
        matrices = [sparse.csr_matrix(matrix) for matrix in matrices]
    doc_of = np.sort(rng.integers(draw(st.integers(1, 6)), size=n))
    offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    return Case(Hits(passages, scores), doc_of, offsets, Vectors(*matrices), whole)


@st.composite
def options(draw: st.DrawFn, case: Case) -> dict:
    width = case.hits.passages.shape[1]
    return {
        "rrf_k": draw(st.sampled_from([60.0, 0.0, 0.5])),
        "n_hits": draw(st.sampled_from([None, max(1, width - 2), width + 7])),
    }


def pairs_of(result) -> list[tuple[int, int]]:
    return list(zip(result[0].tolist(), result[1].tolist(), strict=True))


def assert_same(one, other) -> None:
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)


module = sys.modules[aggregate.__module__]  # has the same name as the function
# With integer arguments, the scores are integers that are exact in float32.
WHOLE = {"maxp", "firstp", "combsum", "vsum", "vmin", "vmax", "vscores", "vranks"}
every = pytest.mark.parametrize("name", NAMES)


@pytest.mark.parametrize("occurrences", ["all", "best"])
@every
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_scores_equal_the_oracles(data: st.DataObject, name: str, occurrences: str) -> None:
    assert set(AGGREGATIONS) == set(NAMES)
    case = data.draw(cases())
    chosen = data.draw(options(case)) | {"occurrences": occurrences}
    expected, result = case.oracle(name, **chosen), case.aggregate(name, **chosen)
    with pytest.MonkeyPatch.context() as patch:  # blocks of few rows change no bit
        patch.setattr(module, "_MEMORY", data.draw(st.sampled_from([1, 1000])))
        assert_same(case.aggregate(name, **chosen), result)
    assert pairs_of(result) == sorted(expected)  # sorted by query, then by document
    assert result[2].dtype == np.float64
    error = np.abs(result[2] - [expected[pair] for pair in pairs_of(result)])
    assert (error <= (0.0 if case.whole and name in WHOLE else case.tolerance(name, **chosen))).all()


BY_HAND = {
    # Paragraph 0 finds passages 1, 0, 3 with 4, 3, 2; paragraph 1 finds 0 and 2 with 5 and -1; rrf_k 1; documents
    # are passages 0-1 and 2-3. Passages (1, 0), (2, 1), (0, 4), (1, 1); paragraphs (1, 2) and (3, 0).
    "maxp": (5.0, 2.0),
    "firstp": (5.0, -1.0),
    "combsum": (4 + 3 + 5, 2 - 1),
    "rrf": (1 / 2 + 1 / 3 + 1 / 2, 1 / 4 + 1 / 3),
    "vsum": (4 * 4 + 2 * 1, 4 * 1 + 2 * 5),
    "vavg": (2 * 4 / 3 + 1 * 1 / 3, 2 * 1 / 2 + 1 * 5 / 2),
    "vmin": (1 * 1 + 0 * 0, 1 * 0 + 0 * 1),
    "vmax": (3 * 2 + 2 * 1, 3 * 1 + 2 * 4),
    "vscores": (4 * (4 * 2 + 3 + 5) + 2 * 4, 4 * 2 + 2 * (2 - 4)),
    "vranks": (4 * (3 * 2 + 2 + 3) + 2 * 3, 4 * 1 + 2 * (1 + 2 * 4)),
    "vrrf": (4 * (2 / 2 + 1 / 3 + 1 / 2) + 2 * 1 / 2, 4 * 1 / 4 + 2 * (1 / 4 + 4 / 3)),
}


@every
def test_scores_computed_by_hand(name: str) -> None:
    hits = Hits(np.array([[1, 0, 3], [0, 2, -1]]), np.array([[4, 3, 2], [5, -1, -np.inf]], dtype=np.float32))
    matrices = [[1, 0], [2, 1], [0, 4], [1, 1]], [[1, 2], [3, 0]]
    vectors = Vectors(*(np.array(rows, dtype=np.float32) for rows in matrices))
    case = Case(hits, np.array([0, 0, 1, 1]), np.array([0, 2]), vectors)
    assert list(case.oracle(name, rrf_k=1).values()) == pytest.approx(BY_HAND[name])
    assert list(case.aggregate(name, rrf_k=1)[2]) == pytest.approx(BY_HAND[name])


@every
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_scores_do_not_depend_on_the_order(data: st.DataObject, name: str) -> None:
    """Neither the order of paragraphs or query documents nor the other query documents change a score."""
    case = data.draw(cases())
    chosen = data.draw(options(case))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    query, document, score = expected = case.aggregate(name, **chosen)
    parts = [np.arange(*ends) for ends in pairwise(case.offsets)]
    shuffled = case.rows(np.concatenate([rng.permutation(part) for part in parts]), case.offsets)
    assert_same(expected, shuffled.aggregate(name, **chosen))
    order = rng.permutation(len(parts))
    offsets = np.concatenate(([0], np.cumsum([len(parts[j]) for j in order])))
    other = case.rows(np.concatenate([parts[j] for j in order]), offsets).aggregate(name, **chosen)
    back = np.lexsort((other[1], order[other[0]]))
    assert_same(expected, (order[other[0]][back], other[1][back], other[2][back]))
    tolerance = case.tolerance(name, **chosen) * (name in BY_VECTOR)
    for j, part in enumerate(parts):
        alone = case.rows(part, np.array([0, len(part)])).aggregate(name, **chosen)
        assert alone[1].tolist() == document[query == j].tolist()
        assert (np.abs(alone[2] - score[query == j]) <= tolerance[query == j]).all()


def moved(cupy: Any, case: Case) -> Case:
    """Return the case with CuPy arrays."""
    hits = Hits(cupy.asarray(case.hits.passages), cupy.asarray(case.hits.scores))
    return replace(case, hits=hits, vectors=Vectors(*map(cupy.asarray, case.vectors)))


@every
@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_scores_on_a_device_equal_those_of_numpy(data: st.DataObject, name: str, cupy: Any) -> None:
    """Scores without vectors are bit-identical; those with vectors agree to 1e-6 of the largest."""
    case = data.draw(cases(is_sparse=False))
    chosen = data.draw(options(case))
    expected, found = case.aggregate(name, **chosen), moved(cupy, case).aggregate(name, **chosen)
    assert all(isinstance(column, cupy.ndarray) for column in found)
    query, document, score = map(to_numpy, found)
    assert_same((query, document), expected[:2])
    assert [column.dtype for column in (query, document, score)] == [column.dtype for column in expected]
    tolerance = 0.0 if name in BY_SCORE_OR_RANK else 1e-6 * np.abs(expected[2]).max(initial=1e-30)
    np.testing.assert_allclose(score, expected[2], rtol=0, atol=tolerance)


def larger() -> Case:
    """Return documents of five passages, and query documents of none to six paragraphs."""
    rng = np.random.default_rng(0)
    passages, paragraphs = (rng.normal(size=(n, 3)).astype(np.float32) for n in (30, 14))
    index = PassageIndex(passages, np.arange(0, 31, 5))
    return Case(
        index.search(paragraphs, 6), index.doc_of, np.array([0, 3, 3, 9, 10, 14]), Vectors(passages, paragraphs)
    )


@pytest.mark.parametrize("name", ["vrrf", "vmin"])
def test_passages_of_float16(name: str) -> None:
    """Scores equal those of the same values in float32."""
    case = larger()
    half = case.vectors.passages.astype(np.float16)
    found = [replace(case, vectors=case.vectors._replace(passages=p)) for p in (half, half.astype(np.float32))]
    assert_same(*(each.aggregate(name) for each in found))


@pytest.mark.parametrize("name", ["maxp", "rrf"])
def test_blocks_of_queries_with_different_documents_are_small(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block has a cell for each of its queries with each document that any of them found."""
    m, width, plain = 1500, 3, module.make_block
    passages = np.random.default_rng(0).permutation(m * width).reshape(m, width)  # no document is found twice
    scores = np.random.default_rng(1).random((m, width)).astype(np.float32)
    made: list[Any] = []
    monkeypatch.setattr(module, "_MEMORY", 1e6)
    monkeypatch.setattr(module, "make_block", lambda *args: made.append(plain(*args)) or made[-1])
    query, document, _ = aggregate(Hits(passages, scores), name, np.arange(m * width))
    assert max(8 * block.n_cells for block in made) < 1e6
    assert len(made) < 100
    np.testing.assert_array_equal(query, np.repeat(np.arange(m), width))
    np.testing.assert_array_equal(document, np.sort(passages, axis=1).ravel())


def test_hits_and_vectors_on_different_devices(cupy: Any) -> None:
    case = larger()
    on_device = moved(cupy, case)
    with pytest.raises(DeviceError, match=r"passage vectors.*cuda:0"):
        replace(case, vectors=on_device.vectors).aggregate("vsum")
    rows = replace(case, vectors=Vectors(*map(sparse.csr_matrix, case.vectors)))
    assert_same(replace(on_device, vectors=rows.vectors).aggregate("vsum"), rows.aggregate("vsum"))  # on the CPU
    copied = replace(on_device, vectors=case.vectors).aggregate("vsum")
    assert isinstance(copied[2], cupy.ndarray)
    assert_same(map(to_numpy, copied[:2]), case.aggregate("vsum")[:2])


@pytest.mark.parametrize("m", [0, 2])
@every
def test_no_hits(name: str, m: int) -> None:
    hits = Hits(np.full((m, 3), -1), np.full((m, 3), -np.inf, dtype=np.float32))
    for matrix in (np.asarray, sparse.csr_matrix):
        vectors = Vectors(matrix(np.ones((2, 1), dtype=np.float32)), matrix(np.ones((m, 1), dtype=np.float32)))
        for offsets in (None, np.array([0, 0, m])):
            found = aggregate(hits, name, np.array([0, 1]), offsets, vectors=vectors)
            assert [column.shape for column in found] == [(0,)] * 3


ONES = np.ones((3, 1), dtype=np.float32)


@pytest.mark.parametrize(
    ("name", "options", "error", "named"),
    [
        ("best", {}, UnknownNameError, f"'best'.* {', '.join(AGGREGATIONS)}"),
        ("rrf", {"occurrences": "some"}, InputError, "occurrences"),
        ("rrf", {"offsets": np.array([0, 2])}, InputError, r"offsets.* 1; found \[0, 2\]"),
        ("rrf", {"offsets": np.array([1, 0])}, InputError, "offsets"),
        *(("rrf", {"rrf_k": wrong}, InputError, "rrf_k") for wrong in (-1, np.nan, np.inf)),
        *(("maxp", {"n_hits": wrong}, InputError, "n_hits") for wrong in (0, 1.5, True)),
        ("vmin", {}, InputError, "'vmin'.*maxp, firstp, combsum, rrf"),
        ("vsum", {"vectors": Vectors(ONES[:2], ONES)}, InputError, "1 paragraph vectors.* 3"),
        ("vsum", {"vectors": Vectors(ONES, ONES[:1])}, InputError, "2 passage vectors.* 3"),
        ("vsum", {"vectors": Vectors(ONES[:2], ONES[:2].T)}, InputError, "width"),
        ("vsum", {"vectors": Vectors(ONES[:2], sparse.csr_matrix(ONES[:1]))}, InputError, "sparse"),
    ],
)
def test_invalid_arguments_are_rejected(name: str, options: dict[str, Any], error: Any, named: str) -> None:
    hits = Hits(np.array([[0, 1]]), np.ones((1, 2), dtype=np.float32))
    with pytest.raises(error, match=named):
        aggregate(hits, name, np.array([0, 1]), **options)
    with pytest.raises(InputError, match=r"hits.* 1, found 1"):
        aggregate(hits, "rrf", np.array([0]))
