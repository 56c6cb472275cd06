"""Take over documents that other processes add to the engine, while the service answers."""

from __future__ import annotations

import logging
import threading

from haybale.errors import HaybaleError
from haybale.service.workspace import Workspace

_SECONDS = 1.0  # between two looks
_LOGGER = logging.getLogger("haybale.service")


class Refreshing(threading.Thread):
    """A thread that refreshes the engine of a workspace every second, until :meth:`stop`.

    Searches that are running are not affected. An engine that cannot be read, such as one that was built again, is
    reported once, and the service goes on with the documents that it had.
    """

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(name="refreshing", daemon=True)
        self.workspace = workspace
        self._is_over = threading.Event()

    def run(self) -> None:
        """Refresh until the service ends."""
        reported = ""
        while not self._is_over.wait(_SECONDS):
            try:
                self.workspace.refresh()
            except HaybaleError as error:
                if str(error) != reported:
                    reported = str(error)
                    _LOGGER.warning("the engine was not refreshed: %s", reported)

    def stop(self) -> None:
        """End the thread."""
        self._is_over.set()
        self.join()
