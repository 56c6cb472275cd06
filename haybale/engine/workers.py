"""Where tasks on an engine run: in this process, or in others, which open the engine by its address."""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, Generic, TypeVar

from haybale.cluster import count_jobs, own_threads, shares_memory
from haybale.engine.engine import Engine
from haybale.errors import FileFormatError, StoreError
from haybale.kept_results import Arrays, kept_results, spread_resumably, task_key
from haybale.parallel import at_most_threads
from haybale.retrieval.object_storage import is_address

Address = tuple[str, str]  # Engine.address

T = TypeVar("T")


class Sendable(ABC, Generic[T]):
    """An argument of a task in a form that can be sent.

    A task in this process gets :attr:`here`. A task in another process gets what :meth:`made` returns there.
    """

    @property
    @abstractmethod
    def here(self) -> T:
        """The argument in this process."""

    @abstractmethod
    def made(self, address: Address) -> T:
        """Return an equal argument in another process, which opens the engine at an address."""

    @abstractmethod
    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes that are sent, without those that only this process can use."""


class SendableEngine(Sendable[Engine]):
    """An engine, which other processes open."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def here(self) -> Engine:
        """The engine."""
        return self._engine

    def made(self, address: Address) -> Engine:
        """Return the opened engine."""
        return opened_engine(*address)

    def __getstate__(self) -> dict[str, Any]:
        """Return nothing: the address is sent with every task."""
        return {}


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

        if self.address is None:  # one after the other: each task uses all cores itself
            return spread_resumably(partial(_run_here, function, common), tasks, task_keys, description, n_jobs=1)
        return spread_resumably(partial(run_task, self.address, function, common), tasks, task_keys, description)


def _run_here(function: Callable[..., Arrays], common: Sequence[Any], *task: Any) -> Arrays:
    return function(*(value.here if isinstance(value, Sendable) else value for value in (*common, *task)))


def run_task(address: Address, function: Callable[..., Arrays], common: Sequence[Any], *task: Any) -> Arrays:
    """Return ``function(*common, *task)`` in any process that can open the engine at an address."""
    with at_most_threads(own_threads()):
        return function(*(value.made(address) if isinstance(value, Sendable) else value for value in (*common, *task)))


@lru_cache(maxsize=2)
def opened_engine(folder: str, documents: str) -> Engine:
    """Open the engine in a folder, once in each process.

    The parameters are its :attr:`~haybale.Engine.address` where the tasks were made. Raises
    :class:`~haybale.StoreError` if the folder is missing or has other documents. Errors of an address on object storage
    stay as they are: they say what every worker needs.
    """
    host = socket.gethostname()
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
