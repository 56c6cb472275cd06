"""A whole run of GerDaLIR's size on synthetic vectors, end to end on one device.

    python benchmarks/bench_gpu_whole.py                               # on cuda
    python benchmarks/bench_gpu_whole.py --device cpu --scale 0.01     # to try the script

3,095,383 passages of 131,445 documents, 98,380 training queries, k = 50, 35 bags of (1 + 0.6)/35 of them, and 12,297
queries to rank. The aim is 30 minutes on one H200; the authors report two days on two cards of 48 GB and 200 GB of
swap. ``--bags`` trains fewer of the bags, for a look at the cost of one.
"""

from __future__ import annotations

from typing import Any

import gpu_report
import numpy as np
import synthetic

from haybale import PassageIndex, SVREnsemble, rank_documents
from haybale.retrieval import Hits

PASSAGES, DOCUMENTS, TRAINING, RANKED, CANDIDATES, BAGS, WIDTH = 3_095_383, 131_445, 98_380, 12_297, 50, 35, 768


def main() -> None:
    parser = gpu_report.options(__doc__)
    parser.add_argument("--bags", type=int, default=BAGS, help="bags that are trained")
    a = parser.parse_args()
    device = gpu_report.chosen_device(a.device)
    clock = gpu_report.Clock(device)
    n, m = gpu_report.count(PASSAGES, a.scale, 2000), gpu_report.count(TRAINING, a.scale, 2 * BAGS)
    stages: list[tuple[str, float]] = []

    def stage(name: str, work: Any) -> Any:
        seconds, result = clock.time(work)
        stages.append((name, seconds))
        print(f"  {name}: {seconds:.2f} s", flush=True)
        return result

    made = synthetic.collection(n, WIDTH, PASSAGES // DOCUMENTS, device, np.float16)
    learned, about = made.queries(m, 1)
    ranked, asked = made.queries(gpu_report.count(RANKED, a.scale, 4), 2)
    index = stage("index", lambda: PassageIndex(made.vectors, made.doc_offsets, dtype="float16"))
    hits = stage("search the training queries", lambda: index.search(learned, CANDIDATES))
    relevant = [[str(document)] for document in about]
    ensemble = SVREnsemble(BAGS, k=CANDIDATES, device=a.device)
    if a.bags != BAGS:  # as many queries as so many bags of the whole would hold
        share = max(2 * a.bags, m * a.bags // BAGS)
        learned, relevant, hits = learned[:share], relevant[:share], Hits(hits.passages[:share], hits.scores[:share])
        ensemble.set_params(n_bags=a.bags)
    stage("train the bags", lambda: ensemble.fit(index, learned, relevant, candidates=hits))
    found = stage("search the ranked queries", lambda: index.search(ranked, CANDIDATES))
    scores = stage("score their candidates", lambda: ensemble.score_candidates(ranked, found.passages))
    ids = [f"q{number}" for number in range(len(ranked))]
    run = stage("rank documents", lambda: rank_documents(index, Hits(found.passages, scores), ids))
    best = np.mean(
        [bool(run[query]) and run[query][0][0] == str(document) for query, document in zip(ids, asked, strict=True)]
    )
    total = sum(seconds for _, seconds in stages)
    lines = [
        f"{n:,} passages of {made.n_documents:,} documents, width {WIDTH}, stored as float16; {len(learned):,} "
        f"training queries, k = {CANDIDATES}, {ensemble.n_rows_:,} candidate rows; {ensemble.n_bags} bags of "
        f"{np.mean(ensemble.bag_sizes_):,.0f} rows on average, {len(ensemble.support_.coef):,} support rows; "
        f"{len(ids):,} queries ranked, {best:.1%} of them with their document first.",
        "",
        "| stage | seconds |",
        "| --- | ---: |",
        *(f"| {name} | {seconds:.3g} |" for name, seconds in stages),
        f"| all | {total:.3g} |",
    ]
    if not device.is_cpu:
        with device.current():
            held = device.xp.get_default_memory_pool().total_bytes() / 1e9
        lines += ["", f"Memory held on the device at the end: {held:.1f} GB."]
    gpu_report.write(a, "bench_gpu_whole", "A run of GerDaLIR's size, end to end", lines)


if __name__ == "__main__":
    main()
