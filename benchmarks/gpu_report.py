"""What the GPU benchmarks share: their options, a clock that waits for the device, and the head of a result file."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from provenance import provenance

from haybale.device import Device, find_device


def options(description: str | None) -> argparse.ArgumentParser:
    """``--device``, ``--scale``, ``--rounds`` and ``--results``."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu to try the script")
    parser.add_argument("--scale", type=float, default=1.0, help="of all counts; 0.01 for a machine without a GPU")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    return parser


def chosen_device(name: str) -> Device:
    """The device of that name, made the current one: what a script makes beside haybale's own arrays is there, too."""
    device = find_device(name)
    if not device.is_cpu:
        device.xp.cuda.Device(device.number).use()
    return device


class Clock:
    """Seconds of work on a device, from idle to idle."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def settle(self) -> None:
        if not self.device.is_cpu:
            with self.device.current() as current:
                current.synchronize()

    def time(self, work: Callable[[], Any]) -> tuple[float, Any]:
        self.settle()
        start = time.perf_counter()
        result = work()
        self.settle()
        return time.perf_counter() - start, result

    def alternating(self, works: dict[str, Callable[[], Any]], rounds: int) -> dict[str, tuple[float, Any]]:
        """Median seconds and the last result of each, one after the other in every round; a first round warms up."""
        seconds: dict[str, list[float]] = {name: [] for name in works}
        results: dict[str, Any] = {}
        for number in range(rounds + 1):
            for name, work in works.items():
                taken, results[name] = self.time(work)
                if number:
                    seconds[name].append(taken)
                    print(f"  {name}: {taken:.3f} s", flush=True)
        return {name: (statistics.median(seconds[name]), results[name]) for name in works}


def count(full: int, scale: float, least: int = 1) -> int:
    """A count of the full size, at the scale."""
    return max(least, round(full * scale))


def hardware(device: Device) -> str:
    """The device as it names itself."""
    if device.is_cpu:
        return "the CPU"
    properties = device.xp.cuda.runtime.getDeviceProperties(device.number)
    return f"{properties['name'].decode()}, {properties['totalGlobalMem'] / 2**30:.0f} GiB"


def write(a: argparse.Namespace, script: str, title: str, lines: list[str], more: tuple[str, ...] = ()) -> None:
    """``results/gpu-….md``; what did not run on a GPU says so before anything else."""
    device = find_device(a.device)
    head = [f"# {title}", ""]
    if device.is_cpu:
        head += [
            f"**Not yet run on a GPU.** This is the script's proof on the CPU, at {a.scale:g} of the counts: it shows "
            "that the script runs and what it reports, and nothing about speed on a GPU.",
            "",
        ]
    command = f"python benchmarks/{script}.py --device {a.device} --scale {a.scale:g}"
    text = "\n".join([*head, *lines, "", f"- on {hardware(device)}", provenance(command, more=more), ""])
    a.results.mkdir(parents=True, exist_ok=True)
    (a.results / f"{script.removeprefix('bench_').replace('_', '-')}.md").write_text(text, encoding="utf-8")
    print(text)
