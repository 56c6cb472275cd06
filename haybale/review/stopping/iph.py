"""The stopping rule IP-H of Stevenson and Bin-Hezam: an inhomogeneous Poisson process fitted to the reading order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from haybale.parameters import BOOLEAN, one_of
from haybale.review.screening import Bools, Screening
from haybale.review.stopping.rule import CONFIDENCE, TARGET, Advice, StoppingRule

_STEP_SHARE, _N_WINDOWS, _MIN_RELEVANT, _MAX_ERROR = 0.025, 10, 20, 0.1  # values of the authors' code
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class IPH(StoppingRule):
    """Stop when a Poisson process fitted to the reading order leaves few relevant documents (IP-H, IP-P).

    After every 2.5 % of the collection, the documents read so far are cut into ten windows, and a rate of relevant
    documents that falls with the position x is fitted to them: a / (1 + b c x)^(1/b) (hyperbolic) or a x^k (power). The
    integral of the rate over the unread positions is the expected number of relevant documents left. The rule stops if
    the target is reached with as many left as the upper bound of their Poisson distribution, or if the later five
    windows have none. It is applied only if enough were found: 20 at first, fewer later. A fit whose squared errors
    sum to a tenth of the range of the rates, or more, is not used.

    Stevenson and Bin-Hezam, "Stopping methods for technology-assisted reviews based on point processes", ACM TOIS 42,
    2023. The windows, thresholds and starting values are those of the authors' code.

    Parameters
    ----------
    target : float, default 0.95
        The recall to reach.
    confidence : float, default 0.95
        Level of the upper bound on the number of relevant documents left.
    rate : {"hyperbolic", "power"}, default "hyperbolic"
        The rate that is fitted: IP-H or IP-P in the paper.
    released : bool, default False
        Whether to repeat two slips of the authors' code: the last document of each window is not counted, and the
        integral of the hyperbolic rate is too small by the factor (1 - b)². The power rate is then fitted at the first
        position of each window, in place of its middle. Set it to compare with published results.
    """

    target: float = 0.95
    confidence: float = 0.95
    rate: str = "hyperbolic"
    released: bool = False

    name = "iph"
    kind = "estimate"
    _parameter_constraints: ClassVar = {
        "target": TARGET,
        "confidence": CONFIDENCE,
        "rate": one_of(["hyperbolic", "power"]),
        "released": BOOLEAN,
    }

    @property
    def promise(self) -> str:
        return (
            f"Stops when a falling rate of relevant documents, fitted to those read, leaves so few unread that the "
            f"recall is {self.target:.0%} at the {self.confidence:.0%} level. It is right if that rate goes "
            "on falling as it did. It is not a guarantee: a late group of relevant documents does not follow the rate, "
            "and it also stops when the later half of the documents read has none."
        )

    def checkpoints(self, n_documents: int) -> Sequence[int]:
        sizes = [round(n_documents * share) for share in _shares()]
        return [size for size in sizes if size >= _N_WINDOWS]

    def advise(self, screening: Screening) -> Advice:
        n_found, needed = screening.n_relevant, self._needed(screening)
        if n_found < needed:
            return Advice(False, f"{n_found:,} relevant documents were found; the fit needs {needed:,}")
        x, y = self._windows(screening.labels)
        if not len(x):
            return Advice(False, f"{screening.n_read:,} documents are too few for {_N_WINDOWS} windows")
        if not y[_N_WINDOWS // 2 :].any():
            return Advice(True, f"the later half of {screening.n_read:,} documents has no relevant one")
        left = self._expected_left(x, y, screening.n_read, screening.n_documents)
        if left is None:
            return Advice(False, "no falling rate fits the documents read")
        unread = screening.n_documents - screening.n_read
        most = min(_poisson_quantile(self.confidence, left), unread)
        fewest = min(_poisson_quantile(1 - self.confidence, left), unread)
        reason = f"the fitted rate expects {left:,.1f} more relevant documents, at most {most:,}; found: {n_found:,}"
        recall, low, high = (
            n_found / (n_found + n_left) if n_found else None for n_left in (min(left, unread), most, fewest)
        )
        return Advice(n_found >= self.target * (n_found + most), reason, recall, low, high)

    def _needed(self, screening: Screening) -> int:
        """Return how many relevant documents must have been found for a fit; fewer at each checkpoint."""
        needed = _MIN_RELEVANT
        for share in _shares():
            size = round(screening.n_documents * share)
            if size >= screening.n_read:
                break
            if size >= _N_WINDOWS:
                # The authors' code has the share for one rate, and the rounded share for the other.
                needed = int(needed - (share if self.rate == "hyperbolic" else size / screening.n_documents) * needed)
        return needed

    def _windows(self, labels: Bools) -> tuple[Floats, Floats]:
        """Return the position of each window and its rate of relevant documents; nothing if they are too small."""
        windows = np.array_split(np.arange(len(labels)), _N_WINDOWS)
        if not self.released:
            x = [(window[0] + window[-1]) / 2 + 1 for window in windows]
            return np.array(x), np.array([labels[window].mean() for window in windows])
        size = len(windows[0]) - 1
        if not size:
            return np.zeros(0), np.zeros(0)
        middle = self.rate == "hyperbolic"
        x = [round((window[0] + window[-1]) / 2) if middle else int(window[0]) + 1 for window in windows]
        y = [labels[window[:-1]].sum() / size for window in windows]
        return np.array(x, dtype=np.float64), np.array(y)

    def _expected_left(self, x: Floats, y: Floats, n_read: int, n_documents: int) -> float | None:
        """Return the integral of the fitted rate over the unread positions; None if there is no acceptable fit."""
        fit, integral = (_hyperbolic, _hyperbolic_integral) if self.rate == "hyperbolic" else (_power, _power_integral)
        with np.errstate(all="ignore"):  # the optimisers try values for which the rate is not defined
            fitted = fit(x, y)
            if fitted is None:
                return None
            rates, parameters = fitted
            spread = y.max() - y.min()
            error = np.square(y - rates).sum() / spread if spread else np.inf
            left = integral(n_read, n_documents, *parameters)
            if self.released and self.rate == "hyperbolic" and parameters[1] != 1:
                left *= (1 - parameters[1]) ** 2
        return float(left) if error < _MAX_ERROR and np.isfinite(left) and left >= 0 else None


def _shares() -> list[float]:
    """Return the shares of the collection after which the rule is applied."""
    return [float(share) for share in np.arange(_STEP_SHARE, 1 + _STEP_SHARE, _STEP_SHARE).round(3)]


def _hyperbolic(x: Floats, y: Floats) -> tuple[Floats, Floats] | None:
    """Return the fitted hyperbolic rates at x, and the parameters a, b, c; None if the fit fails."""
    from scipy.optimize import least_squares

    def rate(p: Floats) -> Any:
        return p[0] / np.power(1 + p[1] * p[2] * x, 1 / p[1])

    bounds = [-np.inf, 0, -np.inf], [np.inf, 1, np.inf]
    try:
        fit = least_squares(lambda p: rate(p) - y, [y.max(), 0.5, 0.001], bounds=bounds)
    except ValueError:  # a value that is not finite
        return None
    return (rate(fit.x), fit.x) if fit.success else None


def _hyperbolic_integral(start: int, end: int, a: float, b: float, c: float) -> Any:
    first, last = np.log1p(b * c * start), np.log1p(b * c * end)
    if b == 1:
        return a / c * (last - first)
    # The difference of two powers, exact also for b close to 0 or 1.
    return a / (c * (b - 1)) * np.exp((1 - 1 / b) * first) * np.expm1((1 - 1 / b) * (last - first))


def _power(x: Floats, y: Floats) -> tuple[Floats, Floats] | None:
    """Return the fitted power rates at x, and the parameters a, k; None if the fit fails."""
    from scipy.optimize import leastsq

    def rate(p: Floats) -> Any:
        return p[0] * np.power(x, p[1])

    parameters, *_, status = leastsq(lambda p: rate(p) - y, [0.1, 0.001], full_output=True)
    return (rate(parameters), parameters) if status in (1, 2, 3, 4) else None


def _power_integral(start: int, end: int, a: float, k: float) -> Any:
    longer = np.log(end / start)
    return a * longer if k == -1 else a / (k + 1) * np.power(float(start), k + 1) * np.expm1((k + 1) * longer)


def _poisson_quantile(q: float, mean: float) -> int:
    """Return the smallest number that a Poisson variable exceeds with probability 1 - q at most."""
    from scipy.special import pdtr, pdtrik

    if mean == 0:
        return 0
    value = max(int(np.ceil(min(pdtrik(q, mean), 1e18))), 0)
    return value - 1 if value and pdtr(value - 1, mean) >= q else value
