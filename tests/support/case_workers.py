"""Run cases in worker processes that are used again, each case with a limit of time and memory."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import resource
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import NamedTuple

MEMORY = 1 << 30  # bytes of address space that a case may use, in addition to those of this process
Run = Callable[[int], tuple[str, str]]  # runs the case with a number; returns its outcome and the reason if it failed


class Done(NamedTuple):
    """The outcome of a case, the reason if it failed, and the largest memory of its process so far, in MiB."""

    number: int
    outcome: str
    reason: str
    memory: float


class _Worker:
    """A process forked from this one, which runs cases by their numbers."""

    def __init__(self, run: Run) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.stacks = tempfile.TemporaryFile()  # noqa: SIM115  (closed by end)
        self.process = context.Process(target=_serve, args=(theirs, run, self.stacks.fileno()))
        self.process.start()
        theirs.close()
        self.case, self.since = -1, 0.0

    def where(self) -> str:
        """Return the innermost calls of each thread."""
        os.kill(self.process.pid or 0, signal.SIGUSR1)
        time.sleep(0.2)
        self.stacks.seek(0)
        threads = self.stacks.read().decode().split("\n\n")
        return " | ".join(" < ".join(line.strip() for line in each.splitlines()[1:6]) for each in threads)

    def end(self) -> None:
        """End the process and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid or 0, signal.SIGKILL)
        self.process.kill()  # which has no group yet if it just began
        self.process.join()
        self.pipe.close()
        self.stacks.close()


def run_cases(n_cases: int, run: Run, n_workers: int, seconds: float) -> Iterator[Done]:
    """Yield the outcome of each case as it ends; one that takes longer, or ends its process, is a failure."""
    waiting = iter(range(n_cases))
    busy: list[_Worker] = []

    def give_next(worker: _Worker) -> None:
        worker.case, worker.since = next(waiting, -1), time.monotonic()
        if worker.case < 0:
            worker.end()
        else:
            worker.pipe.send(worker.case)
            busy.append(worker)

    try:
        for _ in range(n_workers):
            give_next(_Worker(run))
        while busy:
            ready = wait([worker.pipe for worker in busy], timeout=0.2)
            for worker in list(busy):
                if worker.pipe not in ready and time.monotonic() - worker.since < seconds:
                    continue
                busy.remove(worker)
                reason = f"not finished after {seconds:g} s"
                with contextlib.suppress(EOFError, ProcessLookupError):
                    if worker.pipe in ready:
                        reason = "its process died"
                        yield Done(worker.case, *worker.pipe.recv())
                        give_next(worker)
                        continue
                    reason += f": {worker.where()}"
                worker.end()
                yield Done(worker.case, "failed", reason, 0)
                give_next(_Worker(run))
    finally:
        for worker in busy:
            worker.end()


def _serve(pipe: Connection, run: Run, stacks: int) -> None:
    os.setsid()
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    limit = address_space() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while True:
            outcome, reason = run(pipe.recv())
            used = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
            pipe.send((outcome, reason[:2000], max(used) / 1024))


def address_space() -> int:
    """Return the bytes of address space of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
