"""The score of a document by its most similar pairs of paragraphs: one of the query, one of the document."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from haybale.engine import Engine
from haybale.errors import FileFormatError
from haybale.pairs.pair_encoders import PAIR_RANGES, CrossPairs, TokenPairs
from haybale.parameters import COUNT, Constraints, one_of
from haybale.ranking.ranker import Ranker
from haybale.ranking.training import Training
from haybale.retrieval import Run
from haybale.retrieval.hits import Ints
from haybale.search.explanation import Explanation, Share
from haybale.search.query_batch import QueryBatch

_PAIRS_AT_ONCE = 4096  # pairs that are encoded at once, about

_DIGESTED_PARTS = ("weights", "tokenizer")  # the parts of a model whose digests are saved

Loaded = CrossPairs | TokenPairs
Scores = NDArray[np.float64]


@dataclass(eq=False, repr=False)
class BestPairs:
    """Mixin of re-rankers that score a document by its best pairs of paragraphs, with the parameters that they share.

    The engine's vectors choose the pairs that are read, and a pair encoder with one output scores them. A subclass
    defines :meth:`load_encoder`; :class:`CrossEncoder` documents the parameters.
    """

    ranges: ClassVar[dict[str, Constraints]] = {
        "ranker": [Ranker],
        "model": [str],
        **dict.fromkeys(("n_documents", "n_pairs", "top"), COUNT),
        "aggregation": one_of(["max", "mean"]),
        **{name: PAIR_RANGES[name] for name in ("max_length", "device")},
    }

    ranker: Ranker
    model: str
    _: KW_ONLY
    n_documents: int = 50
    n_pairs: int = 16
    aggregation: str = "max"
    top: int = 3
    max_length: int | None = None

    @abstractmethod
    def load_encoder(self, model: str) -> Loaded:
        """Load a model; raises :class:`~haybale.InputError` if it does not exist."""

    @property
    def models(self) -> tuple[str, ...]:
        """The hub ids or folders of all models; the first one ranks."""
        return (self.model,)

    def fit_batch(self, training: Training) -> None:
        self._loaded = dict[str, Loaded]()
        self._saved_digests = dict[str, dict[str, str]]()
        self._encoder(self.model)  # raises for a missing model before the ranker within is fitted
        self.rankers_: Sequence[Ranker] = [self.ranker._fitted_copy(training)]

    def _encoder(self, model: str) -> Loaded:
        loaded: dict[str, Loaded] = self.__dict__.setdefault("_loaded", {})
        if model not in loaded:
            encoder, saved = self.load_encoder(model), self.__dict__.get("_saved_digests", {}).get(model, {})
            for part, digest in (encoder.digests() if saved else {}).items():
                if saved.get(part, digest) != digest:
                    raise FileFormatError(
                        model,
                        None,
                        f"expected the {part} that {self} was saved with, found others; restore them, or fit "
                        "and save the ranker again",
                    )
            loaded[model] = encoder
        return loaded[model]

    @property
    def outside_state(self: Any) -> dict[str, Any]:
        """The digests of the models that are loaded, and what nested rankers read."""
        loaded = self.__dict__.get("_loaded", {})
        digests = {name: getattr(encoder, "digests", encoder.describe)() for name, encoder in loaded.items()}
        state: dict[str, Any] = super().outside_state  # type: ignore[misc]  # of the re-ranker that this is mixed into
        return state | digests

    def save_state(self, folder: Path) -> dict[str, Any]:
        """Return the SHA-256 of each model's weights and of its tokenizer, which are not saved themselves."""
        digests_by_model = {model: self._encoder(model).digests() for model in self.models}
        return {part: {model: digests[part] for model, digests in digests_by_model.items()} for part in _DIGESTED_PARTS}

    def load_state(self, folder: Path, state: dict[str, Any], engine: Engine) -> None:
        """Load the model that ranks; models of folds are loaded, and their digests compared, when they are needed."""
        self._saved_digests = {
            model: {part: state[part][model] for part in _DIGESTED_PARTS} for model in state["weights"]
        }
        self._encoder(self.model)

    def rescore(self, batch: QueryBatch, rows: Ints, documents: Ints, scores: Any, out_of_fold: bool) -> Scores:
        return self.score_documents(self.model, batch, rows, documents)

    def score_documents(self, model: str, batch: QueryBatch, rows: Ints, documents: Ints) -> Scores:
        """Return the scores (n,) by a model of the candidates ``documents`` of the queries in ``rows``."""
        read = self._read(model, batch, rows, documents)
        return np.array([self._counted(values).mean() for _, values in read], dtype=np.float64)

    def document_shares(self, batch: QueryBatch, document: int, first: Run, inner: Explanation) -> list[Share]:
        ((pairs, values),) = self._read(self.model, batch, [0], [document])
        counted = np.argsort(-values, kind="stable")[: len(self._counted(values))]
        return [
            paragraph_share(batch, document, int(pairs[at, 0]), int(pairs[at, 1]), float(values[at]) / len(counted))
            for at in counted.tolist()
        ]

    def _counted(self, values: Scores) -> Scores:
        """Return the pair scores that count for the document, best first."""
        return -np.sort(-values)[: 1 if self.aggregation == "max" else self.top]

    def _read(
        self, model: str, batch: QueryBatch, rows: Sequence[int] | Ints, documents: Sequence[int] | Ints
    ) -> Iterator[tuple[Ints, Scores]]:
        """Yield the pairs (p, 2) of paragraph and passage of each candidate, and their scores (p,)."""
        index, texts = batch.engine.passages, batch.engine.collection.passages.texts
        waiting: list[Ints] = []
        firsts: list[str] = []
        seconds: list[str] = []
        for n_read, (row, document) in enumerate(zip(rows, documents, strict=True), 1):
            near = np.asarray(index.similarities(batch.paragraph_vectors[row], int(document)))
            best = np.argsort(-near, axis=None, kind="stable")[: self.n_pairs]
            chosen = np.stack(np.divmod(best, near.shape[1]), axis=1)
            waiting.append(chosen)
            start = index.doc_offsets[document]
            firsts += [batch.paragraphs[row][i] for i in chosen[:, 0].tolist()]
            seconds += [texts[int(start + j)].as_py() for j in chosen[:, 1].tolist()]
            if len(firsts) >= _PAIRS_AT_ONCE or n_read == len(rows):
                which = np.repeat(np.arange(len(firsts))[:, None], 2, axis=1)
                values = self._encoder(model).encode(firsts, seconds, which)[:, 0].astype(np.float64)
                yield from zip(waiting, np.split(values, np.cumsum([*map(len, waiting)])[:-1]), strict=True)
                waiting, firsts, seconds = [], [], []


def paragraph_share(batch: QueryBatch, document: int, paragraph: int, passage: int, share: float) -> Share:
    """Return the share of a pair: a paragraph of the one query of a batch, and the n-th passage of a document."""
    passages = batch.engine.collection.passages
    number = int(passages.doc_offsets[document]) + passage
    passage_id, text = passages.ids[number].as_py(), passages.texts[number].as_py()
    return Share(f"paragraph {paragraph} → passage {passage_id}", share, text, passage_id=passage_id)
