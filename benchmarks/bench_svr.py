"""Fit and predict of one regressor, against sklearn.svm.SVR and scikit-learn-intelex.

    pip install scikit-learn-intelex
    python benchmarks/bench_svr.py FOLDER [--large] [--results benchmarks/results]
    python benchmarks/bench_svr.py --planted [--results benchmarks/results]

Rows are 20 BM25 and 20 nearest passages of every training query, over LSA vectors of 768 numbers, so that [q ; p] has
the 1,536 features of the paper's Longformer; and, where support vectors are to be few, planted ones around topics, as
z-scores. All take the same float32 features, γ, C, ε, tol and weights; ours finds the distinct halves itself, which is
part of its time. Peers and ours alternate in every round. sklearn is single-threaded, the others use all cores. Before
the first round everything has run once on a few rows, so that nothing is compiled or loaded inside a measurement.

In every round the fast ones run twice, one directly after the other, and the second is reported: the first also pays
for memory that the system has to find, which on a virtual machine can cost as much as the computation. *Products* is
the lower bound of an exact solver: the matrix products of every support vector's kernel row, half of them where both
rows are needed, at the speed that NumPy has for a large product on all cores. ``--large``: 100,000 rows, each in a
process of its own, whose largest resident memory is told. ``--planted``: planted rows only, without scikit-learn,
with few and with many support vectors.
"""

from __future__ import annotations

import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from provenance import options, printed_stages, provenance, row, shown, table, write_page
from sklearn.svm import SVR

from haybale import Engine, ProductKernelSVR, pool
from haybale.drawing import draw_lines
from haybale.ensemble import CandidateRows, candidate_rows
from haybale.rankers import BM25, KNN, Training

WIDTH = 768
GAMMA, TOL, MEMORY = 1.5, 1e-3, 2.2e9
PLANTED = 8_000
# rows, rounds, and γ · 1,536 for few and for many support vectors
PLANTED_CASES = ((2_000, 7), (8_000, 5), (30_000, 1))
PLANTED_GAMMAS = {"few": 1.0, "many": 3.0}
# rows, every passage once, new rows to predict, rounds, rounds of sklearn
CASES = ((3_000, True, 1_000, 3, 1), (8_000, True, 1_000, 3, 1), (26_000, False, 500, 3, 1))
CURVES, EPSILONS, SHARES = 3_000, (0.4, 0.2, 0.1, 0.05), (1.2, 0.5, 0.25, 0.1)
LARGE, MOST, LONGEST = 100_000, 4e9, 1500  # rows, bytes, CPU seconds
HEADER = (
    "| rows | passages | | fit s | × | CPU s | × | predict s | × | CPU s | × | support vectors | difference |",
    "| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
)
Data = tuple[np.ndarray, np.ndarray, np.ndarray]  # features, labels, new features
Peers = dict[str, Callable[..., Any]]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collection", nargs="?", help="a folder with training queries")
    parser.add_argument("--planted", action="store_true", help="planted rows only, without a collection")
    parser.add_argument("--large", action="store_true", help="many rows, time and memory")
    parser.add_argument("--one", nargs=2, metavar=("PEER", "FILE"), help="fit one of them in this process")
    a = parser.parse_args()
    peers = available()
    if a.one:
        print(*fit_one(peers[a.one[0]], Path(a.one[1])))
        return
    more = tuple(name for name in peers if name.startswith("scikit"))
    origin = provenance(shown("bench_svr.py", sys.argv[1:]), more=more)
    if a.planted:
        write_page(a.results / "svr-planted.md", [*planted_page(peers), "", origin])
        return
    if a.collection is None:
        parser.error("give a collection, or --planted")
    rows = Candidates.of(a.collection)
    if a.large:
        columns = "| seconds | CPU seconds | GB resident at most | support vectors"
        title = f"# The regressor and its peers, {LARGE:,} candidate rows of {rows.name}"
        lines = [title, "", f"Each in a process of its own, with {MOST / 1e9:g} GB for kernel values."]
        write_page(a.results / "svr-large.md", [*lines, *table(columns, large(rows, peers, a.collection)), "", origin])
        return
    lines = [
        f"# The regressor and its peers, candidate rows of {rows.name}",
        "",
        f"[q ; p] of LSA vectors, 1,536 features, float32; C 1, ε 0.1, γ {GAMMA}, tol {TOL}, weight 3 on relevant "
        "rows. *Planted* rows are z-scores around topics, with γ 1/1,536 and few support vectors. Seconds are medians "
        "of the rounds, CPU seconds those of all cores together; × is a peer's median over ours. Predictions are of "
        "other rows than the training's. Difference: the largest between a peer's predictions and ours; support "
        "vectors: the peer's, and how many more than ours. Products: the time of the matrix products alone that an "
        "exact solver needs for these support vectors. Where others use the machine, CPU seconds tell more.",
        "",
        *HEADER,
    ]
    chosen = rows.data(CURVES, True, 0)
    for make in peers.values():
        fitted(make, tuple(part[:300] for part in chosen))
    curves = {
        "support vectors": list(by_epsilon(chosen, peers)),
        "memory for kernel values, share of the Gram matrix": list(by_memory(chosen, peers)),
    }
    few, many = planted(PLANTED), rows.data(PLANTED, True, 0)
    ours = {"haybale": peers["haybale"]}
    by_share = list(zip(by_memory(few, ours, 1 / (2 * WIDTH)), by_memory(many, ours), strict=True))
    lines += compared("planted", planted(PLANTED), peers, 1 / (2 * WIDTH), 3, 1)
    for n, unique, new, rounds, slow in CASES:
        lines += compared("", rows.data(n, unique, new), peers, GAMMA, rounds, slow)
    for number, (x_label, points) in enumerate(curves.items()):
        lines += ["", f"{CURVES:,} rows, by {x_label}:"]
        lines += table(" | ".join([x_label, *(f"{name} s" for name in peers)]), points, words=0)
        figure, lines = f"svr-{number}.svg", [*lines, "", f"![by {x_label}](svr-{number}.svg)"]
        xs, *seconds = (list(column) for column in zip(*points, strict=True))
        drawn = {name: (xs, taken) for name, taken in zip(peers, seconds, strict=True)}
        draw_lines(drawn, x_label=x_label, y_label="seconds", log_x=True, path=a.results / figure)
    lines += ["", f"haybale, {PLANTED:,} rows, seconds by memory:"]
    lines += table("share of the Gram matrix | planted s | candidates s", [(*p, q[1]) for p, q in by_share], words=0)
    write_page(a.results / "svr.md", [*lines, "", origin])


def planted_page(peers: Peers) -> list[str]:
    """Return the page of planted rows: few and many support vectors, without scikit-learn."""
    fast = {name: make for name, make in peers.items() if name != "sklearn"}
    few, many = (f"{scale:g}/{2 * WIDTH:,}" for scale in PLANTED_GAMMAS.values())
    lines = [
        "# The regressor and scikit-learn-intelex, planted rows",
        "",
        f"z-scores around topics, {2 * WIDTH:,} features, float32; C 1, ε 0.1, tol {TOL}, weight 3 on relevant rows; "
        f"γ {few} (few support vectors) and {many} (many). Predictions are of every eighth row. Seconds are medians of "
        "the rounds, CPU seconds those of all cores together; × is a peer's median over ours. The other columns are "
        "those of [svr.md](svr.md).",
        "",
        *HEADER,
    ]
    for n, rounds in PLANTED_CASES:
        for kind, scale in PLANTED_GAMMAS.items():
            lines += compared(kind, planted(n), fast, scale / (2 * WIDTH), rounds, 0)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return [*lines, "", f"Load average of the machine in the last 1, 5 and 15 minutes of the run: {load}."]


def available() -> Peers:
    """Makers of regressors, from what differs from their settings; ``memory``: bytes for kernel values."""

    def ours(memory: float = MEMORY, **changes: Any) -> Any:
        return ProductKernelSVR(**settings | changes, split=WIDTH, memory_budget=memory)

    settings = {"C": 1.0, "epsilon": 0.1, "gamma": GAMMA, "tol": TOL}
    peers: Peers = {
        "haybale": ours,
        "sklearn": lambda memory=MEMORY, **changes: SVR(**settings | changes, cache_size=memory / 1e6),
    }
    try:
        from sklearnex.svm import SVR as IntelSVR

        peers["scikit-learn-intelex"] = lambda memory=MEMORY, **changes: IntelSVR(
            **settings | changes, cache_size=memory / 1e6
        )
    except ImportError:
        print("scikit-learn-intelex is not installed: left out")
    return peers


def weights(y: np.ndarray) -> np.ndarray:
    return np.where(y > 0, 3.0, 1.0)


def measured(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds, CPU seconds, and the result."""
    start, cpu = time.perf_counter(), time.process_time()
    result = work()
    return time.perf_counter() - start, time.process_time() - cpu, result


def planted(n: int) -> Data:
    """Rows of 160 queries around 16 topics; an eleventh of the passages are their query's."""
    rng, m = np.random.default_rng(0), 160
    topics = rng.normal(size=(16, WIDTH))
    queries = topics[rng.integers(16, size=m)] + rng.normal(size=(m, WIDTH))
    query, own = np.repeat(np.arange(m), -(-n // m))[:n], rng.random(n) < 0.09
    passages = np.where(own[:, None], queries[query], topics[rng.integers(16, size=n)]) + rng.normal(size=(n, WIDTH))
    x = np.concatenate([queries[query], passages], axis=1)
    x = ((x - x.mean(axis=0)) / x.std(axis=0)).astype(np.float32)
    return x, own.astype(np.float64), x[::8]


def by_epsilon(data: Data, peers: Peers) -> Iterator[tuple[Any, ...]]:
    """Seconds of each by how many support vectors there are."""
    for epsilon in EPSILONS:
        runs = [fitted(make, data, epsilon=epsilon) for make in peers.values()]
        yield len(runs[0][2].support_), *(seconds for seconds, _, _ in runs)


def by_memory(data: Data, peers: Peers, gamma: float = GAMMA) -> Iterator[tuple[Any, ...]]:
    """Seconds of each by the memory for kernel values, as a share of the Gram matrix in float32."""
    n = len(data[1])
    for share in SHARES:
        yield share, *(fitted(make, data, gamma=gamma, memory=share * 4 * n**2)[0] for make in peers.values())


def fitted(make: Callable[..., Any], data: Data, **changes: Any) -> tuple[float, float, Any]:
    x, y, _ = data
    return measured(lambda: make(**changes).fit(x, y, sample_weight=weights(y)))


def large(rows: Candidates, peers: Peers, collection: str) -> Iterator[tuple[Any, ...]]:
    """Each but sklearn on many rows."""
    x, y, _ = rows.data(LARGE, False, 0)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        np.save(f"{folder}/x.npy", x)
        np.save(f"{folder}/y.npy", y)
        for name in peers:
            if name != "sklearn":
                command = [sys.executable, __file__, collection, "--one", name, folder]
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode == -signal.SIGXCPU:
                    yield name, "", f"more than {LONGEST:,}", "", ""
                    continue
                done.check_returncode()
                said = done.stdout.split()[-4:]
                yield name, *(float(value) for value in said[:3]), int(said[3])
                print("  ", name, *said, flush=True)


def fit_one(make: Callable[..., Any], folder: Path) -> tuple[Any, ...]:
    """Seconds, CPU seconds, GB resident at most, and support vectors."""
    data = np.load(folder / "x.npy"), np.load(folder / "y.npy"), np.empty(0)
    few = data[0][:300], data[1][:300], data[2]
    fitted(make, few)
    resource.setrlimit(resource.RLIMIT_CPU, (LONGEST, LONGEST + 60))
    seconds, cpu, model = fitted(make, data, memory=MOST)
    return seconds, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, len(model.support_)


@dataclass(frozen=True)
class Candidates:
    """Vectors (m, 768) and (n_passages, 768) float32, and the rows over them."""

    name: str
    queries: np.ndarray
    passages: np.ndarray
    rows: CandidateRows

    @classmethod
    def of(cls, collection: str) -> Candidates:
        """The candidates of a collection's training queries."""
        with printed_stages():
            engine = Engine(collection, encoder=f"lsa(n_components={WIDTH})")
            batch, index = Training.of(engine).batch, engine.passages
            found = pool(*(ranker.passage_hits(batch, 20) for ranker in (BM25(), KNN())))
        relevant = engine.collection.relevant_ids("train")
        rows = candidate_rows("end-to-end", found, relevant, index, batch.vectors, batch.own)
        return cls(engine.collection.name, batch.vectors, index.vectors, rows)

    def sample(self, n: int, *, unique: bool = False) -> np.ndarray:
        """Numbers of about n rows, whole queries in random order; ``unique``: no passage occurs twice."""
        order = np.random.default_rng(0).permutation(len(self.queries))
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        chosen = np.argsort(place[self.rows.query], kind="stable")
        if unique:
            _, first = np.unique(self.rows.passage[chosen], return_index=True)
            chosen = chosen[np.sort(first)]
        return np.sort(chosen[:n])

    def data(self, n: int, unique: bool, new: int) -> Data:
        """(n, 1536) float32 [q ; p], their labels, and the features of other rows."""
        chosen = self.sample(n + new, unique=unique)
        test = np.sort(np.random.default_rng(1).choice(len(chosen), min(new, len(chosen) // 2), replace=False))
        train, test = np.delete(chosen, test), chosen[test]
        return self.features(train), self.rows.label[train].astype(np.float64), self.features(test)

    def features(self, chosen: np.ndarray) -> np.ndarray:
        """(n, 1536) float32 [q ; p]."""
        return np.concatenate([self.queries[self.rows.query[chosen]], self.passages[self.rows.passage[chosen]]], axis=1)


def compared(kind: str, data: Data, peers: Peers, gamma: float, rounds: int, slow: int) -> list[str]:
    """Alternate the peers on one size: a line each."""
    x, y, x_new = data
    n, few = len(y), (x[:300], y[:300], x_new)
    for make in peers.values():
        fitted(make, few, gamma=gamma)[2].predict(x_new[:300])
    taken: dict[str, list[tuple[float, ...]]] = {name: [] for name in peers}
    found: dict[str, tuple[np.ndarray, int]] = {}
    # The slow one comes last, so that the others alternate closely.
    for name in [*[name for name in peers if name != "sklearn"] * rounds, *["sklearn"] * slow]:
        make = peers[name]
        if name != "sklearn":
            fitted(make, data, gamma=gamma)[2].predict(x_new)
        fitting, cpu, model = fitted(make, data, gamma=gamma)
        predicting, predict_cpu, predicted = measured(lambda model=model: model.predict(x_new))
        found[name] = predicted, len(model.support_)
        taken[name].append((fitting, cpu, predicting, predict_cpu))
        print(f"  {n} {kind} {name} fit {fitting:.3f} cpu {cpu:.3f} predict {predicting:.3f}", flush=True)
    medians = {name: [statistics.median(column) for column in zip(*of, strict=True)] for name, of in taken.items()}
    ours_predicted, ours_vectors = found["haybale"]
    passages = len(np.unique(x[:, WIDTH:], axis=0))
    size, of_ours = f"{n:,} {kind}".strip(), medians["haybale"]
    lines = [row(size, passages, *products(passages, ours_vectors, of_ours[0], of_ours[1]), *[""] * 6)]
    for name, mine in medians.items():
        predicted, vectors = found[name]
        times, support, apart = [""] * 4, f"{vectors:,}", ""
        if name != "haybale":
            times = [f"{theirs / ours:.1f}" for theirs, ours in zip(mine, medians["haybale"], strict=True)]
            support += f" ({vectors / ours_vectors - 1:+.2%})"
            apart = f"{np.abs(predicted - ours_predicted).max():.1e}"
        columns = [cell for pair in zip(mine, times, strict=True) for cell in pair]
        lines.append(row(size, passages, f"{name} ({len(taken[name])} rounds)", *columns, support, apart))
    return lines


def products(passages: int, vectors: int, seconds: float, cpu: float) -> tuple[str, float, str, float, str]:
    """What the products are, and their seconds and CPU seconds with their shares of ours.

    Rows of support vectors are as long as there are passages; products of two support vectors are needed once.
    """
    rng, most = np.random.default_rng(0), min(vectors, passages)
    a, b = (rng.normal(size=(4096, WIDTH)).astype(np.float32) for _ in range(2))
    taken = sorted(measured(lambda: a @ b.T)[:2] for _ in range(7))[3]
    work, speed = 2e-9 * WIDTH * most * (passages - most / 2), 2e-9 * WIDTH * len(a) * len(b) / taken[0]
    found = [work / speed, work / speed * taken[1] / taken[0]]
    what = f"products ({work:.0f} GFLOP at {speed:.0f} GFLOP/s)"
    return what, found[0], f"{found[0] / seconds:.2f}", found[1], f"{found[1] / cpu:.2f}"


if __name__ == "__main__":
    main()
