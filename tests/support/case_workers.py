"""Run cases in worker processes that are used again, each case with a limit of time and memory."""

from __future__ import annotations

import contextlib
import ctypes
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
_ARENA_MAX = -8  # of mallopt
WAITS = 12  # a case may last this many times longer than it may compute
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
        self.case, self.since, self.used = -1, 0.0, 0.0

    def begin(self, case: int) -> None:
        """Let the process run a case."""
        self.case, self.since, self.used = case, time.monotonic(), self.cpu_seconds()
        self.pipe.send(case)

    def cpu_seconds(self) -> float:
        """Return the seconds of CPU that the process and its ended children have used."""
        try:
            with open(f"/proc/{self.process.pid}/stat") as file:
                used = file.read().rpartition(")")[2].split()[11:15]
        except OSError:  # it has ended
            return self.used
        return sum(map(int, used)) / os.sysconf("SC_CLK_TCK")

    def is_late(self, seconds: float) -> bool:
        """Return whether the case has used the seconds of CPU, or seems to wait for ever."""
        return self.cpu_seconds() - self.used > seconds or time.monotonic() - self.since > WAITS * seconds

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
    """Yield the outcome of each case as it ends; one that ends its process or takes longer is a failure.

    ``seconds`` are of CPU, so that other work on the machine makes no case fail; of the clock, there are 12 times more.
    """
    waiting = iter(range(n_cases))
    busy: list[_Worker] = []

    def give_next(worker: _Worker) -> None:
        case = next(waiting, -1)
        if case < 0:
            worker.end()
        else:
            worker.begin(case)
            busy.append(worker)

    try:
        for _ in range(n_workers):
            give_next(_Worker(run))
        while busy:
            ready = wait([worker.pipe for worker in busy], timeout=0.2)
            for worker in list(busy):
                if worker.pipe not in ready and not worker.is_late(seconds):
                    continue
                busy.remove(worker)
                reason = f"not finished after {worker.cpu_seconds() - worker.used:.1f} s of CPU"
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
    # glibc reserves 64 MiB of address space for the allocations of each thread, so that a dozen threads would reach the
    # limit, and Python then waits for ever for a thread that had no memory to begin.
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 2)
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
