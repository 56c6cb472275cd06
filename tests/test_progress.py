"""Test how long work reports itself: by lines of the log, by pictures in a notebook, and not at all where hidden."""

from __future__ import annotations

import io
import logging
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from haybale.progress import hidden_bars, track
from haybale.timing import record_timings, timed


def test_every_stage_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with timed("unseen"):
        pass
    with caplog.at_level(logging.INFO, "haybale"):
        with timed("outer"), timed("inner"):
            pass
        with record_timings() as stages:
            for _ in range(3):
                with timed("repeated"):
                    pass
            with pytest.raises(KeyError), timed("failed"):
                raise KeyError
    lines = [(record.name, record.levelname, record.getMessage()) for record in caplog.records]
    assert lines == [("haybale", "INFO", f"{stage}: 0.0 s") for stage in ("inner", "outer", "repeated")]
    assert list(stages.seconds) == ["repeated", "failed"]
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "haybale"), timed("stage"):
        assert [record.levelname for record in caplog.records] == ["DEBUG"]


def test_without_a_terminal_a_line_is_logged_every_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 10_000, 25))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    with caplog.at_level(logging.INFO, "haybale"):
        assert list(track(range(5), "reading", status=lambda: "fast")) == [0, 1, 2, 3, 4]
        with hidden_bars():
            assert list(track(range(500), "hidden")) == list(range(500))
    assert [record.getMessage() for record in caplog.records] == ["reading: 3 of 5, fast"]


@pytest.mark.parametrize("stream", [None, "closed"])
def test_a_missing_or_closed_stderr_is_no_terminal(stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if stream == "closed":
        stream = io.StringIO()
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    assert list(track([1, 2], "work")) == [1, 2]


def test_bars_are_drawn_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for IPython, as it is in the kernel of a notebook, shows what a cell displays."""
    shown: list[str] = []

    class Handle:
        def update(self, data: dict[str, str], raw: bool) -> None:
            shown.append(data["text/plain"])

    def display(data: dict[str, str], raw: bool, display_id: bool) -> Handle:
        return Handle()

    kernel = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", kernel)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))  # type: ignore[arg-type]
    monkeypatch.setattr("haybale.progress._SECONDS_PER_PICTURE", 0.0)
    for _ in track(range(2), "outer work"):
        assert list(track([1, 2, 3], "inner work")) == [1, 2, 3]
    assert any("outer work" in each and "inner work" in each and "2/3" in each for each in shown)
    assert shown[-1] == ""  # the bars disappear
