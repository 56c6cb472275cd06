"""All matters of a service: found in folders, closed when idle."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from haybale.service.matters.matter import Matter, Open
from haybale.service.matters.matter_folders import EngineFolder, MatterFolders

_LOGGER = logging.getLogger("haybale.service")
_PAUSE_SECONDS = 1.0  # between two looks at folders and matters


class Matters:
    """The matters of a service by name.

    Between :meth:`start` and :meth:`stop`, a thread looks once a second which engines there are, and which matters
    are idle. Several threads may use it.

    Parameters
    ----------
    folders : MatterFolders
    open : callable
        What opens a matter (:class:`Matter`).
    idle_seconds : float or None, default 1800
        After which a matter is closed that nobody uses; None for never.
    clock : callable, default time.monotonic
        Returns the time in seconds.
    """

    def __init__(
        self,
        folders: MatterFolders,
        open: Open,
        idle_seconds: float | None = 1800.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folders, self._open, self._idle_seconds, self._clock = folders, open, idle_seconds, clock
        self._looking, self._is_over = threading.Lock(), threading.Event()
        self._entries: dict[str, tuple[EngineFolder, Matter]] = {}
        self._removed: list[Matter] = []  # which are not closed yet
        self._thread = threading.Thread(target=self._repeat, daemon=True)
        self._take_over()

    def get(self, name: str) -> Matter | None:
        """Return the matter of a name; None if there is none."""
        entry = self._entries.get(name)
        return None if entry is None else entry[1]

    def all(self) -> list[Matter]:
        """Return all matters, sorted by name."""
        return [matter for _, matter in self._entries.values()]

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Stop to look, and close all matters."""
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join()
        for matter in [*self.all(), *self._removed]:
            matter.stop()

    def look(self) -> None:
        """Find engines that are new, and close matters whose engine is gone, or that are idle."""
        with self._looking:
            for problem in self._folders.look():
                _LOGGER.warning("%s", problem)
            self._take_over()
            self._removed = [matter for matter in self._removed if not matter.remove()]
            if self._idle_seconds is not None:
                for matter in self.all():
                    matter.close_if_idle(self._idle_seconds)

    def _take_over(self) -> None:
        """Make matters of new engines, and remove those whose engine is gone or is another one now."""
        entries: dict[str, tuple[EngineFolder, Matter]] = {}
        for name, folder in self._folders.latest.items():
            kept = self._entries.get(name)
            is_same = kept is not None and kept[0] == folder
            entries[name] = kept if kept and is_same else (folder, Matter(name, folder.path, self._open, self._clock))
        kept_matters = {id(matter) for _, matter in entries.values()}
        self._removed += [matter for matter in self.all() if id(matter) not in kept_matters]
        self._entries = entries

    def _repeat(self) -> None:
        while not self._is_over.wait(_PAUSE_SECONDS):
            try:
                self.look()
            except Exception as error:  # the next look may succeed
                _LOGGER.error("the matters cannot be looked at", exc_info=error)
