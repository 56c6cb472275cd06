"""What a trained ensemble does: score, vote, rank, explain, save. :mod:`haybale.ensemble.svr_ensemble` trains it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from haybale.collections import Collection
from haybale.device import device_of, to_device, to_numpy
from haybale.ensemble.bags import nearest_bags
from haybale.ensemble.blending import Blend
from haybale.ensemble.explanation import Explanation, explained
from haybale.ensemble.parameters import EnsembleParameters
from haybale.ensemble.placing import check_homes, home_of, on_host, rows_of
from haybale.ensemble.rows import Ints
from haybale.ensemble.spaces import Scaling, Spaces, check_spaces, described, given_spaces, n_axes
from haybale.ensemble.support import Pairs, Support
from haybale.errors import InputError, VectorError
from haybale.machine import fitting, in_tiles
from haybale.retrieval import Hits, PassageIndex, Run, rank_documents
from haybale.retrieval.passages import Exclude
from haybale.vectors import Floats, Matrix


class EnsembleScorer(EnsembleParameters):
    """The base of :class:`SVREnsemble`: its methods after ``fit``.

    Query vectors may be NumPy or on the ensemble's device; scores and votes come back as those were given. Passage
    numbers and features may be of either library.
    """

    support_: Support
    spaces_: Spaces
    features_: Scaling | None
    index_: PassageIndex
    more_spaces_: list[Matrix]
    centroids_: Floats | None
    gamma_: tuple[float, float]
    blend_: Blend | None
    support_query_ids_: list[str]
    support_passage_ids_: list[str]

    def score(self, query_vectors: Matrix | Sequence[Matrix], passage_ids: Sequence[Sequence[str]]) -> list[Any]:
        """Score any passages for each query: (m, d) vectors and m lists of passage ids to m float32 arrays.

        The score is the mean prediction of the bags. They learned 1 for relevant and 0 for not, but a bag that
        saw nothing near predicts about 0, so the mean ranks; :meth:`relevant` decides. Unknown ids raise. An
        ensemble with pair features scores by number, :meth:`score_candidates`, which takes them.
        """
        self._check_fitted()
        m = self._checked(query_vectors)[0].shape[0]
        if len(passage_ids) != m:
            raise InputError(f"{len(passage_ids)} lists of passage ids for {m} query vectors")
        lengths = np.array([len(ids) for ids in passage_ids], dtype=np.int64)
        padded = np.full((len(lengths), int(lengths.max(initial=0))), -1, dtype=np.int64)
        filled = np.arange(padded.shape[1]) < lengths[:, None]
        padded[filled] = self.index_.numbers([passage for ids in passage_ids for passage in ids])
        scores = self.score_candidates(query_vectors, padded)
        return [row[:length] for row, length in zip(scores, lengths, strict=True)]

    def score_candidates(
        self, query_vectors: Matrix | Sequence[Matrix], passages: Any, features: Any | None = None
    ) -> Any:
        """The same by number: ``passages`` (m, k), -1 for none, to (m, k) float32 with -inf there.

        ``features`` (m, k, f) of the pairs, if the ensemble was trained with them. An ensemble with a blend scores
        by memory alone without them.
        """
        scores = self.memory(query_vectors, passages, features)
        return scores if features is None or self.blend_ is None else self.blended(scores, features)

    def memory(self, query_vectors: Matrix | Sequence[Matrix], passages: Any, features: Any | None = None) -> Any:
        """(m, k) the mean prediction of the bags, without any blend."""

        def mean(pairs: Pairs, weights: NDArray[np.float64] | None) -> Any:
            return self.support_.mean(pairs, weights)

        return self._scored(query_vectors, passages, features, mean, np.float32(-np.inf))

    def blended(self, scores: Any, features: Any) -> Any:
        """Scores by memory (m, k) with the evidence of ``features`` (m, k, f) added; where the scores are."""
        if self.blend_ is None:
            raise InputError("this ensemble was trained without blend")
        values = np.asarray(to_numpy(features), dtype=np.float32)
        if values.shape != (*scores.shape, len(self.blend_.weights)):
            raise InputError(f"features: expected {scores.shape} × {len(self.blend_.weights)}, found {values.shape}")
        where = device_of(scores)
        with where.current():
            return (scores + to_device(values @ self.blend_.weights, where)).astype(np.float32)

    def votes(self, query_vectors: Matrix | Sequence[Matrix], passages: Any, features: Any | None = None) -> Any:
        """(m, k) how many of the bags predict more than ``threshold``; with ``routes``, of the query's bags."""

        def count(pairs: Pairs, weights: NDArray[np.float64] | None) -> Any:
            votes = self.support_.bags(pairs) > self.threshold  # (n, n_bags)
            if weights is not None:
                votes &= to_device(weights[pairs.query] > 0, self.support_.device)
            return votes.sum(axis=1)

        return self._scored(query_vectors, passages, features, count, np.int64(0))

    def relevant(self, query_vectors: Matrix | Sequence[Matrix], passages: Any, features: Any | None = None) -> Any:
        """(m, k) the paper's decision: at least ``proof`` bags vote for the passage."""
        votes = self.votes(query_vectors, passages, features)
        with device_of(votes).current():
            return votes >= self.proof

    def rank(
        self,
        query_vectors: Matrix | Sequence[Matrix],
        query_ids: Sequence[str],
        *,
        k: int = 100,
        candidates: Hits | None = None,
        exclude: Exclude | None = None,
        features: Floats | None = None,
    ) -> Run:
        """Rank documents by their best-scored candidate.

        ``candidates`` (m, c) are re-ranked, with their ``features`` (m, c, f) if the ensemble has them; without
        candidates, the k nearest passages are. Documents that no candidate belongs to are not in the run. Refused
        for ``protocol="injected"``, whose candidates would have to be chosen by the labels.
        """
        self._check_fitted()
        if self.protocol == "injected":
            raise InputError("protocol 'injected' does not rank: its candidates depend on the labels of the query")
        vectors = self._checked(query_vectors)
        if len(query_ids) != vectors[0].shape[0]:
            raise InputError(f"{len(query_ids)} query ids for {vectors[0].shape[0]} query vectors")
        if candidates is None:
            candidates = self.index_.search(on_host(vectors[0]), min(k, len(self.index_)), exclude=exclude)
        passages = to_numpy(candidates.passages)
        scores = to_numpy(self.score_candidates(vectors, passages, features))
        return rank_documents(self.index_, Hits(passages, scores), query_ids)

    def explain(
        self,
        query_vector: Matrix | Sequence[Matrix],
        passage_id: str,
        *,
        features: Floats | None = None,
        top: int = 10,
        collection: Collection | None = None,
    ) -> Explanation:
        """Why a passage got its score for a query: the training pairs that carry it, with their exact shares.

        ``query_vector`` (d,) or (1, d), one a space; ``features`` (f,) of the pair. ``top`` pairs are listed by the
        size of their share, the others are summed up. ``collection`` gives the texts.
        """
        self._check_fitted()
        given: list[Any] = list(query_vector) if isinstance(query_vector, (list, tuple)) else [query_vector]
        vectors = [vector[None] if n_axes(vector) == 1 else vector for vector in given]
        passage = self.index_.numbers([passage_id])[:, None]
        one = None if features is None else np.asarray(to_numpy(features))[None, None]
        pairs, _, weights = self._pairs(vectors, passage, one)
        if len(passage) != len(pairs.query) or (weights is not None and len(weights) != 1):
            raise InputError("explain takes one query")
        ids = self.support_query_ids_, self.support_passage_ids_
        bag_weights = np.full(self.support_.n_bags, 1 / self.support_.n_bags) if weights is None else weights[0]
        blend = None
        if self.blend_ is not None and one is not None:
            blend = self.blend_.weights * one[0, 0]
        return explained(self.support_, pairs, bag_weights, ids, passage_id, self.threshold, top, collection, blend)

    def save(self, folder: Path | str) -> None:
        """Write the model to a new folder: safetensors, Parquet and JSON, whole or not at all. Not the index."""
        from haybale.ensemble.model_files import save_ensemble

        self._check_fitted()
        save_ensemble(self, Path(folder))

    @classmethod
    def load(
        cls, folder: Path | str, index: PassageIndex, *, spaces: Sequence[Matrix] = (), device: str | None = None
    ) -> Self:
        """A saved model on an index of the same width (and further spaces); executes nothing, needs no solver.

        ``device`` as the parameter: None is where the index's vectors are, wherever the model was trained.
        Errors: files that are missing, changed, of another kind or version; an index of another width; a device that
        is not there; a model with sparse spaces for a device.
        """
        from haybale.ensemble.model_files import load_ensemble

        model = load_ensemble(cls, Path(folder))
        model.index_ = index
        model.device = device
        model.more_spaces_ = check_spaces(list(spaces), "spaces") if spaces else []
        expected = [scaling.described for scaling in model.spaces_.passage]
        found = [described(matrix) for matrix in (index.vectors, *model.more_spaces_)]
        if expected != found:
            raise VectorError(
                f"the model was trained on spaces of widths {', '.join(expected)}; the index and spaces have "
                f"{', '.join(found)}"
            )
        where = home_of(device, [index.vectors])
        check_homes([index.vectors, *model.more_spaces_], where)
        model.support_ = model.support_.to(where)
        return model

    def on(self, index: PassageIndex) -> Self:
        """The same model with another index of its space: documents were added since, or it is limited to some."""
        if index is self.index_:
            return self
        if described(index.vectors) != described(self.index_.vectors):
            raise VectorError(
                f"expected an index of {described(self.index_.vectors)}, found {described(index.vectors)}"
            )
        if self.more_spaces_:
            raise InputError("a model of several spaces has vectors of the passages that it was fitted on only")
        other = copy.copy(self)
        other.index_ = index
        return other

    # inside -------------------------------------------------------------------------------------------

    def _check_fitted(self) -> None:
        check_is_fitted(self, "support_")

    def _checked(self, query_vectors: Any) -> list[Matrix]:
        """One matrix a space on the ensemble's device, of the widths of the passages, and sparse where they are."""
        like = [self.index_.vectors, *self.more_spaces_]
        return check_spaces(query_vectors, "query_vectors", like=like, where=self.support_.device)

    def _flat_features(self, features: Any, passages: Ints) -> Floats:
        """(m·k, f) features of the candidates (m, k), checked where there is one."""
        values = np.asarray(to_numpy(features), dtype=np.float32)
        if values.ndim != 3 or values.shape[:2] != passages.shape:
            raise InputError(
                f"features: expected shape {passages.shape} and a number of features, found {values.shape}"
            )
        if not np.isfinite(values[passages >= 0]).all():
            raise InputError("features: NaN or infinity among them")
        return values.reshape(-1, values.shape[2])

    def _scored(
        self,
        query_vectors: Any,
        passages: Any,
        features: Any,
        work: Callable[[Pairs, NDArray[np.float64] | None], Any],
        nothing: Any,
        bag_weights: NDArray[np.float64] | None = None,
    ) -> Any:
        """(m, k) what ``work`` makes of the candidates, and ``nothing`` where there is none.

        ``bag_weights`` (m, n_bags) of each query take the place of those of the routes. On the CPU all queries at
        once; on a device as many as may bring their candidates' vectors.
        """
        self._check_fitted()
        asked_from = device_of(given_spaces(query_vectors)[0][0])
        vectors, passages = self._checked(query_vectors), to_numpy(passages)
        m, where = int(vectors[0].shape[0]), self.support_.device
        if len(passages) != m:
            raise InputError(f"candidates of {len(passages)} queries for {m} query vectors")
        features = None if features is None else to_numpy(features)
        if self.features_ is not None and features is not None:
            self._flat_features(features, passages)  # all of them, before any work

        def part_of(tile: slice) -> tuple[slice, Any]:
            some = [matrix[tile] for matrix in vectors]
            pairs, _, weights = self._pairs(some, passages[tile], None if features is None else features[tile])
            return tile, work(pairs, weights if bag_weights is None else bag_weights[tile])

        size = m
        if not where.is_cpu:
            wide = sum(int(matrix.shape[1]) for matrix in vectors) + 3 * self.support_.n_bags
            size = fitting(where.half_of_memory() / 4, 8 * passages.shape[1] * wide)
        with where.current():
            scores = np.full(passages.shape, nothing, dtype=nothing.dtype)
            for tile, values in in_tiles(m, size, part_of, what="queries"):
                scores[tile][passages[tile] >= 0] = to_numpy(values)
        return to_device(scores, asked_from)

    def _pairs(
        self, query_vectors: Any, passages: Ints, features: Any
    ) -> tuple[Pairs, Any, NDArray[np.float64] | None]:
        """Scaled pairs of the real candidates, where they are, and the bags' weights for each query."""
        self._check_fitted()
        vectors = self._checked(query_vectors)
        if len(passages) != vectors[0].shape[0]:
            raise InputError(f"candidates of {len(passages)} queries for {vectors[0].shape[0]} query vectors")
        real = passages >= 0
        distinct, where = np.unique(passages[real], return_inverse=True)
        evidence: Floats | None = None
        if self.features_ is not None:
            if features is None:
                raise InputError("this ensemble was trained with pair features, which must be given")
            flat, width = self._flat_features(features, passages), len(self.features_.factor)
            if flat.shape[1] != width:
                raise InputError(f"features: expected {width} a pair, found {flat.shape[1]}")
            evidence = np.asarray(self.features_(flat[real.ravel()]))
        home = self.support_.device
        chosen = [rows_of(matrix, distinct, home) for matrix in (self.index_.vectors, *self.more_spaces_)]
        pairs = Pairs(
            queries=self.spaces_.queries(vectors),
            passages=self.spaces_.passages(chosen),
            query=np.nonzero(real)[0],
            passage=where,
            evidence=evidence,
        )
        weights = None
        if self.routes is not None and self.centroids_ is not None:
            weights = nearest_bags(vectors[0], self.centroids_, self.routes)
        return pairs, real, weights
