"""A service in a thread of the test, with a browser that opens its pages."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from haybale.service import Workspace, create_app
from support.browser import DESK, chromium, collect_errors

AXE = "axe.run({{runOnly: {}}}).then((found) => found.violations.map((each) => [each.id, each.nodes[0].html]))"


class Site:
    """A running service; ``grades`` are the true ones, and ``open`` loads a page in a context of its own."""

    def __init__(self, address: str, workspace: Workspace, grades: dict[str, int], browser: Any) -> None:
        self.address, self.workspace, self.grades, self.browser = address, workspace, grades, browser

    def open(self, path: str = "/", judge: str = "", **options: Any) -> Any:
        context = self.browser.new_context(base_url=self.address, **{"viewport": DESK} | options)
        context.set_default_timeout(30_000)
        if judge:
            context.add_cookies([{"name": "haybale-judge", "value": judge, "url": self.address}])
        page = context.new_page()
        page.errors = collect_errors(page)
        page.goto(path)
        return page


def close(page: Any) -> None:
    assert page.errors == []
    page.context.close()


@contextmanager
def site_of(workspace: Workspace, grades: dict[str, int] | None = None) -> Iterator[Site]:
    """Serve a workspace, which is closed at the end, and yield the site."""
    uvicorn = pytest.importorskip("uvicorn")
    server = uvicorn.Server(uvicorn.Config(create_app(workspace), port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        with chromium() as browser:
            yield Site(f"http://127.0.0.1:{port}", workspace, grades or {}, browser)
    finally:
        server.should_exit = True
        thread.join()
        workspace.close()


def violations(page: Any, only: str = "undefined") -> Any:
    """Return what axe finds on a page; with ``"['color-contrast']"``, only that."""
    from axe_core_python.base import AXE_SCRIPT

    page.evaluate(AXE_SCRIPT)
    return page.evaluate(AXE.format(only))
