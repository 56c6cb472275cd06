"""PARM's aggregations as the paper writes them: one hit at a time, plain numbers, dictionaries and loops.

Althammer et al., "PARM: A Paragraph Aggregation Retrieval Model for Dense Document-to-Document Retrieval",
ECIR 2022, section 3. A query document has paragraphs i with vectors q_i; r_i is the list of the first N hits of
paragraph i; a hit (i, p) is a passage p of r_i, with its score and its rank from 1. ``found`` is everything that the
lists of hits say of a document d: the hits of all r_i on passages of d.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from scipy import sparse

BY_SCORE_OR_RANK = ("maxp", "firstp", "combsum", "rrf")
BY_VECTOR = ("vsum", "vavg", "vmin", "vmax", "vscores", "vranks", "vrrf")
NAMES = (*BY_SCORE_OR_RANK, *BY_VECTOR)


class Hit(NamedTuple):
    passage: int
    score: float
    rank: int  # from 1


def oracle(name, hits, doc_of, offsets, vectors=None, *, rrf_k=60.0, n_hits=None):
    """{(query, document): score} of every document with a hit that counts; parameters as those of ``aggregate``."""
    n = hits.passages.shape[1] if n_hits is None else n_hits
    scores = {}
    for query in range(len(offsets) - 1):
        paragraphs = range(offsets[query], offsets[query + 1])
        found: dict[int, list[Hit]] = defaultdict(list)
        for i in paragraphs:
            for hit in counting(hit_list(hits, i, n), name, doc_of):
                found[int(doc_of[hit.passage])].append(hit)
        for document, evidence in found.items():
            if name in BY_SCORE_OR_RANK:
                score = SCORES[name](evidence, rrf_k)
            else:
                queries = [row(vectors.paragraphs, i) for i in paragraphs]
                passages = [row(vectors.passages, hit.passage) for hit in evidence]
                if name in WORTH:
                    worth = [WORTH[name](hit, rrf_k, n) for hit in evidence]
                    passages = [[w * value for value in p] for w, p in zip(worth, passages, strict=True)]
                over = ELEMENTWISE.get(name, sum)
                values = zip(zip(*queries, strict=True), zip(*passages, strict=True), strict=True)
                score = sum(over(q) * over(p) for q, p in values)
            scores[query, document] = score
    return scores


def hit_list(hits, paragraph: int, n: int) -> list[Hit]:
    """r_i: the first n hits of a paragraph; -1 is no hit."""
    columns = zip(hits.passages[paragraph].tolist(), hits.scores[paragraph].tolist(), strict=True)
    return [Hit(p, s, rank) for rank, (p, s) in enumerate(columns, start=1) if p >= 0 and rank <= n]


def counting(found: list[Hit], name: str, doc_of) -> list[Hit]:
    """The hits of a list that count: for firstp those on first passages."""
    if name == "firstp":
        found = [hit for hit in found if hit.passage == 0 or doc_of[hit.passage - 1] != doc_of[hit.passage]]
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
ELEMENTWISE = {"vavg": lambda values: sum(values) / len(values), "vmin": min, "vmax": max}  # of others, the sum
WORTH = {
    "vscores": lambda hit, k, n: hit.score,
    "vranks": lambda hit, k, n: n + 1 - hit.rank,
    "vrrf": lambda hit, k, n: 1 / (k + hit.rank),
}
