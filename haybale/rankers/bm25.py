"""BM25 as a ranker: over passages, of which a document's best counts, or over whole documents."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar

import numpy as np

from haybale.engine import Engine
from haybale.parameters import BM25_RANGES, one_of
from haybale.rankers.explanation import Explanation, Share, by_size
from haybale.rankers.query_batch import QueryBatch
from haybale.rankers.ranker import Ranker
from haybale.retrieval import BM25Index, Hits, Run


@dataclass(eq=False, repr=False)
class BM25(Ranker):
    """Lucene's BM25, exact over the whole collection.

    Kamphuis et al., "Which BM25 Do You Mean?", ECIR 2020.

    Parameters
    ----------
    unit : {"passage", "document"}, default "passage"
        Documents rank by their best passage, or each as a whole.
    k1 : float, default 1.2
        How soon more of a term stops to matter, from 0 on.
    b : float, default 0.75
        How much length counts, 0 to 1.
    k3 : float, optional
        How soon more of a term in the query stops to matter: t times count (k3 + 1) · t / (k3 + t), with 0 once;
        default: as often as it occurs, as in Lucene.
    """

    name = "bm25"
    variants: ClassVar = {"bm25": {}, "bm25-doc": {"unit": "document"}}
    _parameter_constraints: ClassVar = {"unit": one_of(["passage", "document"]), **BM25_RANGES}

    unit: str = "passage"
    _: KW_ONLY
    k1: float = 1.2
    b: float = 0.75
    k3: float | None = None

    @property
    def uses_vectors(self) -> bool:
        """It counts words."""
        return False

    def passage_hits(self, batch: QueryBatch, k: int) -> Hits:
        """The k best passages of each query."""
        index = bm25_with_parameters(batch.engine, "passage", self.k1, self.b, self.k3)
        return index.search(batch.texts, min(k, len(index)), exclude=batch.own)

    def rank_batch(self, batch: QueryBatch, depth: int) -> Run:
        index, texts = bm25_with_parameters(batch.engine, self.unit, self.k1, self.b, self.k3), batch.texts
        with batch.timed(f"search BM25 ({self.unit}s)"):
            rows, documents, scores = index.documents(texts, depth, exclude=batch.own)
            return Run.from_numbers(batch.ids, batch.engine.collection.doc_ids, rows, documents, scores, depth)

    def explain_document(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        index, text = bm25_with_parameters(batch.engine, self.unit, self.k1, self.b, self.k3), batch.texts[0]
        within = index.similarities([text], document)[0]
        passage = int(index.doc_offsets[document]) + int(np.argmax(within))
        shares = [Share(f"term {term}", share) for term, share in index.term_shares(text, passage).items()]
        notes = [] if self.unit == "document" else [passage_note(batch.engine, passage)]
        return replace(base, shares=by_size(shares), notes=notes)


def bm25_with_parameters(engine: Engine, unit: str, k1: float, b: float, k3: float | None) -> BM25Index:
    """The engine's BM25 index with other parameters; those that differ in ``k3`` alone share its weights."""
    name, index = f"bm25-{unit}", engine.bm25(unit)
    if (k1, b) != (index.k1, index.b):
        index = engine.cached((name, k1, b), lambda: index.with_parameters(k1, b))
    return index if k3 is None else engine.cached((name, k1, b, k3), lambda: index.with_parameters(k1, b, k3))


def passage_note(engine: Engine, passage: int) -> str:
    """Which passage a score rests on, with its beginning."""
    passages = engine.collection.passages
    text = " ".join(passages.texts[passage].as_py().split())
    return f"by its passage {passages.ids[passage].as_py()}: {text[:99] + '…' if len(text) > 100 else text}"
