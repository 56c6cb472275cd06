"""The base class of stopping rules, the advice that they give, their registry, and the texts that name them."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np

from haybale.grammar import Call, parse_call
from haybale.parameters import MOST, Constraints, Interval, check_parameters
from haybale.registry import Registry, undefined_methods
from haybale.returned_values import method_of, returned
from haybale.review.draws import DrawPlan
from haybale.review.screening import Screening

Kind = Literal["heuristic", "estimate", "certificate"]

TARGET: Constraints = [Interval(Real, 0, 1, closed="right")]
CONFIDENCE: Constraints = [Interval(Real, 0.5, 1, closed="left")]
EVERY: Constraints = [Interval(Integral, 1, MOST, closed="both")]


@dataclass(frozen=True)
class Advice:
    """What a stopping rule says about a review.

    Parameters
    ----------
    stop : bool
        Whether the rule advises to stop reading.
    reason : str
        Why, in words, with the numbers that decided.
    recall : float, optional
        The estimated share of the relevant documents that was found; None if the rule estimates none.
    low, high : float, optional
        The bounds of the estimate, from 0 to 1; None if the rule has none.
    """

    stop: bool
    reason: str
    recall: float | None = None
    low: float | None = None
    high: float | None = None


class StoppingRule(ABC):
    """The base class of stopping rules. Subclass it, as a frozen dataclass, to add a rule.

    A rule is a value: it holds parameters only, and equal rules give equal advice on equal readings. A subclass with a
    ``name`` is registered, so that :func:`parse_rule` and the command line find it. A package outside haybale
    announces its module as an entry point of the group ``haybale.stopping_rules``.

    A subclass defines :attr:`promise` and :meth:`advise` and, where needed,

    - :meth:`checkpoints`, if the rule is not applied after every document;
    - :meth:`find_stop`, if the first stop can be found faster than by asking at each checkpoint;
    - :meth:`draw_plan`, if documents must be drawn at random while others are read.

    Attributes
    ----------
    name : str
        The name in rule texts.
    kind : {"heuristic", "estimate", "certificate"}
        What the rule is. A heuristic says nothing about recall. An estimate is right if its model of the reading order
        holds. A certificate holds for every reading order, because a random sample was judged.
    needs_scores : bool
        Whether the screening must have ``scores``; default: False.
    """

    name: ClassVar[str]
    kind: ClassVar[Kind]
    needs_scores: ClassVar[bool] = False
    _parameter_constraints: ClassVar[Mapping[str, Constraints]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        """Register a class that has a name; raise TypeError if it lacks methods."""
        super().__init_subclass__(**options)
        if "name" in cls.__dict__:
            missing = undefined_methods(cls) + ([] if hasattr(cls, "kind") else ["kind"])
            if missing:
                raise TypeError(
                    f"the stopping rule {cls.__name__} ({cls.name!r}) must define {', '.join(missing)}; add it"
                )
            STOPPING_RULES.add(cls.name, cls, cls)

    def __post_init__(self) -> None:
        check_parameters(type(self).__name__, self.get_params(), self._parameter_constraints)

    @property
    @abstractmethod
    def promise(self) -> str:
        """A sentence or two that say what the rule promises, and what it does not."""

    @abstractmethod
    def advise(self, screening: Screening) -> Advice:
        """Return the advice at a checkpoint; some document is unread, and at least one was read."""

    def draw_plan(self) -> DrawPlan | None:
        """Return a new plan by which documents are drawn at random during the reading; default: none are drawn."""
        return None

    def checkpoints(self, n_documents: int) -> Sequence[int]:
        """Return the numbers of read documents at which the rule is applied, in ascending order; default: all."""
        return range(1, n_documents + 1)

    def find_stop(self, screening: Screening) -> int | None:
        """Return the first checkpoint of a screening at which :meth:`advise` says stop, None if there is none."""
        for n in self.checkpoints(screening.n_documents):
            if n > screening.n_read or n == screening.n_documents:
                return None
            if self._advice(screening.prefix(n)).stop:
                return n
        return None

    def check(self, screening: Screening) -> Advice:
        """Return whether to stop now, why, and what is known of the recall.

        The rule is applied to the screening as it was at its last checkpoint. When every document has been read, every
        rule says stop.
        """
        if screening.n_read == screening.n_documents:
            return Advice(True, "every document has been read", 1.0, 1.0, 1.0)
        points = self.checkpoints(screening.n_documents)
        last = bisect_right(points, screening.n_read)
        if last == 0:
            if not screening.n_read:
                return Advice(False, "no document has been read")
            first = f", after {points[0]:,} documents" if len(points) else ""
            return Advice(False, f"{screening.n_read:,} documents have been read; too early for the first look{first}")
        return self._advice(screening.prefix(points[last - 1]))

    def _advice(self, screening: Screening) -> Advice:
        advice = "return Advice(stop, reason)"
        return returned(self.advise(screening), Advice, method_of(self, "advise"), advice)

    def first_stop(
        self, labels: Iterable[Any], n_documents: int, *, sampled: Any = (), scores: Any = None, drawn: Any = ()
    ) -> int | None:
        """Return after how many documents of a complete or partial screening the rule would have said stop.

        It is the smallest n for which :meth:`check` says stop on the first n documents, but found faster.

        Parameters
        ----------
        labels : (n_read,) bool
            Whether each document is relevant, in reading order.
        n_documents : int
            Number of documents in the collection.
        sampled : (n_read,) bool, optional
            The documents of the random sample, all of which were judged before the reading began.
        scores : (n_documents,) float, optional
            As for :class:`~haybale.review.Screening`; the same at every position.
        drawn : (n_read,) bool, optional
            The documents that were drawn at random from the unread ones.

        Returns
        -------
        int or None
            None if the labels end before the rule says stop. If they cover the collection, the largest possible value
            is ``n_documents``.
        """
        is_sampled, is_drawn = np.asarray(sampled, dtype=bool), np.asarray(drawn, dtype=bool)
        screening = Screening(np.asarray(labels), n_documents, is_sampled, scores, drawn=is_drawn)
        stop = self.find_stop(screening)
        if stop is not None:
            returned(stop, (int, np.integer), method_of(self, "find_stop"), "return a number of documents, or None")
        return n_documents if stop is None and screening.n_read == n_documents else stop

    def get_params(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def __str__(self) -> str:
        """Return the rule text, with the parameters that differ from their defaults."""
        defaults = {name: parameter.default for name, parameter in inspect.signature(type(self)).parameters.items()}
        return str(Call(self.name, (), {k: v for k, v in self.get_params().items() if v != defaults[k]}))


STOPPING_RULES: Registry[type[StoppingRule]] = Registry("stopping rule", "haybale.stopping_rules")


def parse_rule(text: str) -> StoppingRule:
    """Return the stopping rule that a text names.

    Parameters
    ----------
    text : str
        The name of a rule, with parameters in parentheses by position or by name.

    Raises
    ------
    UnknownNameError
        If no rule, or no parameter of it, has the name.
    InputError
        If the text cannot be parsed or a value is out of range.

    Examples
    --------
    >>> parse_rule("consecutive(50)")
    Consecutive(count=50)
    >>> str(parse_rule("cmh(target=0.9, confidence=0.95)"))
    'cmh(target=0.9)'
    >>> parse_rule("quaint")
    Traceback (most recent call last):
    haybale.errors.UnknownNameError: unknown stopping rule 'quaint' (did you mean quant?); known: ...
    """
    call = parse_call(text, "stopping rule")
    kind = STOPPING_RULES[call.name]
    return kind(**call.bind(kind, "stopping rule"))
