"""What a ranker defines, what it knows about itself, and how it is fitted on judged queries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Self

from haybale.collections import Queries
from haybale.embeddings.lineage import queries_of_model, trained_queries
from haybale.engine import Engine
from haybale.errors import InputError, NotFittedError
from haybale.parameters import check_parameters
from haybale.ranking.ranker_parameters import RankerParameters, comparable
from haybale.ranking.training import Training
from haybale.ranking.twins import Twins
from haybale.retrieval import Run
from haybale.search.explanation import Explanation
from haybale.search.query_batch import QueryBatch

# Attributes that fitting sets and that hold nothing learned.
_NOT_LEARNED = {"rankers_", "twins_", "engine_", "_training_digest", "_fitted_key", "_saved", "_state_key"}


class RankerContract(RankerParameters, ABC):
    """The part of :class:`~haybale.rankers.Ranker` that subclasses define, without the methods that callers use.

    Methods whose names begin with an underscore are only called and defined by haybale's own rankers.
    """

    _parameter_constraints: ClassVar[Mapping[str, list[Any]]] = {}

    engine_: Engine
    rankers_: Sequence[Any] = ()  # of rankers
    query_ids_: Sequence[str] = ()
    twins_: Twins = Twins()
    _training_digest: str | None = None  # Training.digest of the judgements that it was fitted on
    _fitted_key: tuple[Any, ...] | None = None  # _cache_key() at the time of fitting; parameters may have changed since
    # Stands for what was learned: an object that no other fit has, or the digest of what was saved. None for nothing.
    _state_key: object = None
    _saved: tuple[Path, str, tuple[Any, ...] | None] | None = None  # folder, digest of the manifest, _fitted_key then

    # What a subclass defines.

    @abstractmethod
    def rank_batch(self, batch: QueryBatch, depth: int) -> Run:
        """Return the first ``depth`` documents of each query of a batch.

        ``batch`` holds the engine and the queries. It caches vectors, hits and runs, so that rankers share the work.
        Sort documents by score, then by id, as :meth:`haybale.Run.from_numbers` does. Call :meth:`run` of nested
        rankers.
        """

    @abstractmethod
    def explain_document(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        """Return ``base`` with shares that sum to the document's score.

        Parameters
        ----------
        batch : QueryBatch
            A batch of one query.
        document : int
            Number, in ``batch.engine.collection``, of a document that the ranker finds for the query.
        base : Explanation
            The ranker, query, document, score and rank. Add shares with ``dataclasses.replace(base, shares=…)``.
        """

    def fit_batch(self, training: Training) -> None:
        """Fit the nested rankers and learn from judged queries; the default only fits the nested rankers."""
        self.rankers_ = [ranker._fitted_copy(training) for ranker in self.nested()]

    def out_of_fold_batch(self, batch: QueryBatch, depth: int) -> Run:
        """Rank queries as if the ranker had not been trained on any of them.

        Only called if :attr:`needs_training` is true. Call :meth:`run` of nested rankers with ``out_of_fold=True``.
        """
        raise InputError(f"{self} cannot rank training queries out of fold; add out_of_fold_batch to its class")

    def save_state(self, folder: Path) -> dict[str, Any]:
        """Write what was learned into an existing folder; return plain values for JSON that belong to it."""
        return {}

    def load_state(self, folder: Path, state: dict[str, Any], engine: Engine) -> None:
        """Read what :meth:`save_state` wrote and returned; ``rankers_`` is set already."""

    @property
    def needs_training(self) -> bool:
        """Whether the ranker, or a nested one, learns from judged queries."""
        return any(ranker.needs_training for ranker in self.nested())

    @property
    def learns_documents(self) -> bool:
        """Whether the ranker, or a nested one, learns which documents were relevant to training queries."""
        return any(ranker.learns_documents for ranker in self.nested())

    @property
    def may_answer_nothing(self) -> bool:
        """Whether it is no fault that a query has no document. Default: whether all nested rankers may."""
        nested = self.nested()
        return bool(nested) and all(ranker.may_answer_nothing for ranker in nested)

    @property
    def uses_vectors(self) -> bool:
        """Whether the ranker itself uses vectors of the engine's encoder; nested rankers do not count."""
        return True

    @property
    def models(self) -> Sequence[str]:
        """Hub ids or folders of the models that the ranker itself uses besides the engine's encoder. Default: none.

        Each query is ranked by a model that was not trained on it, if there is one. The ranker's scores are biased only
        for the queries that all of them were trained on.
        """
        return ()

    @property
    def outside_state(self) -> dict[str, Any]:
        """Values for JSON that identify the models and engines that the ranker reads outside its engine.

        A ranker that reads models by their paths adds their digests, because a path may get another model. The default
        is the values of the nested rankers.
        """
        states = [ranker.outside_state for ranker in self.rankers_]
        return {str(number): state for number, state in enumerate(states) if state}

    @property
    def fit_report_(self) -> dict[str, Any]:
        """Results of fitting for tables and reports, such as counts and weights, by name."""
        return self.twins_.report

    @property
    def obeys_cutoffs(self) -> bool:
        """Whether :meth:`rank_batch` and :meth:`out_of_fold_batch` leave out what ``batch.exclude`` hides.

        Such a ranker gives ``batch.exclude`` to each search of an index, or only ranks what :meth:`run` of a nested
        ranker returns. The default is false: with dates, the queries of each day are ranked on a view of the documents
        before it, which gives the same for every ranker, but takes longer.
        """
        return False

    # What only haybale's own rankers define.

    @property
    def _ranks_whole_batches(self) -> bool:
        """Whether a batch of many queries is ranked as a whole, and not in blocks that other processes rank.

        Such a ranker divides its own work into tasks, or has little of it.
        """
        return False

    def _implied(self) -> Mapping[str, tuple[RankerContract, ...]]:
        """Return the default rankers that stand in for omitted parameters, by parameter."""
        return {}

    def _make_explicit(self, name: str, rankers: tuple[RankerContract, ...]) -> None:
        """Set a parameter to its implied rankers, after a parameter of one of them was changed."""
        setattr(self, name, rankers)

    def _answers_to(self, name: str, parameter: str) -> bool:
        """Return whether ``--set name.parameter`` also sets a parameter of this ranker, which has another name."""
        return False

    def _check_params(self) -> None:
        """Raise :class:`~haybale.InputError` if a parameter, here or in a nested ranker, is out of range."""
        check_parameters(type(self).__name__, self.get_params(deep=False), self._parameter_constraints)
        for ranker in self.nested():
            ranker._check_params()

    def _check_answers(self, queries: Queries | None) -> None:
        """Raise :class:`~haybale.InputError` if the ranker, or a nested one, cannot rank queries; None: a new text."""
        for ranker in self.rankers_ or self.nested():
            ranker._check_answers(queries)

    def _own_encoder_queries(self, engine: Engine) -> frozenset[str]:
        """Return the ids of the queries that the engine's encoder or all :attr:`models` were trained on."""
        of_engine = trained_queries(engine.encoder) if self.uses_vectors else frozenset[str]()
        of_models = [queries_of_model(model) for model in self.models]
        return of_engine | frozenset.intersection(*of_models) if of_models else of_engine

    def _cache_key(self) -> tuple[Any, ...]:
        """Return the cache key of its rankings: class, parameters, and what it and nested rankers have learned.

        Rankers of two fits have different keys, unless nothing is learned, or what was learned is saved and equal.
        """
        return comparable(self), self._state_key, tuple(ranker._cache_key() for ranker in self.rankers_)

    # What every ranker has.

    def nested(self) -> Sequence[RankerContract]:
        """Return the rankers among the parameters."""
        values = self.get_params(deep=False).values()
        arguments = chain.from_iterable(value if isinstance(value, list | tuple) else [value] for value in values)
        return [argument for argument in arguments if isinstance(argument, RankerContract)]

    @property
    def encoder_queries(self) -> frozenset[str]:
        """Ids of the queries that an encoder behind the ranker was trained on; its scores for them are biased."""
        return self._own_encoder_queries(self.engine_).union(*(ranker.encoder_queries for ranker in self.rankers_))

    def learned_from(self) -> set[str]:
        """Return the ids of the queries that the ranker, a nested one, or an encoder was trained on."""
        query_ids = set(self.twins_.with_twins({*self.query_ids_, *self.encoder_queries}))
        return query_ids.union(
            *map(queries_of_model, self.models), *(ranker.learned_from() for ranker in self.rankers_)
        )

    def _fitted_copy(self, training: Training) -> Self:
        """Return a fitted copy, or the ranker itself if it was fitted on the same judged queries and documents.

        A :class:`~haybale.rankers.Training` fits equal rankers once.
        """
        same_training = self._training_digest is not None and self._training_digest == training.digest
        if same_training and self.engine_ is training.live_engine and self._fitted_key == self._cache_key():
            return self
        copy = self.clone()
        return training.cached_fit(copy._cache_key(), lambda: copy._fit_on(training))

    def _fit_on(self, training: Training) -> Self:
        """Fit on judged queries, and share searches and fitted rankers through ``training``."""
        self._check_params()
        self._training_digest = training.digest if self.needs_training else None
        self._state_key = state = object()
        self.fit_batch(training)
        self.twins_ = training.twins if self.needs_training else Twins()
        self._finish_fit(training.live_engine, state)
        return self

    def _finish_fit(self, engine: Engine, state: object) -> None:
        """Set the engine after fitting or loading, and the state key: ``state`` if anything was learned, else None."""
        has_learned = bool(vars(self).keys() - self.parameters().keys() - _NOT_LEARNED)
        self.engine_, self._state_key = engine, state if has_learned else None
        self._fitted_key = self._cache_key()

    def _check_fitted(self) -> None:
        """Raise :class:`~haybale.NotFittedError` if the ranker has not been fitted."""
        if not hasattr(self, "engine_"):
            raise NotFittedError(f"{self} is not fitted: call fit(engine) first")

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; a ranker with another learned attribute gets another key."""
        if name.endswith("_") and not name.startswith("_") and name not in _NOT_LEARNED:
            object.__setattr__(self, "_state_key", object())
        object.__setattr__(self, name, value)
