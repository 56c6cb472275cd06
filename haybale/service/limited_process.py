"""Run a module of haybale on bytes in a process of its own, with limits of memory and time.

A file of a few kilobytes can unpack to gigabytes, or keep a library busy for hours; the limits end the process then,
and the service goes on.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from haybale.errors import HaybaleError
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


def write_answer(answer_of: Callable[[bytes], Mapping[str, Any]], what: str) -> None:
    """Set the limits, and write an answer to what standard input has, as JSON; a problem if it cannot be read.

    Parameters
    ----------
    answer_of : callable
        Returns the answer to bytes.
    what : str
        What the bytes should be, such as ``"records"``.
    """
    set_limits()
    try:
        answer = answer_of(sys.stdin.buffer.read())
    except MemoryError:
        answer = {"problem": f"expected a file of {what}, found one that needs {MAX_MEMORY:,} bytes; split it"}
    except HaybaleError as error:
        answer = {"problem": str(error)}
    sys.stdout.buffer.write(json.dumps(answer).encode())


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
