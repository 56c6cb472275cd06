"""Parallel tasks: joblib runs them in threads or processes, and Dask runs them on the machines of a cluster.

Every task is a pure function of its arguments, so the tasks of a lost worker can be run again.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from haybale.errors import ClusterError
from haybale.extras import import_optional
from haybale.parallel import cpus, half_of_memory
from haybale.parameters import POSITIVE, check_parameters
from haybale.progress import track

T = TypeVar("T")
Tasks = Iterable[tuple[Any, ...]]

_MAX_TASKS_PER_THREAD = 8  # submitted tasks whose results are waited for, for each thread of the workers
PATIENCE = 60.0  # seconds of waiting for a result before checking that the cluster still has a worker
SAME_VERSIONS = ("python", "haybale", "numpy", "scipy", "numba")  # results may depend on their versions


def spread(
    function: Callable[..., T],
    arguments: Tasks,
    n_jobs: int | None = None,
    description: str = "working",
    total: int | None = None,
) -> Iterator[T]:
    """Yield ``function(*task)`` for all tasks in ``arguments``, in order.

    Tasks run in threads, or where ``joblib.parallel_config`` or :func:`on_cluster` says. For processes and clusters,
    ``function`` must be a pure function defined in a module. ``description`` and ``total``, the number of tasks, are
    shown in the progress bar; with ``total``, ``arguments`` may be an iterator. Raises :class:`ClusterError` if a
    worker process dies or the cluster is lost, and passes on the errors of ``function``.

    >>> list(spread(pow, [(2, 3), (3, 2)], n_jobs=2))
    [8, 9]
    """
    if total is None:
        arguments = list(arguments)
        total = len(arguments)
    client = dask_client()
    if client is None:
        results = _run_with_joblib(function, arguments, n_jobs, description)
    else:
        results = _run_with_dask(client, function, arguments, description)
    return track(results, description, total)


def _run_with_joblib(function: Callable[..., T], arguments: Tasks, n_jobs: int | None, description: str) -> Iterator[T]:
    import joblib

    parallel = joblib.Parallel(n_jobs, batch_size=1, return_as="generator", prefer="threads")
    results = parallel(joblib.delayed(function)(*task) for task in arguments)
    try:
        for result in results:  # noqa: UP028  # with yield from, closing this generator would close joblib's, which warns
            yield result
    except Exception as error:
        if type(error).__name__ != "TerminatedWorkerError":
            raise
        raise ClusterError(
            f"{description}: a worker process died, perhaps because it needs more memory than there is "
            f"({first_line(error)}); use fewer jobs"
        ) from error
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            results.close()


def _run_with_dask(client: Any, function: Callable[..., T], arguments: Tasks, description: str) -> Iterator[T]:
    """Run tasks on a cluster; Dask repeats the tasks of a dead worker as often as its scheduler allows."""
    address, distributed = client.scheduler.address, import_optional("distributed", "dask")
    running: deque[Any] = deque()  # futures whose results were not yet yielded, in order

    def wait(futures: list[Any]) -> None:
        """Wait until one of the futures is done; raise an error if no worker works on them."""
        was_paused = False
        while not any(future.done() for future in futures):
            try:
                with client.as_current():
                    distributed.wait(futures, PATIENCE, return_when="FIRST_COMPLETED")
            except TimeoutError:
                if not client.ncores():
                    raise ClusterError(
                        f"{address}: no worker is left for {description}; start one and run it again"
                    ) from None
                is_paused = all_paused(client)
                if is_paused and was_paused:
                    raise ClusterError(
                        f"{address}: all workers are paused, because they use most of their --memory-limit, and "
                        f"{description} cannot go on; start workers with more memory and run it again"
                    ) from None
                was_paused = is_paused

    def awaited() -> list[Any]:
        """Return the tasks of which one must end before another is submitted; none if the workers need more tasks.

        A slow task does not keep other workers waiting, unless many results wait for it.
        """
        threads = max(1, sum(client.ncores().values()))
        if len(running) >= _MAX_TASKS_PER_THREAD * threads:
            return [running[0]]
        unfinished = [future for future in running if not future.done()]
        return unfinished if len(unfinished) >= 2 * threads else []

    try:
        with dask_errors(address, description):
            for task in arguments:
                # With partial, Dask does not search the arguments for its own keys.
                running.append(client.submit(partial(function, *task), pure=False))
                while futures := awaited():
                    wait(futures)
                    while running and running[0].done():
                        yield running.popleft().result()
            while running:
                wait([running[0]])
                yield running.popleft().result()
    finally:
        with suppress(Exception):
            client.cancel(list(running), force=True)


def all_paused(client: Any) -> bool:
    """Return whether Dask has paused all workers because of their memory, and none works on a task."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return all(worker["status"] == "paused" and not worker["metrics"].get("executing") for worker in workers)


def dask_client() -> Any:
    """Return the client of joblib's active backend if that is Dask, otherwise None."""
    if "joblib" not in sys.modules:  # no backend is active then, and importing joblib takes time
        return None
    client = getattr(_active_backend(), "client", None)
    return client if type(client).__module__.startswith("distributed") else None


def shares_memory() -> bool:
    """Return whether tasks share the memory of this process: they run in threads or sequentially."""
    if "joblib" not in sys.modules:  # no backend is active then, and importing joblib takes time
        return True
    return bool(getattr(_active_backend(), "supports_sharedmem", False))


def _active_backend() -> Any:
    from joblib.parallel import get_active_backend

    return get_active_backend(prefer="threads")[0]


def count_jobs(n_jobs: int | None) -> int:
    """Return the number of tasks that run at the same time; with Dask, the number of threads of all workers."""
    from joblib import effective_n_jobs

    client = dask_client()
    return int(effective_n_jobs(n_jobs)) if client is None else max(1, int(sum(client.ncores().values())))


def memory_per_task(n_jobs: int | None) -> float:
    """Return the default bytes of a task: half of the memory of the machine or of a worker, divided by its tasks."""
    client = dask_client()
    if client is None:
        return half_of_memory() / count_jobs(n_jobs)
    workers = client.scheduler_info(n_workers=-1)["workers"].values()  # by default, some versions return five
    limits = [worker["memory_limit"] / worker["nthreads"] for worker in workers if worker.get("memory_limit")]
    return min(limits, default=half_of_memory()) / 2


def own_threads() -> int:
    """Return the threads that a task may use: ``OMP_NUM_THREADS``, which joblib and Dask's nanny set, or 1."""
    return max(1, min(cpus(), int(os.environ.get("OMP_NUM_THREADS", "1").partition(",")[0])))


@contextmanager
def on_cluster(address: str, *, timeout: float = 10.0) -> Iterator[Any]:
    """Run the tasks of haybale, and of joblib, on a Dask cluster within the block; yield its ``distributed.Client``.

    Parameters
    ----------
    address : str
        Address of the scheduler, such as ``"tcp://host:8786"``.
    timeout : float, default 10
        Seconds to wait for the scheduler and for the first worker. Raise it for a cluster that is starting.

    Raises
    ------
    ClusterError
        If no scheduler answers, the cluster has no worker, its machines have another version of Python, haybale, NumPy,
        SciPy or Numba, or the connection is lost.
    """
    check_parameters("on_cluster", {"timeout": timeout}, {"timeout": POSITIVE})
    dask, distributed = import_optional("dask", "dask"), import_optional("distributed", "dask")
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)  # errors are raised as ClusterError instead
    client = None
    try:
        try:
            url = urlsplit(address if "://" in address else f"tcp://{address}")
            # Without this test of the connection, Dask's client would never stop trying to connect.
            if url.port and url.scheme in ("tcp", "tls", "ws", "wss"):
                socket.create_connection((url.hostname, url.port), timeout).close()
            client = distributed.Client(address, timeout=timeout, set_as_default=False)
        except (OSError, ValueError, TypeError, ImportError) as error:
            raise ClusterError(
                f"no Dask scheduler answers at {address} ({first_line(error)}); start one with `dask scheduler`"
            ) from error
        large = {"distributed.admin.large-graph-warning-threshold": "1 PiB"}
        with dask_errors(address, "the work"), dask.config.set(large):
            _check_workers(client, address, timeout)
            from joblib import parallel_config

            with parallel_config(backend="dask", client=client):
                yield client
    finally:
        with suppress(Exception):  # the scheduler may have stopped
            if client is not None:
                client.close(timeout=2)
        logger.setLevel(level)


def _check_workers(client: Any, address: str, timeout: float) -> None:
    """Raise :class:`ClusterError` for a cluster without workers, or with other versions of packages."""
    try:
        client.wait_for_workers(1, timeout=timeout)
    except TimeoutError:
        raise ClusterError(f"{address}: the cluster has no worker; start one: dask worker {address}") from None
    versions = client.get_versions(packages=SAME_VERSIONS[1:])
    machines = {f"worker {worker}": of_worker for worker, of_worker in versions["workers"].items()}
    for who, machine in {**machines, "the scheduler": versions["scheduler"]}.items():
        for package in SAME_VERSIONS:
            theirs, ours = (str(of["packages"].get(package)) for of in (machine, versions["client"]))
            if theirs != ours and (package != "python" or theirs.split(".")[:2] != ours.split(".")[:2]):
                raise ClusterError(f"{address}: {who} must have {package} {ours}, like this machine, found {theirs}")


@contextmanager
def dask_errors(address: str, description: str) -> Iterator[None]:
    """Raise errors of Dask as :class:`ClusterError`; pass on all other errors."""
    try:
        yield
    except BaseException as error:
        ours = type(error).__module__.partition(".")[0] not in ("distributed", "tornado")
        if ours and not isinstance(error, TimeoutError) and "deserialization of the task graph" not in str(error):
            raise
        raise ClusterError(
            f"{address}: the cluster could not finish {description} ({first_line(error.__cause__ or error)}); "
            "check its workers and run it again"
        ) from error


def first_line(error: BaseException) -> str:
    """Return the type of an error and the first line of its message."""
    return f"{type(error).__name__}: {error}".splitlines()[0]
