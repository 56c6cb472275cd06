"""An ensemble scores candidates on a device: 629,294 rows × 35 bags, by their mean and bag by bag.

    python benchmarks/bench_gpu_scoring.py                               # on cuda
    python benchmarks/bench_gpu_scoring.py --device cpu --scale 0.01     # to try the script

Each bag is trained on 8,000 rows. The same model scores the first of the queries on the CPU too, which is what it is
compared with: for one thousandth of the time, on a machine where it would take long.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import gpu_report
import numpy as np
import synthetic

from haybale import PassageIndex, SVREnsemble
from haybale.device import find_device, to_numpy

ROWS, CANDIDATES, BAGS, WIDTH, ROWS_PER_BAG = 629_294, 50, 35, 768, 8_000
TRAINING, PASSAGES = 98_380, 3_095_383
CHECKED = 100  # queries scored on the CPU as well


def main() -> None:
    a = gpu_report.options(__doc__).parse_args()
    device = gpu_report.chosen_device(a.device)
    clock = gpu_report.Clock(device)
    made = synthetic.collection(gpu_report.count(PASSAGES, a.scale, 2000), WIDTH, 24, device, np.float16)
    index = PassageIndex(made.vectors, made.doc_offsets, dtype="float16")
    learned, about = made.queries(gpu_report.count(TRAINING, a.scale, 2 * BAGS), 1)
    relevant = [[str(document)] for document in about]
    settings = {"n_bags": BAGS, "rows_per_bag": gpu_report.count(ROWS_PER_BAG, a.scale, 50), "device": a.device}
    training, model = clock.time(lambda: SVREnsemble(**settings).fit(index, learned, relevant))
    m = gpu_report.count(ROWS / CANDIDATES, a.scale, 4)
    queries, _ = made.queries(m, 2)
    passages = to_numpy(index.search(queries, CANDIDATES).passages)
    works = {
        "mean of the bags": lambda: model.score_candidates(queries, passages),
        "votes, bag by bag": lambda: model.votes(queries, passages),
    }
    done = clock.alternating(works, a.rounds)
    support = model.support_
    lines = [
        f"{passages.size:,} rows ({m:,} queries × {passages.shape[1]}), {BAGS} bags with {len(support.coef):,} support "
        f"rows over {len(support.queries):,} queries and {len(support.passages):,} passages of width {WIDTH}. "
        f"(Training took {training:.3g} s.)",
        "",
        "| what | seconds | rows/s |",
        "| --- | ---: | ---: |",
        *(f"| {name} | {seconds:.3g} | {passages.size / seconds:,.0f} |" for name, (seconds, _) in done.items()),
    ]
    few = slice(0, min(CHECKED, m))
    used, where = np.unique(passages[few], return_inverse=True)
    host = PassageIndex(to_numpy(index.vectors[device.xp.asarray(used)]).astype(np.float32))
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        on_cpu = SVREnsemble.load(Path(folder) / "model", host)
    clock_cpu = gpu_report.Clock(find_device("cpu"))
    taken, expected = clock_cpu.time(
        lambda: on_cpu.score_candidates(to_numpy(queries[few]), where.reshape(passages[few].shape))
    )
    apart = np.abs(to_numpy(done["mean of the bags"][1])[few] - expected).max()
    lines += [
        "",
        f"{expected.size:,} of the rows on the CPU: {taken:.3g} s; the scores differ by at most {apart:.0e}.",
    ]
    gpu_report.write(a, "bench_gpu_scoring", "An ensemble scores on a device", lines)


if __name__ == "__main__":
    main()
