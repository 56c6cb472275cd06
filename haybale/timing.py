"""Timings of named stages: code marks its stages with :func:`timed`, and :func:`record_timings` collects their seconds.

The seconds of nested stages count for these alone. Without a recorder nothing is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar


class Timings:
    """Seconds by stage, in the order in which stages first ended.

    ``report(stage, seconds)`` is called whenever a stage ends, with all seconds that this stage has taken so far.
    """

    def __init__(self, report: Callable[[str, float], None] | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self._report = report
        self._within: list[float] = []  # seconds of the stages inside each stage that has not ended

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        self._within.append(0.0)
        try:
            yield
        finally:
            seconds, inside = time.perf_counter() - start, self._within.pop()
            if self._within:
                self._within[-1] += seconds
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds - inside
            if self._report is not None:
                self._report(name, self.seconds[name])


_listening: ContextVar[Timings | None] = ContextVar("stages", default=None)


@contextmanager
def record_timings(report: Callable[[str, float], None] | None = None) -> Iterator[Timings]:
    """Collect the seconds of the stages that run in the block.

    >>> with record_timings() as stages:
    ...     with timed("index"):
    ...         pass
    >>> list(stages.seconds)
    ['index']
    """
    stages = Timings(report)
    token = _listening.set(stages)
    try:
        yield stages
    finally:
        _listening.reset(token)


def timed(name: str) -> AbstractContextManager[None]:
    """Mark the block as a stage of that name."""
    stages = _listening.get()
    return nullcontext() if stages is None else stages._timed(name)
