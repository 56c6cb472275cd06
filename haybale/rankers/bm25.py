"""BM25 as a ranker: over passages, of which a document's best counts, or over whole documents."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from haybale.engine import Engine
from haybale.parameters import Interval, Options
from haybale.rankers.batch import Batch
from haybale.rankers.explanation import Explanation, Share, by_size
from haybale.rankers.ranker import Ranker
from haybale.retrieval import BM25Index, Hits, Run


class BM25(Ranker):
    """Lucene's BM25, exact over the whole collection.

    Kamphuis et al., "Which BM25 Do You Mean?", ECIR 2020. Query terms count as often as they occur.

    Parameters
    ----------
    unit : {"passage", "document"}, default "passage"
        Documents rank by their best passage, or each as a whole.
    k1 : float, default 1.2
        How soon more of a term stops to matter, from 0 on.
    b : float, default 0.75
        How much length counts, 0 to 1.
    """

    name = "bm25"
    names: ClassVar = {"bm25": {}, "bm25-doc": {"unit": "document"}}
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "unit": [Options({"passage", "document"})],
        "k1": [Interval(Real, 0, None, closed="left")],
        "b": [Interval(Real, 0, 1, closed="both")],
    }

    def __init__(self, unit: str = "passage", *, k1: float = 1.2, b: float = 0.75) -> None:
        self.unit = unit
        self.k1 = k1
        self.b = b

    def index(self, engine: Engine) -> BM25Index:
        """The engine's index with these parameters."""
        return weighted(engine, self.unit, self.k1, self.b)

    def passage_hits(self, batch: Batch, k: int) -> Hits:
        """The k best passages of each query."""
        return batch.lexical(weighted(batch.engine, "passage", self.k1, self.b), k, ("bm25", self.k1, self.b))

    def _rank(self, batch: Batch, depth: int) -> Run:
        index, texts = self.index(batch.engine), batch.texts
        with batch.stage(f"search BM25 ({self.unit}s)"):
            rows, documents, scores = index.documents(texts, depth, exclude=batch.own)
            return Run.from_numbers(batch.ids, batch.engine.collection.doc_ids, rows, documents, scores, depth)

    def _explain(self, batch: Batch, document: int, base: Explanation) -> Explanation:
        index = self.index(batch.engine)
        text = batch.texts[0]
        within = index.similarities([text], document)[0]
        passage = int(index.doc_offsets[document]) + int(np.argmax(within))
        shares = [Share(f"term {term}", share) for term, share in index.term_shares(text, passage).items()]
        notes = [] if self.unit == "document" else [passage_note(batch.engine, passage)]
        return replace(base, shares=by_size(shares), notes=notes)


def weighted(engine: Engine, unit: str, k1: float, b: float) -> BM25Index:
    """The engine's BM25 index with other parameters; the last few are kept, since weights are as large as the index."""
    index = engine.bm25(unit)
    if (k1, b) == (index.k1, index.b):
        return index
    return engine.cached((f"bm25-{unit}", k1, b), lambda: index.with_parameters(k1, b))


def passage_note(engine: Engine, passage: int) -> str:
    """Which passage a score rests on, with its beginning."""
    passages = engine.collection.passages
    text = " ".join(passages.texts[passage].as_py().split())
    return f"by its passage {passages.ids[passage].as_py()}: {text[:99] + '…' if len(text) > 100 else text}"
