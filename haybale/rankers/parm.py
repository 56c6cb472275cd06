"""PARM as a ranker: each paragraph of a query retrieves passages, which are aggregated to documents."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from haybale.device import device_of
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.parameters import BM25_RANGES, COUNT, NOT_NEGATIVE, one_of
from haybale.ranking.ranker import Ranker
from haybale.retrieval import AGGREGATIONS, AnyBM25, AnyPassageIndex, ParagraphHits, ParagraphSearch, Run
from haybale.search.explanation import Explanation, Share, by_size, device_notes
from haybale.search.query_batch import QueryBatch

# The pairs of a paragraph and a passage that an explanation lists; with more, it lists one sum for each passage.
MAX_PAIRS = 10_000


@dataclass(eq=False, repr=False)
class PARM(Ranker):
    """Rank documents by the passages that each paragraph of the query retrieves.

    Althammer et al., "PARM: A Paragraph Aggregation Retrieval Model for Dense Document-to-Document Retrieval",
    ECIR 2022.

    Parameters
    ----------
    aggregation : str, default "vrrf"
        One of :data:`~haybale.retrieval.AGGREGATIONS`.
    over : {"vectors", "bm25"}, default "vectors"
        The index that paragraphs search: the engine's passage vectors, or BM25 for aggregations without vectors.
    n_hits : int, default 1000
        Passages retrieved for each paragraph (N).
    rrf_k : float, default 60
        Constant added to ranks in RRF and VRRF.
    occurrences : {"all", "best"}, default "all"
        Whether all hits of a document in a paragraph's list count, or only the best.
    k1, b, k3 : float, default 1.2, 0.75 and None
        Parameters of :class:`BM25` for ``over="bm25"``.
    """

    name = "parm"
    obeys_cutoffs = True
    variants: ClassVar = {
        **{f"parm-{name}": {"aggregation": name} for name in AGGREGATIONS},
        **{
            f"bm25-parm-{name}": {"aggregation": name, "over": "bm25"}
            for name, aggregation in AGGREGATIONS.items()
            if aggregation.vectors is None
        },
    }
    _parameter_constraints: ClassVar = {
        "aggregation": one_of(AGGREGATIONS),
        "over": one_of(["vectors", "bm25"]),
        "n_hits": COUNT,
        "rrf_k": NOT_NEGATIVE,
        "occurrences": one_of(["all", "best"]),
        **BM25_RANGES,
    }

    aggregation: str = "vrrf"
    _: KW_ONLY
    over: str = "vectors"
    n_hits: int = 1000
    rrf_k: float = 60
    occurrences: str = "all"
    k1: float = 1.2
    b: float = 0.75
    k3: float | None = None

    def _check_params(self) -> None:
        """Check parameters as every ranker does, and refuse aggregations of vectors over BM25."""
        super()._check_params()
        if self.over == "bm25" and AGGREGATIONS[self.aggregation].vectors is not None:
            without = ", ".join(name for name, aggregation in AGGREGATIONS.items() if aggregation.vectors is None)
            raise InputError(f"{self.aggregation!r} needs vectors, which BM25 lacks; choose one of {without}")

    def _answers_to(self, name: str, parameter: str) -> bool:
        """Return whether ``--set name.parameter`` means this ranker: ``bm25.k1`` does if it searches BM25."""
        return name == "bm25" and self.over == "bm25" and parameter in BM25_RANGES

    @property
    def uses_vectors(self) -> bool:
        """Whether the paragraphs search vectors."""
        return self.over == "vectors"

    def _index(self, engine: Engine) -> AnyPassageIndex | AnyBM25:
        return engine.passages if self.over == "vectors" else engine.bm25("passage", self.k1, self.b, self.k3)

    def _search(self, engine: Engine, depth: int) -> ParagraphSearch:
        settings: dict[str, Any] = {"n_hits": self.n_hits, "rrf_k": self.rrf_k, "occurrences": self.occurrences}
        return ParagraphSearch(self._index(engine), self.aggregation, k=depth, **settings)

    def _hits(self, batch: QueryBatch) -> ParagraphHits:
        return batch.paragraph_hits(self._index(batch.engine), self.n_hits)

    def rank_batch(self, batch: QueryBatch, depth: int) -> Run:
        search, paragraph_hits = self._search(batch.engine, depth), self._hits(batch)
        with batch.timed(f"aggregate {self}", device_of(paragraph_hits.hits.passages)):
            return search.aggregate(batch.ids, paragraph_hits)

    def explain_document(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        search, paragraph_hits = self._search(batch.engine, 1), self._hits(batch)
        scored = batch.once(("scored", self._cache_key()), lambda: search.score(paragraph_hits))
        settings: dict[str, Any] = {"passage_texts": batch.engine.collection.passages.texts, "scored": scored}
        detail = search.explain(batch.paragraphs[0], base.doc_id, found=paragraph_hits, **settings)
        texts, notes = detail.passage_texts or [], base.notes
        rows, columns = np.nonzero(detail.share)
        if len(rows) <= MAX_PAIRS:
            pairs = zip(rows.tolist(), columns.tolist(), detail.share[rows, columns].tolist(), strict=True)
            shares = [
                Share(f"paragraph {detail.labels[row]} → passage {passage}", share, texts[at], passage_id=passage)
                for row, at, share in pairs
                for passage in [detail.passage_ids[at]]
            ]
        else:
            sums, counts = detail.share.sum(axis=0), np.bincount(columns, minlength=detail.share.shape[1])
            shares = [
                Share(f"{counts[at]:,} paragraphs → passage {passage}", float(sums[at]), texts[at], passage_id=passage)
                for at, passage in enumerate(detail.passage_ids)
                if counts[at]
            ]
            notes = [*notes, f"{len(rows):,} pairs of paragraphs and passages, added up for each passage"]
        index, notes = search.index, [*notes, *device_notes(device_of(paragraph_hits.hits.passages))]
        matcher = index.analyzer if isinstance(index, AnyBM25) else base.matcher
        return replace(base, shares=by_size(shares), detail=detail, matcher=matcher, notes=notes)
