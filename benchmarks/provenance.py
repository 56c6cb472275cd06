"""What a result file says of where its numbers come from: the command, the commit, the machine."""

from __future__ import annotations

import platform
import shlex
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from haybale.machine import cpus

PACKAGES = ("numpy", "scikit-learn", "numba")


def provenance(command: str, *, more: tuple[str, ...] = ()) -> str:
    """Two lines of a result file."""
    versions = ", ".join(f"{package} {version(package)}" for package in (*PACKAGES, *more))
    return (
        f"- command: `{command}` (a folder is given by its path)\n"
        f"- commit {commit()}, {datetime.now(UTC):%Y-%m-%d}; {processor()}, {cpus()} cores; "
        f"python {platform.python_version()}, {versions}"
    )


def shown(script: str, arguments: list[str]) -> str:
    """A command as a result file names it: folders and files by their last part."""
    return shlex.join(["python", f"benchmarks/{script}", *(Path(a).name if "/" in a else a for a in arguments)])


def peak_memory() -> int:
    """Bytes, the most this process ever held. The resource module would count what its parent held at the fork."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    raise OSError("/proc/self/status has no VmHWM")


def forget_peak() -> None:
    """Let the peak begin anew, from what is held now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def commit() -> str:
    """The commit the numbers belong to, marked if the package differs from it."""
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
