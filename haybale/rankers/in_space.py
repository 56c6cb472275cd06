"""A ranker on another engine with the same documents and another encoder."""

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

_engines: WeakValueDictionary[Path, Engine] = WeakValueDictionary()  # the open engines by folder


@dataclass(eq=False, repr=False)
class InSpace(Ranker):
    """Rank with a ranker on another engine, which has the same documents and another encoder.

    It makes it possible to fuse rankers over TF-IDF and over a trained encoder, or to use both as evidence:
    ``Learned(BM25(), KNN(), InSpace(PARM("vrrf"), "engine-trained"))``. It finds the documents that both engines have.

    An encoder ranks the queries that it was trained on better than others, so nothing may be learned from these
    rankings. Out of fold, the first engine whose encoder was not trained on a query ranks it; a query that all encoders
    were trained on is refused. :class:`~haybale.Learned` and :class:`~haybale.SVR` do not learn from such queries.

    A nested ranker that learns is fitted on each engine, from the queries that the engine's encoder was not trained on.
    If the encoder of ``engine`` was trained on all of them, learn outside its space instead:
    ``SVR([BM25(), InSpace(KNN(), "engine-trained", folds=["engine-0", "engine-1"])])``.

    Parameters
    ----------
    ranker : Ranker
        The ranker to fit on the other engine.
    engine : str
        Folder of the other engine.
    folds : sequence of str, default ()
        Folders of engines like ``engine``, each with an encoder that was trained without one fold of the training
        queries.
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
        """Whether the nested ranker learns from judged queries, or encoders were trained fold by fold."""
        return self.ranker.needs_training or len(self.folds) > 0

    @property
    def uses_vectors(self) -> bool:
        """False: it only uses vectors of other engines."""
        return False

    def fit_batch(self, training: Training) -> None:
        self.external_rankers_: list[Ranker] = []
        for engine in self._open_engines():
            known = set(engine.collection.doc_ids.to_pylist())
            relevant = [[doc_id for doc_id in ids if doc_id in known] for ids in training.relevant]
            self.external_rankers_.append(self.ranker.fitted(Training(training.batch.on_engine(engine), relevant)))

    def own_encoder_queries(self, engine: Engine) -> frozenset[str]:
        """Return the ids of the queries that the encoders of all other engines were trained on."""
        return frozenset.intersection(*(ranker.encoder_queries for ranker in self.external_rankers_))

    def learned_from(self) -> set[str]:
        """Return the ids of the queries that the rankers of the other engines, or their encoders, were trained on."""
        return set().union(*(ranker.learned_from() for ranker in self.external_rankers_))

    def rank_batch(self, batch: QueryBatch, depth: int) -> Run:
        ranker = self.external_rankers_[0]
        run = ranker.run(batch.on_engine(_shared_documents(ranker.engine_, batch.engine)), depth)
        return _renumbered(batch, run, depth)

    def out_of_fold_batch(self, batch: QueryBatch, depth: int) -> Run:
        """Rank each query on the first engine whose encoder was not trained on it."""
        seen = [ranker.encoder_queries for ranker in self.external_rankers_]
        first = first_unseen(batch.ids, seen)
        parts = []
        for number in np.unique(first).tolist():
            ranker, part = self.external_rankers_[number], batch.part(np.flatnonzero(first == number))
            external = part.on_engine(_shared_documents(ranker.engine_, batch.engine))
            parts.append(_renumbered(part, ranker.run_out_of_fold(external, depth), depth))
        return Run.joined(parts).take(batch.ids)

    def explain_document(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        ranker = self.external_rankers_[0]
        external = batch.on_engine(_shared_documents(ranker.engine_, batch.engine))
        inner = ranker.explained(external, int(external.engine.collection.document_numbers([base.doc_id])[0]))
        return replace(base, shares=[Share(f"{ranker} in {self.engine}", base.score or 0.0, of=inner)])

    def save_state(self, folder: Path) -> dict[str, Any]:
        for number, ranker in enumerate(self.external_rankers_):
            ranker.save(folder / str(number))
        return {}

    def load_state(self, folder: Path, state: dict[str, Any], engine: Engine) -> None:
        engines = self._open_engines()
        self.external_rankers_ = [load(folder / str(number), external) for number, external in enumerate(engines)]

    def _open_engines(self) -> list[Engine]:
        """Open the other engines; a process opens each folder once."""
        engines = []
        for folder in (self.engine, *self.folds):
            path = Path(folder).resolve()
            engine = _engines.get(path)
            if engine is None:
                engine = _engines[path] = Engine.open(path)
            engines.append(engine)
        return engines

    @property
    def fit_report_(self) -> dict[str, Any]:
        ranker = self.external_rankers_[0]
        n_trained = len(trained_queries(ranker.engine_.encoder))
        return {"queries that its encoder was trained on": n_trained} | ranker.fit_report_


def _shared_documents(external: Engine, engine: Engine) -> Engine:
    """Return the external engine, restricted to the documents that the engine has."""

    def restricted() -> Engine:
        numbers = external.collection.find_documents(engine.collection.doc_ids.to_pylist())
        is_shared = np.isin(np.arange(external.collection.n_documents), numbers)
        if not is_shared.any():
            raise InputError(f"{external!r} has no document of {engine!r}; give an engine of the same documents")
        return external if is_shared.all() else external.within(is_shared)

    return engine.cached(("documents in another space", external), restricted)


def _renumbered(batch: QueryBatch, run: Run, depth: int) -> Run:
    """Return a run of another engine with the document numbers of the batch's engine."""
    rows, _, documents = run.numbers_in(batch.engine.collection)
    return Run.from_numbers(batch.ids, batch.engine.collection.doc_ids, rows, documents, run.coded()[-1], depth)
