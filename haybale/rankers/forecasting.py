"""The mixin of rankers that forecast, from training alone, how well they will rank queries without judgements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.collections.queries import QueriesLike
from haybale.errors import InputError
from haybale.manifest import read_tensors, write_tensors
from haybale.parameters import COUNT, SHARE, check_parameters
from haybale.rankers.models.forecaster import Forecast, Forecaster
from haybale.rankers.models.new_queries import unseen_queries
from haybale.ranking.out_of_fold import learning
from haybale.ranking.ranker import batches_of
from haybale.ranking.runs import runs_of
from haybale.ranking.training import Training
from haybale.retrieval import Run
from haybale.retrieval.hits import Ints
from haybale.search.query_batch import QueryBatch

_DEPTH = 10  # documents of each run that a forecast looks at
_MAX_TRAINING_QUERIES = 1000  # from which a forecast is learned; more hardly make the interval narrower
MIN_QUERIES = 10  # whose mean is forecast
_MIN_TRAINING_QUERIES = 30  # with a relevant document, and groups of them
_RANDOM_STATE = 0
_TENSORS = "forecast.safetensors"


@dataclass(frozen=True, eq=False)
class _JudgedQueries:
    """The training queries from which a forecast can be learned."""

    batch: QueryBatch
    relevant: list[list[str]]
    groups: Ints  # (m,)
    is_unseen: NDArray[np.bool_]  # (m,)


class Forecasting:
    """Mixin of rankers that forecast their nDCG@10: ``class SVR(Forecasting, OutOfFold, Ranker)``.

    The ranker calls :meth:`_learn_or_remember` in ``fit_batch``, :meth:`_write_forecaster` in ``save_state``, and
    :meth:`_read_forecaster` in ``load_state``.
    """

    _judged_queries: _JudgedQueries | None = None
    _forecaster: Forecaster | None = None

    def forecast(self: Any, queries: QueriesLike, *, before: str | None = None, level: float = 0.95) -> Forecast:
        """Forecast the mean nDCG@10 of queries that need no judgements, from the training queries alone.

        Out of fold, the training queries show how nDCG@10 depends on how sure the rankings are and whether they agree.
        The forecast presumes that this is the same for the queries at hand, and that their judgements are made as those
        of the training queries were.

        Parameters
        ----------
        queries : mapping, sequence, frame, str or Path
            At least 10 queries in any form that :meth:`rank` takes. They must not be training queries, which rankers
            that learn rank better than others.
        before : str, optional
            The column of the documents' dates, as in :meth:`rank`.
        level : float, default 0.95
            The share of such intervals that should contain the mean; more than 0 and less than 1.

        Returns
        -------
        Forecast
            The interval, and the estimated shares of seen and unseen queries.

        Raises
        ------
        InputError
            For fewer queries, a training query, and a ranker with fewer than 30 training queries with a relevant
            document, or that was saved before :meth:`learn_forecast`.
        NotFittedError
            If the ranker has not been fitted.
        """
        self._check_fitted()
        check_parameters("forecast", {"level": level}, {"level": SHARE})
        forecast: Forecast = self.forecast_of(list(batches_of(self, queries, before=before)), level=level)
        return forecast

    def forecast_of(self: Any, batches: Sequence[QueryBatch], *, level: float = 0.95) -> Forecast:
        """Forecast the mean nDCG@10 of the queries of batches, as :meth:`forecast` does.

        The batches keep the rankings, so the ranker ranks them without another search.
        """
        _check_level(level)
        ids = [query for batch in batches for query in batch.ids]
        if len(ids) < MIN_QUERIES:
            raise InputError(f"a forecast needs at least {MIN_QUERIES} queries, found {len(ids)}; give more queries")
        trained_on = self.learned_from().intersection(ids)
        if trained_on:
            raise InputError(
                f"a forecast needs queries that {self} was not trained on, found {min(trained_on)!r} and "
                f"{len(trained_on) - 1:,} others; give other queries"
            )
        forecaster: Forecaster = self.learn_forecast()
        parts = [self._runs_to_forecast(batch) for batch in batches]
        return forecaster.forecast({name: Run.joined([part[name] for part in parts]) for name in parts[0]}, level)

    def forecast_as_trained(self: Any, n_queries: int, *, level: float = 0.95) -> Forecast:
        """Forecast as :meth:`forecast`, for a number of queries that are drawn as the training queries were."""
        forecaster: Forecaster = self.learn_forecast()
        check_parameters("forecast", {"n_queries": n_queries, "level": level}, {"n_queries": COUNT, "level": SHARE})
        _check_level(level)
        return forecaster.forecast_as_trained(n_queries, level)

    @property
    def can_forecast(self) -> bool:
        """Whether the ranker learned, or still can learn, what :meth:`forecast` needs."""
        return self._forecaster is not None or self._judged_queries is not None

    def learn_forecast(self: Any, training: Training | None = None) -> Forecaster:
        """Learn what :meth:`forecast` needs, if it has not been learned yet; a ranker saved afterwards keeps it.

        The training queries are ranked out of fold again; with ``training``, which the ranker was fitted on, by the
        searches that it keeps. Raises :class:`~haybale.InputError` as :meth:`forecast` does.
        """
        self._check_fitted()
        with learning:
            if self._forecaster is None and self._judged_queries is not None:
                judged: _JudgedQueries = self._judged_queries
                rows = {} if training is None else {query: row for row, query in enumerate(training.batch.ids)}
                if training is not None and rows.keys() >= set(judged.batch.ids):
                    cached = training.batch.take(np.array([rows[query] for query in judged.batch.ids]))
                    judged = replace(judged, batch=cached)
                self._learn_forecaster(judged)
        if self._forecaster is None:
            raise InputError(
                f"{self} cannot forecast: expected what it learned from at least {_MIN_TRAINING_QUERIES} training "
                "queries with a relevant document, from as many groups, found none; judge more queries, and call "
                "learn_forecast() before the ranker is saved or adapted"
            )
        forecaster: Forecaster = self._forecaster
        return forecaster

    def _learn_or_remember(self: Any, training: Training, rows: Ints, *, at_once: bool) -> None:
        """Learn the forecast from the training queries at these rows, or a sample of them, at once or when needed.

        At once, the rankings that ``training.batch`` keeps are used. Otherwise they are made again.
        """
        self._forecaster = self._judged_queries = None
        relevant, whole = training.relevant, training.batch
        judged = rows[[bool(relevant[row]) for row in rows]]
        n_drawn = min(len(judged), _MAX_TRAINING_QUERIES)
        chosen = judged[np.sort(np.random.default_rng(_RANDOM_STATE).choice(len(judged), n_drawn, replace=False))]
        groups = whole.groups
        if min(len(chosen), len(np.unique(groups[chosen]))) < _MIN_TRAINING_QUERIES:
            return
        batch = whole.take(chosen)
        if not at_once:  # without the cached rankings, which take memory
            cutoffs = None if whole.cutoffs is None else whole.cutoffs.take(chosen)
            batch = QueryBatch(whole.engine, batch.queries, whole.label, live_engine=whole.live_engine, cutoffs=cutoffs)
        is_unseen = unseen_queries(relevant, groups)[chosen]
        queries = _JudgedQueries(batch, [relevant[row] for row in chosen], groups[chosen], is_unseen)
        if at_once:
            self._learn_forecaster(queries)
        else:
            self._judged_queries = queries

    def _learn_forecaster(self: Any, judged: _JudgedQueries) -> None:
        with judged.batch.timed(f"learn forecast of {self}"):
            runs = self._runs_to_forecast(judged.batch, out_of_fold=True)
            trained = [str(part) for part in (self, *self.rankers_) if part.learns_documents]
            columns = judged.relevant, judged.groups, judged.is_unseen
            self._forecaster = Forecaster.fit(runs, str(self), trained, *columns)
        self._judged_queries = None

    def _runs_to_forecast(self: Any, batch: QueryBatch, *, out_of_fold: bool = False) -> dict[str, Run]:
        """Return the first documents of the ranker and of those within it, by name."""
        parts = {str(part): part for part in self.rankers_}
        # Not by run(…, out_of_fold=True), which needs the keys that a ranker has only after fitting.
        of_ranker = self.out_of_fold_batch(batch, _DEPTH) if out_of_fold else self.run(batch, _DEPTH)
        runs = runs_of(list(parts.values()), batch, _DEPTH, out_of_fold=out_of_fold)
        return {str(self): of_ranker} | dict(zip(parts, runs, strict=True))

    def _write_forecaster(self: Any, folder: Path) -> dict[str, Any] | None:
        """Write what the forecast was learned from, if it was; return plain values."""
        forecaster: Forecaster | None = self._forecaster
        if forecaster is None:
            return None
        write_tensors(folder / _TENSORS, forecaster.tensors())
        return forecaster.to_dict()

    def _read_forecaster(self: Any, folder: Path, saved: dict[str, Any] | None) -> None:
        """Read what :meth:`_write_forecaster` wrote and returned; rankers saved by earlier versions have none."""
        self._judged_queries = None
        self._forecaster = None if saved is None else Forecaster.from_saved(saved, read_tensors(folder / _TENSORS))


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise InputError(f"level: expected more than 0 and less than 1, found {level}; give 0.95, for example")
