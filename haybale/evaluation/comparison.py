"""Compare rankers on one split, and write the runs, the table and the time of each stage to a folder."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from haybale.collections import Collection
from haybale.collections.query_groups import words_key
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.evaluation.dated_split import DatedSplit
from haybale.evaluation.intervals import LEVEL, N_SAMPLES, SEED
from haybale.evaluation.measures import MEASURES, evaluate, parse_measures
from haybale.evaluation.seen_queries import NO_TEXT, SeenQueries, markdown_of
from haybale.evaluation.table import Results, html_table_of, markdown, results
from haybale.folders import whole_folder, write_json
from haybale.parameters import BOOLEAN, COUNT_OR_NONE, SEQUENCE, TEXT_OR_NONE, Constraints, check_parameters
from haybale.rankers import (
    BM25,
    KNN,
    PARM,
    SVR,
    Learned,
    Popularity,
    QueryBatch,
    Ranker,
    Training,
    from_spec,
    parse_all,
)
from haybale.rankers.forecasting import MIN_QUERIES, Forecasting
from haybale.rankers.models.forecaster import Forecast
from haybale.ranking.empty_rankings import warn_of_empty
from haybale.ranking.runs import runs_of
from haybale.retrieval import Run
from haybale.retrieval.run import DEPTH
from haybale.timing import record_timings, timed
from haybale.versions import versions_of

# Entries of Outcome.facts.
KNOWN_QUESTIONS, LEFT_OUT = "queries with the words of a training query", "left out by dates"

ALL = "all"  # the group of all queries

Rankers = str | Sequence[Ranker | str] | Mapping[str, Ranker | str]


def default_rankers() -> list[Ranker]:
    """Return the default rankers of :func:`compare`."""
    return [BM25(), BM25("document"), KNN(), KNN("document"), PARM(), SVR(), Learned()]


@dataclass(frozen=True)
class Outcome:
    """The result of a comparison. A notebook shows its table."""

    collection: Collection
    split: str
    rankers: dict[str, Ranker]  # the fitted rankers by their names in the table
    runs: dict[str, Run]
    results: Results
    seconds: dict[str, float]  # the seconds of each stage, without nested stages
    facts: dict[str, Any]  # the shape of the vectors, the fit reports of the rankers, and known_questions
    settings: dict[str, Any]  # the settings of the engine
    seen: SeenQueries | None = None  # how seen and unseen queries are ranked; None if no ranker learns
    source: str | None = None  # the path or name of the collection, if known
    layout: str | None = None
    forecasts: dict[str, Forecast] = field(default_factory=dict)  # of nDCG@10, made before judgements are read

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: everything except the runs, and today's date in UTC."""
        return {
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "collection": {
                "name": self.collection.name,
                "source": self.source,
                "layout": self.layout,
                "documents": self.collection.n_documents,
                "passages": self.collection.n_passages,
                "queries": {name: len(part.queries) for name, part in self.collection.splits.items()},
            },
            "settings": self.settings_dict(),
            "queries measured": self.results.n_queries,
            "intervals": {"level": LEVEL, "samples of queries": N_SAMPLES, "random state": SEED},
            "rankers": self.results.to_dict(),
            "seen": None if self.seen is None else self.seen.to_dict(),
            "forecasts": {name: forecast.to_dict() for name, forecast in self.forecasts.items()},
            "seconds": self.seconds,
            "facts": self.facts,
            "environment": environment(),
        }

    def settings_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: the split, the baseline, the settings of the engine and the rankers."""
        rankers = {name: ranker.to_dict() for name, ranker in self.rankers.items()}
        return {"split": self.split, "baseline": self.results.baseline, **self.settings, "rankers": rankers}

    @property
    def title(self) -> str:
        """The names of the collection and the split, above the table."""
        return f"{self.collection.name}, {self.split}"

    def to_frame(self, *, per_query: bool = False, groups: bool = False) -> pd.DataFrame:
        """Return the table, or the values of each query, as :meth:`Results.to_frame` does.

        Parameters
        ----------
        per_query : bool, default False
            Whether there is a row for each ranker and query.
        groups : bool, default False
            Whether to add a column ``group``. With ``per_query``, it is the group of the query: ``"seen"``, ``"partly
            seen"`` or ``"unseen"``, or ``"all"`` if no ranker learns. Otherwise it is ``"all"``, and rows of the means
            of each group follow, as in :meth:`SeenQueries.to_frame`; ``n_queries`` is the size of the group.
        """
        check_parameters("to_frame", {"groups": groups}, {"groups": BOOLEAN})
        frame = self.results.to_frame(per_query=per_query)
        if not groups:
            return frame
        if per_query:
            group_of = {} if self.seen is None else self.seen.group_of
            frame.insert(2, "group", [group_of.get(query, ALL) for query in frame["query_id"]])
            return frame
        frame.insert(1, "group", ALL)
        frame.insert(2, "n_queries", self.results.n_queries)
        return frame if self.seen is None else pd.concat([frame, self.seen.to_frame()], ignore_index=True)

    def to_latex(
        self,
        measures: Sequence[str] | None = None,
        *,
        title: str | None = None,
        label: str | None = None,
        groups: bool = False,
    ) -> str:
        """Return the table in LaTeX, as :meth:`Results.to_latex` does; the default title is :attr:`title`.

        With ``groups``, the table of :meth:`SeenQueries.to_latex` follows if a ranker learns; its label is ``label``
        with ``-groups``.
        """
        check_parameters("to_latex", {"groups": groups}, {"groups": BOOLEAN})
        title = self.title if title is None else title
        table = self.results.to_latex(measures, title=title, label=label)
        if not groups or self.seen is None:
            return table
        label = None if label is None else f"{label}-groups"
        return f"{table}\n\n{self.seen.to_latex(measures, title=title, label=label)}"

    def __repr__(self) -> str:
        return f"Outcome for {self.title}: {self.results!r}"

    def _repr_html_(self) -> str:
        """Return the table for notebooks, and the one of seen and unseen queries if a ranker learns."""
        table = html_table_of(self.results, self.title)
        return table if self.seen is None else f"<div>{table}{self.seen._repr_html_()}</div>"

    def write(self, folder: Path | str) -> None:
        """Write ``runs/<ranker>.trec``, ``table.md`` and three more files to a new folder.

        ``per_query.csv`` has the measures and the group of each query, as :meth:`to_frame` returns them;
        ``results.json`` and ``settings.json`` have :meth:`to_dict` and :meth:`settings_dict`. The folder appears only
        when it is complete.
        Raises :class:`~haybale.OutputExistsError` if it is not empty.
        """
        with whole_folder(Path(folder)) as aside:
            (aside / "runs").mkdir()
            for name, run in self.runs.items():
                run.to_trec(aside / "runs" / f"{file_name(name)}.trec", tag="".join(name.split()) or "haybale")
            tables = [markdown(self.results)]
            if self.seen is not None:
                tables.append(markdown_of(self.seen, self.results.measures))
            (aside / "table.md").write_text("\n\n".join(tables) + "\n", encoding="utf-8")
            self.to_frame(per_query=True, groups=True).to_csv(aside / "per_query.csv", index=False)
            write_json(aside / "results.json", self.to_dict())
            write_json(aside / "settings.json", self.settings_dict())


_RANGES: dict[str, Constraints] = {
    "rankers": [str, *SEQUENCE, None],  # a mapping too
    "split": [str],
    "train": [str],
    "n_train": COUNT_OR_NONE,
    "baseline": [str, Ranker],
    "where": TEXT_OR_NONE,
    "before": TEXT_OR_NONE,
    "report": [callable, None],
}


def compare(
    engine: Engine | Collection | str,
    rankers: Rankers | None = None,
    *,
    split: str = "dev",
    train: str = "train",
    n_train: int | None = None,
    baseline: Ranker | str = "bm25",
    measures: Sequence[str] = MEASURES,
    where: str | None = None,
    before: str | None = None,
    report: Callable[[str, float], None] | None = None,
) -> Outcome:
    """Rank the queries of a split with several rankers, and compare each ranker with a baseline.

    Rankers share vectors, hits and runs, and equal rankers are fitted once. Rankings do not depend on the judgements of
    the split. If queries of the split have the words of a training query, the facts of the result say how many.

    Parameters
    ----------
    engine : Engine, Collection or str
        An engine. For a collection (or an argument of :func:`~haybale.open_collection`), an engine is made in memory.
    rankers : str, or sequence or mapping of Ranker or str, optional
        Ranker texts such as ``"rrf(bm25,knn)"``, or rankers, fitted or not. A mapping also names them. Default:
        :func:`default_rankers`.
    split : str, default "dev"
        The split whose queries are ranked.
    train : str, default "train"
        The split that rankers are fitted on.
    n_train : int, optional
        Fit on at most this many queries of ``train``, drawn at random, for a first look in less time. Default: on all.
    baseline : Ranker or str, default "bm25"
        The baseline, which is ranked even if ``rankers`` lack it.
    measures : sequence of str
        Names of measures as for :func:`~haybale.evaluate`.
    where : str, optional
        Rank only documents that fulfil this SQL condition on their metadata, as in :meth:`Ranker.rank`, and evaluate on
        the judgements of these. Rankers learn from all judgements of ``train``.
    before : str, optional
        The column of the metadata with the dates of documents. Each query, also in training, finds only documents that
        are certainly earlier than itself, as in :meth:`Ranker.rank`. Queries without a date, and judgements of
        documents that are not earlier, are left out; the facts of the result count them.
    report : callable, optional
        Called with ``(stage, seconds)`` at the end of each stage.

    Raises
    ------
    InputError
        Before any work: for unknown names, for a ranker that was or would be trained on queries of the evaluated split,
        and for a ranker without a split to train on.
    """
    check_parameters("compare", locals(), _RANGES)
    named = _named(default_rankers() if rankers is None else rankers)
    first = str(baseline)
    if isinstance(baseline, Ranker) and first in named and named[first]._cache_key() != baseline._cache_key():
        raise InputError(
            f"expected one ranker called {first!r}, found another as the baseline; give a mapping that names them"
        )
    named = {first: named[first] if first in named else from_spec(baseline), **named}
    parse_measures(measures)
    files: dict[str, str] = {}
    for name in named:
        if (other := files.setdefault(file_name(name).casefold(), name)) != name:
            raise InputError(f"rankers {other!r} and {name!r} cannot be written to the same file; rename one of them")
    with record_timings(report) as stages:
        engine = engine if isinstance(engine, Engine) else Engine(engine)
        _check_training(engine, named, split, train)
        training = Training.of(engine, train if train in engine.collection.splits else None, before=before)
        training = training if n_train is None else training.sample(n_train)
        snapshot = training.engine  # all rankers are fitted and ranked on it
        ranked = snapshot if where is None else snapshot.within(where=where)
        collection = snapshot.collection
        dated = None if before is None else DatedSplit.of(ranked.collection, split, before)
        qrels = ranked.collection.qrels_frame(split) if dated is None else dated.qrels
        evaluate(Run.joined([]), qrels, measures)  # raises for unusable judgements before any work
        queries = ranked.collection.queries.take(collection.split(split).queries) if dated is None else dated.queries
        batch = QueryBatch(ranked, queries, cutoffs=None if dated is None else dated.cutoffs)
        fitted = {
            name: ranker if _is_fitted_on(ranker, engine) else ranker._fitted_copy(training)
            for name, ranker in named.items()
        }
        runs = dict(zip(fitted, runs_of(list(fitted.values()), batch, DEPTH), strict=True))
        for name, run in runs.items():
            warn_of_empty(run, fitted[name], name, dated is not None)
        forecasts = {} if where is not None else _forecasts(fitted, batch, training)
        with timed("evaluate"):
            table = results({name: evaluate(run, qrels, measures) for name, run in runs.items()}, first)
            learns = any(ranker.needs_training for ranker in fitted.values())
            seen = _seen(table, runs, batch, qrels, training) if learns and training.has_relevant else None
    facts: dict[str, Any] = {"vectors": list(engine.passages.vectors.shape)} if "passages" in engine.made else {}
    if dated is not None:
        facts[LEFT_OUT] = dated.left_out | training.left_out
    if learns:
        facts |= known_questions(collection, split, train)
    facts |= {name: ranker.fit_report_ for name, ranker in _all_of(fitted).items() if ranker.fit_report_}
    chosen = {name: value for name, value in (("where", where), ("before", before)) if value is not None}
    settings = engine.settings | chosen
    return Outcome(collection, split, fitted, runs, table, stages.seconds, facts, settings, seen, forecasts=forecasts)


def _forecasts(rankers: Mapping[str, Ranker], batch: QueryBatch, training: Training) -> dict[str, Forecast]:
    """Return what the rankers that can forecast expect, from training and from the rankings of the batch alone."""
    forecasts = {}
    for name, ranker in rankers.items():
        if isinstance(ranker, Forecasting) and ranker.can_forecast and len(batch) >= MIN_QUERIES:
            ranker.learn_forecast(training)
            with timed("forecast"):
                forecasts[name] = ranker.forecast_of([batch])
    return forecasts


def _seen(
    table: Results, runs: dict[str, Run], batch: QueryBatch, qrels: pd.DataFrame, training: Training
) -> SeenQueries:
    """Return how rankers, and the frequencies of training judgements alone, rank seen and unseen queries."""
    no_text = Popularity()._fitted_copy(training).run(batch, DEPTH)
    values = table.values | {NO_TEXT: evaluate(no_text, qrels, table.measures).loc[table.values[table.baseline].index]}
    return SeenQueries.of(
        values, runs | {NO_TEXT: no_text}, qrels, {doc_id for ids in training.relevant for doc_id in ids}
    )


def _named(rankers: Rankers) -> dict[str, Ranker]:
    if isinstance(rankers, Mapping):
        return {name: from_spec(ranker) for name, ranker in rankers.items()}
    named: dict[str, Ranker] = {}
    for listed in parse_all(rankers) if isinstance(rankers, str) else rankers:
        ranker = from_spec(listed)
        name = listed if isinstance(listed, str) else str(ranker)
        if named.setdefault(name, ranker)._cache_key() != ranker._cache_key():
            raise InputError(
                f"expected one ranker called {name!r}, found two that were fitted apart; name them in a mapping"
            )
    return named


def _is_fitted_on(ranker: Ranker, engine: Engine) -> bool:
    return getattr(ranker, "engine_", None) is engine


def _check_training(engine: Engine, rankers: Mapping[str, Ranker], split: str, train: str) -> None:
    queries = engine.collection.queries.take(engine.collection.split(split).queries)
    evaluated = set(queries.ids.to_pylist())
    for name, ranker in rankers.items():
        ranker._check_params()
        ranker._check_answers(queries)
        if _is_fitted_on(ranker, engine):
            seen = evaluated & ranker.learned_from()
            if seen:
                raise InputError(
                    f"{name} cannot be evaluated on {split!r}: it was trained on {len(seen)} queries of it; "
                    "choose another split"
                )
        elif ranker.needs_training and train == split:
            raise InputError(
                f"{name} cannot be trained and evaluated on the same split, {split!r}; choose another split"
            )
        elif ranker.needs_training and train not in engine.collection.splits:
            raise InputError(
                f"{name} needs a split to learn from: {engine.collection.name} has no split {train!r}, only "
                f"{', '.join(engine.collection.splits)}; choose one of them as train, or omit {name}"
            )


def known_questions(collection: Collection, split: str, train: str = "train") -> dict[str, Any]:
    """Return how many queries of a split have the words of a training query; empty if none has.

    A ranker that learns remembers the answers to these, as it would for users who ask what others asked before. The
    measures include them, so they say less about new questions than they seem to.

    Parameters
    ----------
    collection : Collection
    split, train : str
        The names of the evaluated split and of the training split.

    Returns
    -------
    dict
        ``"queries with the words of a training query"``: the number of them (``"queries"``) among all (``"of"``), and
        the first one with its training query (``"first"``, ``"training query"``).
    """
    if train not in collection.splits:
        return {}
    queries = collection.queries.take(collection.split(split).queries)
    trained = collection.queries.take(collection.split(train).queries)
    asked = dict(zip(map(words_key, trained.texts(range(len(trained)))), trained.ids.to_pylist(), strict=True))
    keys = list(map(words_key, queries.texts(range(len(queries)))))
    rows = [row for row, key in enumerate(keys) if key in asked]
    if not rows:
        return {}
    first = {"first": queries.ids[rows[0]].as_py(), "training query": asked[keys[rows[0]]]}
    return {KNOWN_QUESTIONS: {"queries": len(rows), "of": len(queries)} | first}


def _all_of(rankers: Mapping[str, Ranker]) -> dict[str, Ranker]:
    """Return the nested rankers and the rankers by name; a nested one with a taken name is called "name in parent"."""
    named = dict(rankers)
    for parent, ranker in rankers.items():
        for name, inner in _all_of({str(inner): inner for inner in ranker.rankers_}).items():
            taken = named.setdefault(name, inner)
            if taken is not inner and taken._cache_key() != inner._cache_key():
                named[f"{name} in {parent}"] = inner
    return {name: named[name] for name in [*(name for name in named if name not in rankers), *rankers]}


def file_name(ranker: str) -> str:
    """Return the file name of a ranker's run; a long name is cut and gets a checksum.

    >>> file_name("rrf(bm25,svr)"), file_name("cross-encoder(bm25,model='a/model')")
    ('rrf-bm25-svr', 'cross-encoder-bm25-model-a-model')
    """
    name = "-".join(re.findall(r"[\w.]+", ranker)) or "ranker"
    return name if len(name) <= 120 else f"{name[:120]}-{hashlib.sha256(ranker.encode()).hexdigest()[:8]}"


def environment() -> dict[str, str]:
    """Return the machine and the package versions on which results depend."""
    facts = {"python": platform.python_version()}
    facts["machine"] = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return facts | versions_of(("haybale", "numpy", "scipy", "scikit-learn", "pandas", "ir_measures"))
