"""joblib's Dask backend, for clusters whose workers may die: a lost task is a result that says so.

joblib's own (``joblib._dask``, 1.4 to 1.6) waits for ever for a task that Dask gave up (``KilledWorker``), and drops
all tasks of a call when one is cancelled because the data scattered for it died with a worker. Here both arrive as
:class:`Lost`, in place of the task's result; the other tasks go on.

It rests on names that joblib does not promise to keep. Where one is gone, importing this module raises
``ImportError``, and joblib's own backend is taken.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from joblib._dask import DaskDistributedBackend
from joblib._utils import _ExceptionWithTraceback, _TracebackCapturingWrapper

_NEEDED = ("start_call", "stop_call", "abort_everything", "retrieve_result_callback", "_to_func_args")
for _name in _NEEDED:
    if not callable(getattr(DaskDistributedBackend, _name, None)):
        raise ImportError(f"joblib's DaskDistributedBackend has no {_name}")

PATIENCE = 60.0  # seconds without any worker, after which nothing is waited for any more


@dataclass(frozen=True)
class Lost:
    """Stands for the result of a task that the cluster lost."""

    error: BaseException


class LossyDaskBackend(DaskDistributedBackend):  # type: ignore[misc]
    """For one call of ``joblib.Parallel`` with ``batch_size=1``."""

    deserted = False  # no worker was there for PATIENCE seconds

    def effective_n_jobs(self, n_jobs: int) -> int:
        """At least 2: for 1, joblib would do all tasks in this process, and leave the one worker idle."""
        return max(2, int(super().effective_n_jobs(n_jobs)))

    def start_call(self) -> None:
        self._sent: set[Any] = set()
        super().start_call()
        self._calling = True
        self.client.loop.add_callback(self._watch)

    def stop_call(self) -> None:
        self._calling = False
        super().stop_call()

    async def _watch(self) -> None:
        """Look whether there still are workers."""
        ticks, seen = 0, time.monotonic()
        while self._calling:  # looked at often, so that it ends soon after the call
            await asyncio.sleep(0.05)
            ticks += 1
            if ticks % 20:
                continue
            try:
                workers = await self.client.scheduler.ncores()
            except Exception:  # the connection is gone: then every task is lost already
                return
            seen = time.monotonic() if workers else seen
            if time.monotonic() - seen > PATIENCE:
                self.deserted = True
                await self._cancel()
                return

    def submit(self, func: Any, callback: Callable[[Any], None]) -> Any:
        outcome: Any = concurrent.futures.Future()
        outcome.get = outcome.result  # what joblib calls it

        async def send() -> None:
            result: Any
            try:
                batch, tasks = await self._to_func_args(func)
                key = f"{batch!r}-{uuid4().hex}"
                future = self.client.submit(_TracebackCapturingWrapper(batch), tasks=tasks, key=key)
                self._sent.add(future)
                try:
                    result = await future._result()
                finally:
                    self._sent.discard(future)
            except BaseException as error:  # distributed's CancelledError is asyncio's, which is no Exception
                result = [Lost(error)] if is_loss(error) else _ExceptionWithTraceback(error)
            outcome.set_result(result)
            callback(result)

        self.client.loop.add_callback(send)
        return outcome

    apply_async = submit  # as joblib called it until 1.4

    def abort_everything(self, ensure_ready: bool = True) -> None:
        self.client.loop.add_callback(self._cancel)

    async def _cancel(self) -> None:
        with contextlib.suppress(Exception):
            await self.client.cancel(list(self._sent), asynchronous=True, force=True)


def is_loss(error: BaseException) -> bool:
    """Whether an error of Dask says that the cluster failed, not the task."""
    from distributed import CancelledError, KilledWorker
    from distributed.client import ClosedClientError
    from distributed.comm.core import CommClosedError

    kinds = (CancelledError, asyncio.CancelledError, concurrent.futures.CancelledError, KilledWorker, ClosedClientError)
    return isinstance(error, (*kinds, CommClosedError, TimeoutError, OSError))
