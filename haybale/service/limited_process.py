"""Run a module of haybale on bytes in a process of its own, with limits of memory and time.

A file of a few kilobytes can unpack to gigabytes, or keep a library busy for hours; the limits end the process then,
and the service goes on.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

from haybale.stopping_work import Work, check_wanted, current_work

MAX_MEMORY = 2**30  # bytes that the work may take beyond what Python takes
MAX_SECONDS = 20  # of CPU
START_SECONDS = 10.0  # for a process to start, in addition to its work


def set_limits() -> None:
    """Limit the memory and the time of this process."""
    limits = {resource.RLIMIT_CPU: MAX_SECONDS, resource.RLIMIT_CORE: 0}
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limits[resource.RLIMIT_AS] = pages * resource.getpagesize() + MAX_MEMORY
    for kind, limit in limits.items():
        most = resource.getrlimit(kind)[1]
        limit = limit if most == resource.RLIM_INFINITY else min(limit, most)
        resource.setrlimit(kind, (limit, limit))


def output_of(module: str, arguments: list[str], data: bytes) -> bytes:
    """Return what a module writes to standard output when it gets data; it may end early.

    The process ends after :data:`MAX_SECONDS`, or when nobody waits for it any more.

    Raises
    ------
    StoppedError
        If nobody waits for it.
    """
    check_wanted()
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    timer = threading.Timer(MAX_SECONDS + START_SECONDS, process.kill)
    timer.start()
    work = current_work() or Work()
    try:
        with process, work.on_stop(process.kill):
            output = process.communicate(data)[0]
    finally:
        timer.cancel()
    check_wanted()
    return output
