"""Test the seconds of stages: nested stages, stages that fail, nested recorders and threads."""

from __future__ import annotations

import threading
import time

import pytest

from haybale.timing import record_timings, timed


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that the test advances."""
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def test_seconds_of_nested_stages_count_once(clock: list[float]) -> None:
    reports: list[tuple[str, float]] = []
    with record_timings(lambda name, seconds: reports.append((name, seconds))) as stages:
        with timed("outer"):
            clock[0] += 1
            with timed("inner"):
                clock[0] += 10
                with timed("innermost"):
                    clock[0] += 100
            clock[0] += 2
        with timed("inner"):
            clock[0] += 5
    assert stages.seconds == {"innermost": 100, "inner": 15, "outer": 3}
    assert list(stages.seconds) == ["innermost", "inner", "outer"]  # in the order of their first ends
    assert reports == [("innermost", 100), ("inner", 10), ("outer", 3), ("inner", 15)]


def test_stages_that_fail_are_measured(clock: list[float]) -> None:
    with record_timings() as stages:
        with pytest.raises(KeyError), timed("outer"), timed("inner"):  # noqa: PT012
            clock[0] += 4
            raise KeyError
        with timed("next"):
            clock[0] += 1
    assert stages.seconds == {"inner": 4, "outer": 0, "next": 1}


def test_the_innermost_recorder_of_the_same_thread_measures(clock: list[float]) -> None:
    def work() -> None:
        with timed("elsewhere"):
            pass

    with record_timings() as outer:
        with record_timings() as inner, timed("a"):
            clock[0] += 1
        with timed("b"):
            clock[0] += 1
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert (inner.seconds, outer.seconds) == ({"a": 1}, {"b": 1})
