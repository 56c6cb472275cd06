"""Stages of work: seconds that count once, whoever listens, and that a failure does not lose."""

from __future__ import annotations

import threading
import time

import pytest

from haybale.timing import record_timings, timed


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands until it is moved."""
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def test_a_stage_counts_without_the_stages_within(clock: list[float]) -> None:
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
    assert list(stages.seconds) == ["innermost", "inner", "outer"]  # as they first ended
    assert reports == [("innermost", 100), ("inner", 10), ("outer", 3), ("inner", 15)]


def test_a_stage_that_fails_counts_too(clock: list[float]) -> None:
    with record_timings() as stages:
        with pytest.raises(KeyError), timed("outer"), timed("inner"):  # noqa: PT012
            clock[0] += 4
            raise KeyError
        with timed("next"):
            clock[0] += 1
    assert stages.seconds == {"inner": 4, "outer": 0, "next": 1}


def test_who_listens_within_hears_alone_and_so_do_threads(clock: list[float]) -> None:
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
