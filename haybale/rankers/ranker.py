"""The contract of rankers: fitted on an engine, a ranker ranks queries, explains scores, nests, and is saved."""

from __future__ import annotations

import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from haybale.collections.queries import QueriesLike, queries_from
from haybale.embeddings.lineage import trained_queries
from haybale.engine import Engine
from haybale.errors import InputError, NotFittedError
from haybale.folders import whole_folder, write_json
from haybale.frames import Frame
from haybale.manifest import digest, with_checksum
from haybale.parameters import COUNT, check_parameters
from haybale.rankers.explanation import Explanation
from haybale.rankers.query_batch import QueryBatch
from haybale.rankers.training import Training
from haybale.registry import Registry, undefined_methods
from haybale.retrieval import Run
from haybale.retrieval.run import DEPTH

FORMAT, VERSION, MANIFEST = "haybale ranker", 2, "ranker.json"  # version 1 had another SVR
_BLOCK = 4096  # queries ranked at once


class EmptyRankingWarning(UserWarning):
    """A ranker finds no document at all for some queries; the message counts them and names the first."""


class Variant(NamedTuple):
    """What a name stands for: a class of rankers, with some of its parameters set."""

    ranker: type[Ranker]
    parameters: dict[str, Any]


RANKERS: Registry[Variant] = Registry("ranker", "haybale.rankers")


class Ranker(ABC):
    """The base class of all rankers: subclass it to add one.

    A ranker is a small object configured by its constructor arguments, like a scikit-learn estimator. ``__init__`` only
    assigns them; any of them may be rankers (any number: ``*rankers``). Fitting leaves them unchanged and keeps the
    fitted copies in ``rankers_``. The first n documents of a ranking never depend on its depth.

    A subclass has a ``name``, which registers it for the grammar, the command line and :func:`haybale.load`. It defines

    - :meth:`rank_batch` and :meth:`explain_document`;
    - :meth:`fit_batch`, if it needs anything before it can rank;
    - :meth:`out_of_fold_batch`, if it learns from judged queries or holds rankers that do
      (:class:`~haybale.rankers.OutOfFold` is a mixin for those that learn);
    - :meth:`save_state` and :meth:`load_state`, if fitting leaves anything to keep.

    Its module is found through an entry point of the group ``haybale.rankers``.

    Attributes
    ----------
    name : str
        The name of the class, in saved files and in the grammar.
    variants : dict of str to dict
        Names in the grammar and in tables, each with the parameters that it sets. Default: the name of the class, with
        none.
    removed_parameters : dict of str to object
        Parameters of earlier versions, each with its default: a saved ranker that has another value is refused.
    engine_ : Engine
        The engine that the ranker was fitted on.
    rankers_ : sequence of Ranker
        The fitted rankers among the parameters, in their order.
    query_ids_ : sequence of str
        The judged queries that it learned from.
    """

    name: ClassVar[str]
    variants: ClassVar[dict[str, dict[str, Any]]]
    removed_parameters: ClassVar[Mapping[str, Any]] = {}
    _parameter_constraints: ClassVar[Mapping[str, list[Any]]] = {}

    engine_: Engine
    rankers_: Sequence[Ranker] = ()
    query_ids_: Sequence[str] = ()
    training_digest: str | None = None  # of the judgements that it was fitted on
    fitted_key: tuple[Any, ...] | None = None  # its key when it was fitted: parameters may have been set since

    def __init_subclass__(cls, **options: Any) -> None:
        """Register a ranker under its name and those of its variants; TypeError says what the class lacks."""
        super().__init_subclass__(**options)
        missing = undefined_methods(cls)
        if getattr(cls, "needs_training", None) is True and cls.out_of_fold_batch is Ranker.out_of_fold_batch:
            missing.append("out_of_fold_batch")
        if "name" in cls.__dict__:
            if missing:
                raise TypeError(f"the ranker {cls.__name__} ({cls.name!r}) does not define {', '.join(missing)}")
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

        ``batch`` holds the engine and the queries, and caches their vectors, hits and runs: rankers that ask for the
        same share the work. Documents are ranked by score, then by id (:meth:`haybale.Run.from_numbers` does so). A
        ranker within is asked by its :meth:`run`.
        """

    @abstractmethod
    def explain_document(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        """Return ``base`` with the shares that sum to the document's score.

        Parameters
        ----------
        batch : QueryBatch
            One query.
        document : int
            A document that the ranker finds for the query: its number in ``batch.engine.collection``.
        base : Explanation
            The ranker, query, document, score and rank; ``dataclasses.replace(base, shares=…)`` adds the shares.
        """

    def fit_batch(self, training: Training) -> None:
        """Fit the rankers within, and learn from judged queries; the default only fits the rankers within."""
        self.rankers_ = [ranker.fitted(training) for ranker in self.nested()]

    def out_of_fold_batch(self, batch: QueryBatch, depth: int) -> Run:
        """Rank queries that it may have been trained on as if it had not seen them.

        Only rankers for which :attr:`needs_training` holds are asked. A ranker within is asked by its
        :meth:`run_out_of_fold`.
        """
        raise InputError(f"{self} cannot rank the queries that it learned from: it defines no out_of_fold_batch")

    def save_state(self, folder: Path) -> dict[str, Any]:
        """Write what was learned into a folder, which exists; return the plain values that belong to it."""
        return {}

    def load_state(self, folder: Path, state: dict[str, Any], engine: Engine) -> None:  # noqa: B027  (optional)
        """Read what :meth:`save_state` wrote and returned; the rankers within are in ``rankers_`` already."""

    @property
    def needs_training(self) -> bool:
        """Whether the ranker, or one within it, learns from judged queries."""
        return any(ranker.needs_training for ranker in self.nested())

    @property
    def learns_documents(self) -> bool:
        """Whether the ranker knows documents from the training queries that they were relevant to."""
        return any(ranker.learns_documents for ranker in self.nested())

    @property
    def uses_vectors(self) -> bool:
        """Whether the ranker itself, not only those within it, uses vectors of the engine's encoder."""
        return True

    @property
    def fit_report_(self) -> dict[str, Any]:
        """What fitting found that belongs into results, such as counts and weights."""
        return {}

    def implied(self) -> dict[str, tuple[Ranker, ...]]:
        """The rankers that it makes itself, by the name of the parameter that was left out."""
        return {}

    def answers_to(self, name: str, parameter: str) -> bool:
        """Whether ``name.parameter`` of ``--set`` means this ranker, though its own name is another."""
        return False

    def check_params(self) -> None:
        """Raise :class:`~haybale.InputError` for parameters out of range, here and in the rankers within."""
        check_parameters(type(self).__name__, self.get_params(deep=False), self._parameter_constraints)
        for ranker in self.nested():
            ranker.check_params()

    # What every ranker has.

    def fit(self, engine: Engine, queries: QueriesLike | None = None, qrels: Frame | None = None) -> Self:
        """Fit on an engine; a ranker that learns from judgements learns here.

        Parameters
        ----------
        engine : Engine
        queries : str or queries, optional
            The split to learn from (default ``"train"``), or queries in any form that :meth:`rank` takes.
        qrels : frame, optional
            Judgements of these queries (without ``queries``, of the collection's): columns ``query_id``, ``doc_id``,
            ``relevance``.

        Raises
        ------
        InputError
            Parameters out of range, or nothing to learn from for a ranker that learns: before any work.
        """
        self.check_params()
        if self.needs_training and qrels is None and queries is None and "train" not in engine.collection.splits:
            known = ", ".join(engine.collection.splits) or "none"
            raise InputError(
                f"{self} learns from judged queries, and {engine.collection.name} has no split 'train' "
                f"(splits: {known}); name the split to learn from, or give queries with qrels"
            )
        training = Training.of(engine, queries, qrels)
        if self.needs_training and not any(training.relevant):
            raise InputError(f"{self}: no query has a relevant document, so there is nothing to learn")
        return self.fit_on(training)

    def fit_on(self, training: Training) -> Self:
        """Fit on judged queries, whose searches and fitted rankers are shared with other rankers."""
        self.check_params()
        self.training_digest = training.digest if self.needs_training else None
        self.fit_batch(training)
        self.engine_, self.fitted_key = training.batch.engine, self.key()
        return self

    def fitted(self, training: Training) -> Self:
        """Return a copy fitted on judged queries; the ranker itself, if it was fitted on the same of this engine.

        Equal rankers that are fitted on the same :class:`~haybale.rankers.Training` are fitted once.
        """
        known = self.training_digest
        same = known is not None and known == training.digest and self.engine_ is training.batch.engine
        if same and self.fitted_key == self.key():
            return self
        copy = self.clone()
        return training.cached_fit(copy.key(), lambda: copy.fit_on(training))

    def rank(
        self, queries: QueriesLike, *, depth: int = DEPTH, within: Sequence[str] | NDArray[np.bool_] | None = None
    ) -> Run:
        """Return the best documents of each query.

        A query is ranked as it would be alone. With dense vectors only, the last bits of its scores may depend on how
        many queries are ranked at once.

        Parameters
        ----------
        queries : mapping, sequence, frame, str or Path
            ``{"q1": "a text", "q2": ["its first paragraph", "its second"]}``, or any other form that
            :func:`~haybale.rankers.queries_from` takes.
        depth : int, default 1000
            Documents of each query.
        within : sequence of str or (n_documents,) bool, optional
            The only documents that may be found, by id or as a mask.

        Raises
        ------
        InputError
            An empty text, a query id twice, an unknown document.
        NotFittedError
            Before :meth:`fit`.
        """
        self.check_fitted()
        check_parameters("rank", {"depth": depth}, {"depth": COUNT})
        parts = [self.run(part, depth) for part in self.batches(queries, within=within)]
        run = parts[0] if len(parts) == 1 else Run.joined(parts)
        warn_of_empty(run, str(self))
        return run

    def batches(
        self, queries: QueriesLike, *, within: Sequence[str] | NDArray[np.bool_] | None = None
    ) -> Iterator[QueryBatch]:
        """Yield the queries of :meth:`rank` in batches of some thousand, for rankings and explanations.

        ``ranker.explained(batch.take(row), …)`` repeats no search of ``ranker.run(batch, depth)``.
        """
        self.check_fitted()
        engine, asked = self.engine_, queries_from(self.engine_.collection, queries)
        if within is not None:
            engine = engine.within(within)
            asked = replace(asked, own=engine.numbers_within(asked.own))
        starts = range(0, len(asked), _BLOCK)
        return (QueryBatch(engine, asked.take(np.arange(at, min(at + _BLOCK, len(asked))))) for at in starts)

    def run(self, batch: QueryBatch, depth: int) -> Run:
        """Return the ranking of a batch, ``depth`` documents a query; the batch keeps it for whoever asks again."""
        return batch.cached_run(("run", self.key()), depth, self.rank_batch)

    def run_out_of_fold(self, batch: QueryBatch, depth: int) -> Run:
        """Return the same for queries that the ranker may have been trained on, as if it had not seen them."""
        if not self.needs_training:
            return self.run(batch, depth)
        return batch.cached_run(("out of fold", self.key()), depth, self.out_of_fold_batch)

    def out_of_fold(self, queries: QueriesLike = "train", *, depth: int = DEPTH) -> Run:
        """Rank as :meth:`rank` does, but queries that it was fitted on as if it had not seen them.

        Those are ranked by the bags that did not see them, by their neighbours without themselves, or by folds.
        """
        self.check_fitted()
        check_parameters("out_of_fold", {"depth": depth}, {"depth": COUNT})
        return self.run_out_of_fold(
            QueryBatch(self.engine_, queries_from(self.engine_.collection, queries), "train"), depth
        )

    def explain(self, query: QueriesLike, doc_id: str) -> Explanation:
        """Explain a document's score for one query, through the rankers within down to passages and judged queries."""
        self.check_fitted()
        asked = queries_from(self.engine_.collection, query)
        if len(asked) != 1:
            raise InputError(f"explain takes one query, found {len(asked)}")
        document = int(self.engine_.collection.document_numbers([str(doc_id)])[0])
        return self.explained(QueryBatch(self.engine_, asked), document)

    def explained(self, batch: QueryBatch, document: int) -> Explanation:
        """Explain the score of a document, given by its number, for the one query of a batch."""
        doc_id = str(batch.engine.collection.doc_ids[document].as_py())
        scores = dict(self.run(batch, DEPTH)[batch.ids[0]])
        rank = list(scores).index(doc_id) + 1 if doc_id in scores else None
        base = Explanation(str(self), batch.ids[0], doc_id, scores.get(doc_id), rank)
        return base if rank is None else self.explain_document(batch, document, base)

    def save(self, folder: str | Path) -> None:
        """Write the fitted ranker, without its engine, to a new folder: whole or not at all.

        :func:`haybale.load` opens it, in any process that has the engine. The folder holds JSON, safetensors and
        Parquet files:

            ranker.json        format, version, the ranker as plain values, its engine, SHA-256 of every other file
            fitted/0/ …        what each ranker learned, the innermost first; rankers that are shared are saved once
        """
        self.check_fitted()
        order = _innermost_first(self)
        numbers = {id(ranker): number for number, ranker in enumerate(order)}
        with whole_folder(Path(folder)) as aside:
            fitted = []
            for number, each in enumerate(order):
                place = aside / "fitted" / str(number)
                place.mkdir(parents=True)
                within = [numbers[id(inner)] for inner in each.rankers_]
                entry = {"ranker": each.to_dict(), "within": within, "digest": each.training_digest}
                fitted.append(entry | {"facts": each.save_state(place)})  # "facts": the name in version 2 of the format
                if not any(place.iterdir()):
                    place.rmdir()
            files = {str(path.relative_to(aside)): digest(path) for path in sorted(aside.rglob("*")) if path.is_file()}
            head = {"format": FORMAT, "version": VERSION, "ranker": self.to_dict(), "engine": self.engine_.id}
            write_json(aside / MANIFEST, with_checksum(head | {"fitted": fitted, "files": files}))

    @property
    def encoder_queries(self) -> frozenset[str]:
        """The ids of queries that an encoder behind it was trained on, for which it has no unbiased ranking."""
        own = trained_queries(self.engine_.encoder) if self.uses_vectors else frozenset()
        return own.union(*(ranker.encoder_queries for ranker in self.rankers_))

    def learned_from(self) -> set[str]:
        """Return the ids of the queries that it, a ranker within, or an encoder behind them was trained on."""
        own = {*self.query_ids_, *self.encoder_queries}
        return own.union(*(ranker.learned_from() for ranker in self.rankers_))

    def check_fitted(self) -> None:
        """Raise :class:`~haybale.NotFittedError` for a ranker that has no engine yet."""
        if not hasattr(self, "engine_"):
            raise NotFittedError(f"{self} is not fitted: call fit(engine) first")

    # Parameters.

    @classmethod
    @cache
    def parameters(cls) -> dict[str, inspect.Parameter]:
        """Return the parameters of the constructor, by name."""
        return {name: found for name, found in inspect.signature(cls.__init__).parameters.items() if name != "self"}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return parameters by name; with ``deep`` also those of the rankers within, as ``within__parameter``."""
        own = {name: getattr(self, name) for name in self.parameters()}
        within = {name: value for name, value in own.items() if deep and isinstance(value, Ranker)}
        return own | {
            f"{name}__{key}": each for name, of in within.items() for key, each in of.get_params(deep).items()
        }

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, those of rankers within as ``within__parameter``; unknown ones raise."""
        for name, value in params.items():
            outer, _, inner = name.partition("__")
            if outer not in self.parameters():
                raise InputError(
                    f"{type(self).__name__} has no parameter {outer!r}; it has {', '.join(self.parameters())}"
                )
            getattr(self, outer).set_params(**{inner: value}) if inner else setattr(self, outer, value)
        return self

    def nested(self) -> list[Ranker]:
        """Return the rankers among the parameters."""
        values = self.get_params(deep=False).values()
        listed = (each for value in values for each in (value if isinstance(value, list | tuple) else [value]))
        return [each for each in listed if isinstance(each, Ranker)]

    def clone(self) -> Self:
        """Return an unfitted copy, with unfitted copies of the rankers within."""
        params = {name: _cloned(value) for name, value in self.get_params(deep=False).items()}
        return type(self)(*params.pop("rankers", ()), **params)

    __sklearn_clone__ = clone

    def key(self) -> tuple[Any, ...]:
        """Return the cache key of its rankings: the parameters and the digest of the training judgements."""
        return _comparable(self), self.training_digest

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: ``ranker``, its name, and every parameter; rankers within likewise, one as a list."""
        found = {name: _plain(value) for name, value in self.get_params(deep=False).items()}
        within = {"rankers": [found.pop("ranker")]} if "ranker" in found else {}
        return {"ranker": self.name} | within | found

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and _comparable(self) == _comparable(other)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        args: list[str] = []
        for name, value in self.get_params(deep=False).items():
            default = self.parameters()[name].default
            if name == "rankers":
                args += map(repr, value)
            elif value is not default and value != default:
                args.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(args)})"

    def __str__(self) -> str:
        """Return the ranker in the grammar: the variant that leaves fewest parameters to be given, with these."""
        found = []
        for name, fixed in self.variants.items():
            expected = {key: parameter.default for key, parameter in self.parameters().items()} | fixed
            parts: list[str] = []
            for key, value in self.get_params(deep=False).items():
                if key == "rankers":
                    parts += map(str, value)
                elif shown(value) != shown(expected[key]):
                    parts.append(str(value) if key == "ranker" else f"{key}={shown(value)}")
            found.append((len(parts), name + (f"({','.join(parts)})" if parts else "")))
        return min(found, key=lambda each: each[0])[1]


def warn_of_empty(run: Run, name: str) -> None:
    """Warn if a ranker finds no document for some queries."""
    found = np.zeros(len(run), dtype=bool)
    found[run.coded()[0]] = True
    if not found.all():
        first = run.query_ids[int(np.argmin(found))]
        message = f"{name} finds no document for {int((~found).sum())} of {len(run)} queries, the first is {first!r}"
        warnings.warn(message, EmptyRankingWarning, stacklevel=3)


def _innermost_first(ranker: Ranker) -> list[Ranker]:
    """Return the fitted rankers within, each once, and then the ranker."""
    within = (each for inner in ranker.rankers_ for each in _innermost_first(inner))
    return [*{id(each): each for each in within}.values(), ranker]


def shown(value: Any) -> str:
    """Return a parameter as it is written in the grammar.

    >>> shown((8.0, 2.5)), shown(None), shown("rows")
    ('[8,2.5]', 'none', "'rows'")
    """
    if isinstance(value, list | tuple):
        return f"[{','.join(map(shown, value))}]"
    if isinstance(value, str):
        return f'"{value}"' if "'" in value else f"'{value}'"
    if isinstance(value, float):
        return repr(float(value)).removesuffix(".0")  # all digits, so that parsing gives the same number
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Ranker):
        return value.to_dict()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value


def _comparable(value: Any) -> Any:
    """Return parameters in a form that compares and hashes: rankers by class and parameters, lists as tuples."""
    if isinstance(value, Ranker):
        return type(value).__name__, *map(_comparable, value.get_params(deep=False).values())
    return tuple(map(_comparable, value)) if isinstance(value, list | tuple) else value


def _cloned(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_cloned, value))
    return value.clone() if isinstance(value, Ranker) else value
