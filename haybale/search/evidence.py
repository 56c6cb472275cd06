"""The terms and passages that carried a document's score, read from its explanation, with what matched them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from haybale.analysis import Analyzer
from haybale.embeddings import TfidfEncoder
from haybale.search.explanation import Explanation
from haybale.search.query_batch import QueryBatch


@dataclass(frozen=True)
class Evidence:
    """The terms and passages through which one ranker, nested or not, contributes to a document's score.

    A weight is a fraction of the score. Over all evidence for a document, the weights of terms sum to at most 1, and so
    do those of passages.
    """

    matcher: Any  # the analyzer of the terms, or the encoder of the vectors
    terms: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    passages: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))  # by passage id

    @property
    def analyzer(self) -> Analyzer | None:
        """The analyzer of the terms that were matched; None for vectors without terms."""
        if isinstance(self.matcher, Analyzer):
            return self.matcher
        return self.matcher.analyzer_ if isinstance(self.matcher, TfidfEncoder) else None

    def query_terms(self, batch: QueryBatch) -> dict[str, float]:
        """Return the terms of a batch's only query with their weights: those of TF-IDF, else equal ones."""
        if self.analyzer is None:
            return {}
        terms = dict.fromkeys(self.analyzer.terms(batch.texts[0]), 1.0)
        if not isinstance(self.matcher, TfidfEncoder):
            return terms
        row: Any = batch.vectors if self.matcher is batch.engine.encoder else self.matcher.encode(batch.texts)
        weights, numbers = dict(zip(row.indices.tolist(), row.data.tolist(), strict=True)), self.matcher.vocabulary_
        return {term: weights.get(numbers[term], 0.0) for term in terms if term in numbers}


def evidence_of(explanation: Explanation, weight: float = 1.0) -> Iterator[Evidence]:
    """Yield the evidence in an explanation and in those of nested rankers.

    The weight of a nested ranker is its fraction of the sum of the positive shares, or, if no share is positive, of the
    sum of absolute shares. Shares without a term or a passage, such as those of training queries, are added to the
    passage whose score the document has.
    """
    sizes = [max(share.share, 0.0) for share in explanation.shares]
    if not any(sizes):
        sizes = [abs(share.share) for share in explanation.shares]
    total, evidence, rest = sum(sizes), Evidence(explanation.matcher), 0.0
    for share, size in zip(explanation.shares, sizes, strict=True):
        part = weight * size / total if total else 0.0
        if share.of is not None:
            if part and share.of.doc_id == explanation.doc_id:  # a linked document says nothing about this one's text
                yield from evidence_of(share.of, part)
        elif share.passage_id is not None:
            evidence.passages[share.passage_id] += part
        else:
            rest += part
            if share.term is not None:
                evidence.terms[share.term] += part
    if rest and explanation.passage_id is not None:
        evidence.passages[explanation.passage_id] += rest
    if evidence.matcher is not None and (evidence.terms or evidence.passages):
        yield evidence
