"""Measure how early a reading order finds the relevant documents.

A reading order is given by its labels: whether each document is relevant, in the order in which documents were read.
Documents that were known before the reading are not in it. Where a measure is not defined, because the order has no
relevant document, it is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from haybale.errors import InputError

SHARES = (0.01, 0.05, 0.1)  # shares of all documents, after which recall is measured


def documents_until(labels: ArrayLike, recall: float) -> int | None:
    """Return how many documents are read until the share ``recall`` of the relevant ones is found; None without any.

    >>> documents_until([True, False, True, False], 0.5), documents_until([True, False, True, False], 1)
    (1, 3)
    """
    relevant_at = np.flatnonzero(_checked(labels)) + 1
    if not len(relevant_at):
        return None
    needed = math.ceil(recall * len(relevant_at) - 1e-9)  # 0.95 · 20 is 19, whatever its last bit says
    return int(relevant_at[max(needed, 1) - 1])


def work_saved(labels: ArrayLike, recall: float = 0.95) -> float:
    """Return WSS, the work saved over sampling at a recall: (TN + FN) / N − (1 − recall).

    N is the number of documents, and TN + FN those that were not read when the share ``recall`` of the relevant ones
    had been found: Cohen et al., "Reducing workload in systematic review preparation using automated citation
    classification", JAMIA 13 (2006). With n documents read it is recall − n / N. ASReview Insights rounds the number of
    relevant documents down, and compares with a rounded random order, so its value differs a little.

    >>> work_saved([True, False, True, False], 1)
    0.25
    """
    n, read = len(_checked(labels)), documents_until(labels, recall)
    return math.nan if read is None else recall - read / n


def recall_after(labels: ArrayLike, share: float = 0.1) -> float:
    """Return the share of the relevant documents found when a share of all documents has been read, rounded down.

    At 0.1 it is RRF@10, "relevant references found", of Ferdinands et al., "Performance of active learning models for
    screening prioritization in systematic reviews", Systematic Reviews 12 (2023).

    >>> recall_after([True, False, False, True], 0.5)
    0.5
    """
    order = _checked(labels)
    read = math.floor(share * len(order) + 1e-9)
    return float(order[:read].sum() / order.sum()) if order.any() else math.nan


def time_to_discovery(labels: ArrayLike) -> float:
    """Return ATD, the mean number of documents that are read until a relevant one is found, itself included.

    As in ASReview Insights (average time to discovery); Ferdinands et al. divide it by the number of documents.

    >>> time_to_discovery([True, False, True])
    2.0
    """
    relevant_at = np.flatnonzero(_checked(labels)) + 1
    return float(relevant_at.mean()) if len(relevant_at) else math.nan


def screening_measures(labels: ArrayLike, target: float = 0.95) -> dict[str, float]:
    """Return the measures of a reading order by name.

    Parameters
    ----------
    labels : (n,) bool
        Whether each document is relevant, in reading order.
    target : float, default 0.95
        The recall of the first two measures.

    Returns
    -------
    dict of str to float
        ``"WSS@95"`` (:func:`work_saved` at the target), ``"read@95"`` (the number of documents read until the target),
        ``"WSS@100"``, ``"RRF@10"``, ``"ATD"``, and ``"recall@1%"``, ``"recall@5%"`` and ``"recall@10%"``
        (:func:`recall_after`; RRF@10 is another name of the last).
    """
    read, percent = documents_until(labels, target), f"{100 * target:g}"
    measures = {
        f"WSS@{percent}": work_saved(labels, target),
        f"read@{percent}": math.nan if read is None else float(read),
        "WSS@100": work_saved(labels, 1.0),
        "RRF@10": recall_after(labels, 0.1),
        "ATD": time_to_discovery(labels),
    }
    return measures | {f"recall@{100 * share:g}%": recall_after(labels, share) for share in SHARES}


def recall_curve(labels: ArrayLike) -> Sequence[float]:
    """Return the recall after 0, 1, 2 … documents, (n + 1,)."""
    order = _checked(labels)
    return [0.0, *(np.cumsum(order) / max(order.sum(), 1)).tolist()]


def _checked(labels: ArrayLike) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    order = np.asarray(labels, dtype=bool)
    if order.ndim != 1 or not len(order):
        raise InputError(f"labels must be a sequence of at least one truth value, found shape {order.shape}")
    return order
