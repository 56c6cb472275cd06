"""Tasks spread over threads and processes by joblib, or over the machines of a Dask cluster by its client.

Every task that haybale spreads is a pure function of its arguments: where a worker is lost, it is done again.
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

PATIENCE = 60.0  # seconds of waiting for a result, after which there must be a worker
_AGREEING = ("python", "haybale", "numpy", "scipy", "numba")  # a result may depend on them


def spread(
    function: Callable[..., T],
    arguments: Tasks,
    n_jobs: int | None = None,
    description: str = "working",
    total: int | None = None,
) -> Iterator[T]:
    """``function(*each)`` of all ``arguments``, in threads by default; results are yielded in their order.

    ``joblib.parallel_config`` or :func:`on_cluster` decides where. With processes or Dask, ``function`` is one that a
    module defines, and pure. Arguments are made when a task is dispatched. ``total`` is for the bar, where
    ``arguments`` has no length. Errors: those of the function; :class:`ClusterError` where the cluster goes away, or a
    process dies.

    >>> list(spread(pow, [(2, 3), (3, 2)], n_jobs=2))
    [8, 9]
    """
    if total is None:
        arguments = list(arguments)
        total = len(arguments)
    client = dask_client()
    on = _by_joblib if client is None else partial(_by_dask, client)
    return track(on(function, arguments, n_jobs, description), description, total)


def _by_joblib(function: Callable[..., T], arguments: Tasks, n_jobs: int | None, doing: str) -> Iterator[T]:
    import joblib

    parallel = joblib.Parallel(n_jobs, batch_size=1, return_as="generator", prefer="threads")
    results = parallel(joblib.delayed(function)(*each) for each in arguments)
    try:
        for result in results:  # noqa: UP028  # what ends this early must not reach joblib, which would warn
            yield result
    except Exception as error:
        if type(error).__name__ != "TerminatedWorkerError":
            raise
        raise ClusterError(f"{doing}: a process died, perhaps for want of memory: {first_line(error)}") from error
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            results.close()


def _by_dask(client: Any, function: Callable[..., T], arguments: Tasks, n_jobs: int | None, doing: str) -> Iterator[T]:
    """Dask does tasks again whose worker died, until as many workers died of one as the scheduler allows."""
    address, distributed = client.scheduler.address, import_optional("distributed", "dask")
    running: deque[Any] = deque()  # futures in order, results not yet here

    def first() -> Any:
        while not running[0].done():
            try:
                with client.as_current():
                    distributed.wait([running[0]], PATIENCE)
            except TimeoutError:
                if not client.ncores():
                    raise ClusterError(f"{address}: {doing}: no worker is left; start some and do it again") from None
        return running.popleft().result()

    try:
        with dask_errors(address, doing):
            for each in arguments:
                # What is bound to the function is opaque to Dask, and not looked through for its own keys.
                running.append(client.submit(partial(function, *each), pure=False))
                while sum(not future.done() for future in running) >= 2 * max(1, sum(client.ncores().values())):
                    yield first()
            while running:
                yield first()
    finally:
        with suppress(Exception):
            client.cancel(list(running), force=True)


def dask_client() -> Any:
    """The client behind joblib's active backend, if that is Dask's, else None."""
    if "joblib" not in sys.modules:  # without it no backend is active, and importing it takes time
        return None
    client = getattr(_active_backend(), "client", None)
    return client if type(client).__module__.startswith("distributed") else None


def shares_memory() -> bool:
    """Whether tasks see the memory of this process: they are threads, or done one after the other."""
    return bool(getattr(_active_backend(), "supports_sharedmem", False))


def _active_backend() -> Any:
    from joblib.parallel import get_active_backend

    return get_active_backend(prefer="threads")[0]


def count_jobs(n_jobs: int | None) -> int:
    """How many tasks are done at once: as ``joblib.effective_n_jobs``; with Dask, the threads of all workers."""
    from joblib import effective_n_jobs

    client = dask_client()
    return int(effective_n_jobs(n_jobs)) if client is None else max(1, int(sum(client.ncores().values())))


def memory_per_task(n_jobs: int | None) -> float:
    """Bytes that a task may take by default: half of a worker's memory limit or of the machine, divided by tasks."""
    client = dask_client()
    if client is None:
        return half_of_memory() / count_jobs(n_jobs)
    workers = client.scheduler_info(n_workers=-1)["workers"].values()  # else some versions give five
    limits = [worker["memory_limit"] / worker["nthreads"] for worker in workers if worker.get("memory_limit")]
    return min(limits, default=half_of_memory()) / 2


def own_threads() -> int:
    """Threads that a task may use where it is sent: ``OMP_NUM_THREADS``, which joblib and Dask's nanny set, else 1."""
    return max(1, min(cpus(), int(os.environ.get("OMP_NUM_THREADS", "1").partition(",")[0])))


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
    check_parameters("on_cluster", {"timeout": timeout}, {"timeout": POSITIVE})
    dask, distributed = import_optional("dask", "dask"), import_optional("distributed", "dask")
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)  # what matters is raised
    client = None
    try:
        try:
            url = urlsplit(address if "://" in address else f"tcp://{address}")
            if url.port and url.scheme in ("tcp", "tls", "ws", "wss"):  # Dask's client would try on until Python ends
                socket.create_connection((url.hostname, url.port), timeout).close()
            client = distributed.Client(address, timeout=timeout, set_as_default=False)
        except (OSError, ValueError, TypeError, ImportError) as error:
            raise ClusterError(f"no Dask scheduler answers at {address}: {first_line(error)}") from error
        large = {"distributed.admin.large-graph-warning-threshold": "1 PiB"}
        with dask_errors(address, "working"), dask.config.set(large):
            _check_workers(client, address, timeout)
            from joblib import parallel_config

            with parallel_config(backend="dask", client=client):
                yield client
    finally:
        with suppress(Exception):  # a scheduler that is gone need not be told
            if client is not None:
                client.close(timeout=2)
        logger.setLevel(level)


def _check_workers(client: Any, address: str, timeout: float) -> None:
    """Refuse a cluster without workers, and one whose packages are not those here."""
    try:
        client.wait_for_workers(1, timeout=timeout)
    except TimeoutError:
        raise ClusterError(f"{address}: the cluster has no worker; start some: dask worker {address}") from None
    found = client.get_versions(packages=_AGREEING[1:])
    others = {f"worker {worker}": each for worker, each in found["workers"].items()}
    for who, each in {**others, "the scheduler": found["scheduler"]}.items():
        for package in _AGREEING:
            theirs, ours = (str(of["packages"].get(package)) for of in (each, found["client"]))
            if theirs != ours and (package != "python" or theirs.split(".")[:2] != ours.split(".")[:2]):
                raise ClusterError(f"{address}: {who} has {package} {theirs}, here it is {ours}")


@contextmanager
def dask_errors(address: str, doing: str) -> Iterator[None]:
    """Dask's errors as :class:`ClusterError`."""
    try:
        yield
    except BaseException as error:
        ours = type(error).__module__.partition(".")[0] not in ("distributed", "tornado")
        if ours and not isinstance(error, TimeoutError) and "deserialization of the task graph" not in str(error):
            raise
        why = first_line(error.__cause__ or error)
        raise ClusterError(f"{address}: the cluster failed while {doing}: {why}; it is safe to do it again") from error


def first_line(error: BaseException) -> str:
    """Kind and first line of an error."""
    return f"{type(error).__name__}: {error}".splitlines()[0]
