"""Re-rankers that read pairs of paragraphs: one of the query, one of the document."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from haybale.pairs.pair_encoders import PairEncoder
from haybale.parameters import COUNT, Constraints, one_of
from haybale.rankers.explanation import Explanation, Share
from haybale.rankers.query_batch import QueryBatch
from haybale.rankers.ranker import Ranker
from haybale.rankers.reranker import Reranker
from haybale.rankers.training import Training
from haybale.retrieval import Run
from haybale.retrieval.hits import Ints

_PAIRS = 4096  # read at once


class PairReader(Reranker):
    """The base of re-rankers with a model that reads pairs of paragraphs, loaded when it is first asked for."""

    def _once(self, name: str, make: Callable[[], PairEncoder]) -> PairEncoder:
        """A model of that name, loaded when it is first asked for."""
        loaded: dict[str, PairEncoder] = self.__dict__.setdefault("_loaded", {})
        if name not in loaded:
            loaded[name] = make()
        return loaded[name]

    def _forget(self) -> None:
        """What was loaded: parameters, or the engine, may be others now."""
        self.__dict__.pop("_loaded", None)


class BestPairs(PairReader):
    """The base of re-rankers that score a document by its nearest pairs of paragraphs, by the engine's vectors."""

    n_pairs: int
    aggregation: str
    top: int

    _ranges: ClassVar[dict[str, Constraints]] = {
        "ranker": [Ranker],
        "model": [str],
        "n_documents": COUNT,
        "n_pairs": COUNT,
        "aggregation": one_of(["max", "mean"]),
        "top": COUNT,
    }

    def fit_batch(self, training: Training) -> None:
        self._forget()
        self._load()  # a model that is not there is refused before what it re-orders is fitted
        self.rankers_ = [self.ranker.fitted(training)]

    @abstractmethod
    def _load(self) -> PairEncoder:
        """What reads the pairs."""

    def rescore(
        self, batch: QueryBatch, rows: Ints, documents: Ints, scores: Any, out_of_fold: bool
    ) -> NDArray[np.float64]:
        return self._scored(batch, rows, documents, self._load())

    def _scored(self, batch: QueryBatch, rows: Ints, documents: Ints, pairs: PairEncoder) -> NDArray[np.float64]:
        found = [self._best(values).mean() for _, values in self._read(batch, rows, documents, pairs)]
        return np.array(found, dtype=np.float64)

    def _best(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The scores that count, best first."""
        return -np.sort(-values)[: 1 if self.aggregation == "max" else self.top]

    def _read(
        self, batch: QueryBatch, rows: Sequence[int] | Ints, documents: Sequence[int] | Ints, encoder: PairEncoder
    ) -> Iterator[tuple[Ints, NDArray[np.float64]]]:
        """Of each candidate, the pairs (p, 2) of query paragraph and passage that are read, and their scores (p,)."""
        index, texts = batch.engine.passages, batch.engine.collection.passages.texts
        waiting: list[Ints] = []
        firsts: list[str] = []
        seconds: list[str] = []
        for place, (row, document) in enumerate(zip(rows, documents, strict=True), 1):
            near = np.asarray(index.similarities(batch.paragraph_vectors[row], int(document)))
            best = np.argsort(-near, axis=None, kind="stable")[: self.n_pairs]
            chosen = np.stack(np.divmod(best, near.shape[1]), axis=1)
            waiting.append(chosen)
            start = index.doc_offsets[document]
            firsts += [batch.paragraphs[row][i] for i in chosen[:, 0].tolist()]
            seconds += [texts[int(start + j)].as_py() for j in chosen[:, 1].tolist()]
            if len(firsts) >= _PAIRS or place == len(rows):
                which = np.repeat(np.arange(len(firsts))[:, None], 2, axis=1)
                values = encoder.encode(firsts, seconds, which)[:, 0].astype(np.float64)
                yield from zip(waiting, np.split(values, np.cumsum([*map(len, waiting)])[:-1]), strict=True)
                waiting, firsts, seconds = [], [], []

    def document_shares(self, batch: QueryBatch, document: int, first: Run, inner: Explanation) -> list[Share]:
        ((pairs, values),) = self._read(batch, [0], [document], self._load())
        counted = np.argsort(-values, kind="stable")[: len(self._best(values))]
        return [
            paragraph_share(batch, document, int(pairs[at, 0]), int(pairs[at, 1]), float(values[at]) / len(counted))
            for at in counted.tolist()
        ]


def paragraph_share(batch: QueryBatch, document: int, paragraph: int, passage: int, share: float) -> Share:
    """What a pair adds: a paragraph of the one query of a batch, and a passage by its place in the document."""
    passages = batch.engine.collection.passages
    number = int(passages.doc_offsets[document]) + passage
    return Share(
        f"paragraph {paragraph} → passage {passages.ids[number].as_py()}", share, passages.texts[number].as_py()
    )
