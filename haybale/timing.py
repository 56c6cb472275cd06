"""Measure the seconds of stages: code marks them with :func:`timed`, and :func:`record_timings` collects the seconds.

The seconds of a nested stage do not count for the enclosing stage. Every stage is also reported to ``logging``, by the
logger ``haybale``: its end with its seconds at the level INFO, its beginning at DEBUG. A stage that can run on a device
is logged with the device on which it ran, and with the number of kernels that were compiled for it. Without a recorder,
and without a logger that reports INFO, nothing is measured.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from haybale.kernel_cache import count_kernels, folder_of_kernels
from haybale.stopping_work import check_wanted

_LOGGER = logging.getLogger("haybale")


class Timings:
    """The seconds of each stage, in the order in which the stages first ended.

    ``report(stage, seconds)`` is called whenever a stage ends, with the seconds of the stage so far. A stage that runs
    several times is logged again whenever it has taken another second.
    """

    def __init__(self, report: Callable[[str, float], None] | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self._report = report
        self._logged: dict[str, float] = {}  # the seconds in the last line of each stage
        self._nested: list[float] = []  # for each running stage, the seconds of the stages inside it

    @contextmanager
    def _timed(self, name: str, where: Any = None) -> Iterator[None]:
        if name not in self._logged:
            _LOGGER.debug("%s: begins", name)
        compiles = where is not None and str(where) != "cpu" and _LOGGER.isEnabledFor(logging.INFO)
        n_kernels = count_kernels() if compiles else 0
        start, is_done = time.perf_counter(), False
        self._nested.append(0.0)
        try:
            yield
            is_done = True
        finally:
            seconds, nested = time.perf_counter() - start, self._nested.pop()
            self._add(name, seconds, seconds - nested)
            if is_done and self.seconds[name] >= self._logged.get(name, -1.0) + 1:
                self._logged[name] = self.seconds[name]
                _LOGGER.info("%s: %.1f s%s", name, self.seconds[name], "" if where is None else f" on {where}")
            if compiles and (compiled := count_kernels() - n_kernels) > 0:
                folder = folder_of_kernels()
                _LOGGER.info("%s: compiled %d kernels for %s, once; they are kept in %s", name, compiled, where, folder)

    def _add(self, name: str, seconds: float, outside_nested: float) -> None:
        """Add the seconds of a stage, of which ``outside_nested`` are not of stages inside it, and report the stage."""
        if self._nested:
            self._nested[-1] += seconds
        self.seconds[name] = self.seconds.get(name, 0.0) + outside_nested
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


@contextmanager
def summed_timings() -> Iterator[None]:
    """Report each stage that runs in the block once, when the block ends, with the sum of its seconds."""
    outer = _recorder.get()
    with record_timings() as stages:
        yield
    if outer is not None:
        for name, seconds in stages.seconds.items():
            outer._add(name, seconds, seconds)


def timed(name: str, where: Any = None) -> AbstractContextManager[None]:
    """Mark a block as a stage with the given name; ``where`` is the device on which it runs, if that can be chosen.

    StoppedError is raised if the work was stopped.
    """
    check_wanted()
    stages = _recorder.get()
    if stages is not None:
        return stages._timed(name, where)
    return _alone(name, where) if _LOGGER.isEnabledFor(logging.INFO) else nullcontext()


@contextmanager
def _alone(name: str, where: Any) -> Iterator[None]:
    """Measure a stage without a recorder, for the log only."""
    with record_timings() as stages, stages._timed(name, where):
        yield
