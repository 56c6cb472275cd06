"""Re-ranking by a cross-encoder, which reads query and passage together."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from haybale.errors import InputError
from haybale.extras import require
from haybale.parameters import Interval, Options
from haybale.rankers.batch import Batch, Training, numbered
from haybale.rankers.explanation import Explanation, Share
from haybale.rankers.ranker import Ranker
from haybale.retrieval import Run
from haybale.retrieval.hits import Ints


class CrossEncoder(Ranker):
    """Re-orders the first documents of another ranker by a cross-encoder over their best passages.

    Nogueira & Cho, "Passage Re-ranking with BERT", 2019, with the best passages of each document chosen by the engine's
    vectors. Documents beyond ``n_documents`` keep their order behind the others.

    Parameters
    ----------
    ranker : Ranker
        Whose ranking is re-ordered.
    model : str
        Hub id or folder of any cross-encoder that sentence-transformers loads. (Extra ``neural``.)
    n_documents : int, default 50
        Documents of each query that are read.
    n_passages : int, default 3
        Passages of each document that are read: the nearest to the query.
    aggregation : {"max", "mean"}, default "max"
        Of the passages' scores.
    batch_size : int, default 32
        Pairs read at once.
    max_length : int, optional
        Tokens of a pair; default: the model's own.
    device : str, optional
        As in sentence-transformers; default: a GPU where there is one.
    """

    name = "cross-encoder"
    names: ClassVar = {"cross-encoder": {}}
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "ranker": [Ranker],
        "model": [str],
        "n_documents": [Interval(Integral, 1, None, closed="left")],
        "n_passages": [Interval(Integral, 1, None, closed="left")],
        "aggregation": [Options({"max", "mean"})],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "max_length": [Interval(Integral, 8, None, closed="left"), None],
        "device": [str, None],
    }

    rankers_: list[Ranker]

    def __init__(
        self,
        ranker: Any,
        model: str,
        *,
        n_documents: int = 50,
        n_passages: int = 3,
        aggregation: str = "max",
        batch_size: int = 32,
        max_length: int | None = None,
        device: str | None = None,
    ) -> None:
        self.ranker = ranker
        self.model = model
        self.n_documents = n_documents
        self.n_passages = n_passages
        self.aggregation = aggregation
        self.batch_size = batch_size
        self.max_length = max_length
        self.device = device

    def to_dict(self) -> dict[str, Any]:
        """As every ranker's; what is re-ordered is the one of ``rankers``, as in other rankers of rankers."""
        found = super().to_dict()
        inner = found.pop("ranker")
        return {"ranker": self.name, "rankers": [inner]} | found

    @property
    def needs_training(self) -> bool:  # type: ignore[override]
        return bool(self.ranker.needs_training)

    @property
    def learns_documents(self) -> bool:  # type: ignore[override]
        return bool(self.ranker.learns_documents)

    def _fit(self, training: Training) -> None:
        self._load()  # a model that is not there is refused before what it re-ranks is fitted
        self.rankers_ = [training.fitted(self.ranker)]

    def _load(self) -> Any:
        if getattr(self, "_model", None) is None:
            library = require("sentence_transformers", "neural")
            how = {} if self.max_length is None else {"max_length": self.max_length}
            try:
                self._model = library.CrossEncoder(self.model, device=self.device, num_labels=1, **how)
            except (OSError, ValueError, RuntimeError) as error:  # the last where it has another number of outputs
                first = str(error).splitlines()[0]
                raise InputError(f"cannot load the cross-encoder {self.model!r}: {first}") from error
        return self._model

    def _rank(self, batch: Batch, depth: int) -> Run:
        return self._reordered(batch, batch.run(self.rankers_[0], max(depth, self.n_documents)), depth)

    def _out_of_fold(self, batch: Batch, depth: int) -> Run:
        return self._reordered(batch, batch.out_of_fold(self.rankers_[0], max(depth, self.n_documents)), depth)

    def _reordered(self, batch: Batch, first: Run, depth: int) -> Run:
        rows, ranks, documents = numbered(first, batch.engine.collection)
        read = (ranks <= self.n_documents) & self._readable(batch, documents)
        pairs = self._pairs(batch, rows[read], documents[read])
        with batch.stage(f"read pairs ({self.name})"):
            values = self._scores(batch, *pairs)
        owner = pairs[2]  # which (query, document) each pair is of
        best = np.full(int(read.sum()), -np.inf)
        if self.aggregation == "max":
            np.maximum.at(best, owner, values)
        else:
            best = np.bincount(owner, values, minlength=len(best)) / np.bincount(owner, minlength=len(best))
        # What was not read follows in its own order, below everything of its query that was.
        lowest = np.zeros(len(batch))
        np.minimum.at(lowest, rows[read], best)
        scores = np.empty(len(rows))
        scores[read] = best
        scores[~read] = lowest[rows[~read]] - ranks[~read]
        return Run.from_numbers(batch.ids, batch.engine.collection.doc_ids, rows, documents, scores, depth)

    @staticmethod
    def _readable(batch: Batch, documents: Ints) -> Any:
        """(n,) bool, whether a document has a passage."""
        found: Any = np.diff(batch.engine.passages.doc_offsets)[documents] > 0
        return found

    def _pairs(self, batch: Batch, rows: Ints, documents: Ints) -> tuple[Ints, Ints, Ints]:
        """``(query row, passage, place of the document)``: of each document, the passages nearest to the query."""
        index = batch.engine.passages
        found: list[tuple[int, int, int]] = []
        for place, (row, document) in enumerate(zip(rows.tolist(), documents.tolist(), strict=True)):
            start = int(index.doc_offsets[document])
            near = np.asarray(index.similarities(batch.vectors[row : row + 1], document))[0]
            chosen = np.argsort(-near, kind="stable")[: self.n_passages]
            found += [(row, start + int(passage), place) for passage in chosen]
        columns = np.array(found, dtype=np.int64).reshape(-1, 3)
        return columns[:, 0], columns[:, 1], columns[:, 2]

    def _scores(self, batch: Batch, rows: Ints, passages: Ints, owner: Ints) -> Any:
        """(n,) what the model says of each pair."""
        if not len(rows):
            return np.empty(0)
        texts = batch.engine.collection.passages.texts
        given = [
            (batch.texts[row], texts[passage].as_py())
            for row, passage in zip(rows.tolist(), passages.tolist(), strict=True)
        ]
        found = self._load().predict(given, batch_size=self.batch_size, show_progress_bar=False)
        return np.asarray(found, dtype=np.float64).reshape(len(given))

    def _explain(self, batch: Batch, document: int, base: Explanation) -> Explanation:
        first = batch.run(self.rankers_[0], max(self.n_documents, base.rank or 1))
        listed = [doc for doc, _ in first[batch.ids[0]]]
        before = listed.index(base.doc_id) + 1
        inner = self.rankers_[0].explained(batch, document)
        notes = [f"rank {before:,} by {self.rankers_[0]} before"]
        if before > self.n_documents or not self._readable(batch, np.array([document]))[0]:
            return replace(base, shares=[Share("not read", base.score or 0.0, of=inner)], notes=notes)
        rows, passages, owner = self._pairs(batch, np.array([0]), np.array([document]))
        values = self._scores(batch, rows, passages, owner)
        order = np.argsort(-values, kind="stable")
        counted = order[:1] if self.aggregation == "max" else order
        ids, texts = batch.engine.collection.passages.ids, batch.engine.collection.passages.texts
        shares = [
            Share(
                f"passage {ids[int(passages[i])].as_py()}",
                float(values[i]) / len(counted),
                texts[int(passages[i])].as_py(),
            )
            for i in counted
        ]
        return replace(base, shares=shares, notes=[*notes, *inner.text(top=2).splitlines()[1:]])
