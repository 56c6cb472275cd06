"""Choose the passages that show why a document was found, and what to highlight in them.

A passage counts its own shares of the score, and the terms that carried the score, by BM25 within the document. So for
a ranker of passages it is the one that was matched, and for a ranker of whole documents the one with most of the terms
that set passages of this document apart. On judged passages of obliqa-mp (dev), this chose better than the terms'
shares in the document, which favour frequent terms.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from haybale.analysis import Analyzer
from haybale.collections.collection import Ints, ragged_take, take_strings
from haybale.engine import Engine
from haybale.rankers.explanation import Explanation
from haybale.rankers.query_batch import QueryBatch
from haybale.search.evidence import Evidence, evidence_of
from haybale.search.highlights import nearest_sentences, term_highlights
from haybale.search.phrases import Phrases
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
    known: dict[int, dict[str, float]] = {}  # the query's terms, by the matcher
    evidence = [_with_query_terms(batch, list(evidence_of(reason)), known) for reason in reasons]
    rows, offsets = ragged_take(collection.passages.doc_offsets, np.asarray(documents, dtype=np.int64))
    texts = take_strings(collection.passages.texts, rows)
    counts = _counts(batch.engine, rows, offsets, texts, evidence)
    chosen: list[list[_Passage]] = []
    for start, end, each in zip(offsets[:-1], offsets[1:], evidence, strict=True):
        ids = take_strings(collection.passages.ids, rows[start:end])
        part = {analyzer: found[start:end] for analyzer, found in counts.items()}
        chosen.append(_choose(rows[start:end], ids, texts[start:end], each, part, phrases))
    flat = [passage for passages in chosen for passage in passages]
    spans = iter(_highlights(batch, flat, phrases))
    return [[snippet_of(collection, each.number, next(spans)) for each in passages] for passages in chosen]


def _with_query_terms(
    batch: QueryBatch, evidence: list[Evidence], known: dict[int, dict[str, float]]
) -> list[Evidence]:
    """Return the evidence with terms wherever these were matched; without any evidence, the query's terms."""
    for each in evidence:
        if each.analyzer is not None and not each.terms:
            if id(each.matcher) not in known:
                known[id(each.matcher)] = each.query_terms(batch)
            weights, total = known[id(each.matcher)], sum(each.passages.values())
            scale = total / (sum(weights.values()) or 1)
            each.terms.update({term: scale * weight for term, weight in weights.items()})
    if evidence and any(each.terms or each.passages for each in evidence):
        return evidence
    terms = Evidence(batch.engine.analyzer)
    terms.terms.update(terms.query_terms(batch))
    return [terms]


def _counts(
    engine: Engine, rows: Ints, offsets: Ints, texts: list[str], evidence: list[list[Evidence]]
) -> dict[Analyzer, list[Counter[str]]]:
    """Return, by analyzer, how often each text has each term of the evidence.

    ``rows`` are the numbers of the texts, the consecutive passages of some documents, which begin at ``offsets``. If
    the BM25 index of passages is open and has the terms of the analyzer, it knows the counts.
    """
    wanted: dict[Analyzer, set[str]] = {}
    for each in (one for several in evidence for one in several):
        if each.analyzer is not None:
            wanted.setdefault(each.analyzer, set()).update(each.terms)
    index = engine.bm25("passage") if "bm25-passage" in engine.made else None
    found = {}
    for analyzer, terms in wanted.items():
        if index is not None and index.analyzer == analyzer:
            parts = [rows[start:end] for start, end in pairwise(offsets.tolist()) if start < end]
            found[analyzer] = [
                counts for part in parts for counts in index.term_counts(terms, int(part[0]), int(part[-1]) + 1)
            ]
            continue
        names = sorted(terms)
        numbered = analyzer.numbered(texts, {term: number for number, term in enumerate(names)})
        found[analyzer] = [Counter(names[number] for number in numbers) for numbers in numbered]
    return found


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
    for each in evidence:
        own = np.array([each.passages.get(name, 0.0) for name in ids])
        if each.analyzer is None:
            encoder, known = by_vectors.get(id(each.matcher), (each.matcher, np.zeros(len(ids))))
            by_vectors[id(each.matcher)] = encoder, known + own
        else:
            found = counts[each.analyzer]
            by_terms += own + _by_terms(texts, each.terms, found)
            covered += own + [sum(each.terms.get(term, 0.0) for term in terms) for terms in found]
            of_terms = weights.setdefault(each.analyzer, defaultdict(float))
            for term, weight in each.terms.items():
                of_terms[term] += weight
    score = by_terms + sum((values for _, values in by_vectors.values()), np.zeros(len(ids)))
    has_phrase = np.zeros(len(ids), dtype=bool) if phrases is None else np.isin(numbers, phrases.passages)
    order = np.lexsort((np.arange(len(ids)), -score, ~has_phrase))[:N_SNIPPETS].tolist()
    chosen = []
    for place in [*order[:1], *(at for at in order[1:] if score[at] > 0)]:
        encoder, most = max(by_vectors.values(), key=lambda each: each[1][place], default=(None, np.zeros(len(ids))))
        nearer = most[place] > covered[place] and not has_phrase[place]
        chosen.append(_Passage(int(numbers[place]), weights, encoder if nearer else None))
    return chosen


def _by_terms(texts: list[str], weights: Mapping[str, float], counts: list[Counter[str]]) -> Floats:
    """Return the score of each text by BM25 over these texts, so that the terms of few of them count more.

    It is scaled to at most the sum of the weights; only which terms have a positive weight matters otherwise.
    """
    n, frequencies = len(texts), Counter(term for each in counts for term in each)
    terms = [term for term, weight in weights.items() if weight > 0]
    idf = {term: math.log(1 + (n - frequencies[term] + 0.5) / (frequencies[term] + 0.5)) for term in terms}
    scale = sum(weights[term] for term in terms) / (sum(idf.values()) or 1)
    lengths = np.array([len(text) for text in texts], dtype=np.float64)
    norms = _K1 * (1 - _B + _B * lengths / (lengths.mean() or 1))
    sums = [
        scale * sum(idf[term] * times / (times + norm) for term, times in each.items() if term in idf)
        for each, norm in zip(counts, norms.tolist(), strict=True)
    ]
    return np.array(sums, dtype=np.float64)


def _highlights(batch: QueryBatch, passages: list[_Passage], phrases: Phrases | None) -> list[list[tuple[int, int]]]:
    """Return the highlights of passages that are shown: the terms, or the sentence that is nearest to the query."""
    texts = take_strings(
        batch.engine.collection.passages.texts, np.array([each.number for each in passages], dtype=int)
    )
    of_phrases = {} if phrases is None else {phrases.analyzer: phrases.terms}
    with_terms = [place for place, each in enumerate(passages) if each.encoder is None]
    terms = term_highlights([texts[i] for i in with_terms], [passages[i].weights for i in with_terms], of_phrases)
    found: list[list[tuple[int, int]]] = [[] for _ in passages]
    for place, spans in zip(with_terms, terms, strict=True):
        found[place] = spans
    for encoder in {id(each.encoder): each.encoder for each in passages if each.encoder is not None}.values():
        at = [place for place, each in enumerate(passages) if each.encoder is encoder]
        for place, span in zip(
            at, nearest_sentences(encoder, batch.paragraphs[0], [texts[i] for i in at]), strict=True
        ):
            found[place] = [] if span is None else [span]
    return found
