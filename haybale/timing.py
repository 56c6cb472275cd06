"""Measure the seconds of stages: code marks them with :func:`timed`, and :func:`record_timings` collects the seconds.

The seconds of a nested stage do not count for the enclosing stage. Without a recorder nothing is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar


class Timings:
    """The seconds of each stage, in the order in which the stages first ended.

    ``report(stage, seconds)`` is called whenever a stage ends, with the seconds of the stage so far.
    """

    def __init__(self, report: Callable[[str, float], None] | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self._report = report
        self._nested: list[float] = []  # for each running stage, the seconds of the stages inside it

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        self._nested.append(0.0)
        try:
            yield
        finally:
            seconds, nested = time.perf_counter() - start, self._nested.pop()
            if self._nested:
                self._nested[-1] += seconds
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds - nested
            if self._report is not None:
                self._report(name, self.seconds[name])


_recorder: ContextVar[Timings | None] = ContextVar("stages", default=None)


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
    token = _recorder.set(stages)
    try:
        yield stages
    finally:
        _recorder.reset(token)


def timed(name: str) -> AbstractContextManager[None]:
    """Mark a block as a stage with the given name."""
    stages = _recorder.get()
    return nullcontext() if stages is None else stages._timed(name)
