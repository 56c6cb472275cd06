"""Tune BM25's k1, b and k3 on judged queries.

Texts and queries are analysed once. A new k1 or b only needs new weights for the term counts, and a new k3 not even
these. Less than half of the grid is tried; docs/findings.md compares this with the whole grid.

With few queries, the setting with the best mean is often the best by chance. So settings are compared by their gain
over the defaults minus its standard error, and cross-validation estimates the gain on held-out queries.
"""

from __future__ import annotations

import itertools
import math
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.collections import Collection
from haybale.collections.collection import take_strings
from haybale.errors import InputError
from haybale.evaluation.measures import evaluate, parse_measures
from haybale.parameters import (
    BOOLEAN,
    COUNT_OR_NONE,
    RANDOM_STATE,
    SEQUENCE,
    TEXT_OR_NONE,
    check_parameters,
    one_of,
)
from haybale.progress import track
from haybale.rankers import BM25
from haybale.ranking.value_texts import shown
from haybale.retrieval import BM25Index, Run
from haybale.retrieval.hits import Ints
from haybale.retrieval.query_saturation import K3_BY_LENGTH, saturated_by_length
from haybale.retrieval.run import DEPTH as RUN_DEPTH

K1 = (0.6, 0.9, 1.2, 1.6, 2.0, 3.0, 4.5, 6.0, 9.0, 12.0, 18.0)
B = (0.3, 0.5, 0.75, 0.9, 1.0)
K3 = (0.0, 2.0, 8.0, K3_BY_LENGTH, None)
K3Value = float | str | None  # None counts each occurrence; "auto" is by the length of the query
Setting = tuple[float, float, K3Value]  # k1, b, k3
_N_FOLDS = 5
_RANGES = {
    "unit": one_of(["passage", "document"]),
    "k1": SEQUENCE,
    "b": SEQUENCE,
    "k3": SEQUENCE,
    "language": TEXT_OR_NONE,
    "compounds": [*BOOLEAN, None],
    "n_queries": COUNT_OR_NONE,
    "random_state": RANDOM_STATE,
}


class TuningWarning(UserWarning):
    """The chosen setting is not significantly better than the defaults; the message has the numbers."""


@dataclass(frozen=True)
class Tuned:
    """The chosen setting, and the mean of the measure for every setting that was tried."""

    unit: str  # "passage" or "document"
    split: str
    measure: str
    language: str
    n_queries: int  # number of ranked queries, which all have a relevant document
    k1: float  # k1, b, k3 and value are those of the chosen setting
    b: float
    k3: K3Value
    value: float
    default: float  # the value with the ranker's defaults
    grid: list[tuple[float, float, K3Value, float]]  # (k1, b, k3, value), ascending; "auto" and None are the last k3
    gain: float | None = None  # cross-validated gain over the defaults; None with too few queries for folds
    interval: tuple[float, float] | None = None  # 95 % confidence interval of that gain

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, with the grid as records."""
        grid = [dict(zip(("k1", "b", "k3", "value"), row, strict=True)) for row in self.grid]
        default = dict(zip(("default_k1", "default_b", "default_k3"), default_setting(self.unit), strict=True))
        return asdict(self) | default | {"grid": grid}

    @property
    def best(self) -> tuple[float, float, K3Value, float]:
        """The k1, b, k3 and value with the largest mean of the grid, significant or not."""
        return max(self.grid, key=lambda row: row[3])

    @property
    def options(self) -> str:
        """The options that set the chosen values in other commands.

        >>> Tuned("document", "dev", "nDCG@10", "english", 9, 0.9, 0.3, None, 0.5, 0.4, []).options
        '--set bm25-doc.k1=0.9 --set bm25-doc.b=0.3 --set bm25-doc.k3=none'
        """
        name = "bm25-doc" if self.unit == "document" else "bm25"
        return " ".join(f"--set {name}.{param}={shown(getattr(self, param))}" for param in ("k1", "b", "k3"))


def tune_bm25(
    collection: Collection,
    unit: str = "passage",
    split: str = "dev",
    *,
    k1: Sequence[float] = K1,
    b: Sequence[float] = B,
    k3: Sequence[K3Value] = K3,
    measure: str = "nDCG@10",
    language: str | None = None,
    compounds: bool | None = None,
    n_queries: int | None = None,
    random_state: int = 0,
) -> Tuned:
    """Choose BM25's parameters from a grid on the judged queries of a split.

    The chosen setting has the largest mean gain over the defaults minus the standard error of the gain. With many
    queries this is the setting with the best mean, and with few queries one close to the defaults. Queries with the
    same words count as one. Cross-validation in five folds (queries of one document share a fold) estimates the gain on
    held-out queries. If it is not above 0, the defaults are kept; if it is not significant, a :class:`TuningWarning` is
    given.

    The search starts with every second ``k1``, every second ``b`` and every ``k3``. Then it tries the neighbours of the
    best two settings (the next ``k1``, ``b`` or both, and any ``k3``), until these have no untried neighbour.

    Parameters
    ----------
    collection : Collection
        The collection whose documents are ranked.
    unit : {"passage", "document"}, default "passage"
        Whether documents score by their best passage (ranker ``bm25``) or as a whole (``bm25-doc``).
    split : str, default "dev"
        The split with the queries and judgements.
    k1, b, k3 : sequence of float
        The grid. ``k3`` may contain "auto" and None, which count as larger than any number; over documents, "auto" is
        None (:class:`~haybale.BM25`). Of equal settings the defaults are chosen, then the smaller k1, b and k3.
        Defaults outside the grid are not chosen.
    measure : str, default "nDCG@10"
        Any measure of :func:`~haybale.evaluation.evaluate`.
    language : str, optional
        Language of the texts. Default: the language of the collection, or else a guess.
    compounds : bool, optional
        Whether the parts of compounds are terms, too, as in :class:`~haybale.Engine`. Default: in German.
    n_queries : int, optional
        Number of queries to sample from those with a relevant document. Default: all.
    random_state : int, default 0
        Seed of the sample and of the folds.

    Raises
    ------
    InputError
        For an unknown split, measure or unit, a split without a relevant document, an empty grid, k1 or k3 below 0, and
        b outside 0..1.
    """
    check_parameters("tune_bm25", locals(), _RANGES)
    if not len(k1) or not len(b) or not len(k3):
        raise InputError(f"the grid needs at least one k1, b and k3, found k1={k1!r}, b={b!r} and k3={k3!r}")
    for setting in itertools.product(k1, b, k3):
        of_setting = dict(zip(("k1", "b", "k3"), setting, strict=True))
        check_parameters("tune_bm25", of_setting, BM25._parameter_constraints)
    default = default_setting(unit)
    parse_measures([measure])
    part = collection.split(split)
    judged = part.queries[np.isin(part.queries, part.relevant()[0])]
    if not len(judged):
        raise InputError(f"split {split!r} has no query with a relevant document; choose another split")
    if n_queries is not None and n_queries < len(judged):
        judged = np.sort(np.random.default_rng(random_state).choice(judged, size=n_queries, replace=False))
    index = BM25Index.from_collection(collection, unit, language=language, compounds=compounds)
    trials = _Trials(collection, split, judged, measure, index)
    xs, ys, zs = (sorted({_value(x, unit) for x in axis}, key=_rising) for axis in (k1, b, k3))
    _search_grid(trials, xs, ys, zs)
    if default[0] in xs and default[1] in ys and default[2] in zs:
        trials.best_two([default])
    tried = sorted(trials.values, key=lambda setting: (setting != default, *_order(setting)))
    trials.best_two([default])
    queries = collection.queries.take(judged)
    gains = np.array([trials.values[setting] - trials.values[default] for setting in tried])  # (n_tried, n_judged)
    firsts, gains = _mean_of_twins(gains, queries.same_words)
    chosen, gain, interval = tried[_largest_gain(gains)], None, None
    held_out = _cross_validated(gains, queries.groups_by_document_id(collection.doc_ids)[firsts], random_state)
    if held_out is not None:
        gain = float(held_out.mean())
        if gain <= 0 and default in tried:
            chosen = default
        from scipy import stats

        error = stats.sem(held_out) * stats.t.ppf(0.975, len(held_out) - 1)
        interval = gain - float(error), gain + float(error)
    if chosen != default and (interval is None or interval[0] <= 0):
        estimate = "unknown, as there are too few for folds"
        if interval is not None:
            estimate = f"{gain:+.4f} by cross-validation, 95 % interval {interval[0]:+.4f} to {interval[1]:+.4f}"
        values = f"k1 {chosen[0]:g}, b {chosen[1]:g}, k3 {shown(chosen[2])}"
        warnings.warn(
            f"BM25 over {unit}s: on {len(judged)} queries, {values} is not significantly better than the defaults "
            f"(gain in {measure} {estimate}); use more queries",
            TuningWarning,
            stacklevel=2,
        )
    means = {setting: float(values.mean()) for setting, values in trials.values.items()}
    grid = [(*setting, means[setting]) for setting in sorted(tried, key=_order)]
    about = unit, split, measure, index.analyzer.language, len(judged)
    return Tuned(*about, *chosen, means[chosen], means[default], grid, gain, interval)


class _Trials:
    """The measure of each judged query for every setting that was tried."""

    def __init__(self, collection: Collection, split: str, judged: Ints, measure: str, index: BM25Index) -> None:
        self.doc_ids, self.measure, self.index = collection.doc_ids, measure, index
        texts, self.own = collection.queries.texts(judged), collection.queries.own[judged]
        self.terms, self.terms_by_length = index.analysed(texts), saturated_by_length(index, texts)
        self.ids = take_strings(collection.queries.ids, judged)
        qrels, cutoff = collection.qrels_frame(split), measure.partition("@")[2]
        self.qrels, self.depth = qrels[qrels["query_id"].isin(self.ids)], int(cutoff) if cutoff else RUN_DEPTH
        self.values: dict[Setting, NDArray[np.float64]] = {}  # (n_judged,) each

    def best_two(self, settings: Iterable[Setting]) -> list[Setting]:
        """Try settings, and return the two with the largest means of all that were tried."""
        for setting in track([new for new in settings if new not in self.values], "tuning BM25"):
            k1, b, k3 = setting
            self.index = self.index.with_parameters(k1, b, None if isinstance(k3, str) else k3)
            terms = self.terms_by_length if k3 == K3_BY_LENGTH else self.terms
            hits = self.index.documents(terms, self.depth, exclude=self.own)
            run = Run.from_numbers(self.ids, self.doc_ids, *hits, self.depth)
            self.values[setting] = evaluate(run, self.qrels, [self.measure])[self.measure].reindex(self.ids).to_numpy()
        return sorted(self.values, key=lambda tried: (-self.values[tried].mean(), *_order(tried)))[:2]


def _search_grid(trials: _Trials, xs: list[Any], ys: list[Any], zs: list[Any]) -> None:
    """Try settings of k1, b and k3 around the best two, until these have no untried neighbour."""

    def neighbours(x: float, y: float, z: K3Value) -> list[Setting]:
        i, j = xs.index(x), ys.index(y)
        beside = itertools.product(xs[max(0, i - 1) : i + 2], ys[max(0, j - 1) : j + 2], [z])
        return [*beside, *((x, y, k3) for k3 in zs)]

    leading, expanded = trials.best_two(itertools.product(xs[::-2], ys[::2], zs)), set[Setting]()
    while new := [setting for setting in leading if setting not in expanded]:
        expanded.update(new)
        leading = trials.best_two([neighbour for setting in new for neighbour in neighbours(*setting)])


def _mean_of_twins(gains: NDArray[np.float64], words: Ints) -> tuple[Ints, NDArray[np.float64]]:
    """Return the mean gains (n_tried, n_distinct) of queries with the same words, and the first query of each.

    Queries with the same words are one observation: copies would make differences look significant.
    """
    _, firsts, group_of, counts = np.unique(words, return_index=True, return_inverse=True, return_counts=True)
    if len(firsts) == len(words):
        return np.arange(len(words)), gains
    sums = np.zeros((len(firsts), len(gains)))
    np.add.at(sums, group_of, gains.T)
    return firsts, np.ascontiguousarray((sums / counts[:, None]).T)


def _largest_gain(gains: NDArray[np.float64]) -> int:
    """Return the row with the largest mean gain minus standard error; of one query, the error is the gain itself."""
    n = gains.shape[1]
    error = gains.std(axis=1, ddof=1) / math.sqrt(n) if n > 1 else np.abs(gains[:, 0])
    return int(np.argmax(gains.mean(axis=1) - error))


def _cross_validated(gains: NDArray[np.float64], groups: Ints, random_state: int) -> NDArray[np.float64] | None:
    """Return each query's gain (n,) with the setting that the other folds choose; None if there is only one group."""
    names, group_of = np.unique(groups, return_inverse=True)
    if len(names) < 2:
        return None
    from sklearn.utils import check_random_state

    fold = (check_random_state(random_state).permutation(len(names)) % _N_FOLDS)[group_of]
    held_out = np.empty(len(group_of))
    for number in np.unique(fold):
        held_out[fold == number] = gains[_largest_gain(gains[:, fold != number])][fold == number]
    return held_out


def _order(setting: Setting) -> tuple[float, float, float]:
    return setting[0], setting[1], _rising(setting[2])


def _rising(value: K3Value) -> float:
    """Return a sort key in which "auto" and then None are the largest."""
    if isinstance(value, str):
        return sys.float_info.max
    return math.inf if value is None else value


def _value(value: K3Value, unit: str) -> K3Value:
    """Return a value of the grid, in which settings that are equal over a unit are the same."""
    if isinstance(value, str):
        return value if unit == "passage" else None
    return None if value is None else float(value)


def default_setting(unit: str) -> Setting:
    """Return the setting that :class:`BM25` has by default; over documents, each occurrence of a term counts."""
    ranker = BM25(unit)
    return ranker.k1, ranker.b, _value(ranker.k3, unit)
