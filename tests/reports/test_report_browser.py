"""The report in a browser: it renders on small and large screens, in the dark and light theme, and its script works.

The tests control a headless Chromium through its debugging pipe, so they need neither a driver nor a library.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.pages import hostile, small

from haybale.evaluation import compare
from haybale.reports import write_report

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = "Chromium is not installed; apt-get install chromium"


def find_chromium() -> str | None:
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """A browser process with one page; ``errors`` has the errors of its console."""

    def __init__(self, folder: Path, timeout: float = 60) -> None:
        self.timeout, self.errors = timeout, []
        self._numbers, self._rest, self._session = itertools.count(1), b"", None
        to_read, self._write = os.pipe()  # the browser reads from the other end
        self._read, to_write = os.pipe()
        command = [
            str(find_chromium()), "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
            "--no-first-run", "--disable-background-networking", "--hide-scrollbars", f"--user-data-dir={folder}",
        ]  # fmt: skip
        # The browser expects the pipe at the file descriptors 3 and 4.
        shell = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def open(self, address: str, width: int, height: int, scheme: str) -> None:
        """Load a page in a window of that size; ``scheme`` is ``"light"`` or ``"dark"``."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.media(scheme)
        self.errors.clear()
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=address)
        end = time.monotonic() + self.timeout
        while self.run("document.readyState") != "complete" or self.run("location.href") == "about:blank":
            assert time.monotonic() < end, "the page did not load"
            time.sleep(0.02)

    def media(self, scheme: str, kind: str = "") -> None:
        self.call(
            "Emulation.setEmulatedMedia", media=kind, features=[{"name": "prefers-color-scheme", "value": scheme}]
        )

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def close(self) -> None:
        os.close(self._write)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._read)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], self.timeout)
            assert ready, "no answer from the browser"
            part = os.read(self._read, 1 << 20)
            assert part, "the browser has ended"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        answer = json.loads(message)
        if answer.get("method") == "Runtime.exceptionThrown":
            self.errors.append(answer["params"]["exceptionDetails"])
        if answer.get("method") == "Log.entryAdded" and answer["params"]["entry"]["level"] == "error":
            self.errors.append(answer["params"]["entry"])
        return answer


pytestmark = pytest.mark.skipif(find_chromium() is None, reason=MISSING)

PHONE, DESK = (390, 844), (1280, 800)
DARK, LIGHT = "rgb(21, 23, 27)", "rgb(251, 250, 247)"  # background colours of the page
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
GROUND = "getComputedStyle(document.body).backgroundColor"
SEEN = "[...document.querySelectorAll('svg.chart')].filter(each => each.getBoundingClientRect().width > 0).length"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The addresses of two pages: an ordinary one, and one with hostile texts."""
    folder = tmp_path_factory.mktemp("report")
    addresses = {}
    for name, collection, rankers in (
        ("small", small(), ("bm25", "bm25-doc", "knn", "parm-vrrf", "rrf(bm25,knn)")),
        ("hostile", hostile(), ("bm25", "bm25-doc")),
    ):
        compare(collection, rankers).write(folder / name)
        write_report([folder / name], folder / f"{name}.html", collection=collection)
        addresses[name] = (folder / f"{name}.html").as_uri()
    return addresses


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.mark.parametrize(
    ("name", "size", "scheme"),
    [("small", PHONE, "light"), ("small", DESK, "dark"), ("hostile", PHONE, "dark"), ("hostile", DESK, "light")],
)
def test_the_page_renders(
    browser: Browser, pages: dict[str, str], name: str, size: tuple[int, int], scheme: str
) -> None:
    browser.open(pages[name], *size, scheme)
    assert browser.errors == []
    assert browser.run("window.innerWidth") == size[0]
    browser.run("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    assert browser.run(OVERFLOW) == 0
    assert browser.run(GROUND) == (DARK if scheme == "dark" else LIGHT)
    assert browser.run(SEEN) == 4  # recall, differences, heatmap, picture
    assert browser.run("performance.getEntriesByType('resource').length") == 0
    sizes = "[...document.querySelectorAll('svg.chart text')].map(e => e.getBoundingClientRect())"
    assert browser.run(f"Math.min(...{sizes}.map(box => Math.max(box.width, box.height)))") > 10  # pixels


def test_the_reader_chooses_dark_or_light(browser: Browser, pages: dict[str, str]) -> None:
    browser.open(pages["small"], *DESK, "light")
    browser.run("document.getElementById('theme').click()")
    assert browser.run(GROUND) == DARK
    browser.open(pages["small"], *DESK, "light")
    assert browser.run(GROUND) == DARK  # the choice is stored
    browser.run("document.getElementById('theme').click()")
    assert browser.run(GROUND) == LIGHT
    browser.run("localStorage.clear()")


def test_columns_sort(browser: Browser, pages: dict[str, str]) -> None:
    browser.open(pages["small"], *DESK, "light")
    names = "[...document.querySelectorAll('.results tbody th bdi')].map(each => each.textContent.trim())"
    first = browser.run(names)
    click = "document.querySelectorAll('.results thead button')[{}].click()"
    values = "[...document.querySelectorAll('.results tbody tr')].map(each => Number(each.cells[{}].dataset.value))"
    browser.run(click.format(1))
    found = browser.run(values.format(1))
    assert found == sorted(found, reverse=True)
    sorts = browser.run("[...document.querySelectorAll('.results th[aria-sort]')].map(e => e.ariaSort)")
    assert (sorts[1], sorts.count("none")) == ("descending", len(sorts) - 1)
    browser.run(click.format(1))
    assert browser.run(values.format(1)) == sorted(found)
    browser.run(click.format(0))
    assert browser.run(names) == sorted(first)
    browser.run(click.format(7))  # p-values in ascending order; the baseline has none and comes last
    assert browser.run(names)[-1] == "bm25"


def test_legends_hide_curves_and_bars_link_to_queries(browser: Browser, pages: dict[str, str]) -> None:
    browser.open(pages["small"], *DESK, "light")
    lines = "[...document.querySelectorAll('.recall-chart [data-series]')]"
    shown = f"{lines}.filter(each => getComputedStyle(each).display !== 'none').length"
    name = "document.querySelector('[role=button][data-switch=\"1\"]')"
    assert browser.run(shown) == 5
    browser.run(f"{name}.dispatchEvent(new MouseEvent('click'))")
    assert (browser.run(shown), browser.run(f"{name}.ariaPressed")) == (4, "false")
    browser.run(f"{name}.dispatchEvent(new KeyboardEvent('keydown', {{key: 'Enter'}}))")
    assert (browser.run(shown), browser.run(f"{name}.ariaPressed")) == (5, "true")
    assert not browser.run("document.getElementById('q0').open")
    browser.run("document.querySelector('.difference-chart a').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    browser.run("new Promise(done => setTimeout(done, 50))")
    assert browser.run("document.getElementById('q0').open")


def test_the_printed_page_is_unfolded_and_light(browser: Browser, pages: dict[str, str]) -> None:
    browser.open(pages["small"], *DESK, "dark")
    assert browser.run("document.querySelectorAll('details[open]').length") == 0
    browser.run("window.dispatchEvent(new Event('beforeprint'))")
    assert browser.run("document.querySelectorAll('details:not([open])').length") == 0
    browser.media("dark", "print")
    assert browser.run("getComputedStyle(document.querySelector('h1')).color") == "rgb(29, 31, 35)"
    assert browser.run("getComputedStyle(document.getElementById('theme')).display") == "none"
    browser.run("window.dispatchEvent(new Event('afterprint'))")
    assert browser.run("document.querySelectorAll('details[open]').length") == 0
