"""Documents that are drawn at random while a review goes on: when to draw, which one, and what the draws show."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import numpy as np
from numpy.typing import NDArray

from haybale.review.betting import BettingTest

_ROUNDING = 1e-9  # by which a product of target and total may be above the number it stands for
PATIENCE = 0.7  # the expected number of relevant documents in as many draws as the ranking proposes without one
CUT_BY_RELEVANT_DRAW = 0.2  # the part by which a relevant draw shortens the wait that made draws due


def draw_position(seed: int, number: int, n_documents: int, is_taken: Callable[[int], bool]) -> int:
    """Return the position of a document drawn at random, from 0, among those that were not read or drawn before.

    Each position has the same chance: SHA-256 digests of seed, number and attempt are taken modulo the number of
    documents, until one is the position of a document that can be drawn. So whoever knows the seed can repeat a draw.

    Parameters
    ----------
    seed : int
    number : int
        The number of the draw, from 1.
    n_documents : int
    is_taken : callable
        Whether the document at a position cannot be drawn; at least one can.

    >>> draw_position(7, 1, 5, is_taken={0, 1, 2, 4}.__contains__)
    3
    """
    for attempt in count():
        digest = hashlib.sha256(f"{seed} {number} {attempt}".encode()).hexdigest()
        position = int(digest, 16) % n_documents
        if not is_taken(position):
            return position
    raise AssertionError  # count() has no end


def fewest_missing(n_found: int, target: float) -> int:
    """Return the smallest number of unread relevant documents with which the found ones are below the target share.

    >>> [fewest_missing(n_found, 0.8) for n_found in (0, 4, 40)]
    [1, 2, 11]
    """
    return most_total(n_found, target) + 1 - n_found


def most_total(n_found: int, target: float) -> int:
    """Return the largest number of relevant documents of which the found ones are the target share.

    >>> [most_total(n_found, 0.8) for n_found in (0, 4, 40)]
    [0, 5, 50]
    """
    return int((n_found + _ROUNDING) / target)


@dataclass
class DrawPlan:
    """When to draw at random instead of reading the document that the ranking proposes.

    If the target were just missed, a share of the unread documents would be relevant. Draws are due when the ranking
    has proposed so many irrelevant documents in a row that as many draws would hold 0.7 relevant ones at that share,
    and so at least one with probability one half: the ranking hardly finds more than draws would then. Each relevant
    draw takes a fifth off this count, so that the ranking, which has learned from it, is asked again.

    Any plan that does not depend on documents that are still to be drawn keeps the confidence; this one read least in
    simulations.

    Parameters
    ----------
    target : float
        The share of the relevant documents to find.
    wait : float
        The count of irrelevant documents so far.
    """

    target: float
    wait: float = 0.0

    def is_due(self, n_found: int, n_unread: int) -> bool:
        """Return whether the next document should be drawn, given how many are relevant so far, and unread."""
        return bool(n_found) and self.wait * fewest_missing(n_found, self.target) >= PATIENCE * n_unread

    def note(self, is_relevant: bool, is_drawn: bool) -> None:
        """Note a document that was drawn, or proposed by the ranking, and judged."""
        if not is_drawn:
            self.wait = 0.0 if is_relevant else self.wait + 1
        elif is_relevant:
            self.wait *= 1 - CUT_BY_RELEVANT_DRAW


@dataclass(frozen=True, eq=False)
class Draws:
    """The draws that count: those before the first document that was judged or drawn and has no judgement now.

    Parameters
    ----------
    read_before : (n,) int array
        The number of documents of the reading order before each draw.
    n_found, n_unread : (n,) int arrays
        The number of relevant documents among all those that had been read or drawn before, and of all others.
    is_relevant : (n,) bool array
        Whether each document that was drawn is relevant.
    others_after : (n_others,) int array
        For each document that was judged outside the reading order, such as a known one, how many of the reading order
        were read before it, rising.
    others_relevant : (n_others,) bool array
        Whether each of these is relevant.
    gap : str
        Why later draws do not count, or why there can be no draws; empty if all count.
    now : (int, int, int), optional
        The number of relevant documents among those that are judged, of all others, and of all documents. Default: they
        follow from the reading order.
    tests : dict of float to (array, BettingTest)
        By confidence, a test and the draws that it has seen; it is kept to go on with.
    """

    read_before: NDArray[np.int64]
    n_found: NDArray[np.int64]
    n_unread: NDArray[np.int64]
    is_relevant: NDArray[np.bool_]
    others_after: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    others_relevant: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    gap: str = ""
    now: tuple[int, int, int] | None = None
    tests: dict[float, tuple[NDArray[np.int64], BettingTest]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.read_before)

    def up_to(self, n_read: int) -> Draws:
        """Return the draws before the reading order has more than ``n_read`` documents."""
        n, n_others = np.searchsorted(self.read_before, n_read), np.searchsorted(self.others_after, n_read, "right")
        return Draws(
            self.read_before[:n],
            self.n_found[:n],
            self.n_unread[:n],
            self.is_relevant[:n],
            self.others_after[:n_others],
            self.others_relevant[:n_others],
            self.gap if n == len(self) else "",
            tests=self.tests,
        )

    def test(self, n_documents: int, confidence: float) -> BettingTest:
        """Return the test of all draws; one of the first of these draws goes on."""
        columns = np.stack([self.n_found, self.n_unread, self.is_relevant]).astype(np.int64)
        tested, test = self.tests.get(confidence, (columns[:, :0], None))
        n_tested = tested.shape[1]
        if test is None or n_tested > len(self) or (tested != columns[:, :n_tested]).any():
            n_tested, test = 0, BettingTest(n_documents, confidence)
        for n_found, n_unread, is_relevant in columns[:, n_tested:].T.tolist():
            test.draw(bool(is_relevant), n_found, n_unread)
        self.tests[confidence] = columns, test
        return test
