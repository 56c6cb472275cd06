"""Embedding a collection that need not fit in memory: peak memory and throughput as the collection grows.

    python benchmarks/bench_embed.py [--results benchmarks/results]

A generated collection in GerDaLIR's layout (10 short passages a document, words drawn by Zipf's law) is embedded by
`haybale embed` with LSA, in a process of its own whose peak resident memory the system reports. In a second run the
process is killed half-way, and the same command goes on; the store must be the same, byte for byte.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from provenance import options, provenance, write_page

PER_DOCUMENT, WORDS = 10, 50_000
HAYBALE = [sys.executable, "-c", "from haybale.cli import main; main()"]


class Done(NamedTuple):
    """What one process did."""

    status: int
    seconds: float
    peak: float  # bytes
    said: str


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--passages", type=int, nargs="+", default=[125_000, 500_000, 2_000_000])
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--fit-passages", type=int, default=100_000)
    parser.add_argument("--dtype", default="float16")
    parser.add_argument("--folder", type=Path, help="where to work; default: a temporary folder")
    a = parser.parse_args()
    lines = [
        f"# Embedding: memory and throughput, LSA {a.width} wide, {a.dtype}\n",
        f"Fitted on {a.fit_passages:,} passages drawn at random, then all are embedded.\n",
        "| passages | text, MB | vectors, MB | wall, s | passages/s while embedding | peak memory, MB |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    settings = ["--width", str(a.width), "--set", f"max_fit_texts={a.fit_passages}", "--dtype", a.dtype]

    def embed(source: Path, store: Path, kill_when: Path | None = None) -> Done:
        command = [*HAYBALE, "embed", str(source), "--out", str(store), *settings, "--language", "english"]
        done = run(command, kill_when)
        if done.status and kill_when is None:
            raise SystemExit(done.said)
        return done

    with tempfile.TemporaryDirectory(dir=a.folder) as name:
        folder = Path(name)
        for passages in a.passages:
            source, store = folder / f"in-{passages}", folder / f"out-{passages}"
            size = generate(source, passages)
            done = embed(source, store)
            rate = done.said.split(": ")[1].split(" passages/s")[0]
            vectors = sum(path.stat().st_size for path in store.glob("vectors.zarr/*"))
            lines.append(
                f"| {passages:,} | {size / 1e6:,.0f} | {vectors / 1e6:,.0f} | {done.seconds:.1f} | {rate} | "
                f"{done.peak / 1e6:,.0f} |"
            )
            print(lines[-1], flush=True)
        # The smallest once more, killed half-way.
        passages, again = a.passages[0], folder / "again"
        source, store = folder / f"in-{passages}", folder / f"out-{passages}"
        killed = embed(source, again, kill_when=again / "vectors.zarr" / f"c.{passages // 2048 // 2}.0")
        resumed = embed(source, again)
        lines.append(
            f"\nThe {passages:,} passages killed half-way (signal {-killed.status}, after {killed.seconds:.1f} s) and "
            f"resumed: {resumed.said.splitlines()[0]}; wall {resumed.seconds:.1f} s. "
            f"The store is {'the same, byte for byte' if digest(again) == digest(store) else 'NOT THE SAME'}."
        )
    write_page(
        a.results / "embed.md", [*lines, "", provenance("python benchmarks/bench_embed.py", more=("zarr", "pyarrow"))]
    )


def generate(folder: Path, passages: int, seed: int = 0) -> int:
    """Write ``collection.tsv``; returns its bytes."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = np.array(["".join(letters[rng.integers(26, size=size)]) for size in rng.integers(4, 11, size=WORDS)])
    chance = 1 / np.arange(1, WORDS + 1)
    chance /= chance.sum()
    folder.mkdir(parents=True)
    with (folder / "collection.tsv").open("w") as file:
        for start in range(0, passages, 10_000):
            lengths = rng.integers(8, 25, size=min(10_000, passages - start))
            drawn = words[rng.choice(WORDS, size=lengths.sum(), p=chance)]
            ends = np.cumsum(lengths)
            for number, (first, last) in enumerate(zip(ends - lengths, ends, strict=True), start):
                file.write(f"d{number // PER_DOCUMENT}\t{' '.join(drawn[first:last])}\n")
    return (folder / "collection.tsv").stat().st_size


def run(command: list[str], kill_when: Path | None = None) -> Done:
    """Run to the end, or until a file is there; then SIGKILL."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    if kill_when is not None:
        while not kill_when.exists() and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    return Done(os.waitstatus_to_exitcode(status), time.perf_counter() - start, usage.ru_maxrss * 1024, said)


def digest(store: Path) -> str:
    """SHA-256 over names and contents of all files of a store."""
    total = hashlib.sha256()
    for path in sorted(path for path in store.rglob("*") if path.is_file()):
        total.update(str(path.relative_to(store)).encode())
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


if __name__ == "__main__":
    main()
