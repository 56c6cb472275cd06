"""A ranker on another engine with the same documents and another encoder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np

from haybale.collections import Collection, Queries
from haybale.collections.collection import take_strings
from haybale.embeddings.lineage import first_unseen, trained_queries
from haybale.engine import Engine
from haybale.errors import InputError, StoreError
from haybale.parameters import SEQUENCE
from haybale.ranking.loading import load
from haybale.ranking.ranker import Ranker
from haybale.ranking.training import Training
from haybale.retrieval import Run
from haybale.search.explanation import Explanation, Share
from haybale.search.query_batch import QueryBatch

_engines: WeakValueDictionary[Path, Engine] = WeakValueDictionary()  # the open engines by folder
_COMPARED_DOCUMENTS = 200  # documents whose texts are compared between two engines, at most


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

    Documents that others add to the folder of the other engine, or remove from it, are seen by the next ranking.
    Replace a document in both engines, because each ranks it by its own text.

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
            batch = training.batch.on_engine(engine)
            _check_same_texts(batch.engine, training.batch.engine)
            external_ids = set(batch.engine.collection.doc_ids.to_pylist())
            relevant = [[doc_id for doc_id in ids if doc_id in external_ids] for ids in training.relevant]
            external = Training(batch, relevant, twins=training.twins)
            external.out_of_fold = training.out_of_fold
            self.external_rankers_.append(self.ranker._fitted_copy(external))

    def _check_answers(self, queries: Queries | None) -> None:
        """Raise InputError if the rankers of the other engines cannot rank queries; None: a new text."""
        for ranker in vars(self).get("external_rankers_") or [self.ranker]:
            ranker._check_answers(queries)

    def _own_encoder_queries(self, engine: Engine) -> frozenset[str]:
        """Return the ids of the queries that the encoders of all other engines were trained on."""
        return frozenset.intersection(*(ranker.encoder_queries for ranker in self.external_rankers_))

    def learned_from(self) -> set[str]:
        """Return the ids of the queries that the rankers of the other engines, or their encoders, were trained on."""
        return set().union(*(ranker.learned_from() for ranker in self.external_rankers_))

    def rank_batch(self, batch: QueryBatch, depth: int) -> Run:
        ranker = self.external_rankers_[0]
        return _renumbered(batch, ranker.run(self._external(batch, ranker), depth), depth)

    def out_of_fold_batch(self, batch: QueryBatch, depth: int) -> Run:
        """Rank each query on the first engine whose encoder was not trained on it."""
        seen = [self.twins_.with_twins(ranker.encoder_queries) for ranker in self.external_rankers_]
        first = first_unseen(batch.ids, seen)
        parts = []
        for number in np.unique(first).tolist():
            ranker, part = self.external_rankers_[number], batch.part(np.flatnonzero(first == number))
            run = ranker.run(self._external(part, ranker), depth, out_of_fold=True)
            parts.append(_renumbered(part, run, depth))
        return Run.joined(parts).take(batch.ids)

    def explain_document(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        ranker = self.external_rankers_[0]
        external = self._external(batch, ranker)
        inner = ranker.explained(external, int(external.engine.collection.document_numbers([base.doc_id])[0]))
        return replace(base, shares=[Share(f"{ranker} in {self.engine}", base.score or 0.0, of=inner)])

    def _cache_key(self) -> tuple[Any, ...]:
        """Return the cache key, which also tells the open engines and their rankers apart."""
        external = getattr(self, "external_rankers_", ())
        return *super()._cache_key(), tuple((ranker.engine_, ranker._cache_key()) for ranker in external)

    @property
    def outside_state(self) -> dict[str, Any]:
        """The digests of the documents of the other engines, and what their rankers read."""
        return {
            str(number): [ranker.engine_.id, ranker.engine_.documents_digest, ranker.outside_state]
            for number, ranker in enumerate(self.external_rankers_)
        }

    def save_state(self, folder: Path) -> dict[str, Any]:
        for number, ranker in enumerate(self.external_rankers_):
            ranker.save(folder / str(number))
        return {}

    def load_state(self, folder: Path, state: dict[str, Any], engine: Engine) -> None:
        engines = self._open_engines()
        self.external_rankers_ = [load(folder / str(number), external) for number, external in enumerate(engines)]

    def _open_engines(self) -> list[Engine]:
        """Open the other engines; a process opens each folder once, and again if the engine was built again."""
        engines = []
        for folder in (self.engine, *self.folds):
            path = Path(folder).resolve()
            engine = _engines.get(path)
            if engine is not None:
                try:
                    engine.refresh()
                except StoreError:  # built again
                    engine = None
            if engine is None:
                engine = _engines[path] = Engine.open(path)
            engines.append(engine)
        return engines

    def _external(self, batch: QueryBatch, ranker: Ranker) -> QueryBatch:
        """Return the queries on the engine of a ranker, restricted to the documents that both engines have.

        Calls for the same batch return the same snapshot.
        """
        try:
            ranker.engine_.refresh()
        except StoreError as error:
            raise StoreError(f"{self}: expected the engine that it was fitted on; fit it again ({error})") from None
        external = batch.on_engine(ranker.engine_)
        shared = _shared_documents(external.engine, batch.engine)
        return external if shared is external.engine else batch.on_engine(shared)

    @property
    def fit_report_(self) -> dict[str, Any]:
        ranker = self.external_rankers_[0]
        n_trained = len(trained_queries(ranker.engine_.encoder))
        return {"queries that its encoder was trained on": n_trained} | ranker.fit_report_


def _check_same_texts(external: Engine, engine: Engine) -> None:
    """Raise InputError if equal ids name different documents: if most texts of a sample share few words."""
    if external.input_digest == engine.input_digest:
        return
    ids = take_strings(engine.whole.doc_ids, np.flatnonzero(external.whole.find_documents(engine.whole.doc_ids) >= 0))
    rows = np.unique(np.linspace(0, len(ids) - 1, _COMPARED_DOCUMENTS).astype(int)) if ids else ()
    sample = [ids[row] for row in rows]
    pairs = zip(sample, _words_of(external.whole, sample), _words_of(engine.whole, sample), strict=True)
    others = [doc_id for doc_id, one, other in pairs if 2 * len(one & other) < len(one | other)]
    if 2 * len(others) > len(sample):
        raise InputError(
            f"{external!r} has other texts than {engine!r} under the same ids, such as document {others[0]!r}; "
            "give an engine of the same documents"
        )


def _words_of(documents: Collection, ids: Sequence[str]) -> list[set[str]]:
    """Return the words of documents, which hardly differ if engines split paragraphs differently."""
    texts, offsets = documents.passages.texts, documents.passages.doc_offsets
    parts = (texts[offsets[number] : offsets[number + 1]].to_pylist() for number in documents.document_numbers(ids))
    return [set(re.findall(r"\w+", " ".join(part))) for part in parts]


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
