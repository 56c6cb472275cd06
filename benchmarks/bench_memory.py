"""Peak memory of fitting one bag of 26,000 rows, and of the candidate rows of a problem of the paper's size.

    python benchmarks/bench_memory.py FOLDER [--cache FOLDER] [--results benchmarks/results]

Each is measured in a process of its own: by how much its peak rises above what the data takes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import candidates as data
import numpy as np
from provenance import forget_peak, peak_memory, provenance

from haybale.ensemble import ProductKernelSVR, candidate_rows
from haybale.retrieval import Hits, PassageIndex


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", help="a folder with training queries")
    parser.add_argument("--cache", type=Path, default=Path("/var/tmp/haybale-benchmarks"))
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--one", choices=("fit", "rows"), help="measure one, in this process")
    arguments = parser.parse_args()
    if arguments.one:
        rows = data.load(arguments.collection, arguments.cache) if arguments.one == "fit" else None
        print(json.dumps(fit(rows) if rows is not None else paper_size()))
        return
    command = [sys.executable, __file__, arguments.collection, "--cache", str(arguments.cache), "--one"]
    found = {}
    for what in ("fit", "rows"):
        run = subprocess.run([*command, what], check=True, capture_output=True, text=True)
        found[what] = json.loads(run.stdout)
    bag, rows = found["fit"], found["rows"]
    name = Path(arguments.collection).name
    lines = [
        "# Peak memory",
        "",
        "| | GB |",
        "| --- | ---: |",
        f"| fitting one bag of {bag['rows']:,} rows over {bag['passages']:,} passages and {bag['queries']:,} queries "
        f"of {name}, above the data | {bag['above'] / 1e9:.2f} |",
        f"| holding {rows['rows']:,} candidate rows of {rows['queries']:,} queries | {rows['held'] / 1e9:.3f} |",
        f"| making them from hits, above the hits | {rows['above'] / 1e9:.3f} |",
        "",
        provenance(f"python benchmarks/bench_memory.py {name}"),
    ]
    path = arguments.results / "memory.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(path.read_text(encoding="utf-8"))


def fit(rows: data.Candidates) -> dict[str, float]:
    """One bag, the data in memory before."""
    queries, passages, query, passage, y = rows.half(rows.sample(26_000))
    model = ProductKernelSVR(gamma=(3.0, 2.5))
    small = np.arange(200)
    model.fit_pairs(queries[:200], passages[:200], small, small, small % 2)
    forget_peak()
    before = peak_memory()
    model.fit_pairs(queries, passages, query, passage, y, np.where(y > 0, 3.0, 1.0))
    sizes = {"rows": len(y), "passages": len(passages), "queries": len(queries)}
    return sizes | {"above": peak_memory() - before}


def paper_size() -> dict[str, float]:
    """98,380 queries with 50 candidates, and relevant documents that no search found: 5,034,360 rows."""
    queries, k, documents = 98_380, 50, 123_120
    rng = np.random.default_rng(0)
    index = PassageIndex(rng.normal(size=(documents, 4)).astype(np.float32), backend="numpy")
    hits = Hits(rng.integers(documents // 2, size=(queries, k)), np.ones((queries, k), dtype=np.float32))
    added = 5_034_360 - queries * k
    relevant = np.sort(rng.integers(queries, size=added)), rng.integers(documents // 2, documents, size=added)
    vectors = rng.normal(size=(queries, 4)).astype(np.float32)
    forget_peak()
    before = peak_memory()
    made = candidate_rows("end-to-end", hits, relevant, index, vectors)
    columns = [made.query, made.passage, made.label, made.place]
    held = sum(column.nbytes for column in columns if column is not None)
    return {"rows": len(made), "queries": queries, "held": held, "above": peak_memory() - before}


if __name__ == "__main__":
    main()
