"""What a ranker is: fitted on an engine, it ranks queries, says why, and can be kept.

A ranker is a value: its parameters are declared, ``__init__`` only assigns them, and parameters may be rankers. Fitting
leaves the ranker's own parameters alone, as in scikit-learn; the fitted copies of the rankers within are in
``rankers_``. Every ranker obeys one law: its first n documents do not depend on how many were asked for.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from haybale.engine import Engine
from haybale.errors import InputError, NotFittedError
from haybale.folders import whole_folder, write_json
from haybale.frames import Frame
from haybale.manifest import digest, signed
from haybale.parameters import check_parameters
from haybale.rankers.batch import Asked, Batch, Training, queries_from
from haybale.rankers.explanation import Explanation
from haybale.retrieval import Run
from haybale.retrieval.run import DEPTH

FORMAT, VERSION, MANIFEST = "haybale ranker", 1, "ranker.json"
_BLOCK = 4096  # queries ranked at once


class EmptyRankingWarning(UserWarning):
    """Queries for which a ranker finds no document at all; the message counts and names them."""


class Ranker:
    """The base of all rankers: parameters, and the protocol in terms of a few methods that each has.

    A new ranker has ``_rank`` and ``_explain``; one that learns also ``_fit`` and ``_out_of_fold``, and what it keeps
    in ``_state`` and ``_restore``.
    """

    name: ClassVar[str]  # of the class, in files
    names: ClassVar[dict[str, dict[str, Any]]]  # in the grammar and in tables, each with the parameters it stands for
    needs_training: bool = False  # whether it, or a ranker in it, learns from judged queries
    learns_documents: bool = False  # whether it knows documents from the training queries they were relevant to
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {}

    engine_: Engine
    training_digest: str | None = None  # of the judgements it was fitted on
    query_ids_: Sequence[str] = ()  # that it learned from
    fitted_key: tuple[Any, ...] | None = None  # its key as it was fitted; parameters may have been set since

    # parameters ---------------------------------------------------------------------------------------

    @classmethod
    @cache
    def _parameters(cls) -> dict[str, inspect.Parameter]:
        found = dict(inspect.signature(cls.__init__).parameters)
        del found["self"]
        return found

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name; with ``deep`` also those of the rankers within, as ``within__parameter``."""
        own = {name: getattr(self, name) for name in self._parameters()}
        if deep:
            for name, value in list(own.items()):
                if isinstance(value, Ranker):
                    own |= {f"{name}__{key}": inner for key, inner in value.get_params().items()}
        return own

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; unknown ones raise."""
        for name, value in params.items():
            outer, _, inner = name.partition("__")
            if outer not in self._parameters():
                known = ", ".join(self._parameters())
                raise InputError(f"{type(self).__name__} has no parameter {outer!r}; it has {known}")
            if inner:
                getattr(self, outer).set_params(**{inner: value})
            else:
                setattr(self, outer, value)
        return self

    def clone(self) -> Self:
        """An unfitted copy, of the rankers within too; :func:`sklearn.base.clone` gives it as well."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, parameter in self._parameters().items():
            value = _cloned(getattr(self, name))
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                args += value
            else:
                kwargs[name] = value
        return type(self)(*args, **kwargs)

    def __sklearn_clone__(self) -> Self:
        return self.clone()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "engine_")

    def __repr__(self) -> str:
        args = []
        for name, parameter in self._parameters().items():
            value = getattr(self, name)
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                args += [repr(each) for each in value]
            elif value is not parameter.default and value != parameter.default:
                positional = parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and not args
                args.append(repr(value) if positional else f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(args)})"

    def __str__(self) -> str:
        """As the command line takes it: the name that leaves fewest parameters to be said, and these."""
        own, shortest = self.get_params(deep=False), None
        for name, fixed in self.names.items():
            expected = {key: parameter.default for key, parameter in self._parameters().items()} | fixed
            parts: list[str] = []
            for key, value in own.items():
                if key == "rankers":
                    parts += [] if value == expected.get(key) else map(str, value)
                elif shown(value) != shown(expected[key]):
                    parts.append(str(value) if key == "ranker" else f"{key}={shown(value)}")
            text = name + (f"({','.join(parts)})" if parts else "")
            if shortest is None or len(parts) < shortest[0]:
                shortest = (len(parts), text)
        assert shortest is not None
        return shortest[1]

    def to_dict(self) -> dict[str, Any]:
        """Plain values: ``ranker``, its name, and every parameter; rankers within likewise."""
        return {"ranker": self.name} | {name: _plain(value) for name, value in self.get_params(deep=False).items()}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and _comparable(self) == _comparable(other)

    __hash__ = object.__hash__

    def key(self) -> tuple[Any, ...]:
        """What tells it from rankers that rank otherwise: its parameters, and the judgements it was fitted on."""
        return _comparable(self), self.training_digest

    def nested(self) -> list[Ranker]:
        """The rankers among the parameters."""
        found: list[Ranker] = []
        for name in self._parameters():
            value = getattr(self, name)
            found += [
                each for each in (value if isinstance(value, list | tuple) else [value]) if isinstance(each, Ranker)
            ]
        return found

    def implied(self) -> dict[str, tuple[Ranker, ...]]:
        """The rankers that it makes itself, by the parameter in place of which, since that was not given."""
        return {}

    @property
    def training_depth(self) -> int:
        """How many documents of each training query it, or a ranker in it, will ask others for."""
        return max((ranker.training_depth for ranker in self.nested()), default=0)

    def check_params(self) -> None:
        """Refuse parameters that are out of range, here and in the rankers within."""
        values = {name: getattr(self, name) for name in self._parameter_constraints}
        check_parameters(type(self).__name__, values, self._parameter_constraints)
        for ranker in self.nested():
            ranker.check_params()

    # fitting ------------------------------------------------------------------------------------------

    def fit(self, engine: Engine, queries: Asked | None = None, qrels: Frame | None = None) -> Self:
        """Fit on an engine; a ranker that learns from judgements does so here.

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
                f"{self} learns from judged queries: {engine.collection.name} has no split 'train', only {known}; "
                "name the split to learn from, or give queries with qrels"
            )
        training = Training.of(engine, queries, qrels)
        if self.needs_training and not any(training.relevant):
            raise InputError(f"{self}: no query has a relevant document: there is nothing to learn")
        return self._fit_on(training)

    def _fit_on(self, training: Training) -> Self:
        """Fit, sharing what other rankers ask of the same judged queries."""
        self.check_params()
        self.training_digest = training.digest if self.needs_training else None
        self._fit(training)
        self.engine_, self.fitted_key = training.batch.engine, self.key()
        return self

    def _fit(self, training: Training) -> None:
        """Learn; a ranker without this has nothing to learn."""

    def check_fitted(self) -> None:
        """Raise :class:`~haybale.NotFittedError` for a ranker that has no engine yet."""
        if not hasattr(self, "engine_"):
            raise NotFittedError(f"{self} is not fitted: call fit(engine) first")

    # ranking ------------------------------------------------------------------------------------------

    def rank(
        self, queries: Asked, *, depth: int = DEPTH, within: Sequence[str] | NDArray[np.bool_] | None = None
    ) -> Run:
        """The best documents of each query.

        A query is ranked as it would be alone; only with dense vectors the last bits of its scores may depend on how
        many are asked at once.

        Parameters
        ----------
        queries : mapping, sequence, frame, str or Path
            ``{"q1": "a text", "q2": ["its first paragraph", "its second"]}``; a list of these; a frame with
            ``query_id``, ``text`` and optionally ``own``; the name of a split; one text; or a file
            (see :func:`~haybale.rankers.queries_from`).
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
        if depth < 1:
            raise InputError(f"depth must be at least 1, found {depth}")
        parts = [part.run(self, depth) for part in self.batches(queries, within=within)]
        run = Run.joined(parts) if len(parts) != 1 else parts[0]
        warn_of_empty(run, str(self))
        return run

    def batches(self, queries: Asked, *, within: Sequence[str] | NDArray[np.bool_] | None = None) -> Iterator[Batch]:
        """The queries as they are searched, some thousand at once: for those who want both rankings and reasons.

        Parameters are those of :meth:`rank`. What a batch was asked is not searched again, be it by
        ``batch.run(ranker, depth)`` or by ``ranker.explained(batch.take(row), document)``.
        """
        self.check_fitted()
        engine = self.engine_ if within is None else self.engine_.within(within)
        asked = queries_from(self.engine_, queries)
        if within is not None:
            asked = _renumbered(asked, self.engine_, engine)
        return (
            Batch(engine, asked.take(np.arange(start, min(start + _BLOCK, len(asked)))))
            for start in range(0, len(asked), _BLOCK)
        )

    def out_of_fold(self, queries: Asked = "train", *, depth: int = DEPTH) -> Run:
        """As :meth:`rank`, with queries that it was fitted on ranked as if it had not seen them.

        By bags that did not see a query, by leaving a query out of its own neighbours, or by folds: what everything
        that learns from rankers needs of them.
        """
        self.check_fitted()
        return Batch(self.engine_, queries_from(self.engine_, queries), "train").out_of_fold(self, depth)

    def explain(self, query: Asked, doc_id: str) -> Explanation:
        """Why a document has its score for a query, through rankers within down to passages and judged queries.

        Parameters
        ----------
        query : str, mapping or frame
            One query, as :meth:`rank` takes it.
        doc_id : str
        """
        self.check_fitted()
        asked = queries_from(self.engine_, query)
        if len(asked) != 1:
            raise InputError(f"explain takes one query, found {len(asked)}")
        document = int(self.engine_.collection.document_numbers([str(doc_id)])[0])
        return self.explained(Batch(self.engine_, asked), document)

    def explained(self, batch: Batch, document: int) -> Explanation:
        """The same for the one query of a batch and a document by number."""
        doc_id = str(batch.engine.collection.doc_ids[document].as_py())
        ranking = [found for found, _ in batch.run(self, DEPTH)[batch.ids[0]]]
        scores = dict(batch.run(self, DEPTH)[batch.ids[0]])
        rank = ranking.index(doc_id) + 1 if doc_id in scores else None
        base = Explanation(str(self), batch.ids[0], doc_id, scores.get(doc_id), rank)
        return base if rank is None else self._explain(batch, document, base)

    def _rank(self, batch: Batch, depth: int) -> Run:
        raise NotImplementedError

    def _out_of_fold(self, batch: Batch, depth: int) -> Run:
        return self._rank(batch, depth)

    def _explain(self, batch: Batch, document: int, base: Explanation) -> Explanation:
        """``base`` with shares; the ranker has the document."""
        raise NotImplementedError

    # keeping ------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """Write the fitted ranker to a new folder: JSON, safetensors, Parquet; whole or not at all. Not the engine.

        :func:`haybale.load` opens it, in any process that has the engine. The folder holds

            ranker.json        format, version, the ranker as plain values, its engine, SHA-256 of every other file
            fitted/0/ …        what each ranker learned, the innermost first; rankers that are shared are there once
        """
        self.check_fitted()
        order = _innermost_first(self)
        with whole_folder(Path(folder)) as aside:
            fitted = []
            for number, each in enumerate(order):
                place = aside / "fitted" / str(number)
                place.mkdir(parents=True)
                within = [next(n for n, other in enumerate(order) if other is inner) for inner in each.fitted_within()]
                entry = {"ranker": each.to_dict(), "within": within, "digest": each.training_digest}
                fitted.append(entry | {"facts": each._state(place)})
                if not any(place.iterdir()):
                    place.rmdir()
            files = {str(path.relative_to(aside)): digest(path) for path in sorted(aside.rglob("*")) if path.is_file()}
            head = {"format": FORMAT, "version": VERSION, "ranker": self.to_dict(), "engine": self.engine_.id}
            write_json(aside / MANIFEST, signed(head | {"fitted": fitted, "files": files}))

    def fitted_within(self) -> list[Ranker]:
        """The fitted rankers within, in the order of the parameters."""
        return list(getattr(self, "rankers_", ()))

    def learned_from(self) -> set[str]:
        """The ids of the queries that it, or a ranker within, was fitted on."""
        return set(self.query_ids_).union(*(ranker.learned_from() for ranker in self.fitted_within()))

    def _state(self, folder: Path) -> dict[str, Any]:
        """Write what was learned into the folder, which exists; plain values are returned, and given to _restore."""
        return {}

    def _restore(self, folder: Path, facts: dict[str, Any], engine: Engine) -> None:
        """Read what :meth:`_state` wrote; the rankers within are there already, in ``rankers_``."""

    @property
    def facts(self) -> dict[str, Any]:
        """What fitting found that belongs into results: counts, weights."""
        return {}


def warn_of_empty(run: Run, name: str) -> None:
    """Say for how many queries a ranker found nothing."""
    found = np.zeros(len(run), dtype=bool)
    found[run.coded()[0]] = True
    if not found.all():
        first = run.query_ids[int(np.argmin(found))]
        message = f"{name} finds no document for {int((~found).sum())} of {len(run)} queries, the first is {first!r}"
        warnings.warn(message, EmptyRankingWarning, stacklevel=3)


def _renumbered(asked: Any, engine: Engine, view: Engine) -> Any:
    """Queries whose own documents have the numbers of a view."""
    from dataclasses import replace

    place = np.full(engine.collection.n_documents + 1, -1)
    place[view._numbers] = np.arange(len(view._numbers))
    return replace(asked, own=place[asked.own])


def _innermost_first(ranker: Ranker) -> list[Ranker]:
    order: list[Ranker] = []
    for inner in ranker.fitted_within():
        order += [each for each in _innermost_first(inner) if not any(each is other for other in order)]
    return [*order, ranker]


def shown(value: Any) -> str:
    """A parameter as the grammar has it.

    >>> shown((8.0, 2.5)), shown(None), shown("rows")
    ('[8,2.5]', 'none', "'rows'")
    """
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{','.join(map(shown, value))}]"
    if isinstance(value, str):
        return f'"{value}"' if "'" in value else f"'{value}'"
    if isinstance(value, float):
        return repr(float(value)).removesuffix(".0")  # all digits, so that what is read is what was shown
    return str(_plain(value)) if callable(value) and not isinstance(value, Ranker) else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Ranker):
        return value.to_dict()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if callable(value):  # a function of one's own has a name, by which nobody else can find it
        return getattr(value, "__qualname__", type(value).__qualname__)
    return value.item() if isinstance(value, np.generic) else value


def _comparable(value: Any) -> Any:
    """Parameters as they are compared: of rankers within too, lists as tuples, functions by what they are."""
    if isinstance(value, Ranker):
        return type(value).__name__, *(_comparable(each) for each in value.get_params(deep=False).values())
    return tuple(_comparable(each) for each in value) if isinstance(value, list | tuple) else value


def _cloned(value: Any) -> Any:
    if isinstance(value, Ranker):
        return value.clone()
    if isinstance(value, list | tuple):
        return type(value)(_cloned(each) for each in value)
    return value
