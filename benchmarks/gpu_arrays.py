"""Parts of bench_gpu.py that work on vectors: exact search, bags, scoring, PARM, and a run of GerDaLIR's size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import synthetic
from gpu_bench import CANDIDATES, RANKED, TRAINING, WIDTH, Bench, Cells, Line
from provenance import timed

from haybale import HaybaleError, Hits, ParagraphSearch, PassageIndex, ProductKernelSVR, SVREnsemble, rank_documents
from haybale.device import to_device, to_numpy
from haybale.ensemble.bags import make_bags
from haybale.ensemble.rows import candidate_rows
from haybale.retrieval import Vectors, aggregate
from haybale.retrieval.backends import BACKENDS, find_backend

SETTINGS = {"C": 1.0, "epsilon": 0.1, "gamma": 1.5, "tol": 1e-3}
BAGS, BAG_ROWS, OVERLAP = 123, 30_000, 0.6
PEER_BAGS = 3  # bags that the peer solves, one after the other
N_EXACT = 20  # queries whose hits are compared with float64's
AGGREGATIONS = ("vrrf", "rrf", "combsum", "vsum", "vavg", "vmin", "vmax", "vscores", "vranks", "maxp")


# exact search --------------------------------------------------------------------------------------------------------


def knn(bench: Bench) -> Iterator[Line]:
    made, _ = bench.collection()
    m, xp = bench.count(10_000, 32), bench.device.xp
    queries, n = made.queries(m, 1)[0], len(made.vectors)
    yield f"{m:,} queries × {n:,} passages × {WIDTH}, float32."
    products = bench.times({name: lambda work=work: work(queries) for name, work in bare_products(bench, made.vectors)})
    for name, taken in products.items():
        yield Cells("bare product, tile by tile | first, s | later, s", (name, taken.first, taken.later))
    bare = {name: products[name].later for name in ("float32", "TF32") if name in products}
    expected = float64_hits(queries[:N_EXACT], made, 1000, xp)
    columns = "backend | k | queries | first, s | later, s | later, s for all queries | "
    columns += " | ".join(f"× {name} product" for name in bare) + f" | of {N_EXACT} queries equal to float64"
    chosen = find_backend("auto", bench.device)
    others = [other for other in BACKENDS.values() if other.runs_on == bench.device.kind and other is not chosen]
    for backend in (chosen, *others):
        if (reason := backend.missing()) is not None:
            yield f"{backend.name} is left out: {reason}"
            continue
        # The others may take a hundred times as long: they search for a tenth of the queries.
        part = queries if backend is chosen else queries[: max(N_EXACT, m // 10)]
        index = PassageIndex(made.vectors, made.doc_offsets, backend=backend.name)
        for k in (50, 1000):
            try:
                work = {backend.name: lambda index=index, part=part, k=k: index.search(part, k)}
                taken = bench.times(work, None if backend is chosen else 1)[backend.name]
            except HaybaleError as error:
                yield f"{backend.name} failed: {error}"
                break
            passages = to_numpy(taken.result.passages[:N_EXACT])
            equal = f"{(passages == expected[:, :k]).all(axis=1).sum()} of {len(passages)}"
            whole = taken.later * m / len(part)
            name = f"{backend.name} (auto)" if backend is chosen else backend.name
            ratios = [whole / seconds for seconds in bare.values()]
            yield Cells(columns, (name, k, len(part), taken.first, taken.later, whole, *ratios, equal))


def bare_products(bench: Bench, vectors: Any) -> Iterator[tuple[str, Callable[[Any], None]]]:
    """Yield products of queries with all passages, whose scores are thrown away: a search cannot be faster."""
    xp = bench.device.xp

    def tiled(multiply: Callable[[Any, Any], Any], passages: Any) -> Callable[[Any], None]:
        def run(queries: Any, rows: int = 2048, columns: int = 65_536) -> None:
            for top in range(0, len(queries), rows):
                for left in range(0, len(passages), columns):
                    multiply(queries[top : top + rows], passages[left : left + columns])

        return run

    yield "float32", tiled(lambda one, two: xp.matmul(one, two.T), vectors)
    if bench.device.is_cpu:
        return
    from haybale.device_products import float32_product, tf32_product

    yield "TF32", tiled(tf32_product, vectors)
    yield "float32 from three TF32 products", tiled(float32_product, vectors)
    try:
        import torch
    except ImportError:
        return
    if torch.cuda.is_available():
        halves = torch.as_tensor(vectors, device="cuda").to(torch.bfloat16)
        multiply = tiled(lambda one, two: one @ two.T, halves)
        yield "bfloat16 (torch)", lambda queries: multiply(torch.as_tensor(queries, device="cuda").to(torch.bfloat16))


def float64_hits(queries: Any, made: synthetic.Synthetic, k: int, xp: Any, rows: int = 65_536) -> np.ndarray:
    """Return the passages (m, k) with the highest scores, summed in float64 and rounded; ties by ids of documents."""
    wide, n = queries.astype(xp.float64), len(made.vectors)
    tiles = (made.vectors[start : start + rows].astype(xp.float64) for start in range(0, n, rows))
    scores = np.concatenate([to_numpy(wide @ tile.T).astype(np.float32) for tile in tiles], axis=1)
    by_id = np.argsort(np.argsort([str(number) for number in range(made.n_documents)]))
    id_ranks = np.repeat(by_id, np.diff(made.doc_offsets))
    nearest = []
    for of_query in scores:
        candidates = np.flatnonzero(of_query >= np.partition(of_query, -min(k, n))[-min(k, n)])
        nearest.append(candidates[np.lexsort((candidates, id_ranks[candidates], -of_query[candidates]))][:k])
    return np.stack(nearest)


# support vectors ---------------------------------------------------------------------------------------------------


def peer_class(bench: Bench) -> Any:
    """Return cuML's SVR, on the CPU scikit-learn's."""
    return __import__("sklearn.svm" if bench.device.is_cpu else "cuml.svm", fromlist=["SVR"]).SVR


def kernel_matrix(one: Any, two: Any, gamma: float, xp: Any) -> Any:
    """Return exp(-γ |x - y|²) for the rows of two matrices, float32."""
    out = one @ (2 * gamma * two).T
    out -= gamma * (one * one).sum(axis=1)[:, None]
    out -= gamma * (two * two).sum(axis=1)[None]
    return xp.exp(xp.minimum(out, 0, out=out), out=out)


def bag(bench: Bench) -> Iterator[Line]:
    xp = bench.device.xp
    yield (
        f"[q ; p] of width {2 * WIDTH}, float32, weight 3 on relevant rows, {SETTINGS}. The kernel matrix of "
        "`precomputed` is made beforehand. Predictions are of other queries' rows; they may differ by 2 · tol."
    )
    columns = "rows | solver | first, s | later, s | × haybale | support vectors | predictions differ by at most"
    for n in (bench.count(full, 200) for full in (20_000, 30_000)):
        rows, new = synthetic.pairs(n, min(n, 5_000), WIDTH, bench.device)
        model = ProductKernelSVR(device=str(bench.device), memory_budget=20e9, **SETTINGS)
        data = rows.queries, rows.passages, rows.query, rows.passage, rows.label, rows.weight
        taken = bench.times({"haybale": lambda model=model, data=data: model.fit_pairs(*data)})["haybale"]
        ours = to_numpy(model.predict_pairs(new.queries, new.passages, new.query, new.passage))
        yield Cells(columns, (n, "haybale", taken.first, taken.later, 1.0, len(model.support_), ""))
        try:
            peer = peer_class(bench)
        except ImportError as error:
            yield f"The peer is left out: {error}."
            return
        features, others = rows.features(xp), new.features(xp)
        targets = [xp.asarray(values.astype(np.float32)) for values in (rows.label, rows.weight)]
        matrix = kernel_matrix(features, features, SETTINGS["gamma"], xp)
        across = kernel_matrix(others, features, SETTINGS["gamma"], xp)
        for kernel, fitted, asked in (("rbf", features, others), ("precomputed", matrix.T, across)):
            other = peer(kernel=kernel, **SETTINGS)
            seconds = bench.times({kernel: lambda other=other, of=(fitted, *targets): other.fit(*of)})[kernel]
            apart = float(np.abs(to_numpy(other.predict(asked)).ravel() - ours).max())
            n_support = len(to_numpy(other.support_))
            ratio = seconds.later / taken.later
            name = f"{type(other).__module__.split('.')[0]}, {kernel}"
            yield Cells(columns, (n, name, seconds.first, seconds.later, ratio, n_support, f"{apart:.0e}"))


def bags(bench: Bench) -> Iterator[Line]:
    xp, n_bags, size = bench.device.xp, bench.count(BAGS, 4), bench.count(BAG_ROWS, 300)
    made, index = bench.collection(500_000)
    m = round(n_bags * size / (1 + OVERLAP) / CANDIDATES)
    learned, about = made.queries(m, 1)
    relevant = [[str(document)] for document in about]
    hits = index.search(learned, CANDIDATES)
    rows = candidate_rows("end-to-end", hits, relevant, index, learned)
    model = SVREnsemble(n_bags, overlap=OVERLAP, device=str(bench.device))
    first = timed(lambda: (model.fit_rows(index, learned, rows), bench.wait()))[0]
    sizes = f"{np.mean(model.bag_sizes_):,.0f} rows, {np.mean(model.n_iter_):,.0f} steps"
    yield f"{n_bags} bags of {sizes} in the mean, halves of width {WIDTH}, {len(model.support_.coef):,} support rows."
    yield Cells("solver | bags | seconds | seconds for all bags", ("haybale, first call", n_bags, first, first))
    later = timed(lambda: (model.fit_rows(index, learned, rows), bench.wait()))[0]
    yield Cells("solver | bags | seconds | seconds for all bags", ("haybale, second call", n_bags, later, later))
    try:
        peer = peer_class(bench)
    except ImportError as error:
        yield f"The peer is left out: {error}."
        return
    bag_rows = make_bags(rows, "queries", n_bags, OVERLAP, 0, learned, np.arange(m))[:PEER_BAGS]
    gamma_q, gamma_p = model.gamma_
    settings = {"C": 1.0, "epsilon": 0.1, "tol": 1e-3, "gamma": 1.0}

    def features(query: np.ndarray, passage: np.ndarray) -> Any:
        """The product of both kernels is one kernel with γ = 1 on scaled halves."""
        halves = learned[xp.asarray(query)] * gamma_q**0.5, made.vectors[xp.asarray(passage)] * gamma_p**0.5
        return xp.concatenate(halves, axis=1)

    new = np.random.default_rng(0).integers(len(rows), size=min(2000, len(rows)))
    asked, total, apart = features(rows.query[new], rows.passage[new]), 0.0, 0.0
    for number, some in enumerate(bag_rows):
        label = rows.label[some].astype(np.float32)
        targets = xp.asarray(label), xp.asarray(np.where(label > 0, 3.0, 1.0).astype(np.float32))
        fitted, other = features(rows.query[some], rows.passage[some]), peer(kernel="rbf", **settings)
        if not number:
            other.fit(fitted[:100], *(values[:100] for values in targets))  # whatever is loaded at the first call
        total += timed(lambda other=other, fitted=fitted, targets=targets: (other.fit(fitted, *targets), bench.wait()))[
            0
        ]
        ours = predictions_of(model, number, asked, features, rows, xp)
        apart = max(apart, float(np.abs(to_numpy(other.predict(asked)).ravel() - ours).max()))
    whole = total / len(bag_rows) * n_bags
    name = f"{type(other).__module__.split('.')[0]} one after the other, the last number extrapolated"
    yield Cells("solver | bags | seconds | seconds for all bags", (name, len(bag_rows), total, whole))
    yield (
        f"Predictions of {len(bag_rows)} bags on {len(new):,} candidate rows differ by at most {apart:.0e}; 2 · tol is "
        f"{2 * model.tol:.0e}."
    )
    if not bench.device.is_cpu:
        yield f"haybale is {whole / later:.1f} times as fast."


def predictions_of(model: SVREnsemble, number: int, asked: Any, features: Any, rows: Any, xp: Any) -> np.ndarray:
    """Return the predictions (n,) of one bag, summed over its support rows with the peer's kernel."""
    support = model.support_
    part = slice(*support.offsets[number : number + 2])
    queries = np.array([int(name) for name in model.support_query_ids_])[support.query[part]]
    passages = np.array([int(name) for name in model.support_passage_ids_])[support.passage[part]]
    kernel = kernel_matrix(asked, features(queries, passages), 1.0, xp)
    return to_numpy(kernel.astype(xp.float64) @ xp.asarray(support.coef[part])) + support.intercept[number]


def scoring(bench: Bench) -> Iterator[Line]:
    made, index = bench.collection(500_000)
    n_bags, size = 35, bench.count(8_000, 50)
    learned, about = made.queries(max(2 * n_bags, n_bags * size // CANDIDATES), 1)
    model = SVREnsemble(n_bags, rows_per_bag=size, device=str(bench.device))
    model.fit(index, learned, [[str(document)] for document in about])
    queries, _ = made.queries(bench.count(629_294 / CANDIDATES, 4), 2)
    passages = to_numpy(index.search(queries, CANDIDATES).passages)
    works = {
        "mean of the bags": lambda: model.score_candidates(queries, passages),
        "votes, bag by bag": lambda: model.votes(queries, passages),
    }
    yield f"{passages.size:,} rows by {n_bags} bags with {len(model.support_.coef):,} support rows."
    for name, taken in bench.times(works).items():
        yield Cells(
            "what | first, s | later, s | rows/s", (name, taken.first, taken.later, passages.size / taken.later)
        )


# PARM and the whole --------------------------------------------------------------------------------------------------


def parm(bench: Bench) -> Iterator[Line]:
    (made, index), m = bench.collection(500_000, 45), bench.count(50, 2)
    paragraphs = np.split(to_numpy(made.queries(m * 45, 1)[0]), m)
    search = ParagraphSearch(index, "vrrf", n_hits=1000)
    searched = bench.times({"search": lambda: search.search(paragraphs)}, 1)["search"]
    paragraph_hits = searched.result
    hits = Hits(
        *(to_device(column, bench.device) for column in (paragraph_hits.hits.passages, paragraph_hits.hits.scores))
    )
    there = Vectors(index.vectors, to_device(paragraph_hits.vectors.paragraphs, bench.device))
    copied = Hits(to_numpy(hits.passages), to_numpy(hits.scores))
    here = Vectors(to_numpy(index.vectors), to_numpy(there.paragraphs))
    yield (
        f"{m} query documents of 45 paragraphs, {hits.passages.size:,} hits, searched in {searched.first:.3g} s, then "
        f"{searched.later:.3g} s."
    )
    columns = (
        "aggregation | device, first, s | device, later, s | CPU, s | × | scores differ by at most (of the largest)"
    )
    for name in AGGREGATIONS:
        on_device = {name: lambda name=name: aggregate(hits, name, index.doc_of, paragraph_hits.offsets, vectors=there)}
        ours = bench.times(on_device)[name]
        left = ours.result
        cpu, right = timed(
            lambda name=name: aggregate(copied, name, index.doc_of, paragraph_hits.offsets, vectors=here)
        )
        apart = np.abs(to_numpy(left[2]) - right[2]).max() / np.abs(right[2]).max()
        same = all(np.array_equal(to_numpy(x), y) for x, y in zip(left[:2], right[:2], strict=True))
        differ = f"{apart:.0e}" if same else "OTHER DOCUMENTS"
        yield Cells(columns, (name, ours.first, ours.later, cpu, cpu / ours.later, differ))


def whole(bench: Bench) -> Iterator[Line]:
    stages: dict[str, float] = {}

    def step(name: str, work: Callable[[], Any]) -> Any:
        stages[name], (result, _) = timed(lambda: (work(), bench.wait()))
        print(f"  {name}: {stages[name]:.2f} s", flush=True)
        return result

    made, index = bench.collection()
    n_bags, size = bench.count(BAGS, 4), bench.count(BAG_ROWS, 300)
    learned, about = made.queries(bench.count(TRAINING, 8 * n_bags), 1)
    ranked, asked = made.queries(bench.count(RANKED, 4), 2)
    ensemble = SVREnsemble(n_bags, k=CANDIDATES, rows_per_bag=size, device=str(bench.device))
    relevant, ids = [[str(document)] for document in about], [f"q{number}" for number in range(len(ranked))]
    columns = "stage | seconds"
    hits = step("search the training queries", lambda: index.search(learned, CANDIDATES))
    yield Cells(columns, tuple(stages.items())[-1])
    step("train the bags", lambda: ensemble.fit(index, learned, relevant, candidates=hits))
    yield Cells(columns, tuple(stages.items())[-1])
    candidates = step("search the ranked queries", lambda: index.search(ranked, CANDIDATES))
    yield Cells(columns, tuple(stages.items())[-1])
    scores = step("score their candidates", lambda: ensemble.score_candidates(ranked, candidates.passages))
    yield Cells(columns, tuple(stages.items())[-1])
    run = step("rank documents", lambda: rank_documents(index, Hits(candidates.passages, scores), ids))
    yield Cells(columns, tuple(stages.items())[-1])
    yield Cells(columns, ("all", sum(stages.values())))
    best = np.mean([run[query][0][0] == str(document) for query, document in zip(ids, asked, strict=True)])
    yield (
        f"{len(index):,} passages, {len(learned):,} training queries, {n_bags} bags of "
        f"{np.mean(ensemble.bag_sizes_):,.0f} rows; {len(ids):,} queries ranked, {best:.1%} with their document first. "
        "The authors report two days on two cards of 48 GB."
    )
