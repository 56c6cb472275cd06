"""Stop long work that nobody waits for any more.

The caller that waits, such as the service for a request, runs the work in :func:`stoppable`. Loops that may take long
call :func:`check_wanted` in each round, which raises :class:`~haybale.errors.StoppedError` after :meth:`Work.stop`, or
when the time is over. Outside such a block nothing is stopped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from haybale.errors import StoppedError


class Work:
    """Work that may be stopped, from any thread.

    Parameters
    ----------
    seconds : float, optional
        Time after which the work is stopped. Default: no limit.

    Examples
    --------
    >>> work = Work()
    >>> with stoppable(work):
    ...     check_wanted()
    >>> work.stop()
    >>> work.is_stopped
    True
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.end = None if seconds is None else time.monotonic() + seconds
        self._lock = threading.Lock()
        self._is_stopped = False
        self._actions: dict[object, Callable[[], None]] = {}

    @property
    def is_stopped(self) -> bool:
        """Whether nobody waits for the work any more."""
        return self._is_stopped or (self.end is not None and time.monotonic() > self.end)

    @property
    def seconds_left(self) -> float | None:
        """The seconds until the work is stopped; None without a limit."""
        return None if self.end is None else max(0.0, self.end - time.monotonic())

    def stop(self) -> None:
        """Stop the work: run the actions of :meth:`on_stop`, and let :func:`check_wanted` raise an error."""
        with self._lock:
            self._is_stopped = True
            for action in self._actions.values():
                action()
            self._actions.clear()

    @contextmanager
    def on_stop(self, action: Callable[[], None]) -> Iterator[None]:
        """Call ``action`` if the work is stopped within the block, such as to end a process; it must not block."""
        key = object()
        with self._lock:
            is_late = self._is_stopped
            if not is_late:
                self._actions[key] = action
        if is_late:
            action()
        try:
            yield
        finally:
            with self._lock:  # so that the action does not run after the block
                self._actions.pop(key, None)


_current: ContextVar[Work | None] = ContextVar("work", default=None)


@contextmanager
def stoppable(work: Work) -> Iterator[None]:
    """Let :func:`check_wanted` in the block, and in threads that get its context, ask whether the work is stopped."""
    token = _current.set(work)
    try:
        yield
    finally:
        _current.reset(token)


def current_work() -> Work | None:
    """Return the work of the block that runs; None outside of :func:`stoppable`."""
    return _current.get()


def check_wanted() -> None:
    """Raise :class:`~haybale.errors.StoppedError` if the work that runs was stopped."""
    work = _current.get()
    if work is not None and work.is_stopped:
        raise StoppedError(
            "the work must end within its time, and while somebody waits for it, found it stopped: Work.stop() was "
            "called, or its seconds are over; ask for less, or repeat it"
        )
