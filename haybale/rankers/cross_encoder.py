"""Re-ranking by a cross-encoder, which reads query and passage together."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from haybale.errors import InputError
from haybale.extras import require
from haybale.parameters import COUNT, MOST, Interval, one_of
from haybale.rankers.batch import Batch, Training, numbered
from haybale.rankers.explanation import Explanation, Share
from haybale.rankers.ranker import Ranker
from haybale.retrieval import Run
from haybale.retrieval.hits import Ints


@dataclass(eq=False, repr=False)
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
    _parameter_constraints: ClassVar = {
        "ranker": [Ranker],
        "model": [str],
        "n_documents": COUNT,
        "n_passages": COUNT,
        "aggregation": one_of(["max", "mean"]),
        "batch_size": COUNT,
        "max_length": [Interval(Integral, 8, MOST, closed="both"), None],
        "device": [str, None],
    }

    ranker: Ranker
    model: str
    _: KW_ONLY
    n_documents: int = 50
    n_passages: int = 3
    aggregation: str = "max"
    batch_size: int = 32
    max_length: int | None = None
    device: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As every ranker's; what is re-ordered is the one of ``rankers``, as in other rankers of rankers."""
        found = super().to_dict()
        inner = found.pop("ranker")
        return {"ranker": self.name, "rankers": [inner]} | found

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
        has_passage = np.diff(batch.engine.passages.doc_offsets)[documents] > 0
        read = (ranks <= self.n_documents) & has_passage
        with batch.stage(f"read pairs ({self.name})"):
            _, owner, values = self._scored(batch, rows[read], documents[read])
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

    def _scored(self, batch: Batch, rows: Ints, documents: Ints) -> tuple[list[int], Ints, Any]:
        """``(passage, place of its document, score)`` of each document's passages that are nearest to the query."""
        index, texts = batch.engine.passages, batch.engine.collection.passages.texts
        passages: list[int] = []
        owner: list[int] = []
        pairs: list[tuple[str, str]] = []
        for place, (row, document) in enumerate(zip(rows.tolist(), documents.tolist(), strict=True)):
            near = np.asarray(index.similarities(batch.vectors[row : row + 1], document))[0]
            chosen = index.doc_offsets[document] + np.argsort(-near, kind="stable")[: self.n_passages]
            passages += chosen.tolist()
            owner += [place] * len(chosen)
            pairs += [(batch.texts[row], texts[passage].as_py()) for passage in chosen.tolist()]
        how = {"batch_size": self.batch_size, "show_progress_bar": False}
        found = self._load().predict(pairs, **how) if pairs else []
        return passages, np.array(owner, dtype=np.int64), np.asarray(found, dtype=np.float64).reshape(len(pairs))

    def _explain(self, batch: Batch, document: int, base: Explanation) -> Explanation:
        first = batch.run(self.rankers_[0], max(self.n_documents, base.rank or 1))
        before = list(dict(first[batch.ids[0]])).index(base.doc_id) + 1
        inner = self.rankers_[0].explained(batch, document)
        notes = [f"rank {before:,} by {self.rankers_[0]} before"]
        read, _, values = self._scored(batch, np.array([0]), np.array([document]))
        if before > self.n_documents or not read:
            return replace(base, shares=[Share("not read", base.score or 0.0, of=inner)], notes=notes)
        order = np.argsort(-values, kind="stable")[: 1 if self.aggregation == "max" else None].tolist()
        ids, texts = batch.engine.collection.passages.ids, batch.engine.collection.passages.texts
        shares = [
            Share(f"passage {ids[read[i]].as_py()}", float(values[i]) / len(order), texts[read[i]].as_py())
            for i in order
        ]
        return replace(base, shares=shares, notes=[*notes, *inner.text(top=2).splitlines()[1:]])
