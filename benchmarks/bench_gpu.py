"""What haybale does on a device: part by part, the most important first, each in a process of its own with a limit.

    python benchmarks/bench_gpu.py                               # every part, on cuda; at most eight minutes
    python benchmarks/bench_gpu.py knn bags                      # some
    python benchmarks/bench_gpu.py --device cpu --scale 0.01     # to try the script

gpu.md, and gpu.json with the raw figures, are written after every part. A part that fails, crashes or reaches its limit
leaves the lines that it has, and the others run.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import gpu_arrays
import gpu_whole
from gpu_bench import Bench, Line, markdown, plain
from provenance import made, measures, options, origin, table, write_json, write_page

from haybale.device import Device, find_device
from haybale.errors import MissingExtraError
from haybale.kernel_cache import count_kernels

SECONDS = 470.0  # for all parts together
MARGIN = 10.0  # seconds between the end of a part's limit, when it prints where it is, and its being killed
SHOWN_LINES = 30  # of what a part that failed printed last
LEFT_OUT = 3  # exit status of a part that needs a package that is not here
OUTCOMES = {0: "done", LEFT_OUT: "left out"}


class Part(NamedTuple):
    """A part: what it measures, its generator of lines, and its limit in seconds."""

    title: str
    run: Callable[[Bench], Iterator[Line]]
    limit: float


PARTS = {
    "start": Part("The first search of a new process", gpu_whole.start, 50),
    "doctor": Part("Each stage beside the CPU, as by haybale doctor", gpu_whole.doctor, 60),
    "knn": Part("Exact search at GerDaLIR's size", gpu_arrays.knn, 75),
    "bags": Part("All bags at once, beside one after the other", gpu_arrays.bags, 75),
    "compare-dense": Part("A comparison on dense vectors", gpu_whole.compare_dense, 90),
    "whole": Part("GerDaLIR's size, from vectors to ranked documents", gpu_arrays.whole, 90),
    "tests": Part("The device tests", gpu_whole.tests, 150),
    "bag": Part("One bag", gpu_arrays.bag, 60),
    "scoring": Part("Scoring by 35 bags", gpu_arrays.scoring, 40),
    "parm": Part("PARM's aggregations", gpu_arrays.parm, 50),
    "compare-pydocs": Part("A comparison on pydocs", gpu_whole.compare_pydocs, 80),
    "longformer": Part("Longformer beside the standard models", gpu_whole.longformer, 50),
    "pairs": Part("Pairs of paragraphs beside the standard models", gpu_whole.pairs, 40),
}


def main() -> None:
    a = parsed()
    device = find_device(a.device)
    if not device.is_cpu:
        device.xp.cuda.Device(device.number).use()  # what is made beside haybale's own arrays is there, too
    if a.part is not None:
        raise SystemExit(run_here(a.part, Bench(device, a.scale, a.rounds), a.into, a.until))
    end = time.monotonic() + (a.seconds if a.scale == 1 else 10 * a.seconds)
    records: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as kernels:
        os.environ.setdefault("CUPY_CACHE_DIR", kernels)  # empty, so that compiling is measured, once
        for name in a.parts:
            limit = min(PARTS[name].limit if a.scale == 1 else 600.0, end - time.monotonic() - MARGIN)
            print(f"== {name}, at most {limit:.0f} s", flush=True)
            folder = a.results / "gpu-parts"
            folder.mkdir(parents=True, exist_ok=True)
            before, began = count_kernels(), time.monotonic()
            status = "not run: no time was left"
            if limit > 0:
                path = folder / f"{name}.jsonl"
                path.write_text("", encoding="utf-8")
                status = one_part(name, a, device, path, limit) if a.here else in_a_process(name, a, path, limit)
                records[name] = {"lines": [json.loads(line) for line in path.read_text("utf-8").splitlines()]}
                path.unlink()
            taken = time.monotonic() - began
            record = {
                "title": PARTS[name].title,
                "status": status,
                "seconds": taken,
                "kernels": count_kernels() - before,
            }
            records[name] = record | {"lines": records.get(name, {}).get("lines", [])}
            write(a, device, records)
            if not any(folder.iterdir()):
                folder.rmdir()
    raise SystemExit(int(any(record["status"] not in OUTCOMES.values() for record in records.values())))


def parsed() -> argparse.Namespace:
    parser = options(__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=", ".join(PARTS))
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu to try the script")
    parser.add_argument("--scale", type=float, default=1.0, help="of all counts; 0.01 for a machine without a GPU")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for all parts together, at the full scale")
    parser.add_argument("--here", action="store_true", help="run the parts in this process, without limits")
    for name, kind in (("part", str), ("into", Path), ("until", float)):  # of the process of one part
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    return parser.parse_args()


def run_here(name: str, bench: Bench, path: Path, until: float | None) -> int:
    """Run a part in this process, and append its lines to a file; at the time ``until`` print where it is, and exit.

    Return :data:`LEFT_OUT` if a package is missing, else 0.
    """
    if until is not None:
        faulthandler.dump_traceback_later(max(1.0, until - time.time()), exit=True)
    with path.open("a", encoding="utf-8") as file:
        try:
            for line in PARTS[name].run(bench):
                file.write(json.dumps(plain(line), default=float) + "\n")
                file.flush()
        except MissingExtraError as error:
            file.write(json.dumps(plain(f"Left out: {error}.")) + "\n")
            return LEFT_OUT
    return 0


def one_part(name: str, a: argparse.Namespace, device: Device, path: Path, limit: float) -> str:
    try:
        code = run_here(name, Bench(device, a.scale, a.rounds), path, None)
    except Exception:
        return f"failed\n{traceback.format_exc()}"
    return OUTCOMES[code]


def in_a_process(name: str, a: argparse.Namespace, path: Path, limit: float) -> str:
    """Run a part in a process of its own, and return ``"done"``, or what ended it and what it printed last."""
    command = [
        sys.executable,
        "-X",
        "faulthandler",
        __file__,
        "--part",
        name,
        "--into",
        str(path),
        "--until",
        str(time.time() + limit),
    ]
    command += ["--device", a.device, "--scale", str(a.scale), "--rounds", str(a.rounds)]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        running = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        began = time.monotonic()
        try:
            with suppress(subprocess.TimeoutExpired):
                running.wait(limit + MARGIN)
        finally:  # also processes that the part started, and on an interrupt
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            code = running.wait()
        log.seek(0)
        printed = log.read().replace(f"{gpu_whole.ROOT}/", "").splitlines()  # paths are those in the project
    if code in OUTCOMES:
        return OUTCOMES[code]
    if time.monotonic() - began >= limit:
        reason = f"stopped after {limit:.0f} s"
    else:
        reason = f"crashed by {signal.Signals(-code).name}" if code < 0 else f"failed with exit status {code}"
    return "\n".join([reason, *printed[-SHOWN_LINES:]])


def write(a: argparse.Namespace, device: Device, records: dict[str, dict[str, Any]]) -> None:
    """Write the page and the raw figures of the parts so far."""
    about = made("bench_gpu.py", sys.argv[1:], ("numpy", "scikit-learn", "numba"))
    card = "**Not run on a GPU.** This is the script tried on the CPU: it shows what is reported, and no speed."
    if not device.is_cpu:
        card = f"On {card_of(device)}."
    record = {"made": about, "card": card, "scale": a.scale, "parts": records}
    write_json(a.results / "gpu.json", record)
    write_page(a.results / "gpu.md", page(record))


def page(record: dict[str, Any]) -> list[str]:
    """Return the lines of the page of a record."""
    lines = ["# On a device", "", f"{record['card']} Counts are {record['scale']:g} of the full ones.", ""]
    lines += ["The first call of a part compiles kernels, later calls do not; *kernels* are those that CuPy compiled."]
    rows = [
        (name, part["title"], part["status"].splitlines()[0], part["seconds"], part["kernels"])
        for name, part in record["parts"].items()
    ]
    lines += table("part | what | outcome | seconds | kernels", rows, words=3)
    for name, part in record["parts"].items():
        lines += ["", f"## {name}", "", f"{part['title']}: {part['status'].splitlines()[0]}.", ""]
        lines += markdown(part["lines"])
        if printed := part["status"].splitlines()[1:]:
            lines += ["", "```text", *printed, "```"]
    about = record["made"]
    lines += ["", measures("bench_gpu.py"), f"- command: `{about['command']}`", f"- {origin(about)}"]
    return [line for line, before in zip(lines, ["", *lines], strict=False) if line or before]


def card_of(device: Device) -> str:
    """Return the name of a CUDA device, its memory, and the version of CUDA that its driver has."""
    runtime = device.xp.cuda.runtime
    properties = runtime.getDeviceProperties(device.number)
    memory = properties["totalGlobalMem"] / 2**30
    version = getattr(runtime, "driverGetVersion", lambda: 0)()
    return f"{properties['name'].decode()}, {memory:.0f} GiB, driver for CUDA {version // 1000}.{version % 1000 // 10}"


if __name__ == "__main__":
    main()
