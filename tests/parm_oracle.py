"""PARM's aggregations as the paper writes them: one hit at a time, plain numbers, dictionaries and loops.

Althammer et al., "PARM: A Paragraph Aggregation Retrieval Model for Dense Document-to-Document Retrieval",
ECIR 2022, section 3. A query document has paragraphs i with vectors q_i; r_i is the list of the first N hits of
paragraph i; a hit (i, p) is a passage p of r_i, with its score and its rank from 1. Everything that the list of
hits says of a document d is ``found``: the hits of all r_i on passages of d.

A paragraph of weight w counts as if it stood in the query document w times, one of weight 0 as if it did not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from scipy import sparse

Vector = list[float]
BY_SCORE_OR_RANK = ("maxp", "firstp", "combsum", "rrf")
BY_VECTOR = ("vsum", "vavg", "vmin", "vmax", "vscores", "vranks", "vrrf")
NAMES = (*BY_SCORE_OR_RANK, *BY_VECTOR)


@dataclass(frozen=True)
class Hit:
    """A passage in the list of a paragraph."""

    passage: int
    score: float
    rank: int  # from 1
    weight: float  # of the paragraph


@dataclass(frozen=True)
class Settings:
    rrf_k: float
    n: int  # N


def oracle(
    name,
    hits,
    doc_of,
    offsets,
    vectors=None,
    *,
    weights=None,
    rrf_k=60.0,
    n_hits=None,
    occurrences="all",
) -> dict[tuple[int, int], float]:
    """{(query, document): score} of every document with a hit that counts.

    The parameters are those of ``aggregate``.
    """
    settings = Settings(rrf_k, hits.passages.shape[1] if n_hits is None else n_hits)
    scores = {}
    for query in range(len(offsets) - 1):
        paragraphs = {
            i: 1.0 if weights is None else float(weights[i]) for i in range(offsets[query], offsets[query + 1])
        }
        paragraphs = {i: weight for i, weight in paragraphs.items() if weight > 0}
        found: dict[int, list[Hit]] = defaultdict(list)
        for i, weight in paragraphs.items():
            for hit in counting(hit_list(hits, i, settings.n, weight), name, doc_of, occurrences):
                found[int(doc_of[hit.passage])].append(hit)
        for document, evidence in found.items():
            if name in BY_SCORE_OR_RANK:
                score = SCORES[name](evidence, settings)
            else:
                score = vector_score(name, paragraphs, evidence, vectors, settings)
            scores[query, document] = score
    return scores


def hit_list(hits, paragraph: int, n: int, weight: float) -> list[Hit]:
    """r_i: the first n hits of a paragraph; -1 is no hit."""
    columns = [(int(p), float(s)) for p, s in zip(hits.passages[paragraph], hits.scores[paragraph], strict=True)]
    real = [(rank, p, s) for rank, (p, s) in enumerate(columns, start=1) if p >= 0 and rank <= n]
    return [Hit(passage, score, rank, weight) for rank, passage, score in real]


def counting(found: list[Hit], name: str, doc_of, occurrences: str) -> list[Hit]:
    """The hits of a list that count: for firstp those on first passages; for "best" each document's best-ranked."""
    if name == "firstp":
        found = [hit for hit in found if hit.passage == 0 or doc_of[hit.passage - 1] != doc_of[hit.passage]]
    if occurrences == "best":
        best: dict[int, Hit] = {}
        for hit in found:  # by rank
            best.setdefault(int(doc_of[hit.passage]), hit)
        found = list(best.values())
    return found


# By score or rank ----------------------------------------------------------------------------------------


def best_score(found: list[Hit], settings: Settings) -> float:
    """max over the hits of score_i(p)."""
    return max(hit.score for hit in found)


def sum_of_scores(found: list[Hit], settings: Settings) -> float:
    """Σ over the hits of score_i(p)."""
    return sum(hit.weight * hit.score for hit in found)


def sum_of_reciprocal_ranks(found: list[Hit], settings: Settings) -> float:
    """Σ over the hits of 1 / (k + rank_i(p))."""
    return sum(hit.weight * reciprocal_rank(hit, settings) for hit in found)


def reciprocal_rank(hit: Hit, settings: Settings) -> float:
    return 1 / (settings.rrf_k + hit.rank)


SCORES: dict[str, Callable[[list[Hit], Settings], float]] = {
    "maxp": best_score,
    "firstp": best_score,
    "combsum": sum_of_scores,
    "rrf": sum_of_reciprocal_ranks,
}


# By vector -----------------------------------------------------------------------------------------------


def vector_score(name: str, paragraphs: dict[int, float], found: list[Hit], vectors, settings: Settings) -> float:
    """⟨q̂, d̂⟩: an aggregate of the paragraphs' vectors, and one of the passages' vectors, hit by hit."""
    queries = [(weight, row(vectors.paragraphs, i)) for i, weight in paragraphs.items()]
    passages = [(hit.weight, row(vectors.passages, hit.passage)) for hit in found]
    if name in ELEMENTWISE:
        q_hat, d_hat = ELEMENTWISE[name](queries), ELEMENTWISE[name](passages)
    else:
        q_hat = summed(queries)
        d_hat = summed([(w * WORTH[name](hit, settings), p) for hit, (w, p) in zip(found, passages, strict=True)])
    return sum(q * d for q, d in zip(q_hat, d_hat, strict=True))


def row(matrix, number: int) -> Vector:
    dense = matrix[[number]].toarray()[0] if sparse.issparse(matrix) else matrix[number]
    return [float(value) for value in dense]


def summed(weighted: list[tuple[float, Vector]]) -> Vector:
    return [sum(w * vector[t] for w, vector in weighted) for t in range(len(weighted[0][1]))]


def averaged(weighted: list[tuple[float, Vector]]) -> Vector:
    return [value / sum(w for w, _ in weighted) for value in summed(weighted)]


def smallest(weighted: list[tuple[float, Vector]]) -> Vector:
    return [min(vector[t] for _, vector in weighted) for t in range(len(weighted[0][1]))]


def largest(weighted: list[tuple[float, Vector]]) -> Vector:
    return [max(vector[t] for _, vector in weighted) for t in range(len(weighted[0][1]))]


ELEMENTWISE: dict[str, Callable[[list[tuple[float, Vector]]], Vector]] = {
    "vsum": summed,
    "vavg": averaged,
    "vmin": smallest,
    "vmax": largest,
}


def rank_from_behind(hit: Hit, settings: Settings) -> float:
    """N + 1 - rank_i(p)."""
    return settings.n + 1 - hit.rank


WORTH: dict[str, Callable[[Hit, Settings], float]] = {
    "vscores": lambda hit, settings: hit.score,
    "vranks": rank_from_behind,
    "vrrf": reciprocal_rank,
}
