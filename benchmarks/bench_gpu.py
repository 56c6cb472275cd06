"""What haybale does on a device, at GerDaLIR's size, on synthetic vectors; part by part, on one page.

    python benchmarks/bench_gpu.py                               # every part, on cuda
    python benchmarks/bench_gpu.py --device cpu --scale 0.01     # to try the script

knn: exact search by each backend that is here, against a bare matrix product, its hits against NumPy's.
svr: one regressor against cuML's (on the CPU scikit-learn's) on the features. scoring: candidates by 35 bags. parm:
search, then every aggregation on the device and, copied, on the CPU. whole: from passages to ranked documents; the aim
is 30 minutes on one H200 (the authors report two days on two cards of 48 GB and 200 GB of swap).
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import synthetic
from provenance import alternating, options, provenance, row, shown, table, timed, write_page

from haybale import HaybaleError, Hits, ParagraphSearch, PassageIndex, ProductKernelSVR, SVREnsemble, rank_documents
from haybale.device import Device, find_device, to_device, to_numpy
from haybale.retrieval import Vectors, aggregate

PASSAGES, PER_DOCUMENT, TRAINING, RANKED, WIDTH, CANDIDATES, BAGS = 3_095_383, 24, 98_380, 12_297, 768, 50, 35
SETTINGS = {"C": 1.0, "epsilon": 0.1, "gamma": 1.5, "tol": 1e-3}
AGGREGATIONS = ("vrrf", "rrf", "combsum", "vsum", "vavg", "vmin", "vmax", "vscores", "vranks", "maxp")


class Bench:
    """A device, a scale of all counts, and a stopwatch that waits for the device."""

    def __init__(self, device: Device, scale: float, rounds: int) -> None:
        self.device, self.scale, self.rounds = device, scale, rounds

    def count(self, full: float, least: int = 1) -> int:
        return max(least, round(full * self.scale))

    def collection(self, passages: int = PASSAGES, per_document: int = PER_DOCUMENT) -> Any:
        made = synthetic.collection(self.count(passages, 2000), WIDTH, per_document, self.device)
        return made, PassageIndex(made.vectors, made.doc_offsets)

    def wait(self) -> None:
        if not self.device.is_cpu:
            with self.device.current() as current:
                current.synchronize()

    def alternating(self, works: dict[str, Callable[[], Any]]) -> dict[str, tuple[float, Any]]:
        """Median seconds and the last result of each, after a run that is not counted."""
        alternating(works, 1, self.wait)
        found = alternating(works, self.rounds, self.wait)
        return {name: (statistics.median(seconds), result) for name, (seconds, result) in found.items()}


def knn(bench: Bench) -> Iterator[str]:
    (made, _), m = bench.collection(), bench.count(10_000, 16)
    queries, _ = made.queries(m, 1)
    product = {"bare product": lambda: bare_product(queries, made.vectors, bench.device.xp)}
    bare, n = bench.alternating(product)["bare product"][0], len(made.vectors)
    yield f"{m:,} queries × {n:,} passages × {WIDTH}, float32; the bare product takes {bare:.3g} s."
    indexes = {}
    for name in ("numpy",) if bench.device.is_cpu else ("cupy", "cuvs", "faiss-gpu"):
        try:
            indexes[name] = PassageIndex(made.vectors, made.doc_offsets, backend=name)
        except HaybaleError as error:
            yield f"\n{name} is left out: {error}"
    expected = PassageIndex(to_numpy(made.vectors), backend="numpy").search(to_numpy(queries[:20]), 1000).passages
    yield from table("backend | k | seconds | queries/s | × bare product | same hits as NumPy's")
    for k in (50, 1000):
        works = {name: lambda index=index, k=k: index.search(queries, k) for name, index in indexes.items()}
        for name, (seconds, hits) in bench.alternating(works).items():
            same = np.mean(to_numpy(hits.passages[:20]) == expected[:, :k])
            yield row(name, k, seconds, m / seconds, seconds / bare, f"{same:.2%}")


def bare_product(queries: Any, vectors: Any, xp: Any, rows: int = 2048, columns: int = 65_536) -> None:
    """All scores, tile by tile, thrown away: what a search cannot be faster than without skipping vectors."""
    for top in range(0, len(queries), rows):
        for left in range(0, len(vectors), columns):
            xp.matmul(queries[top : top + rows], vectors[left : left + columns].T)


def svr(bench: Bench) -> Iterator[str]:
    xp = bench.device.xp
    try:
        peer = __import__("sklearn.svm" if bench.device.is_cpu else "cuml.svm", fromlist=["SVR"]).SVR(**SETTINGS)
    except ImportError as error:
        peer = None
        yield f"cuML is left out: {error}.\n"
    yield f"[q ; p] of width {2 * WIDTH}, float32, weight 3 on relevant rows, {SETTINGS}; the peer is {peer!r}. "
    yield "Predictions are of other queries' rows, the difference is their largest."
    yield from table("rows | passages | haybale, s | support vectors | predict, s | peer, s | × | difference")
    for n in (bench.count(full, 100) for full in (20_000, 46_000, 200_000)):
        rows, new = synthetic.pairs(n, min(n, 10_000), WIDTH, bench.device)
        model = ProductKernelSVR(device=str(bench.device), memory_budget=20e9, **SETTINGS)
        given = rows.queries, rows.passages, rows.query, rows.passage, rows.label, rows.weight
        works = {"haybale": lambda model=model, given=given: model.fit_pairs(*given)}
        if peer is not None:
            features = rows.features(xp), *(xp.asarray(of.astype(np.float32)) for of in (rows.label, rows.weight))
            works["peer"] = lambda features=features: peer.fit(*features)
        (seconds, _), *theirs = bench.alternating(works).values()
        asked = new.queries, new.passages, new.query, new.passage
        taken, ours = timed(lambda model=model, asked=asked: to_numpy(model.predict_pairs(*asked)))
        cells = f"{n:,}", len(rows.passages), seconds, len(model.support_), taken
        if peer is not None:
            apart = np.abs(to_numpy(peer.predict(new.features(xp))).ravel() - ours).max()
            cells += (theirs[0][0], theirs[0][0] / seconds, f"{apart:.0e}")
        yield row(*cells)


def scoring(bench: Bench) -> Iterator[str]:
    made, index = bench.collection()
    learned, about = made.queries(bench.count(TRAINING, 2 * BAGS), 1)
    model = SVREnsemble(BAGS, rows_per_bag=bench.count(8_000, 50), device=str(bench.device))
    model.fit(index, learned, [[str(document)] for document in about])
    queries, _ = made.queries(bench.count(629_294 / CANDIDATES, 4), 2)
    passages = to_numpy(index.search(queries, CANDIDATES).passages)
    works = {
        "mean of the bags": lambda: model.score_candidates(queries, passages),
        "votes, bag by bag": lambda: model.votes(queries, passages),
    }
    yield f"{passages.size:,} rows by {BAGS} bags with {len(model.support_.coef):,} support rows."
    yield from table("what | seconds | rows/s")
    for name, (seconds, _) in bench.alternating(works).items():
        yield row(name, seconds, passages.size / seconds)


def parm(bench: Bench) -> Iterator[str]:
    (made, index), m = bench.collection(2_000_000, 45), bench.count(250, 2)
    asked = np.split(to_numpy(made.queries(m * 45, 1)[0]), m)
    search = ParagraphSearch(index, "vrrf", n_hits=1000)
    seconds, found = bench.alternating({"search": lambda: search.search(asked)})["search"]
    hits = Hits(*(to_device(column, bench.device) for column in (found.hits.passages, found.hits.scores)))
    there = Vectors(index.vectors, to_device(found.vectors.paragraphs, bench.device))
    copied = Hits(to_numpy(hits.passages), to_numpy(hits.scores))
    here = Vectors(to_numpy(index.vectors), to_numpy(there.paragraphs))
    yield f"{m} query documents of 45 paragraphs, {hits.passages.size:,} hits, searched in {seconds:.3g} s."
    yield from table("aggregation | on the device, s | on the CPU, s | × | scores differ by at most (of the largest)")
    for name in AGGREGATIONS:
        works = {
            "device": lambda name=name: aggregate(hits, name, index.doc_of, found.offsets, vectors=there),
            "cpu": lambda name=name: aggregate(copied, name, index.doc_of, found.offsets, vectors=here),
        }
        (ours, left), (cpu, right) = bench.alternating(works).values()
        apart = np.abs(to_numpy(left[2]) - right[2]).max() / np.abs(right[2]).max()
        same = all(np.array_equal(to_numpy(x), y) for x, y in zip(left[:2], right[:2], strict=True))
        yield row(name, ours, cpu, cpu / ours, f"{apart:.0e}" if same else "OTHER DOCUMENTS")


def whole(bench: Bench) -> Iterator[str]:
    stages: dict[str, float] = {}

    def step(name: str, work: Callable[[], Any]) -> Any:
        stages[name], (result, _) = timed(lambda: (work(), bench.wait()))
        return result

    made, index = bench.collection()
    learned, about = made.queries(bench.count(TRAINING, 2 * BAGS), 1)
    ranked, asked = made.queries(bench.count(RANKED, 4), 2)
    ensemble = SVREnsemble(BAGS, k=CANDIDATES, device=str(bench.device))
    relevant, ids = [[str(document)] for document in about], [f"q{number}" for number in range(len(ranked))]
    hits = step("search the training queries", lambda: index.search(learned, CANDIDATES))
    step("train the bags", lambda: ensemble.fit(index, learned, relevant, candidates=hits))
    found = step("search the ranked queries", lambda: index.search(ranked, CANDIDATES))
    scores = step("score their candidates", lambda: ensemble.score_candidates(ranked, found.passages))
    run = step("rank documents", lambda: rank_documents(index, Hits(found.passages, scores), ids))
    best = np.mean([run[query][0][0] == str(document) for query, document in zip(ids, asked, strict=True)])
    yield f"{len(index):,} passages, {len(learned):,} training queries, bags of {np.mean(ensemble.bag_sizes_):,.0f} "
    yield f"rows; {len(ids):,} queries ranked, {best:.1%} with their document first."
    yield from table("stage | seconds")
    yield from (row(name, seconds) for name, seconds in (*stages.items(), ("all", sum(stages.values()))))


def main() -> None:
    parts = {part.__name__: part for part in (knn, svr, scoring, parm, whole)}
    parser = options(__doc__)
    parser.add_argument("parts", nargs="*", default=list(parts), help=", ".join(parts))
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu to try the script")
    parser.add_argument("--scale", type=float, default=1.0, help="of all counts; 0.01 for a machine without a GPU")
    parser.add_argument("--rounds", type=int, default=3)
    a = parser.parse_args()
    device = find_device(a.device)
    where = "**Not yet run on a GPU.** This is the script tried on the CPU: it shows what is reported, and no speed."
    if not device.is_cpu:
        device.xp.cuda.Device(device.number).use()  # what is made beside haybale's own arrays is there, too
        where = f"On {device.xp.cuda.runtime.getDeviceProperties(device.number)['name'].decode()}."
    lines = ["# On a device", "", f"{where} Counts are {a.scale:g} of the full ones."]
    for part in a.parts:
        lines += ["", f"## {part}", "", *parts[part](Bench(device, a.scale, a.rounds))]
    write_page(a.results / "gpu.md", [*lines, "", provenance(shown("bench_gpu.py", sys.argv[1:]))])


if __name__ == "__main__":
    main()
