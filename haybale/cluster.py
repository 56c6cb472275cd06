"""Tasks spread over threads and processes by joblib, or over the machines of a Dask cluster by its client.

Every task that haybale spreads is a pure function of its arguments: where a worker is lost, it is done again.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, islice
from typing import Any, TypeVar

from joblib import Parallel, delayed, effective_n_jobs, parallel_config
from joblib.parallel import get_active_backend

from haybale.errors import ClusterError
from haybale.extras import require
from haybale.machine import cpus, half_of_memory
from haybale.progress import track

T = TypeVar("T")
Tasks = Iterable[tuple[Any, ...]]

REPEATS = 3  # times that tasks are given to new processes after one died, without any progress
PATIENCE = 60.0  # seconds without any worker, after which nothing is waited for any more
AGAIN = "do it again: it is safe"
_AGREEING = ("haybale", "numpy", "scipy", "numba")  # a result may depend on them
_LOGGERS = ("distributed", "distributed.client", "tornado", "tornado.application")


def spread(
    function: Callable[..., T],
    arguments: Tasks,
    n_jobs: int | None = None,
    description: str = "working",
    total: int | None = None,
) -> Iterator[T]:
    """``function(*each)`` of all ``arguments``, in threads by default; results are yielded in their order.

    ``joblib.parallel_config`` or :func:`on_cluster` decides where. With processes or Dask, ``function`` is one that a
    module defines. Arguments are made when a task is dispatched. A task whose worker died is done again, and must
    therefore be pure. ``total`` is for the bar, where ``arguments`` has no length. Errors: those of the function;
    :class:`ClusterError` where the cluster goes away, or a task dies wherever it is done.

    >>> list(spread(pow, [(2, 3), (3, 2)], n_jobs=2))
    [8, 9]
    """
    if total is None:
        arguments = list(arguments)
        total = len(arguments)
    client = dask_client()
    if client is None:
        results = _by_joblib(function, arguments, n_jobs, description)
    else:
        results = _by_dask(client, function, arguments, description)
    return track(results, description, total)


def _by_joblib(function: Callable[..., T], arguments: Tasks, n_jobs: int | None, doing: str) -> Iterator[T]:
    given, losses = iter(arguments), 0
    dispatched: deque[tuple[Any, ...]] = deque()  # in order, results not yet here

    def calls(todo: Tasks) -> Iterator[Any]:
        for each in todo:
            dispatched.append(each)
            yield delayed(function)(*each)

    while True:
        lost = list(dispatched)
        dispatched.clear()
        results = Parallel(n_jobs, batch_size=1, return_as="generator", prefer="threads")(calls(chain(lost, given)))
        try:
            for result in results:
                dispatched.popleft()
                losses = 0
                yield result
            return
        except Exception as error:
            if type(error).__name__ != "TerminatedWorkerError":
                raise
            losses += 1  # of joblib's processes, all are lost with one
            if losses > REPEATS:
                raise ClusterError(
                    f"{doing}: a task was lost {losses} times, the last time by {first_line(error)}; "
                    "its worker may have too little memory"
                ) from error
        finally:  # where this ends early, joblib would advise to give it fewer tasks
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                results.close()


def _by_dask(client: Any, function: Callable[..., T], arguments: Tasks, doing: str) -> Iterator[T]:
    """Dask does tasks again whose worker died, until as many workers died of one as the scheduler allows."""
    dask, distributed = require("dask", "dask"), require("distributed", "dask")
    address, given = client.scheduler.address, iter(arguments)
    running: deque[Any] = deque()  # futures in order, results not yet here
    seen = time.monotonic()  # when there was a worker
    try:
        with dask_errors(address, doing):
            while True:
                threads = sum(client.ncores().values())
                seen = time.monotonic() if threads else seen
                if time.monotonic() - seen > PATIENCE:
                    raise ClusterError(f"{address}: {doing}: no worker is left; start some and {AGAIN}")
                waiting = sum(not future.done() for future in running)
                with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PiB"}):
                    for each in islice(given, max(1, 2 * threads - waiting)):
                        # What is bound to the function is opaque to Dask, and not looked through for its own keys.
                        running.append(client.submit(partial(function, *each), pure=False))
                if not running:
                    return
                with client.as_current(), suppress(TimeoutError):
                    distributed.wait(list(running), timeout=0.5, return_when="FIRST_COMPLETED")
                while running and running[0].done():
                    yield running.popleft().result()
    finally:
        with suppress(Exception):
            client.cancel(list(running), force=True)


def dask_client() -> Any:
    """The client behind joblib's active backend, if that is Dask's, else None."""
    client = getattr(get_active_backend(prefer="threads")[0], "client", None)
    return client if type(client).__module__.startswith("distributed") else None


def shares_memory() -> bool:
    """Whether tasks see the memory of this process: they are threads, or done one after the other."""
    return bool(getattr(get_active_backend(prefer="threads")[0], "supports_sharedmem", False))


def count_jobs(n_jobs: int | None) -> int:
    """How many tasks are done at once: as ``joblib.effective_n_jobs``; with Dask, the threads of all workers."""
    client = dask_client()
    return int(effective_n_jobs(n_jobs)) if client is None else max(1, int(sum(client.ncores().values())))


def count_workers(n_jobs: int | None) -> int:
    """The same in processes: with Dask, its workers, each of which may have several threads."""
    client = dask_client()
    return count_jobs(n_jobs) if client is None else max(1, len(client.ncores()))


def memory_per_task(n_jobs: int | None) -> float:
    """Bytes that a task may take by default: half of a worker's memory limit or of the machine, divided by tasks."""
    client = dask_client()
    if client is None:
        return half_of_memory() / count_jobs(n_jobs)
    workers = client.scheduler_info(n_workers=-1)["workers"].values()  # else some versions give five
    limits = [worker["memory_limit"] / worker["nthreads"] for worker in workers if worker.get("memory_limit")]
    return min(limits, default=half_of_memory()) / 2


def tasks_here() -> int:
    """How many tasks the process of this task does at once: the threads of a Dask worker, else 1."""
    distributed = sys.modules.get("distributed")
    if distributed is not None:
        with suppress(ValueError):  # this is no worker
            return int(distributed.get_worker().state.nthreads)
    return 1


def own_threads() -> int:
    """Threads that a task may use in the process it is sent to: its ``OMP_NUM_THREADS``, else 1.

    joblib's processes and Dask's nanny set it to what does not crowd the machine.
    """
    with suppress(ValueError):
        return max(1, min(cpus(), int(os.environ.get("OMP_NUM_THREADS", "1"))))
    return 1


@contextmanager
def on_cluster(address: str, *, timeout: float = 10.0) -> Iterator[Any]:
    """Let joblib, and with it haybale, work on a Dask cluster; yields its ``distributed.Client``.

    Parameters
    ----------
    address : str
        Of the scheduler, such as ``"tcp://host:8786"``.
    timeout : float, default 10
        Seconds in which the scheduler must answer and a worker be there.

    Raises
    ------
    ClusterError
        Where nothing answers, where there is no worker, where workers or the scheduler have another Python, haybale,
        NumPy, SciPy or Numba, and where the cluster goes away.
    """
    distributed = require("distributed", "dask")
    with _quiet():
        try:
            _knock(address, timeout)
            client = distributed.Client(address, timeout=timeout, set_as_default=False)
        except (OSError, ValueError, TypeError, ImportError) as error:
            raise ClusterError(f"no Dask scheduler answers at {address}: {first_line(error)}") from error
        try:
            with dask_errors(address, "starting"):
                _check_workers(client, address, timeout)
            with parallel_config(backend="dask", client=client), dask_errors(address, "working"):
                yield client
        finally:
            with suppress(Exception):  # a scheduler that is gone need not be told
                client.close(timeout=2)


def _knock(address: str, timeout: float) -> None:
    """At the port: a client of Dask's would try for all the time it has, and hold up the end of the process."""
    host, colon, port = address.rpartition("://")[2].partition("/")[0].rpartition(":")
    if address.partition("://")[0] in (address, "tcp", "tls", "ws", "wss") and colon:
        socket.create_connection((host.strip("[]"), int(port)), timeout).close()


def _check_workers(client: Any, address: str, timeout: float) -> None:
    """Refuse a cluster without workers, and one whose packages are not those here."""
    try:
        client.wait_for_workers(1, timeout=timeout)
    except TimeoutError:
        raise ClusterError(f"{address}: the cluster has no worker; start some: dask worker {address}") from None
    found = client.get_versions(packages=_AGREEING)
    ours = found["client"]["packages"]
    theirs = {f"worker {worker}": each for worker, each in found["workers"].items()}
    for who, each in (theirs | {"the scheduler": found["scheduler"]}).items():
        packages = each["packages"]
        if packages["python"].split(".")[:2] != ours["python"].split(".")[:2]:
            raise ClusterError(f"{address}: {who} has Python {packages['python']}, here it is {ours['python']}")
        for package in _AGREEING:
            if packages.get(package) != ours[package]:
                has = f"has {package} {packages[package]}" if packages.get(package) else f"has no {package}"
                raise ClusterError(f"{address}: {who} {has}, here it is {ours[package]}")


@contextmanager
def dask_errors(address: str, doing: str) -> Iterator[None]:
    """Dask's errors as :class:`ClusterError`."""
    try:
        yield
    except ClusterError:
        raise
    except BaseException as error:
        name, module = type(error).__name__, type(error).__module__.partition(".")[0]
        if isinstance(error, RuntimeError) and "deserialization of the task graph" in str(error):
            why = f"the scheduler could not unpack what it was sent ({first_line(error.__cause__ or error)})"
            message = f"{doing}: {why}; it needs the modules that are used here"
        elif name == "KilledWorker":
            why = f"every worker that took up a task died of it ({first_line(error)})"
            message = f"{doing}: {why}; give workers more memory, or a smaller memory_budget"
        elif module in ("distributed", "tornado") or isinstance(error, TimeoutError):
            message = f"the cluster went away while {doing}: {first_line(error)}; {AGAIN}"
        else:
            raise
        raise ClusterError(f"{address}: {message}") from error


def first_line(error: BaseException) -> str:
    """Kind and first line of an error."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without distributed's log on stderr: what matters is raised."""
    levels = {logger: logger.level for logger in map(logging.getLogger, _LOGGERS)}
    for logger in levels:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)
