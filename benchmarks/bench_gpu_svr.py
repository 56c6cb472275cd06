"""Fit of one large regressor on a device, against cuML's RBF regressor on the features.

    python benchmarks/bench_gpu_svr.py                               # 20,000, 46,000 and 200,000 rows, on cuda
    python benchmarks/bench_gpu_svr.py --device cpu --scale 0.01     # to try the script; sklearn is the peer

Rows are pairs of a synthetic collection as a search gives them: 50 candidates a query, a row relevant where the passage
is of the query's document. All take the same float32 features, γ, C, ε, tol and weights; ours and the peer alternate.
Beyond 46,340 rows cuML can no longer be given a kernel matrix, and its RBF kernel computes rows as it needs them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gpu_report
import numpy as np
import synthetic

from haybale import PassageIndex, ProductKernelSVR
from haybale.device import Device, to_device, to_numpy
from haybale.errors import MissingExtraError
from haybale.extras import require

ROWS = (20_000, 46_000, 200_000)
WIDTH, CANDIDATES = 768, 50
SETTINGS = {"C": 1.0, "epsilon": 0.1, "tol": 1e-3}
GAMMA = 1.5
PREDICTED = 10_000  # rows of other queries


@dataclass(frozen=True)
class Rows:
    """Pairs (n,) over vectors of queries and passages."""

    queries: Any  # (n_queries, d)
    passages: Any  # (n_passages, d)
    query: np.ndarray
    passage: np.ndarray
    label: np.ndarray

    @property
    def weight(self) -> np.ndarray:
        return np.where(self.label > 0, 3.0, 1.0)

    def features(self) -> Any:
        """(n, 2d) float32 [q ; p], on the device."""
        xp = __import__("numpy") if isinstance(self.queries, np.ndarray) else require("cupy", "gpu")
        return xp.concatenate([self.queries[xp.asarray(self.query)], self.passages[xp.asarray(self.passage)]], axis=1)


def rows_of(n: int, device: Device, seed: int = 0, width: int = WIDTH) -> tuple[Rows, Rows]:
    """n rows to learn from and some to predict, over one collection that is about as large as they need."""
    m, extra = -(-n // CANDIDATES), -(-min(PREDICTED, n) // CANDIDATES)
    made = synthetic.collection(max(4 * n, 2000), width, 24, device, np.float32, seed)
    queries, about = made.queries(m + extra, seed + 1)
    index = PassageIndex(made.vectors, made.doc_offsets, device=device)
    found = to_numpy(index.search(queries, min(CANDIDATES, len(index))).passages)

    def pairs(part: slice) -> Rows:
        query = np.repeat(np.arange(part.start, part.stop), found.shape[1])[:n]
        passage = found[part].ravel()[:n]
        label = (index.doc_of[passage] == about[query]).astype(np.float64)
        used, where = np.unique(passage, return_inverse=True)
        return Rows(queries[part], made.vectors[index.device.xp.asarray(used)], query - part.start, where, label)

    return pairs(slice(0, m)), pairs(slice(m, m + extra))


def main() -> None:
    parser = gpu_report.options(__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=ROWS)
    a = parser.parse_args()
    device = gpu_report.chosen_device(a.device)
    clock = gpu_report.Clock(device)
    peer_name, peer, why = peers(device)
    lines = [
        f"[q ; p] of width {2 * WIDTH}, float32; C 1, ε 0.1, γ {GAMMA}, tol 0.001, weight 3 on relevant rows. Medians "
        f"of {a.rounds} rounds. Predictions are of other queries' rows; difference is the largest between the two.",
        "",
        "| rows | passages | relevant | haybale, s | steps | support vectors | predict, s | peer | fit, s | × "
        "| predict, s | difference |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for full in a.rows:
        train, new = rows_of(gpu_report.count(full, a.scale, 100), device)
        works: dict[str, Callable[[], Any]] = {"haybale": lambda train=train: fit(train, a.device)}
        if peer is not None:
            features = train.features()
            works[peer_name] = lambda train=train, features=features: peer(features, train.label, train.weight)
        found = clock.alternating(works, a.rounds)
        seconds, model = found["haybale"]
        taken, ours = clock.time(lambda model=model, new=new: predict(model, new))
        cells = [
            f"{len(train.label):,}", f"{len(train.passages):,}", f"{train.label.mean():.0%}", f"{seconds:.3g}",
            f"{model.n_iter_:,}", f"{len(model.support_):,}", f"{taken:.3g}",
        ]  # fmt: skip
        if peer is not None:
            theirs, other = found[peer_name]
            predicting, predicted = clock.time(lambda other=other, new=new: other.predict(new.features()))
            apart = np.abs(to_numpy(predicted).ravel() - to_numpy(ours)).max()
            cells += [peer_name, f"{theirs:.3g}", f"{theirs / seconds:.1f}", f"{predicting:.3g}", f"{apart:.1e}"]
        else:
            cells += ["", "", "", "", ""]
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    lines += ["", why] if why else []
    gpu_report.write(a, "bench_gpu_svr", "One regressor on a device", lines)


def fit(rows: Rows, device: str) -> ProductKernelSVR:
    model = ProductKernelSVR(gamma=GAMMA, device=device, memory_budget=20e9, **SETTINGS)
    return model.fit_pairs(rows.queries, rows.passages, rows.query, rows.passage, rows.label, rows.weight)


def predict(model: ProductKernelSVR, rows: Rows) -> Any:
    return model.predict_pairs(rows.queries, rows.passages, rows.query, rows.passage)


def peers(device: Device) -> tuple[str, Any, str]:
    """The peer's name, its fit, and why there is none."""
    if device.is_cpu:
        from sklearn.svm import SVR

        return "sklearn", lambda x, y, w: SVR(gamma=GAMMA, cache_size=2000, **SETTINGS).fit(x, y, sample_weight=w), ""
    try:
        svm = require("cuml.svm", "gpu")
    except MissingExtraError as error:
        return "", None, f"- left out: {error}"

    def cuml(x: Any, y: np.ndarray, w: np.ndarray) -> Any:
        label, weight = (to_device(value.astype(np.float32), device) for value in (y, w))
        return svm.SVR(kernel="rbf", gamma=GAMMA, cache_size=20_000.0, **SETTINGS).fit(x, label, sample_weight=weight)

    return "cuml.svm.SVR, rbf", cuml, ""


if __name__ == "__main__":
    main()
