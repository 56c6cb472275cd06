"""Measure the CPU time of importing haybale and of three commands, beside importing scikit-learn and bm25s.

    python benchmarks/bench_imports.py [--rounds 7]

Every line is a process of its own; in each round all run once. The page has the medians of user and system seconds.
"""

from __future__ import annotations

import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from provenance import options, provenance, shown, table, write_page

import haybale

PEER = "import sklearn.svm"
TEXTS = {
    "leads": "Dogs are kept on a lead.",
    "taxes": ["Taxes are due in May.", "The dog tax too."],
    "cats": "Cats purr.",
}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        engine = str(Path(folder, "engine"))
        haybale.Engine.build(TEXTS, engine, language="english")
        commands = {code: ["-c", code] for code in (PEER, "import bm25s", "from haybale import Engine, SVR")}
        for line in ("--help", 'search ENGINE "dog tax"', 'rank ENGINE "dog tax" --ranker bm25-doc'):
            arguments = [engine if word == "ENGINE" else word for word in shlex.split(line)]
            commands[f"haybale {line}"] = ["-c", "from haybale.cli import main; main()", *arguments]
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(a.rounds + 1):
            for name, command in commands.items():
                seconds[name].append(cpu_seconds([sys.executable, *command]))
    medians = {name: statistics.median(each[1:]) for name, each in seconds.items()}  # the first round warms the disk
    rows = [(f"`{name}`", value, value / medians[PEER]) for name, value in medians.items()]
    lines = ["# What starting costs", "", f"CPU seconds, user and system; medians of {a.rounds} rounds, alternating."]
    lines += [*table(f"process | CPU s | × `{PEER}`", rows), ""]
    lines.append(provenance(shown("bench_imports.py", sys.argv[1:]), more=("pyarrow", "bm25s")))
    write_page(a.results / "imports.md", lines)


def cpu_seconds(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
