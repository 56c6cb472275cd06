"""The system's Chromium, which Playwright drives; tests with a browser skip where either is missing."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 800}
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def find_chromium() -> str | None:
    return next((path for path in map(shutil.which, NAMES) if path), None)


def _missing() -> str:
    if importlib.util.find_spec("playwright") is None:
        return "Playwright is not installed; pip install -e '.[test]'"
    return "" if find_chromium() else "Chromium is not installed; apt-get install chromium"


needs_browser = pytest.mark.skipif(bool(_missing()), reason=_missing() or "there is a browser")


@contextmanager
def chromium() -> Iterator[Any]:
    """Yield a browser of Playwright."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        yield browser
        browser.close()


def expect(locator: Any) -> Any:
    """Return assertions about elements that wait for what is expected: a click returns before its page is there."""
    from playwright.sync_api import expect as assertions

    assertions.set_options(timeout=30_000)
    return assertions(locator)


def collect_errors(page: Any) -> list[str]:
    """Return a list that gets the errors of a page's scripts and console from now on."""
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    return errors
