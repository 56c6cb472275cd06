"""Compare the rankers on collections and write one result file each: the table, the seconds, the machine.

    python benchmarks/bench_rankers.py pydocs FOLDER … [--split dev] [--results benchmarks/results]

Every collection runs in a process of its own, so that the peak memory is its own. The result files are
overwritten; they name the command, the commit and the hardware.
"""

from __future__ import annotations

import argparse
import resource
import shlex
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from provenance import commit, processor

from haybale.collections import open_collection
from haybale.evaluation import markdown, results
from haybale.experiments import Outcome, Settings, compare

RANKERS = (
    "bm25",
    "bm25-doc",
    "knn",
    "svr",
    "svr-blend",
    "svr-paper",
    "parm-rrf",
    "parm-vrrf",
    "rrf(bm25,svr)",
    "rrf(bm25-doc,svr)",
    "rrf(bm25-doc,svr-blend)",
    "rrf(bm25-doc,svr,parm-vrrf)",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", help="pydocs, or folders")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--encoder", default="lsa", help="lsa, tfidf, or a hub id or folder")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    if len(arguments.collections) == 1:
        run(arguments.collections[0], arguments)
        return
    for name in arguments.collections:
        options = ["--split", arguments.split, "--encoder", arguments.encoder, "--results", str(arguments.results)]
        subprocess.run([sys.executable, __file__, name, *options], check=True)


def run(name: str, arguments: argparse.Namespace) -> None:
    start = time.perf_counter()
    collection = open_collection(name)
    read = time.perf_counter() - start
    settings = Settings(split=arguments.split, rankers=rankers(arguments.encoder), encoder=arguments.encoder)
    outcome = compare(collection, settings, lambda stage, seconds: print(f"  {stage} {seconds:.1f} s", flush=True))
    whole = time.perf_counter() - start
    suffix = "" if arguments.encoder == "lsa" else f"-{Path(arguments.encoder).name}"
    path = arguments.results / f"{collection.name}-{arguments.split}{suffix}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(outcome, read, whole, arguments), encoding="utf-8")
    print(f"{path}\n{markdown(outcome.results)}")


def rankers(encoder: str) -> tuple[str, ...]:
    """All of them, but that the paper's settings are for dense vectors: they shift every feature by its mean."""
    return tuple(name for name in RANKERS if encoder != "tfidf" or name != "svr-paper")


def page(outcome: Outcome, read: float, whole: float, arguments: argparse.Namespace) -> str:
    collection, environment = outcome.collection, outcome.to_dict()["environment"]
    shown = {"read": read} | outcome.seconds
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    options = [collection.name, "--split", arguments.split]
    if arguments.encoder != "lsa":
        options += ["--encoder", Path(arguments.encoder).name]
    command = shlex.join(["python", "benchmarks/bench_rankers.py", *options])
    alike = shlex.join(["haybale", "compare", *options, "--rankers", ",".join(rankers(arguments.encoder))])
    ensembles = {name: facts for name, facts in outcome.facts.items() if name.startswith("svr")}
    return "\n".join(
        [
            f"# {collection.name}, {arguments.split}",
            "",
            f"{collection!r}.",
            "",
            markdown(outcome.results),
            "",
            "The same against BM25 over whole documents:",
            "",
            markdown(results(outcome.results.values, "bm25-doc")),
            "",
            *(
                f"- {name}: " + ", ".join(f"{key} {fact(value)}" for key, value in f.items())
                for name, f in ensembles.items()
            ),
            f"- whole run {whole:.0f} s, peak memory {memory:.1f} GiB; seconds a stage: "
            + ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in shown.items()),
            f"- command: `{command}` (a folder is given by its path); the first table alone: `{alike}`",
            f"- commit {commit()}, {datetime.now(UTC):%Y-%m-%d}; {processor()}; "
            + ", ".join(f"{package} {number}" for package, number in environment.items()),
            "",
        ]
    )


def fact(value: object) -> str:
    if isinstance(value, list):
        return "/".join(f"{item:.4g}" for item in value)
    if isinstance(value, float) and abs(value) < 10:
        return f"{value:.4f}"
    return f"{value:,.0f}" if isinstance(value, (int, float)) else str(value)


if __name__ == "__main__":
    main()
