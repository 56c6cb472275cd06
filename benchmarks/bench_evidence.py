"""Memory and evidence on the dev queries: the added kernel (η) against the blend chosen out of bag.

    python benchmarks/bench_evidence.py FOLDER [--eta 0.01 1] [--overlap 0] [--results benchmarks/results]

Queries are told apart by what the training queries had: all of their relevant documents, some, or none. Everything is
learned from the training queries; the weight of the blend is chosen on them too, and the whole curve is shown.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from provenance import provenance

from haybale.collections import open_collection
from haybale.evaluation import evaluate
from haybale.experiments import Settings
from haybale.experiments.rankers import run_of
from haybale.experiments.workbench import Workbench
from haybale.retrieval import Hits, Run, rank_documents, reciprocal_rank_fusion

MEASURES = ("MRR@10", "nDCG@10")
GROUPS = ("all", "every relevant document seen", "some seen", "none seen")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection")
    parser.add_argument("--eta", nargs="*", type=float, default=[0.01, 1.0])
    parser.add_argument("--overlap", type=float, default=0.0)
    parser.add_argument("--split", default="dev")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    settings = Settings(
        split=arguments.split, rankers=("bm25", "svr", "svr-blend"), ensemble={"overlap": arguments.overlap}
    )
    bench = Workbench(
        open_collection(arguments.collection), settings, lambda s, t: print(f"  {s} {t:.0f} s", flush=True)
    )
    runs = {name: run_of(bench, name, settings.split) for name in settings.rankers}
    name, ensemble, overlap = bench.collection.name, bench.ensemble("svr"), arguments.overlap
    lines = [
        f"# Memory and evidence, {name}, {arguments.split}",
        "",
        (__doc__ or "").split("\n\n")[2].replace("\n", " "),
    ]
    lines += ["", *_by_group(bench, runs, arguments.eta), "", *_by_bags(bench), "", *_by_weight(bench), ""]
    size = np.mean(ensemble.bag_sizes_)
    lines.append(
        f"- {ensemble.n_bags} bags of {size:,.0f} rows, overlap {overlap:g}, {ensemble.n_rows_:,} rows; seconds: "
    )
    lines[-1] += ", ".join(f"{stage} {seconds:.0f}" for stage, seconds in bench.seconds.items() if "svr" in stage)
    etas = " ".join(f"{eta:g}" for eta in arguments.eta)
    lines.append(provenance(f"python benchmarks/bench_evidence.py {name} --eta {etas} --overlap {overlap:g}"))
    path = arguments.results / f"evidence-{name}-{arguments.split}.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(path.read_text(encoding="utf-8"))


def _by_group(bench: Workbench, runs: dict[str, Run], etas: list[float]) -> list[str]:
    """What each way finds for queries whose relevant documents were seen in training, and for the others."""
    fused = reciprocal_rank_fusion([runs["bm25"], runs["svr"]], depth=bench.settings.depth)
    rows = [("BM25", runs["bm25"]), ("memory, Kq·Kp", runs["svr"]), ("rrf(BM25, memory)", fused)]
    rows += [(f"Kq·Kp + {eta:g}·Ks", added(bench, eta)) for eta in etas]
    rows += [("memory and evidence, blended", runs["svr-blend"])]
    groups = seen(bench)
    heads = " | ".join(f"{group} ({groups[group].sum():,})" for group in GROUPS)
    lines = [
        "MRR@10 / nDCG@10, and how many queries a group has:",
        "",
        f"| | {heads} |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for label, run in rows:
        values = measured(bench, run)
        cells = [" / ".join(f"{values[m][groups[group]].mean():.4f}" for m in MEASURES) for group in GROUPS]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return lines


def _by_bags(bench: Workbench) -> list[str]:
    """The memory of the first 1, 2, 4, … bags: more data through more bags."""
    ensemble, settings = bench.ensemble("svr"), bench.settings
    candidates = bench.candidates(settings.split, settings.candidates)
    pairs, real, _ = ensemble._pairs(bench.query_vectors(settings.split), candidates.passages, None)
    with bench.stage("svr bag by bag"):
        sums = np.cumsum(ensemble.support_.bags(pairs), axis=1)
    lines = [
        "The memory of the first bags only, each of other training queries:",
        "",
        "| bags | MRR@10 |",
        "| ---: | ---: |",
    ]
    for count in (1, 2, 4, 8, 16, 24, ensemble.n_bags):
        scores = np.full(candidates.passages.shape, -np.inf, dtype=np.float32)
        scores[real] = sums[:, count - 1] / count
        run = rank_documents(bench.index, Hits(candidates.passages, scores), bench.query_ids(settings.split))
        lines.append(f"| {count} | {measured(bench, run)['MRR@10'].mean():.4f} |")
    return lines


def _by_weight(bench: Workbench) -> list[str]:
    """Every weight of the blend: what the training queries said of it, and what the others."""
    blend, unseen = bench.ensemble("svr").blend_, seen(bench)["none seen"]
    assert blend is not None
    chosen = int(np.argmax(blend.mrr))
    unit = blend.weights / blend.tried[chosen] if chosen else blend.weights
    lines = [
        "The weight of the evidence, in spreads of the memory within a query; the one with the arrow was chosen:",
        "",
    ]
    lines += ["| weight | MRR@10 out of bag (training queries) | MRR@10 | none seen |", "| ---: | ---: | ---: | ---: |"]
    for number, (weight, mrr) in enumerate(zip(blend.tried, blend.mrr, strict=True)):
        values = measured(bench, evidence(bench, weight * unit))["MRR@10"]
        mark = " ←" if number == chosen else ""
        lines.append(f"| {weight:g}{mark} | {mrr:.4f} | {values.mean():.4f} | {values[unseen].mean():.4f} |")
    return lines


def added(bench: Workbench, eta: float) -> Run:
    """The ensemble with the kernel over pair features added."""
    settings = bench.settings
    train, split = settings.train_split, settings.split
    ensemble = bench.ensemble("svr")
    other = type(ensemble)(**(ensemble.get_params() | {"eta": eta, "blend": False}))
    with bench.stage(f"svr with eta {eta:g}"):
        other.fit(
            bench.index,
            bench.query_vectors(train),
            bench.collection.relevant_ids(train),
            candidates=bench.candidates(train, settings.train_candidates),
            features=bench.features(train, settings.train_candidates),
            exclude=bench.own(train),
        )
        return other.rank(
            bench.query_vectors(split),
            bench.query_ids(split),
            candidates=bench.candidates(split, settings.candidates),
            features=bench.features(split, settings.candidates),
        )


def evidence(bench: Workbench, weights: np.ndarray) -> Run:
    """The memory with evidence of these weights."""
    settings = bench.settings
    hits = bench.memory(settings.split)
    features = bench.features(settings.split, settings.candidates)
    scores = (hits.scores + features @ weights).astype(np.float32)
    return rank_documents(bench.index, Hits(hits.passages, scores), bench.query_ids(settings.split))


def seen(bench: Workbench) -> dict[str, np.ndarray]:
    """Which queries had all, some or none of their relevant documents among those of the training queries."""
    known = {doc for ids in bench.collection.relevant_ids(bench.settings.train_split) for doc in ids}
    relevant = bench.collection.relevant_ids(bench.settings.split)
    share = np.array([np.mean([doc in known for doc in ids]) if ids else np.nan for ids in relevant])
    return dict(zip(GROUPS, (share >= 0, share == 1, (share > 0) & (share < 1), share == 0), strict=True))


def measured(bench: Workbench, run: Run) -> dict[str, np.ndarray]:
    """(n_queries,) of each measure, in the order of the split's queries."""
    split = bench.settings.split
    values = evaluate(run, bench.collection.qrels_frame(split), MEASURES).reindex(bench.query_ids(split))
    return {name: values[name].to_numpy() for name in MEASURES}


if __name__ == "__main__":
    main()
