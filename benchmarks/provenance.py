"""What the benchmarks share: options, stopwatches, tables, JSON files, and where the numbers of a page come from."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from haybale.versions import versions_of

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("numpy", "scikit-learn", "numba")
FINDING_DUPLICATES = (
    "collections/duplicate_rules.py",
    "collections/record_fields.py",
    "collections/text_sketches.py",
    "engine/duplicates.py",
)
# Users' own folders of files, and duplicates: the collections of the benchmarks are read without these.
WITHOUT = (
    *("-collections/files", "-collections/readers/files.py", "-engine/update.py"),
    *(f"-{path}" for path in FINDING_DUPLICATES),
    *("-engine/copies.py", "-engine/document_order.py", "-search/matching.py", "-search/hit_groups.py"),
)
CORE = (
    *("collections", "embeddings", "retrieval", "ensemble", "engine", "search", "ranking", "rankers", "evaluation"),
    *WITHOUT,
)
LEARNER = (
    "review/learner.py",
    "review/member_weights.py",
    "review/incremental_svr.py",
    "review/growing_matrix.py",
    "review/judged_rows.py",
    "review/term_space.py",
    "review/topic_features.py",
)
# The paths below haybale/ that the figures of each script's page depend on, and with "-" those inside them that do not
# count; stale.py compares their code.
MEASURES = {
    "bench_audit.py": ("review/betting.py", "review/draws.py", "review/stopping/audit.py"),
    "bench_backends.py": ("embeddings/compiled_network.py", "embeddings/sentence_transformer.py"),
    "bench_best.py": CORE,
    "bench_bm25.py": (
        "retrieval/bm25_index.py",
        "retrieval/inverted.py",
        "retrieval/range_search.py",
        "retrieval/postings.py",
        "analysis.py",
    ),
    "bench_calibration.py": ("review/calibration.py", "review/learner.py", "review/incremental_svr.py"),
    "bench_defaults.py": CORE,
    "bench_duplicates.py": FINDING_DUPLICATES,
    "bench_encoders.py": ("embeddings/sentence_transformer.py", "embeddings/token_batches.py"),
    "bench_endurance.py": (
        "service",
        "search",
        "review/review.py",
        "review/judgement_store.py",
        "review/store_file.py",
    ),
    "bench_files.py": (
        "collections/files",
        "collections/readers/files.py",
        "engine/update.py",
        "engine",
        "commands/index.py",
    ),
    "bench_first_stages.py": (
        "retrieval/range_search.py",
        "retrieval/inverted.py",
        "retrieval/sparse_search.py",
        "retrieval/passage_index.py",
        "retrieval/bm25_index.py",
        "retrieval/postings.py",
        "retrieval/parm",
    ),
    "bench_filters.py": ("engine/document_filter.py", "collections/metadata.py"),
    "bench_forecast.py": CORE,
    "bench_fusion.py": (
        "rankers/models/conditional_logit.py",
        "rankers/models/judged_pools.py",
        "rankers/models/learned_fusion.py",
        "rankers/learned.py",
        "retrieval/fusion.py",
    ),
    "bench_gpu.py": (
        "retrieval",
        "ensemble",
        "embeddings/networks",
        "pairs/pair_encoders.py",
        "vectors.py",
        "vectors.cu",
        "device.py",
        "device_functions.cuh",
        "device_kernels.py",
        "device_memory.py",
        "device_products.py",
        "device_products.cu",
        "device_vectors.py",
    ),
    "bench_graph.py": (*CORE, "context"),
    "bench_held_back.py": LEARNER,
    "bench_judgements.py": CORE,
    "bench_imports.py": (
        *("__init__.py", "lazy.py", "registry.py", "cli", "commands", "engine", "search", "ranking", "rankers"),
        *("collections", *WITHOUT),
    ),
    "bench_kills.py": (
        "cluster.py",
        "kept_results.py",
        "ranking/runs.py",
        "ensemble/bagging.py",
        "engine/indexing_segments.py",
    ),
    "bench_large.py": CORE,
    "bench_matters.py": ("service", "search", "review/review.py", "review/judgement_store.py", "ranking/ranker.py"),
    "bench_mixture.py": CORE,
    "bench_longformer.py": ("embeddings/networks", "embeddings/longformer.py"),
    "bench_page_boxes.py": ("collections/files",),
    "bench_parm.py": ("retrieval/parm", "retrieval/hits.py", "vectors.py"),
    "bench_learner.py": LEARNER,
    "bench_review.py": LEARNER,
    "bench_operation.py": (
        "service",
        "search",
        "engine",
        "retrieval",
        "review/judgement_store.py",
        "collections",
        *WITHOUT,
    ),
    "bench_other_engines.py": (
        "rankers/stored.py",
        "rankers/learned.py",
        "rankers/models",
        "ranking/external_documents.py",
        "retrieval/ranked_lists.py",
        "retrieval/fusion.py",
    ),
    "bench_passage_sums.py": ("retrieval", "rankers/bm25.py", "rankers/knn.py"),
    "bench_ocr.py": tuple(f"collections/files/{name}.py" for name in ("ocr", "tesseract", "recognised_words", "pdf")),
    "bench_readers.py": ("collections/files",),
    "bench_references.py": ("collections/files", "review/records.py", "review/ris_export.py", "review/exports.py"),
    "bench_rerank.py": ("pairs",),
    "bench_scaling.py": ("retrieval", "ensemble", "embeddings"),
    "bench_search.py": ("retrieval/backends", "retrieval/passages.py", "vectors.py"),
    "bench_log.py": (
        "engine/earlier_documents.py",
        "review/store_file.py",
        "service/log_chain.py",
        "service/logged_actions.py",
        "service/matter_log.py",
        "service/matter_store.py",
    ),
    "bench_search_page.py": (
        "service/document_counts.py",
        "service/facets.py",
        "search/matching.py",
        "engine/copies.py",
        "engine/document_order.py",
    ),
    "bench_service.py": (
        "service",
        "search",
        "review/review.py",
        "review/judgement_store.py",
        "review/store_file.py",
        "ranking/ranker.py",
    ),
    "bench_segments.py": (
        "engine/indexing_segments.py",
        "retrieval/index_segments.py",
        "retrieval/segmented_indexes.py",
        "cluster.py",
    ),
    "bench_serving.py": ("engine", "retrieval", "search", "ranking", "rankers", "ensemble", "collections", *WITHOUT),
    "bench_sets.py": CORE,
    "bench_snippets.py": (
        "search",
        "analysis.py",
        "search/explanation.py",
        "rankers/bm25.py",
        "rankers/parm.py",
        "rankers/knn.py",
    ),
    "bench_stopping.py": ("review/screening.py", "review/stopping"),
    "bench_svr.py": ("ensemble", "parallel.py"),
    "bench_training.py": ("finetune",),
    "bench_unseen.py": CORE,
    "bench_walk.py": ("cli",),
    "reproduce.py": CORE,
}


def options(description: str | None) -> argparse.ArgumentParser:
    """A parser with the script's docstring as its help, and ``--results``."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of the pages")
    return parser


def write_page(path: Path, lines: list[str]) -> None:
    """Write the page, and print it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join([*lines, ""])
    path.write_text(text, encoding="utf-8")
    print(text)


def write_json(path: Path, record: Any, indent: int | None = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=indent, ensure_ascii=False, default=float) + "\n", encoding="utf-8")


def read_json(path: Path, default: Any = None) -> Any:
    """Return what a file holds, or the default if there is no such file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else default


def read_all(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Return the records of a folder's ``kind-NAME.json``, by name."""
    return [read_json(path) for path in sorted(folder.glob(f"{kind}-*.json"))]


def cell(value: Any) -> str:
    """Return a cell of a table: numbers with commas, fractions with three digits."""
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def cell4(value: Any) -> str:
    """Return the same with four decimals."""
    return f"{value:.4f}" if isinstance(value, float) else cell(value)


def row(*cells: Any, show: Callable[[Any], str] = cell) -> str:
    return f"| {' | '.join(map(show, cells))} |"


def table(
    columns: str, rows: Iterable[Iterable[Any]] = (), words: int = 1, show: Callable[[Any], str] = cell
) -> list[str]:
    """Markdown after an empty line; ``|`` separates the names of the columns, the first ``words`` are words."""
    names = [name.strip() for name in columns.split("|")]
    rule = "|".join(" --- " if i < words else " ---: " for i in range(len(names)))
    return ["", row(*names), f"|{rule}|", *(row(*cells, show=show) for cells in rows)]


def cost(found: Mapping[str, float], scale: float = 1.0) -> str:
    """Return seconds by the clock and, in parentheses, of all cores."""
    return f"{cell(scale * found['wall'])} ({cell(scale * found['cpu'])})"


def mb(size: float) -> str:
    return f"{size / 1e6:,.1f}" if size < 1e8 else f"{size / 1e6:,.0f}"


def folder_sizes(folder: Path) -> dict[str, int]:
    """Return bytes by part: the index's, where a segment has it (``0/passages``), else the first folder or file."""
    found: dict[str, int] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            parts = path.relative_to(folder).parts
            part = "/".join(parts[: 2 if parts[0].isdigit() else 1])
            found[part] = found.get(part, 0) + path.stat().st_size
    return found


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds that a call took, and its result."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def median(work: Callable[[], Any], rounds: int) -> float:
    return statistics.median(timed(work)[0] for _ in range(rounds))


def alternating(
    works: Mapping[str, Callable[[], Any]], rounds: int, wait: Callable[[], Any] = lambda: None
) -> dict[str, tuple[list[float], Any]]:
    """Seconds of every round and the last result of each, one after the other in every round; ``wait`` for a device."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    results: dict[str, Any] = {}
    for _ in range(rounds):
        for name, work in works.items():
            taken, (results[name], _) = timed(lambda work=work: (work(), wait()))
            seconds[name].append(taken)
            print(f"  {name}: {taken:.3f} s", flush=True)
    return {name: (seconds[name], results[name]) for name in works}


@contextmanager
def clocked() -> Iterator[dict[str, Any]]:
    """Yield what becomes the seconds by the clock, those of all cores, and the peak of memory until then."""
    found: dict[str, Any] = {}
    wall, cpu = time.perf_counter(), time.process_time()
    yield found
    found |= {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "peak": peak_memory()}


@contextmanager
def printed_stages() -> Iterator[Any]:
    """Print each stage of haybale's with its seconds, and yield what has them."""
    from haybale.timing import record_timings

    start = time.perf_counter()

    def report(stage: str, taken: float) -> None:
        print(f"  {time.perf_counter() - start:6.0f} s  {stage} {taken:.1f} s", flush=True)

    with record_timings(report) as stages:
        yield stages


def split_batch(engine: Any, split: str) -> Any:
    """Return the queries of a split, as rankers take them."""
    from haybale.rankers import QueryBatch

    queries = engine.collection.queries
    return QueryBatch(engine, queries.take(engine.collection.split(split).queries))


def in_a_process(script: str, step: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Run a step of a script (see :func:`run_step`) in a process of its own, and add the seconds of the process."""
    command = [sys.executable, script, "--step", json.dumps({"step": step, **given}, default=str)]
    taken, done = timed(lambda: subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True))
    return json.loads(done.stdout.splitlines()[-1]) | {"process": taken}


def run_step(steps: Mapping[str, Callable[..., Any]], text: str) -> None:
    """Do what ``--step`` names, and print what it returns as the last line."""
    given = json.loads(text)
    print(json.dumps(steps[given.pop("step")](**given)))


def peak_memory() -> int:
    """Bytes, the most this process ever held. The resource module would count what its parent held at the fork."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    raise OSError("/proc/self/status has no VmHWM")


def provenance(command: str, *, more: tuple[str, ...] = ()) -> str:
    """Return two lines of a page: the command, and where it ran."""
    versions = ", ".join(f"{package} {number}" for package, number in versions_of((*PACKAGES, *more)).items())
    return (
        f"{measures(command.split()[1].rpartition('/')[2])}\n"
        f"- command: `{command}` (a folder is given by its path)\n"
        f"- commit {commit()}, {datetime.now(UTC):%Y-%m-%d}; {machine()}; "
        f"python {platform.python_version()}, {versions}"
    )


def measures(script: str) -> str:
    """Return the line of a page that names the paths whose code it measures."""
    paths = (f"-haybale/{path[1:]}" if path.startswith("-") else f"haybale/{path}" for path in MEASURES[script])
    return f"- measures: {' '.join(paths)}"


def made(script: str, arguments: list[str], packages: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return where a record comes from: command, commit, date, processor and versions."""
    return {
        "command": shown(script, arguments),
        "commit": commit(),
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "processor": machine(),
        "environment": {"python": platform.python_version()} | versions_of(packages),
    }


def origin(record: Mapping[str, Any]) -> str:
    """Return the commit, the date and the processor of what :func:`made` returned, as pages write them."""
    return f"commit {record['commit']}, {record['date']}; {record['processor']}"


def packages(record: Mapping[str, Any]) -> str:
    """Return Python and the packages of what :func:`made` returned, with their versions, as pages write them."""
    return ", ".join(map(" ".join, record["environment"].items()))


def shown(script: str, arguments: list[str]) -> str:
    """Return a command as a page names it: paths by their last part, without ``--results``."""
    arguments = [a for a, before in zip(arguments, ["", *arguments], strict=False) if "--results" not in (a, before)]
    return shlex.join(["python", f"benchmarks/{script}", *(Path(a).name if "/" in a else a for a in arguments)])


def commit() -> str:
    """The commit the numbers belong to, marked if the package differs from it; a copy without .git may be told it."""
    if told := os.environ.get("HAYBALE_COMMIT"):
        return told
    git = ["git", "-C", str(Path(__file__).parent.parent)]
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    changed = subprocess.run([*git, "status", "--porcelain", "haybale"], capture_output=True, text=True).stdout
    return (head or "unknown") + (" with changes" if changed else "")


def processor() -> str:
    """The processor's own name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown processor"


def machine() -> str:
    n = len(os.sched_getaffinity(0))
    return f"{processor()}, {n} core{'s' if n > 1 else ''}"
