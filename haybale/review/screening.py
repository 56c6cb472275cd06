"""What a stopping rule sees of a review: the judged documents in reading order, and how many documents there are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.errors import InputError
from haybale.review.draws import Draws

Bools = NDArray[np.bool_]


def _empty() -> Bools:
    return np.zeros(0, dtype=bool)


@dataclass(frozen=True, eq=False)
class Screening:
    """The state of a review, as stopping rules see it.

    A certificate needs documents drawn at random that are judged too. The ranking must not learn from such a judgement
    until it proposes the document itself; until then the judgement is *held out*. When the ranking proposes the
    document, it moves from ``held_out`` to the end of ``labels``, with ``sampled`` set.

    Parameters
    ----------
    labels : (n_read,) bool
        Whether each document is relevant, in the order in which the ranking proposed them.
    n_documents : int
        Number of documents in the collection, at least one.
    sampled : (n_read,) bool, optional
        Whether each document belongs to the random sample; default: none does.
    scores : (n_documents,) float, optional
        The probability of each document to be relevant, from 0 to 1: first those of the documents that were read, in
        reading order, then those of all other documents, in any order. Only some rules need it.
    held_out : (n_held_out,) bool, optional
        Whether each document of the random sample that the ranking has not proposed yet is relevant; default: there is
        no such document.
    sample_gap : str, optional
        What the random sample lacks, in words, such as documents that were drawn and not judged. Nothing can be
        certified then. Default: nothing.
    drawn : (n_read,) bool, optional
        Whether each document was drawn at random from all that were unread then, and not proposed by the ranking;
        default: none was.
    counted_draws : Draws, optional
        The draws that count, if documents were judged outside the reading order or in another order. Default: those
        that follow from ``drawn``; documents of the random sample count as judged before.

    Attributes
    ----------
    draws : Draws
        The draws that count.

    Raises
    ------
    InputError
        If the lengths do not fit together, or a label is not a truth value.
    """

    labels: Bools
    n_documents: int
    sampled: Bools = field(default_factory=_empty)
    scores: NDArray[np.float64] | None = None
    held_out: Bools = field(default_factory=_empty)
    sample_gap: str = ""
    drawn: Bools = field(default_factory=_empty)
    counted_draws: Draws | None = None
    draws: Draws = field(init=False)

    def __post_init__(self) -> None:
        labels = _bools("labels", self.labels)
        sampled, held_out = _bools("sampled", self.sampled), _bools("held_out", self.held_out)
        if not len(sampled):
            sampled = np.zeros(len(labels), dtype=bool)
        n_judged = len(labels) + len(held_out)
        if self.n_documents < max(n_judged, 1):
            raise InputError(
                f"n_documents must be {max(n_judged, 1)} or more, as many were judged; found {self.n_documents!r}"
            )
        if len(sampled) != len(labels):
            raise InputError(f"sampled must have {len(labels)} values, one for each label, found {len(sampled)}")
        drawn = _bools("drawn", self.drawn)
        if not len(drawn):
            drawn = np.zeros(len(labels), dtype=bool)
        if len(drawn) != len(labels) or (drawn & sampled).any():
            raise InputError(
                f"drawn must have {len(labels)} values, and none for a document of the sample; found {len(drawn)}"
            )
        for name, value in {"labels": labels, "sampled": sampled, "held_out": held_out, "drawn": drawn}.items():
            object.__setattr__(self, name, value)
        draws = self._draws_of_order() if self.counted_draws is None else self.counted_draws
        object.__setattr__(self, "draws", draws)
        if self.scores is not None:
            scores = np.asarray(self.scores, dtype=np.float64)
            if scores.shape != (self.n_documents,):
                raise InputError(f"scores must have {self.n_documents} values, one a document, found {scores.shape}")
            object.__setattr__(self, "scores", scores)

    def _draws_of_order(self) -> Draws:
        """Return the draws if nothing was judged but the random sample, and then the reading order."""
        at = np.flatnonzero(self.drawn)
        later_sampled = self.sampled.sum() - np.cumsum(self.sampled)[at]
        later_found = (self.labels & self.sampled).sum() - np.cumsum(self.labels & self.sampled)[at]
        n_found = np.cumsum(self.labels)[at] - self.labels[at] + later_found + self.held_out.sum()
        n_unread = self.n_documents - at - later_sampled - len(self.held_out)
        return Draws(at, n_found, n_unread, self.labels[at])

    @property
    def n_read(self) -> int:
        """Number of documents that the ranking proposed and that were judged."""
        return len(self.labels)

    @property
    def n_unread(self) -> int:
        """Number of documents that were not judged."""
        return self.n_documents - self.n_read - len(self.held_out)

    @property
    def n_found(self) -> int:
        """Number of relevant documents among all that were judged, also outside the reading order."""
        return self.n_relevant + int(self.held_out.sum()) + int(self.draws.others_relevant.sum())

    @property
    def n_relevant(self) -> int:
        """Number of relevant documents among those that were read."""
        return int(self.labels.sum())

    def prefix(self, n: int) -> Screening:
        """Return the state after the first n documents; later documents of the sample are held out again."""
        if n >= self.n_read:
            return self
        later = self.labels[n:][self.sampled[n:]]
        held_out = np.concatenate([self.held_out, later])
        sample = self.sampled[:n], self.scores, held_out, self.sample_gap
        return Screening(self.labels[:n], self.n_documents, *sample, self.drawn[:n], self.draws.up_to(n))


def _bools(name: str, values: Any) -> Bools:
    """Return a one-dimensional array of truth values; numbers other than 0 and 1 are an error."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise InputError(f"{name} must be a sequence of truth values, found shape {array.shape}")
    if array.dtype != bool and not np.isin(array, (0, 1)).all():
        wrong = array[~np.isin(array, (0, 1))][0]
        raise InputError(f"{name} must be truth values, found {wrong!r}; choose the grade from which on is relevant")
    return array.astype(bool)
