"""Choose the passages that show why a document was found, and what to highlight in them.

A passage is scored by the shares of the document's score that come from it, and by the terms that carried the score,
weighted by BM25 within the document. So a ranker of passages shows the passage that it matched, and a ranker of whole
documents the passage with most of the terms that few other passages of the document have. On judged passages of
obliqa-mp (dev), this chose better than the terms' shares in the document, which favour frequent terms.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np

from haybale.analysis import Analyzer
from haybale.collections.collection import Ints, ragged_take, take_strings
from haybale.engine import Engine
from haybale.search.evidence import Evidence, evidence_of
from haybale.search.explanation import Explanation
from haybale.search.highlights import nearest_sentences, term_highlights
from haybale.search.phrases import Phrases
from haybale.search.query_batch import QueryBatch
from haybale.search.snippets import Snippet, snippet_of
from haybale.vectors import Floats

N_SNIPPETS = 2
_K1, _B = 1.2, 0.75  # as in BM25

Weights = dict[Analyzer, defaultdict[str, float]]  # of terms


class _Passage(NamedTuple):
    """A passage that is shown."""

    number: int
    weights: Weights  # of the terms that found its document
    encoder: Any  # the encoder whose vectors carried more of the score than terms; None for terms


def best_snippets(
    batch: QueryBatch, documents: Sequence[int], reasons: Sequence[Explanation], phrases: Phrases | None = None
) -> list[list[Snippet]]:
    """Return the best passages of each document for the one query of a batch, at most two each.

    Parameters
    ----------
    batch : QueryBatch
    documents : (n,) sequence of int
        Document numbers in the batch's engine.
    reasons : (n,) sequence of Explanation
        The explanation of each document's score.
    phrases : Phrases, optional
        Phrases of the query. A passage with one comes before the others.
    """
    collection = batch.engine.collection
    query_terms: dict[int, dict[str, float]] = {}  # the query's terms with their weights, by the id of the matcher
    evidence = [_with_query_terms(batch, list(evidence_of(reason)), query_terms) for reason in reasons]
    rows, offsets = ragged_take(collection.passages.doc_offsets, np.asarray(documents, dtype=np.int64))
    texts = take_strings(collection.passages.texts, rows)
    counts = _counts(batch.engine, rows, offsets, texts, evidence)
    best: list[list[_Passage]] = []
    for start, end, document_evidence in zip(offsets[:-1], offsets[1:], evidence, strict=True):
        ids = take_strings(collection.passages.ids, rows[start:end])
        document_counts = {analyzer: passage_counts[start:end] for analyzer, passage_counts in counts.items()}
        best.append(_choose(rows[start:end], ids, texts[start:end], document_evidence, document_counts, phrases))
    flat = [passage for passages in best for passage in passages]
    spans = iter(_highlights(batch, flat, phrases))
    return [[snippet_of(collection, passage.number, next(spans)) for passage in passages] for passages in best]


def _with_query_terms(
    batch: QueryBatch, evidence: list[Evidence], query_terms: dict[int, dict[str, float]]
) -> list[Evidence]:
    """Return the evidence of a document, which gets the query's terms where a matcher of terms has reported none.

    Without any evidence, return the query's terms. ``query_terms`` caches them by the id of the matcher.
    """
    evidence = evidence or [Evidence(batch.engine.analyzer)]
    for ranker_evidence in evidence:
        if ranker_evidence.analyzer is not None and not ranker_evidence.terms:
            matcher_id = id(ranker_evidence.matcher)
            if matcher_id not in query_terms:
                query_terms[matcher_id] = ranker_evidence.query_terms(batch)
            weights, shares = query_terms[matcher_id], ranker_evidence.passages
            scale = sum(shares.values()) / (sum(weights.values()) or 1) if shares else 1.0
            ranker_evidence.terms.update({term: scale * weight for term, weight in weights.items()})
    return evidence


def _counts(
    engine: Engine, rows: Ints, offsets: Ints, texts: list[str], evidence: list[list[Evidence]]
) -> dict[Analyzer, list[Counter[str]]]:
    """Return, by analyzer, how often each text has each term of the evidence.

    ``rows`` are the passage numbers of the texts, the consecutive passages of some documents, which begin at
    ``offsets``. If the BM25 index of passages is open and has the terms of the analyzer, the counts are read from it.
    """
    terms_by_analyzer: dict[Analyzer, set[str]] = {}
    for ranker_evidence in chain.from_iterable(evidence):
        if ranker_evidence.analyzer is not None:
            terms_by_analyzer.setdefault(ranker_evidence.analyzer, set()).update(ranker_evidence.terms)
    index = engine.bm25("passage") if "bm25-passage" in engine.made else None
    counts_by_analyzer = {}
    for analyzer, terms in terms_by_analyzer.items():
        if index is not None and index.analyzer == analyzer:
            parts = [rows[start:end] for start, end in pairwise(offsets.tolist()) if start < end]
            counts_by_analyzer[analyzer] = [
                counts for part in parts for counts in index.term_counts(terms, int(part[0]), int(part[-1]) + 1)
            ]
            continue
        names = sorted(terms)
        numbered = analyzer.numbered(texts, {term: number for number, term in enumerate(names)})
        counts_by_analyzer[analyzer] = [Counter(names[number] for number in numbers) for numbers in numbered]
    return counts_by_analyzer


def _choose(
    numbers: Ints,
    ids: list[str],
    texts: list[str],
    evidence: list[Evidence],
    counts: Mapping[Analyzer, list[Counter[str]]],
    phrases: Phrases | None,
) -> list[_Passage]:
    """Return the best passages of one document, the best first."""
    by_terms, covered, by_vectors = np.zeros(len(ids)), np.zeros(len(ids)), dict[int, tuple[Any, Floats]]()
    weights: Weights = {}
    for ranker_evidence in evidence:
        matcher, terms = ranker_evidence.matcher, ranker_evidence.terms
        shares = np.array([ranker_evidence.passages.get(passage_id, 0.0) for passage_id in ids])
        if ranker_evidence.analyzer is None:
            encoder, encoder_shares = by_vectors.get(id(matcher), (matcher, np.zeros(len(ids))))
            by_vectors[id(matcher)] = encoder, encoder_shares + shares
        else:
            text_counts = counts[ranker_evidence.analyzer]
            by_terms += shares + _by_terms(texts, terms, text_counts)
            covered += shares + [sum(terms.get(term, 0.0) for term in term_counts) for term_counts in text_counts]
            of_terms = weights.setdefault(ranker_evidence.analyzer, defaultdict(float))
            for term, weight in terms.items():
                of_terms[term] += weight
    score = by_terms + sum((values for _, values in by_vectors.values()), np.zeros(len(ids)))
    has_phrase = np.zeros(len(ids), dtype=bool) if phrases is None else np.isin(numbers, phrases.passages)
    order = np.lexsort((np.arange(len(ids)), -score, ~has_phrase))[:N_SNIPPETS].tolist()
    chosen = []
    for row in [*order[:1], *(row for row in order[1:] if score[row] > 0)]:
        none = None, np.zeros(len(ids))
        encoder, most = max(by_vectors.values(), key=lambda encoder_shares: encoder_shares[1][row], default=none)
        nearer = most[row] > covered[row] and not has_phrase[row]
        chosen.append(_Passage(int(numbers[row]), weights, encoder if nearer else None))
    return chosen


def _by_terms(texts: list[str], weights: Mapping[str, float], counts: list[Counter[str]]) -> Floats:
    """Return the score of each text by BM25 over these texts, so that the terms of few of them count more.

    It is scaled to at most the sum of the weights; only which terms have a positive weight matters otherwise.
    """
    n, frequencies = len(texts), Counter(chain.from_iterable(counts))
    terms = [term for term, weight in weights.items() if weight > 0]
    idf = {term: math.log(1 + (n - frequencies[term] + 0.5) / (frequencies[term] + 0.5)) for term in terms}
    scale = sum(weights[term] for term in terms) / (sum(idf.values()) or 1)
    lengths = np.array([len(text) for text in texts], dtype=np.float64)
    norms = _K1 * (1 - _B + _B * lengths / (lengths.mean() or 1))
    sums = [
        scale * sum(idf[term] * times / (times + norm) for term, times in term_counts.items() if term in idf)
        for term_counts, norm in zip(counts, norms.tolist(), strict=True)
    ]
    return np.array(sums, dtype=np.float64)


def _highlights(batch: QueryBatch, passages: list[_Passage], phrases: Phrases | None) -> list[list[tuple[int, int]]]:
    """Return the highlights of passages that are shown: the terms, or the sentence that is nearest to the query."""
    numbers = np.array([passage.number for passage in passages], dtype=int)
    texts = take_strings(batch.engine.collection.passages.texts, numbers)
    rows = [row for row, passage in enumerate(passages) if passage.encoder is None]
    terms = term_highlights([texts[row] for row in rows], [passages[row].weights for row in rows], phrases)
    highlights: list[list[tuple[int, int]]] = [[] for _ in passages]
    for row, spans in zip(rows, terms, strict=True):
        highlights[row] = spans
    for encoder in {
        id(passage.encoder): passage.encoder for passage in passages if passage.encoder is not None
    }.values():
        rows = [row for row, passage in enumerate(passages) if passage.encoder is encoder]
        nearest = nearest_sentences(encoder, batch.paragraphs[0], [texts[row] for row in rows])
        for row, span in zip(rows, nearest, strict=True):
            highlights[row] = [] if span is None else [span]
    return highlights
