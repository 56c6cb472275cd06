"""Take over documents that other processes add to the engine, while the service answers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from haybale.errors import HaybaleError
from haybale.service.workspace import Workspace

_MIN_PAUSE_SECONDS = 1.0  # between two refreshes
_STOP_SECONDS = 0.5  # for the thread that prepares reviews to end, if it is pausing
_PAUSE_FACTOR = 3.0  # pauses last this many times as long as the refresh, so that searches get most of the time
_LOGGER = logging.getLogger("haybale.service")


class Refreshing:
    """Two threads that refresh the engine of a workspace and prepare its reviews, until :meth:`stop`.

    Searches and reviews that are running are not affected. An engine that cannot be read, such as one that was built
    again, is reported once, and the service goes on with the documents that it had.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._is_over = threading.Event()
        works = (workspace.refresh, workspace.prepare_reviews)
        self._threads = [threading.Thread(target=self._repeat, args=(work,), daemon=True) for work in works]

    def start(self) -> None:
        """Start both threads."""
        for thread in self._threads:
            thread.start()

    def _repeat(self, work: Callable[[], bool]) -> None:
        reported = ""
        while not self._is_over.is_set():
            start = time.monotonic()
            try:
                work()
            except (HaybaleError, OSError) as error:
                if str(error) != reported:
                    reported = str(error)
                    _LOGGER.warning("new documents cannot be used: %s", reported)
            self._is_over.wait(max(_MIN_PAUSE_SECONDS, _PAUSE_FACTOR * (time.monotonic() - start)))

    def stop(self) -> None:
        """End the threads; one that is preparing reviews is not waited for."""
        self._is_over.set()
        self._threads[0].join()
        self._threads[1].join(_STOP_SECONDS)
