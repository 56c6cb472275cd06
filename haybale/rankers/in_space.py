"""A ranker on another engine, which has the same documents and another encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np

from haybale.embeddings.lineage import first_unseen, trained_queries
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.parameters import SEQUENCE
from haybale.rankers.explanation import Explanation, Share
from haybale.rankers.loading import load
from haybale.rankers.query_batch import QueryBatch
from haybale.rankers.ranker import Ranker
from haybale.rankers.training import Training
from haybale.retrieval import Run

_open: WeakValueDictionary[Path, Engine] = WeakValueDictionary()  # engines in use, each opened once


@dataclass(eq=False, repr=False)
class InSpace(Ranker):
    """Rank with a ranker on another engine, which has the same documents and another encoder.

    With it, rankers over TF-IDF and over a trained encoder are fused, or are evidence of one ensemble:
    ``Learned(BM25(), KNN(), InSpace(PARM("vrrf"), "engine-trained"))``. It finds documents that both engines have.

    An encoder that was trained on judged queries ranks these better than others, so nothing may be learned from that.
    Out of fold, a training query is ranked by the first engine whose encoder has not seen it. Queries that all encoders
    have seen are left out of what :class:`~haybale.Learned` and :class:`~haybale.SVR` learn from.

    Parameters
    ----------
    ranker : Ranker
        The ranker to fit on the other engine.
    engine : str
        The folder of the other engine.
    folds : sequence of str, default ()
        Folders of engines like ``engine``, whose encoders were each trained without one fold of the training queries.
    """

    name = "space"
    variants: ClassVar = {"space": {}}
    _parameter_constraints: ClassVar = {"ranker": [Ranker], "engine": [str], "folds": SEQUENCE}

    ranker: Ranker
    engine: str
    _: KW_ONLY
    folds: Sequence[str] = ()

    @property
    def needs_training(self) -> bool:
        """Whether the ranker does, or encoders were trained fold by fold."""
        return self.ranker.needs_training or len(self.folds) > 0

    @property
    def uses_vectors(self) -> bool:
        """False: it uses no vectors of the engine that it is fitted on."""
        return False

    def fit_batch(self, training: Training) -> None:
        self.external_rankers_: list[Ranker] = []
        for engine in self._engines():
            known = set(engine.collection.doc_ids.to_pylist())
            relevant = [[doc_id for doc_id in ids if doc_id in known] for ids in training.relevant]
            self.external_rankers_.append(self.ranker.fitted(Training(training.batch.on_engine(engine), relevant)))
        self._look()

    def _look(self) -> None:
        """Set which queries each encoder has seen."""
        self.seen_ = [ranker.encoder_queries for ranker in self.external_rankers_]

    @property
    def encoder_queries(self) -> frozenset[str]:
        """The ids of queries that the encoders of all engines were trained on."""
        return frozenset.intersection(*self.seen_)

    def learned_from(self) -> set[str]:
        """The ids of the queries that the rankers there, or their encoders, were trained on."""
        return set().union(*(ranker.learned_from() for ranker in self.external_rankers_))

    def rank_batch(self, batch: QueryBatch, depth: int) -> Run:
        ranker = self.external_rankers_[0]
        return _told(batch, ranker.run(batch.on_engine(_limited(ranker.engine_, batch.engine)), depth), depth)

    def out_of_fold_batch(self, batch: QueryBatch, depth: int) -> Run:
        """Rank each query on the first engine whose encoder has not seen it."""
        first = first_unseen(batch.ids, self.seen_, f"{self}: every encoder")
        parts = []
        for number in np.unique(first).tolist():
            ranker, part = self.external_rankers_[number], batch.part(np.flatnonzero(first == number))
            there = part.on_engine(_limited(ranker.engine_, batch.engine))
            parts.append(_told(part, ranker.run_out_of_fold(there, depth), depth))
        return Run.joined(parts).take(batch.ids)

    def explain_document(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        ranker = self.external_rankers_[0]
        there = batch.on_engine(_limited(ranker.engine_, batch.engine))
        found = ranker.explained(there, int(there.engine.collection.document_numbers([base.doc_id])[0]))
        return replace(base, shares=[Share(f"{ranker} in {self.engine}", base.score or 0.0, of=found)])

    def save_state(self, folder: Path) -> dict[str, Any]:
        for number, ranker in enumerate(self.external_rankers_):
            ranker.save(folder / str(number))
        return {}

    def load_state(self, folder: Path, state: dict[str, Any], engine: Engine) -> None:
        engines = enumerate(self._engines())
        self.external_rankers_ = [load(folder / str(number), external) for number, external in engines]
        self._look()

    def _engines(self) -> list[Engine]:
        """Open the engines that the ranker within is fitted on, each once in a process."""
        return [_opened(each) for each in (self.engine, *self.folds)]

    @property
    def fit_report_(self) -> dict[str, Any]:
        ranker = self.external_rankers_[0]
        n_trained = len(trained_queries(ranker.engine_.encoder))
        return {"queries that its encoder was trained on": n_trained} | ranker.fit_report_


def _opened(folder: str) -> Engine:
    """Open the engine of a folder; every caller gets the same object."""
    path = Path(folder).resolve()
    engine = _open.get(path)
    if engine is None:
        engine = _open[path] = Engine.open(path)
    return engine


def _limited(there: Engine, here: Engine) -> Engine:
    """Return the other engine, limited to documents that this one has."""

    def made() -> Engine:
        numbers = there.collection.find_documents(here.collection.doc_ids.to_pylist())
        found = np.isin(np.arange(there.collection.n_documents), numbers)
        if not found.any():
            raise InputError(f"{there!r} has no document of {here!r}")
        return there if found.all() else there.within(found)

    return here.cached(("documents in another space", there), made)


def _told(batch: QueryBatch, run: Run, depth: int) -> Run:
    """Return a run of the other engine with document numbers of this one."""
    rows, _, documents = run.numbers_in(batch.engine.collection)
    return Run.from_numbers(batch.ids, batch.engine.collection.doc_ids, rows, documents, run.coded()[-1], depth)
