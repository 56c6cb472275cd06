"""PARM on a device: 250 query documents × 45 paragraphs × 1,000 hits, search and every aggregation apart.

    python benchmarks/bench_gpu_parm.py                               # on cuda
    python benchmarks/bench_gpu_parm.py --device cpu --scale 0.01     # to try the script

The same hits are aggregated where they are and, copied, on the CPU, in turn; the scores are compared.
"""

from __future__ import annotations

import gpu_report
import numpy as np
import synthetic

from haybale import Hits, ParagraphSearch, PassageIndex
from haybale.device import to_device, to_numpy
from haybale.retrieval import Vectors, aggregate

DOCUMENTS, PARAGRAPHS, HITS, PASSAGES, WIDTH = 250, 45, 1000, 2_000_000, 768
NAMES = ("vrrf", "rrf", "combsum", "vsum", "vavg", "vmin", "vmax", "vscores", "vranks", "maxp")


def main() -> None:
    a = gpu_report.options(__doc__).parse_args()
    device = gpu_report.chosen_device(a.device)
    clock = gpu_report.Clock(device)
    m, n = gpu_report.count(DOCUMENTS, a.scale, 2), gpu_report.count(PASSAGES, a.scale, 2000)
    made = synthetic.collection(n, WIDTH, 45, device, np.float16)
    index = PassageIndex(made.vectors, made.doc_offsets, dtype="float16")
    host = [np.ascontiguousarray(part) for part in np.split(to_numpy(made.queries(m * PARAGRAPHS, 1)[0]), m)]
    ids = [f"q{number}" for number in range(m)]
    parm = ParagraphSearch(index, "vrrf", n_hits=min(HITS, n))
    searching = clock.alternating({"search": lambda: parm.search(host)}, a.rounds)["search"][0]
    ranking = clock.alternating({"rank": lambda: parm.rank(ids, host)}, a.rounds)["rank"][0]
    found = parm.search(host)
    hits = Hits(*(to_device(column, device) for column in (found.hits.passages, found.hits.scores)))
    there = Vectors(index.vectors, to_device(found.vectors.paragraphs, device))
    copied = Hits(to_numpy(hits.passages), to_numpy(hits.scores))
    here = Vectors(to_numpy(index.vectors).astype(np.float32), to_numpy(there.paragraphs))
    lines = [
        f"{m} query documents of {PARAGRAPHS} paragraphs, {n:,} passages × {WIDTH} in float16, "
        f"N = {hits.passages.shape[1]:,}: {hits.passages.size:,} hits. Searching takes {searching:.3g} s; "
        f"`ParagraphSearch.rank` with VRRF, from vectors to a run with ids, {ranking:.3g} s.",
        "",
        "| aggregation | on the device, s | on the CPU, s | × | scores differ by at most (of the largest) |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name in NAMES:
        done = clock.alternating(
            {
                "device": lambda name=name: aggregate(hits, name, index.doc_of, found.offsets, vectors=there),
                "cpu": lambda name=name: aggregate(copied, name, index.doc_of, found.offsets, vectors=here),
            },
            a.rounds,
        )
        (ours, left), (cpu, right) = done["device"], done["cpu"]
        apart = np.abs(to_numpy(left[2]) - right[2]).max() / np.abs(right[2]).max()
        same = all(np.array_equal(to_numpy(x), y) for x, y in zip(left[:2], right[:2], strict=True))
        lines.append(
            f"| {name} | {ours:.3g} | {cpu:.3g} | {cpu / ours:.1f} | {apart:.0e}{'' if same else ', OTHER DOCUMENTS'} |"
        )
        print(lines[-1], flush=True)
    gpu_report.write(a, "bench_gpu_parm", "PARM on a device", lines)


if __name__ == "__main__":
    main()
