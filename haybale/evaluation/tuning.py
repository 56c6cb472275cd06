"""BM25's k1, b and k3 on judged queries, so that a baseline is as strong as its parameters allow.

Texts and queries are analysed once; a setting only weighs the counted terms anew (another k3 not even that) and ranks.
Less than half of the grid's settings are tried; docs/findings.md says what all of them would find.

With few queries the best mean is often chance. So a setting counts by its gain over the defaults less the standard
error of that gain, and folds say what such a choice gains on queries that had no part in it.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn.utils import check_random_state

from haybale.analysis import guess_language
from haybale.collections import Collection
from haybale.collections.collection import take_strings
from haybale.errors import InputError
from haybale.evaluation.measures import evaluate, parsed
from haybale.parameters import (
    BM25_RANGES,
    COUNT_OR_NONE,
    RANDOM_STATE,
    SEQUENCE,
    TEXT_OR_NONE,
    check_parameters,
    one_of,
)
from haybale.progress import track
from haybale.rankers import BM25
from haybale.rankers.ranker import shown
from haybale.retrieval import BM25Index, Run
from haybale.retrieval.hits import Ints
from haybale.retrieval.run import DEPTH as RUN_DEPTH

K1 = (0.6, 0.9, 1.2, 1.6, 2.0, 3.0, 4.5, 6.0, 9.0, 12.0, 18.0)
B = (0.3, 0.5, 0.75, 0.9, 1.0)
K3 = (0.0, 2.0, 8.0, None)
Setting = tuple[float, float, float | None]  # k1, b, k3
DEFAULT: Setting = (BM25().k1, BM25().b, BM25().k3)
_FOLDS = 5
_RANGES = {
    "unit": one_of(["passage", "document"]),
    "k1": SEQUENCE,
    "b": SEQUENCE,
    "k3": SEQUENCE,
    "language": TEXT_OR_NONE,
    "n_queries": COUNT_OR_NONE,
    "random_state": RANDOM_STATE,
}


class TuningWarning(UserWarning):
    """A setting was chosen by too few queries to tell that it is better than the defaults; the message has numbers."""


@dataclass(frozen=True)
class Tuned:
    """The setting of a grid that was chosen, and the measure's mean at every setting that was tried."""

    unit: str  # "passage" or "document"
    split: str
    measure: str
    language: str
    n_queries: int  # those with a relevant document that were ranked
    k1: float  # of the best
    b: float
    k3: float | None
    value: float
    default: float  # the value at the ranker's own k1, b and k3
    grid: list[tuple[float, float, float | None, float]]  # (k1, b, k3, value), ascending, None behind all numbers
    gain: float | None = None  # over the default on queries outside the folds that chose; None: too few for folds
    interval: tuple[float, float] | None = None  # of that gain, 95 %

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; the grid as records."""
        grid = [dict(zip(("k1", "b", "k3", "value"), row, strict=True)) for row in self.grid]
        default = dict(zip(("default_k1", "default_b", "default_k3"), DEFAULT, strict=True))
        return asdict(self) | default | {"grid": grid}

    @property
    def best(self) -> tuple[float, float, float | None, float]:
        """k1, b, k3 and value of the best mean, however few queries it is of: the first of equals in the grid."""
        return max(self.grid, key=lambda row: row[3])

    @property
    def options(self) -> str:
        """What to give to ``haybale compare``.

        >>> Tuned("document", "dev", "nDCG@10", "english", 9, 0.9, 0.3, None, 0.5, 0.4, []).options
        '--set bm25-doc.k1=0.9 --set bm25-doc.b=0.3 --set bm25-doc.k3=none'
        """
        name = "bm25-doc" if self.unit == "document" else "bm25"
        return " ".join(f"--set {name}.{each}={shown(getattr(self, each))}" for each in ("k1", "b", "k3"))


def tune_bm25(
    collection: Collection,
    unit: str = "passage",
    split: str = "dev",
    *,
    k1: Sequence[float] = K1,
    b: Sequence[float] = B,
    k3: Sequence[float | None] = K3,
    measure: str = "nDCG@10",
    language: str | None = None,
    n_queries: int | None = None,
    random_state: int = 0,
) -> Tuned:
    """Rank the split's queries by BM25 with settings of a grid; the largest gain less its standard error wins.

    The gain is that over the defaults, query by query: with many queries the best mean wins, with few what is not far
    from the defaults. The defaults win where the same choice, made on four fifths of the queries, gains nothing on the
    others (queries of one document are in one fold). :class:`TuningWarning` where such a gain is not beyond chance.

    First every second ``k1`` and every second ``b`` with every ``k3``; then the neighbours of the best two settings (of
    the next ``k1``, ``b`` or both, or of any ``k3``), until the best two have no neighbour that was not tried.

    Parameters
    ----------
    collection : Collection
    unit : {"passage", "document"}, default "passage"
        Documents by their best passage, or each as a whole: as the rankers ``bm25`` and ``bm25-doc``.
    split : str, default "dev"
    k1, b, k3 : sequence of float
        ``k3`` may hold None, which is larger than any number. Among equals that were tried the defaults win, then the
        smaller k1, then the smaller b, then the smaller k3. Defaults outside the grid are not chosen.
    measure : str, default "nDCG@10"
        Any that :func:`~haybale.evaluation.evaluate` knows.
    language : str, optional
        Default: that of the collection, else guessed.
    n_queries : int, optional
        So many of those with a relevant document, drawn by ``random_state``; default: all.
    random_state : int, default 0
        Of the queries drawn, and of the folds.

    Raises
    ------
    InputError
        An unknown split, measure or unit; a split without a relevant document; an empty grid, k1 or k3 < 0, b outside
        0..1.
    """
    check_parameters("tune_bm25", locals(), _RANGES)
    if not len(k1) or not len(b) or not len(k3):
        raise InputError("the grid needs at least one k1, one b and one k3")
    for each in itertools.product(k1, b, k3):
        check_parameters("tune_bm25", dict(zip(("k1", "b", "k3"), each, strict=True)), BM25_RANGES)
    parsed(measure)
    part = collection.split(split)
    judged = part.queries[np.isin(part.queries, part.relevant()[0])]
    if not len(judged):
        raise InputError(f"split {split!r} has no query with a relevant document: nothing can be tuned")
    if n_queries is not None and n_queries < len(judged):
        judged = np.sort(np.random.default_rng(random_state).choice(judged, size=n_queries, replace=False))
    texts = collection.passages.texts
    language = language or collection.language or guess_language(texts[:: max(1, len(texts) // 1000)].to_pylist())
    xs, ys = sorted(set(map(float, k1))), sorted(set(map(float, b)))
    zs = sorted({None if z is None else float(z) for z in k3}, key=_rising)
    index = BM25Index.from_collection(collection, unit, language=language)
    terms, own = index.analysed(collection.queries.texts(judged)), collection.queries.own[judged]
    ids, qrels = take_strings(collection.queries.ids, judged), collection.qrels_frame(split)
    qrels = qrels[qrels["query_id"].isin(ids)]
    cutoff = measure.partition("@")[2]
    depth = int(cutoff) if cutoff else RUN_DEPTH

    values: dict[Setting, NDArray[np.float64]] = {}  # (n_judged,) each

    def best(settings: Iterable[Setting]) -> list[Setting]:
        """The best two of all that were tried, these among them."""
        nonlocal index
        for setting in track([each for each in settings if each not in values], f"tuning BM25 ({unit}s)"):
            index = index.with_parameters(*setting)
            rows, documents, scores = index.documents(terms, depth, exclude=own)
            run = Run.from_numbers(ids, collection.doc_ids, rows, documents, scores, depth)
            values[setting] = evaluate(run, qrels, [measure])[measure].reindex(ids).to_numpy()
        return sorted(values, key=lambda each: (-values[each].mean(), *_order(each)))[:2]

    def neighbours(x: float, y: float, z: float | None) -> list[Setting]:
        i, j = xs.index(x), ys.index(y)
        beside = itertools.product(xs[max(0, i - 1) : i + 2], ys[max(0, j - 1) : j + 2], [z])
        return [*beside, *((x, y, each) for each in zs)]

    leading, left = best(itertools.product(xs[::-2], ys[::2], zs)), set[Setting]()
    while new := [each for each in leading if each not in left]:
        left.update(new)
        leading = best(each for setting in new for each in neighbours(*setting))
    if DEFAULT[0] in xs and DEFAULT[1] in ys and DEFAULT[2] in zs:
        best([DEFAULT])
    tried = sorted(values, key=lambda each: (each != DEFAULT, *_order(each)))
    best([DEFAULT])
    gains = np.array([values[each] - values[DEFAULT] for each in tried])  # (n_tried, n_judged)
    found, gain, interval = tried[_chosen(gains)], None, None
    held_out = _held_out(gains, collection.queries.groups[judged], random_state)
    if held_out is not None:
        gain = float(held_out.mean())
        if gain <= 0 and DEFAULT in tried:
            found = DEFAULT
        error = stats.sem(held_out) * stats.t.ppf(0.975, len(held_out) - 1)
        interval = gain - float(error), gain + float(error)
    if found != DEFAULT and (interval is None or interval[0] <= 0):
        by = "too few for folds"
        if interval is not None:
            by = f"by folds {gain:+.4f}, 95 % {interval[0]:+.4f} to {interval[1]:+.4f}"
        setting = f"k1 {found[0]:g}, b {found[1]:g}, k3 {shown(found[2])}"
        message = (
            f"BM25 over {unit}s: {len(judged)} queries do not tell {setting} from the defaults (gain in {measure} {by})"
        )
        warnings.warn(message, TuningWarning, stacklevel=2)
    means = {each: float(values[each].mean()) for each in values}
    grid = [(*each, means[each]) for each in sorted(tried, key=_order)]
    default = means[DEFAULT]
    return Tuned(unit, split, measure, language, len(judged), *found, means[found], default, grid, gain, interval)


def _chosen(gains: NDArray[np.float64]) -> int:
    """The setting (row) of the largest mean gain less its standard error; of one query alone, less the gain itself."""
    n = gains.shape[1]
    error = gains.std(axis=1, ddof=1) / math.sqrt(n) if n > 1 else np.abs(gains[:, 0])
    return int(np.argmax(gains.mean(axis=1) - error))


def _held_out(gains: NDArray[np.float64], groups: Ints, random_state: int) -> NDArray[np.float64] | None:
    """(n,) each query's gain by the setting that the queries of the other folds choose; None for a single group."""
    names, place = np.unique(groups, return_inverse=True)
    if len(names) < 2:
        return None
    fold = (check_random_state(random_state).permutation(len(names)) % _FOLDS)[place]
    out = np.empty(len(place))
    for each in np.unique(fold):
        out[fold == each] = gains[_chosen(gains[:, fold != each])][fold == each]
    return out


def _order(setting: Setting) -> tuple[float, float, float]:
    return setting[0], setting[1], _rising(setting[2])


def _rising(k3: float | None) -> float:
    """In whose order None is behind all numbers."""
    return math.inf if k3 is None else k3
