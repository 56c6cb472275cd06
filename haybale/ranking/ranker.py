"""The base class of rankers, which are fitted on an engine, rank queries, explain scores, nest and are saved."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from haybale.collections.queries import QueriesLike, queries_from
from haybale.embeddings.lineage import check_unseen, trained_queries
from haybale.engine import Engine
from haybale.errors import InputError, NotFittedError
from haybale.folders import whole_folder, write_json
from haybale.frames import Frame
from haybale.manifest import digest, with_checksum
from haybale.parameters import COUNT, check_parameters
from haybale.ranking.empty_rankings import warn_of_empty
from haybale.ranking.learned_state import state_digests
from haybale.ranking.ranker_parameters import RankerParameters, comparable
from haybale.ranking.training import Training
from haybale.ranking.twins import Twins
from haybale.registry import Registry, undefined_methods
from haybale.retrieval import Run
from haybale.retrieval.run import DEPTH
from haybale.search.explanation import Explanation
from haybale.search.query_batch import QueryBatch

if TYPE_CHECKING:
    from haybale.search import SearchResults

FORMAT, VERSION, MANIFEST = "haybale ranker", 2, "ranker.json"  # version 1 had a different SVR
_QUERIES_PER_BATCH = 16_384  # their runs and the kernel values of an ensemble fit into memory
_NOT_LEARNED = {
    "rankers_",
    "twins_",
    "engine_",
    "training_digest",
    "fitted_key",
    "_saved",
    "state_key",
}  # attributes that fitting sets and that hold nothing learned


class Variant(NamedTuple):
    """A class of rankers with some of its parameters set, registered under a name."""

    ranker: type[Ranker]
    parameters: dict[str, Any]


RANKERS: Registry[Variant] = Registry("ranker", "haybale.rankers")


class Ranker(RankerParameters, ABC):
    """The base class of all rankers: subclass it to add one.

    A ranker is a small object configured by its constructor arguments, like a scikit-learn estimator. ``__init__`` only
    assigns them. Arguments may be rankers; ``*rankers`` takes any number of them. Fitting does not change the
    arguments: fitted copies of nested rankers are in ``rankers_``. The first n documents of a ranking never depend on
    its depth.

    A subclass has a ``name``, which registers it for ranker texts, the command line and :func:`haybale.load`. It
    defines

    - :meth:`rank_batch` and :meth:`explain_document`;
    - :meth:`fit_batch`, if it has to prepare anything before it can rank;
    - :meth:`out_of_fold_batch`, if it or a nested ranker learns from judged queries
      (:class:`~haybale.rankers.OutOfFold` is a mixin for rankers that learn);
    - :meth:`save_state` and :meth:`load_state`, if fitting computes anything that must be saved;
    - :meth:`own_encoder_queries` and :meth:`outside_state`, if it uses a trained model besides the engine's encoder.

    In another package, an entry point of the group ``haybale.rankers`` names the module of the subclass.

    Attributes
    ----------
    name : str
        Name of the class in ranker texts and in saved files.
    variants : dict of str to dict
        Names in ranker texts and tables, each with the parameters that it sets. Default: ``name`` without parameters.
    engine_ : Engine
        The engine that the ranker was fitted on. It ranks the documents that the engine has when a call begins.
    rankers_ : sequence of Ranker
        Fitted copies of the nested rankers, in the order of the parameters.
    query_ids_, twins_ : sequence of str, Twins
        Ids of the judged queries that the ranker learned from, of twins only one; and the ids of the other twins.
    """

    _parameter_constraints: ClassVar[Mapping[str, list[Any]]] = {}

    engine_: Engine
    rankers_: Sequence[Ranker] = ()
    query_ids_: Sequence[str] = ()
    twins_: Twins = Twins()
    training_digest: str | None = None  # Training.digest of the judgements that it was fitted on
    fitted_key: tuple[Any, ...] | None = None  # key() at the time of fitting; parameters may have changed since
    # Stands for what was learned: an object that no other fit has, or the digest of what was saved. None for nothing.
    state_key: object = None
    _saved: tuple[Path, str, tuple[Any, ...] | None] | None = None  # folder, digest of the manifest, fitted_key then

    def __init_subclass__(cls, **options: Any) -> None:
        """Register the ranker under its name and its variants; TypeError if the class lacks a method or a name."""
        super().__init_subclass__(**options)
        missing = undefined_methods(cls)
        if getattr(cls, "needs_training", None) is True and cls.out_of_fold_batch is Ranker.out_of_fold_batch:
            missing.append("out_of_fold_batch")
        if "name" in cls.__dict__:
            if missing:
                raise TypeError(
                    f"the ranker {cls.__name__} ({cls.name!r}) must define {', '.join(missing)}; add what is missing"
                )
            if "variants" not in cls.__dict__:
                cls.variants = {cls.name: {}}
            for name, parameters in {cls.name: {}, **cls.variants}.items():
                RANKERS.add(name, Variant(cls, parameters), cls)
        elif not missing and not hasattr(cls, "name"):
            raise TypeError(f'the ranker {cls.__name__} has no name: set the class attribute name, such as "recent"')

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
        self.rankers_ = [ranker.fitted(training) for ranker in self.nested()]

    def out_of_fold_batch(self, batch: QueryBatch, depth: int) -> Run:
        """Rank queries as if the ranker had not been trained on any of them.

        Only called if :attr:`needs_training` is true. Call :meth:`run_out_of_fold` of nested rankers.
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
    def uses_vectors(self) -> bool:
        """Whether the ranker itself uses vectors of the engine's encoder; nested rankers do not count."""
        return True

    @property
    def ranks_whole_batches(self) -> bool:
        """Whether a batch of many queries is ranked as a whole, and not in blocks that other processes rank.

        Such a ranker divides its own work into tasks, or has little of it.
        """
        return False

    @property
    def fit_report_(self) -> dict[str, Any]:
        """Results of fitting for tables and reports, such as counts and weights, by name."""
        return self.twins_.report

    def implied(self) -> dict[str, tuple[Ranker, ...]]:
        """Return the default rankers that stand in for omitted parameters, by parameter."""
        return {}

    def make_explicit(self, name: str, rankers: tuple[Ranker, ...]) -> None:
        """Set a parameter to its implied rankers, after a parameter of one of them was changed."""
        setattr(self, name, rankers)

    def answers_to(self, name: str, parameter: str) -> bool:
        """Return whether ``--set name.parameter`` also sets a parameter of this ranker, which has another name."""
        return False

    def check_params(self) -> None:
        """Raise :class:`~haybale.InputError` if a parameter, here or in a nested ranker, is out of range."""
        check_parameters(type(self).__name__, self.get_params(deep=False), self._parameter_constraints)
        for ranker in self.nested():
            ranker.check_params()

    # What every ranker has.

    def fit(self, engine: Engine, queries: QueriesLike | None = None, qrels: Frame | None = None) -> Self:
        """Fit on an engine; rankers that learn from judged queries are trained.

        Parameters
        ----------
        engine : Engine
            The engine whose documents are ranked.
        queries : str or queries, optional
            Training queries: the name of a split (default ``"train"``), or queries in any form that :meth:`rank` takes.
        qrels : frame, optional
            Judgements with columns ``query_id``, ``doc_id`` and ``relevance``. Required unless ``queries`` is a split;
            without ``queries``, all queries of the collection that it judges are used.

        Raises
        ------
        InputError
            Before any work: for parameters out of range, and for a ranker that learns if no query has a relevant
            document.
        """
        self.check_params()
        if self.needs_training and qrels is None and queries is None and "train" not in engine.collection.splits:
            name, splits = engine.collection.name, ", ".join(engine.collection.splits)
            if not splits:
                raise InputError(
                    f"{self} needs judged queries, but {name!r} has none; add some with haybale judge, or use bm25"
                )
            raise InputError(
                f"{self} needs judged queries, but {name!r} has no split 'train'; "
                f"choose another split ({splits}), or give queries with qrels"
            )
        training = Training.of(engine, queries, qrels)
        if self.needs_training and not training.has_relevant:
            raise InputError(f"{self} needs queries with a relevant document, found none; give other queries or qrels")
        return self.fit_on(training)

    def fit_on(self, training: Training) -> Self:
        """Fit on judged queries, and share searches and fitted rankers through ``training``."""
        self.check_params()
        self.training_digest = training.digest if self.needs_training else None
        self.state_key = state = object()
        self.fit_batch(training)
        self.twins_ = training.twins if self.needs_training else Twins()
        self.finish(training.live_engine, state)
        return self

    def finish(self, engine: Engine, state: object) -> None:
        """Set the engine after fitting or loading, and the state key: ``state`` if anything was learned, else None."""
        has_learned = bool(vars(self).keys() - self.parameters().keys() - _NOT_LEARNED)
        self.engine_, self.state_key = engine, state if has_learned else None
        self.fitted_key = self.key()

    @property
    def saves_state(self) -> bool:
        """Whether the class saves what it learns."""
        return type(self).save_state is not Ranker.save_state

    def fitted(self, training: Training) -> Self:
        """Return a fitted copy, or the ranker itself if it was fitted on the same judged queries and documents.

        A :class:`~haybale.rankers.Training` fits equal rankers once.
        """
        same_training = self.training_digest is not None and self.training_digest == training.digest
        if same_training and self.engine_ is training.live_engine and self.fitted_key == self.key():
            return self
        copy = self.clone()
        return training.cached_fit(copy.key(), lambda: copy.fit_on(training))

    def rank(
        self,
        queries: QueriesLike,
        *,
        depth: int = DEPTH,
        within: Sequence[str] | NDArray[np.bool_] | None = None,
        where: str | None = None,
    ) -> Run:
        """Return the best documents of each query.

        The ranking of a query does not depend on the other queries. Only with dense vectors may the last bits of its
        scores depend on how many queries are ranked at once. All queries of a call are ranked on the documents that the
        engine has when it begins; several threads may rank at once, while others change the engine.

        Parameters
        ----------
        queries : mapping, sequence, frame, str or Path
            ``{"q1": "a text", "q2": ["its first paragraph", "its second"]}``, or any other form that
            :func:`~haybale.rankers.queries_from` takes.
        depth : int, default 1000
            Largest number of documents for each query.
        within : sequence of str or (n_documents,) bool, optional
            Rank only these documents, given by id or as a mask.
        where : str, optional
            Rank only documents that fulfil this SQL condition on their metadata, such as ``"year >= 2015 and court =
            'BGH'"``; see :class:`~haybale.engine.document_filter.DocumentFilter`.

        Raises
        ------
        InputError
            For an empty text, a repeated query id, an unknown document or a wrong condition, and if no document is
            left to rank.
        NotFittedError
            If the ranker has not been fitted.
        """
        self.check_fitted()
        check_parameters("rank", {"depth": depth}, {"depth": COUNT})
        parts = [self.run(part, depth) for part in self.batches(queries, within=within, where=where)]
        run = parts[0] if len(parts) == 1 else Run.joined(parts)
        warn_of_empty(run, str(self))
        return run

    def batches(
        self,
        queries: QueriesLike,
        *,
        within: Sequence[str] | NDArray[np.bool_] | None = None,
        where: str | None = None,
        engine: Engine | None = None,
    ) -> Iterator[QueryBatch]:
        """Yield the queries of :meth:`rank` in batches of some thousands, for :meth:`run` and :meth:`explained`.

        ``ranker.explained(batch.take(row), …)`` repeats no search of ``ranker.run(batch, depth)``. ``engine`` is the
        snapshot of the ranker's engine to search, of which ``Queries`` have document numbers; by default a new one.
        """
        self.check_fitted()
        engine = (engine or self.engine_).snapshot()
        parsed = queries_from(engine.collection, queries)
        if within is not None or where is not None:
            engine = engine.within(within, where=where)
            parsed = replace(parsed, own=engine.numbers_within(parsed.own))
        starts = range(0, len(parsed), _QUERIES_PER_BATCH)
        return (
            QueryBatch(engine, parsed.take(np.arange(at, min(at + _QUERIES_PER_BATCH, len(parsed))))) for at in starts
        )

    def run(self, batch: QueryBatch, depth: int) -> Run:
        """Return the first ``depth`` documents of each query of a batch, which caches the run."""
        if len(batch) > batch.block:
            from haybale.ranking.query_blocks import rank_in_blocks

            rank_in_blocks([self], batch, depth)
        return batch.cached_run(self.run_key(), depth, self.rank_batch)

    def run_key(self) -> tuple[Any, ...]:
        """Return the key of :meth:`run` in the cache of a batch."""
        return "run", self.key()

    def run_out_of_fold(self, batch: QueryBatch, depth: int) -> Run:
        """Return the same as :meth:`run`, but rank training queries as if the ranker had not seen them.

        Raises :class:`~haybale.InputError` for a query that an encoder behind the ranker was trained on, since no
        ranking by this encoder is unbiased; rankers with encoders of folds use one that was not trained on it.
        """
        check_unseen(batch.ids, self.twins_.with_twins(self.encoder_queries), self)
        if not self.needs_training:
            return self.run(batch, depth)
        return batch.cached_run(self.out_of_fold_key(), depth, self.out_of_fold_batch)

    def out_of_fold_key(self) -> tuple[Any, ...]:
        """Return the key of :meth:`run_out_of_fold` in the cache of a batch."""
        return ("out of fold", self.key()) if self.needs_training else self.run_key()

    def out_of_fold(self, queries: QueriesLike = "train", *, depth: int = DEPTH) -> Run:
        """Rank like :meth:`rank`, but training queries as if the ranker had not seen them.

        Bags or folds that were trained without a query rank it, or its neighbours among the other training queries.

        Raises
        ------
        InputError
            For a query that an encoder behind the ranker was trained on, unless the ranker has an encoder of a fold
            that was not (see :class:`~haybale.InSpace` and :class:`~haybale.CrossEncoder`).
        """
        self.check_fitted()
        check_parameters("out_of_fold", {"depth": depth}, {"depth": COUNT})
        engine = self.engine_.snapshot()
        return self.run_out_of_fold(QueryBatch(engine, queries_from(engine.collection, queries), "train"), depth)

    def explain(
        self,
        query: QueriesLike,
        doc_id: str,
        *,
        within: Sequence[str] | NDArray[np.bool_] | None = None,
        where: str | None = None,
    ) -> Explanation:
        """Explain a document's score for one query, down to the passages and judged queries that nested rankers use.

        ``within`` and ``where`` are those of :meth:`rank`, because scores by ranks depend on them.
        """
        batches = list(self.batches(query, within=within, where=where))
        if (n_queries := sum(map(len, batches))) != 1:
            raise InputError(f"explain needs one query, found {n_queries}")
        document = int(batches[0].engine.collection.document_numbers([str(doc_id)])[0])
        return self.explained(batches[0], document)

    def search(self, text: str | Sequence[str], k: int = 10, where: str | None = None) -> SearchResults:
        """Return the best documents for one text with their best passages, what carried the score marked in them.

        The documents are those of :meth:`rank`. Highlights are terms for BM25 and TF-IDF, and the sentence nearest to
        the query for other vectors; for fused and learned rankers, whichever carried more of the score in a passage.

        Parameters
        ----------
        text : str or sequence of str
            The query, or its paragraphs. A phrase in quotation marks must occur in one passage of each document: its
            terms next to each other, where stop words and inflections make no difference.
        k : int, default 10
            Largest number of documents.
        where : str, optional
            Search only documents that fulfil this SQL condition on their metadata, as in :meth:`rank`; there may be
            none.

        Raises
        ------
        InputError
            For an empty text, a phrase that has only stop words, or a wrong condition.
        NotFittedError
            If the ranker has not been fitted.
        """
        from haybale.search.searching import search

        return search(self, text, k, where)

    def explained(self, batch: QueryBatch, document: int) -> Explanation:
        """Explain the score of a document, given by its number, for the only query of a batch."""
        doc_id = str(batch.engine.collection.doc_ids[document].as_py())
        rank, score = self.places(batch, DEPTH).get(doc_id, (None, None))
        encoder = batch.engine.encoder if self.uses_vectors else None
        text = batch.once(("text", self.key()), lambda: str(self))
        base = Explanation(text, batch.ids[0], doc_id, score, rank, matcher=encoder)
        return base if rank is None else self.explain_document(batch, document, base)

    def places(self, batch: QueryBatch, depth: int) -> Mapping[str, tuple[int, float]]:
        """Return the rank, from 1, and the score of each document that :meth:`run` finds for a batch of one query."""
        return batch.once(
            ("places", self.key(), depth),
            lambda: {doc: (n, score) for n, (doc, score) in enumerate(self.run(batch, depth)[batch.ids[0]], 1)},
        )

    def save(self, folder: str | Path) -> None:
        """Write the fitted ranker, without its engine, to a new folder, which appears only when it is complete.

        :func:`haybale.load` loads it in any process that has the engine. The folder holds JSON, safetensors and Parquet
        files:

            ranker.json        format, version, the ranker as plain values, its engine, SHA-256 of every other file
            fitted/0/ …        what each ranker learned, nested rankers first; a shared ranker is saved once

        Raises
        ------
        OutputExistsError, NotFittedError
            If the folder is not empty, or if the ranker has not been fitted.
        """
        self.check_fitted()
        order = _innermost_first(self)
        numbers = {id(ranker): number for number, ranker in enumerate(order)}
        with whole_folder(Path(folder)) as aside:
            fitted = []
            for number, ranker in enumerate(order):
                state_folder = aside / "fitted" / str(number)
                state_folder.mkdir(parents=True)
                within = [numbers[id(inner)] for inner in ranker.rankers_]
                entry = {"ranker": ranker.to_dict(), "within": within, "digest": ranker.training_digest}
                # Version 2 of the format calls the saved state "facts".
                fitted.append(entry | ranker.twins_.to_dict() | {"facts": ranker.save_state(state_folder)})
                if not any(state_folder.iterdir()):
                    state_folder.rmdir()
            files = {str(path.relative_to(aside)): digest(path) for path in sorted(aside.rglob("*")) if path.is_file()}
            head = {"format": FORMAT, "version": VERSION, "ranker": self.to_dict(), "engine": self.engine_.id}
            write_json(aside / MANIFEST, with_checksum(head | {"fitted": fitted, "files": files}))
            manifest_digest = digest(aside / MANIFEST)
        unchanged = [ranker for ranker in order if ranker.fitted_key == ranker.key()]
        for ranker, state in zip(order, state_digests(fitted, files), strict=True):
            if ranker.saves_state and ranker.state_key is not None:  # rankers that are loaded from the folder share it
                ranker.state_key = state
        for ranker in unchanged:
            ranker.fitted_key = ranker.key()
        self.remember_folder(folder, manifest_digest)

    def remember_folder(self, folder: str | Path, manifest_digest: str) -> None:
        """Remember where the ranker was saved, and the SHA-256 of the manifest there."""
        self._saved = Path(folder).absolute(), manifest_digest, self.fitted_key

    def saved_in(self) -> Path | None:
        """Return the folder that :meth:`save` wrote or :func:`haybale.load` read, if both are still the same."""
        if self._saved is None:
            return None
        folder, manifest_digest, key = self._saved
        is_same = key == self.key() and (folder / MANIFEST).is_file() and digest(folder / MANIFEST) == manifest_digest
        return folder if is_same else None

    def outside_state(self) -> dict[str, Any]:
        """Return values for JSON that identify the models and engines that the ranker reads outside its engine.

        A ranker that reads models by their paths returns their digests, because a path may get another model. The
        default returns the values of the nested rankers.
        """
        parts = [ranker.outside_state() for ranker in self.rankers_]
        return {str(number): part for number, part in enumerate(parts) if part}

    @property
    def encoder_queries(self) -> frozenset[str]:
        """Ids of the queries that an encoder behind the ranker was trained on; its scores for them are biased."""
        return self.own_encoder_queries(self.engine_).union(*(ranker.encoder_queries for ranker in self.rankers_))

    def own_encoder_queries(self, engine: Engine) -> frozenset[str]:
        """Return the ids of the queries that an encoder of the ranker itself, not of a nested one, was trained on.

        By default, the encoder is the one of the engine if the ranker uses its vectors. A ranker with a model of its
        own adds :func:`~haybale.embeddings.lineage.queries_of_model`.
        """
        return trained_queries(engine.encoder) if self.uses_vectors else frozenset()

    def learned_from(self) -> set[str]:
        """Return the ids of the queries that the ranker, a nested one, or an encoder was trained on."""
        query_ids = self.twins_.with_twins({*self.query_ids_, *self.encoder_queries})
        return set(query_ids).union(*(ranker.learned_from() for ranker in self.rankers_))

    def check_fitted(self) -> None:
        """Raise :class:`~haybale.NotFittedError` if the ranker has not been fitted."""
        if not hasattr(self, "engine_"):
            raise NotFittedError(f"{self} is not fitted: call fit(engine) first")

    def key(self) -> tuple[Any, ...]:
        """Return the cache key of its rankings: class, parameters, and what it and nested rankers have learned.

        Rankers of two fits have different keys, unless nothing is learned, or what was learned is saved and equal.
        """
        return comparable(self), self.state_key, tuple(ranker.key() for ranker in self.rankers_)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; a ranker with another learned attribute gets another key."""
        if name.endswith("_") and not name.startswith("_") and name not in _NOT_LEARNED:
            object.__setattr__(self, "state_key", object())
        object.__setattr__(self, name, value)


def _innermost_first(ranker: Ranker) -> list[Ranker]:
    """Return the fitted nested rankers, each once, followed by the ranker."""
    nested = (inner for outer in ranker.rankers_ for inner in _innermost_first(outer))
    return [*{id(inner): inner for inner in nested}.values(), ranker]
