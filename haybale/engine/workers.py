"""Where tasks on an engine run: in this process, or in others, which open the engine by its address."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from haybale.cluster import count_jobs, own_threads, shares_memory
from haybale.engine.engine import Engine
from haybale.errors import FileFormatError, StoreError
from haybale.kept_results import Arrays, kept_results, spread_resumably, task_key
from haybale.parallel import at_most_threads
from haybale.retrieval.object_storage import is_address

Address = tuple[str, str]  # Engine.address

_MAX_QUERIES_PER_BLOCK = 2048  # about; the hits of a block fit into memory
_MIN_BLOCKS = 4  # in one process, so that an interruption loses little


class Sendable(NamedTuple):
    """An argument of tasks that only this process can use, with what other processes make an equal one from."""

    here: Any  # the argument in this process
    make: Callable[..., Any]  # a function of a module: make(address, *values) returns the argument in another process
    values: Callable[[], tuple[Any, ...]] = tuple  # called if the argument is sent


class _Sent(NamedTuple):
    """What is sent of a :class:`Sendable`."""

    make: Callable[..., Any]
    values: tuple[Any, ...]


class Workers:
    """Run tasks on an engine: in other processes where joblib or Dask has some that can open it, otherwise here.

    Parameters
    ----------
    engine : Engine
        The engine, or a snapshot of it.

    Attributes
    ----------
    address : (str, str), optional
        Where other processes open the engine. None if tasks run in this process: because threads or no parallel backend
        are chosen, or because only this process has the engine.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.address: Address | None = None if shares_memory() else engine.address

    @property
    def divide(self) -> bool:
        """Whether work is divided into tasks: for other processes, or because :func:`resumable` keeps their results.

        Results are only kept for an engine in a folder.
        """
        return self.address is not None or (kept_results() is not None and self.engine.documents_digest is not None)

    def count(self) -> int:
        """Return the number of tasks that run at the same time."""
        return 1 if self.address is None else count_jobs(-1)

    def number_of_blocks(self, n: int, size: int) -> int:
        """Return into how many blocks ``n`` queries are divided; ``size`` queries or fewer are not.

        The number is the same for a computation that goes on after an interruption. Each worker gets equally many
        blocks; one process, which keeps the results of blocks, gets at least four.
        """
        checkpoint, key = kept_results(), task_key("number of blocks", n, size)
        saved = None if checkpoint is None else checkpoint.get(key)
        if saved is not None:
            return int(saved["number"])
        jobs = self.count()
        parts = jobs if jobs > 1 else _MIN_BLOCKS
        number = min(parts * -(-n // (_MAX_QUERIES_PER_BLOCK * parts)), -(-n // size))
        if checkpoint is not None and jobs > 1:  # a later run may have another number of workers
            checkpoint.put(key, {"number": np.array(number)})
        return number

    def run(
        self,
        function: Callable[..., Arrays],
        common: Sequence[Any],
        tasks: Sequence[tuple[Any, ...]],
        keys: Callable[[], Iterable[tuple[Any, ...]]],
        description: str,
    ) -> list[Arrays]:
        """Return ``function(*common, *task)`` for each task; take results that :func:`resumable` keeps.

        Parameters
        ----------
        function : callable
            A function of a module. It returns named arrays that depend on its arguments only.
        common : sequence
            Arguments that all tasks share. An argument that only this process can use is a :class:`Sendable`, here and
            in ``tasks``.
        tasks : sequence of tuple
        keys : callable
            Returns, for each task, the values that its result depends on besides the documents of the engine, for
            :func:`~haybale.kept_results.task_key`. Only called within :func:`resumable`.
        description : str
            Shown in the progress bar, and a part of the keys.
        """

        def task_keys() -> Iterable[str]:
            return (task_key(description, self.engine.documents_digest, *values) for values in keys())

        run: Callable[..., Arrays]
        if self.address is None:  # one after the other: each task uses all cores itself
            run, n_jobs = partial(function, *map(_here, common)), 1
            tasks = [tuple(map(_here, task)) for task in tasks]
        else:
            run, n_jobs = partial(_run_task, self.address, function, tuple(map(_sent, common))), None
            tasks = [tuple(map(_sent, task)) for task in tasks]
        return spread_resumably(run, tasks, task_keys, description, n_jobs)


def _here(argument: Any) -> Any:
    return argument.here if isinstance(argument, Sendable) else argument


def _sent(argument: Any) -> Any:
    return _Sent(argument.make, argument.values()) if isinstance(argument, Sendable) else argument


def _run_task(address: Address, function: Callable[..., Arrays], common: Sequence[Any], *task: Any) -> Arrays:
    """Return ``function(*common, *task)`` in any process that can open the engine at an address."""
    with at_most_threads(own_threads()):
        arguments = (*common, *task)
        return function(*(arg.make(address, *arg.values) if isinstance(arg, _Sent) else arg for arg in arguments))


def sendable_engine(engine: Engine) -> Sendable:
    """Return an engine as an argument of tasks on it."""
    return Sendable(engine, opened_engine)


@lru_cache(maxsize=2)
def opened_engine(address: Address) -> Engine:
    """Open the engine at an address, once in each process.

    The address is that of the engine where the tasks were made. Raises
    :class:`~haybale.StoreError` if the folder is missing or has other documents. Errors of an address on object storage
    stay as they are: they say what every worker needs.
    """
    (folder, documents), host = address, socket.gethostname()
    try:
        engine = Engine.open(folder)
    except (OSError, FileFormatError) as error:
        if is_address(folder):
            raise
        raise StoreError(
            f"{error} (on {host}); use shared storage: every worker must reach the engine there"
        ) from error
    if engine.documents_digest != documents:
        raise StoreError(
            f"{folder}: on {host} this engine has other documents; use shared storage, and do not change the engine "
            "while its tasks run"
        )
    return engine
