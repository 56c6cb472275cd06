"""Tasks spread over threads, processes or the machines of a cluster, by joblib; repeated where a worker is lost.

Every task that haybale spreads is a pure function of its arguments, so that it may be done twice.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any, TypeVar

from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend

from haybale.errors import ClusterError
from haybale.machine import cpus, half_of_memory
from haybale.progress import track

T = TypeVar("T")

REPEATS = 3  # times that a task is dispatched again after it was lost
AGAIN = "do it again: it is safe"


def spread(
    function: Callable[..., T],
    arguments: Iterable[tuple[Any, ...]],
    n_jobs: int | None = None,
    description: str = "working",
    total: int | None = None,
) -> Iterator[T]:
    """``function(*each)`` of all ``arguments``, by joblib's active backend; results are yielded in their order.

    Threads are the default; ``joblib.parallel_config`` (or :func:`on_cluster`) decides. With processes or Dask,
    ``function`` is one that a module defines. Arguments are made when a task is dispatched. A task whose worker died
    is dispatched again, three times at most, and must therefore be pure. ``total`` is for the bar, where
    ``arguments`` has no length. Errors: those of the function; :class:`ClusterError` where the cluster goes away,
    or a task dies wherever it is done.

    >>> list(spread(pow, [(2, 3), (3, 2)], n_jobs=2))
    [8, 9]
    """
    if total is None:
        arguments = list(arguments)
        total = len(arguments)
    return track(_results(function, arguments, n_jobs, description), description, total)


def _results(
    function: Callable[..., T], arguments: Iterable[tuple[Any, ...]], n_jobs: int | None, doing: str
) -> Iterator[T]:
    given = enumerate(arguments)
    todo: Iterable[tuple[int, tuple[Any, ...]]] = given
    done: dict[int, T] = {}
    losses: Counter[int] = Counter()
    following = 0
    while True:
        backend = _backend()
        out: deque[tuple[int, tuple[Any, ...]]] = deque()  # dispatched, in order, results not yet here
        lost: list[tuple[int, tuple[Any, ...]]] = []
        try:
            for result in _call(backend, n_jobs, _dispatched(function, todo, out)):
                number, each = out.popleft()
                if _is_lost(result):
                    _refuse_hopeless(backend, result.error, doing)
                    lost.append((number, each))
                    continue
                done[number] = result
                while following in done:
                    yield done.pop(following)
                    following += 1
        except Exception as error:
            if not _is_dead_worker(error):
                raise
            lost += out  # joblib's processes: with one they all go
            reason: BaseException = error
        else:
            if not lost:
                return
            reason = result.error if _is_lost(result) else ConnectionError("a worker died")
        losses.update(number for number, _ in lost)
        if max(losses.values(), default=0) > REPEATS:
            raise ClusterError(
                f"{doing}: a task was lost {REPEATS + 1} times, the last time by {first_line(reason)}; "
                "its worker may have too little memory"
            ) from reason
        todo = chain(lost, given)


def _dispatched(
    function: Callable[..., T], todo: Iterable[tuple[int, tuple[Any, ...]]], out: deque[Any]
) -> Iterator[Any]:
    for number, each in todo:
        out.append((number, each))
        yield delayed(function)(*each)


def _call(backend: Any, n_jobs: int | None, tasks: Iterator[Any]) -> Iterator[Any]:
    chosen = {"prefer": "threads"} if backend is None else {"backend": backend}
    parallel = Parallel(n_jobs=n_jobs, batch_size=1, return_as="generator", **chosen)
    results = parallel(tasks)
    try:
        for result in results:  # noqa: UP028 - which would close them before the "finally"
            yield result
    finally:  # where this ends early, joblib would advise to give it fewer tasks
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            results.close()


def _backend() -> Any:
    """Ours in place of joblib's own for Dask; None for any other."""
    client = dask_client()
    if client is None:
        return None
    try:
        from haybale.cluster.dask_joblib import LossyDaskBackend
    except ImportError as error:
        warnings.warn(f"joblib is not one that haybale knows ({error}); where a worker dies, start again", stacklevel=2)
        return None
    return LossyDaskBackend(client=client)


def dask_client() -> Any:
    """The client behind joblib's active backend, if that is Dask's, else None."""
    backend = get_active_backend(prefer="threads")[0]
    return backend.client if type(backend).__name__ in ("DaskDistributedBackend", "LossyDaskBackend") else None


def shares_memory() -> bool:
    """Whether tasks see the memory of this process: they are threads, or done one after the other."""
    return bool(getattr(get_active_backend(prefer="threads")[0], "supports_sharedmem", False))


def count_jobs(n_jobs: int | None) -> int:
    """How many tasks are done at once: as ``joblib.effective_n_jobs``; with Dask, the threads of all workers."""
    client = dask_client()
    if client is None:
        return int(effective_n_jobs(n_jobs))
    with dask_errors(client.scheduler.address, "counting its workers"):
        return max(1, int(sum(client.ncores().values())))


def count_workers(n_jobs: int | None) -> int:
    """The same in processes: with Dask, its workers, each of which may have several threads."""
    client = dask_client()
    if client is None:
        return count_jobs(n_jobs)
    with dask_errors(client.scheduler.address, "counting its workers"):
        return max(1, len(client.ncores()))


def memory_per_task(n_jobs: int | None) -> float:
    """Bytes that a task may take by default: half of a worker's memory limit or of the machine, divided by tasks."""
    client = dask_client()
    if client is None:
        return half_of_memory() / count_jobs(n_jobs)
    with dask_errors(client.scheduler.address, "asking its workers for their memory"):
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
    """Threads that a task may use in the process it is sent to.

    ``OMP_NUM_THREADS`` of that process: joblib's processes and Dask's nanny set it to what does not crowd the
    machine (the nanny to 1, which ``distributed.nanny.pre-spawn-environ`` changes); 1 where it is not set.
    """
    with suppress(ValueError):
        return max(1, min(cpus(), int(os.environ.get("OMP_NUM_THREADS", "1"))))
    return 1


def _is_lost(result: Any) -> bool:
    return type(result).__name__ == "Lost" and type(result).__module__ == "haybale.cluster.dask_joblib"


def _is_dead_worker(error: BaseException) -> bool:
    return type(error).__name__ == "TerminatedWorkerError"  # not the others: what cannot be unpickled never will be


def _refuse_hopeless(backend: Any, error: BaseException, doing: str) -> None:
    """:class:`ClusterError` where dispatching again is of no use."""
    client = backend.client
    address = client.scheduler.address if client.scheduler is not None else "the scheduler"
    if type(error).__name__ == "KilledWorker":
        raise ClusterError(
            f"{address}: {doing}: every worker that took up a task died of it ({first_line(error)}); "
            "give workers more memory, or a smaller memory_budget"
        ) from error
    if backend.deserted:
        raise ClusterError(f"{address}: {doing}: no worker is left; start some and {AGAIN}") from error
    if client.status != "running" or getattr(error, "reason", None) == "scheduler-connection-lost":
        raise ClusterError(f"{address}: the cluster went away while {doing}; {AGAIN}") from error


@contextmanager
def dask_errors(address: str, doing: str) -> Iterator[None]:
    """Dask's errors as :class:`ClusterError`."""
    try:
        yield
    except ClusterError:
        raise
    except BaseException as error:
        module = type(error).__module__.partition(".")[0]
        if isinstance(error, RuntimeError) and "deserialization of the task graph" in str(error):
            why = re.search(r"^\w+Error: .*$", str(error.__cause__), re.M)
            raise ClusterError(
                f"{address}: the scheduler could not unpack what it was sent while {doing}"
                f"{f' ({why[0]})' if why else ''}; it needs the modules that are used here"
            ) from error
        if module not in ("distributed", "tornado") and not isinstance(error, TimeoutError):
            raise
        raise ClusterError(f"{address}: the cluster failed while {doing}: {first_line(error)}; {AGAIN}") from error


def first_line(error: BaseException) -> str:
    """Kind and first line of an error."""
    return f"{type(error).__name__}: {error}".splitlines()[0]
