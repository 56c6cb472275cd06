"""A matter: an engine with an address, opened when it is first asked for, and closed when nobody has used it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from haybale.errors import HaybaleError
from haybale.service.matters.opened_matter import OpenedMatter
from haybale.service.released_memory import release_memory

LOOK_SECONDS = 0.02  # between two looks whether a matter is open
AGAIN_SECONDS = 5.0  # after an opening that has failed, until it is tried again
_LOGGER = logging.getLogger("haybale.service")

Open = Callable[[str, Path, Callable[[str], None]], OpenedMatter]


class Matter:
    """An engine in a folder, which is open as long as it is used. Several threads and event loops may use it.

    Parameters
    ----------
    name : str
    folder : Path
    open : callable
        Returns the opened matter for its name, its folder, and a function that is told what is being done.
    clock : callable, default time.monotonic
        Returns the time in seconds.
    """

    def __init__(self, name: str, folder: Path, open: Open, clock: Callable[[], float] = time.monotonic) -> None:
        self.name, self.folder = name, folder
        self._open, self._clock = open, clock
        self._lock = threading.RLock()
        self._opened: OpenedMatter | None = None
        self._changing: threading.Thread | None = None  # opens or closes
        self._n_requests = 0  # that are running
        self._used = self._failed = clock()  # when it was last used, and when it could last not be opened
        self._is_removed = False
        self.work = ""  # what is being done while it is being opened or closed
        self.problem = ""  # why it cannot be opened

    @property
    def status(self) -> str:
        """Whether it is ``"open"``, ``"opening"``, ``"closed"`` or ``"broken"``, which is one that cannot be opened."""
        with self._lock:
            if self._opened is not None:
                return "open"
            return "opening" if self._changing is not None else "broken" if self.problem else "closed"

    @property
    def opened(self) -> OpenedMatter | None:
        """What is open, for a look at it; :meth:`use` keeps it open."""
        return self._opened

    @asynccontextmanager
    async def use(self, seconds: float) -> AsyncIterator[OpenedMatter | None]:
        """Keep the matter open within the block, and open it before; None if that takes longer, or is not possible.

        Parameters
        ----------
        seconds : float
            For which to wait until it is open. Its opening goes on afterwards.
        """
        end, opened = time.monotonic() + seconds, self._take()
        while opened is None and not self.problem and time.monotonic() < end:
            await asyncio.sleep(LOOK_SECONDS)
            opened = self._take()
        try:
            yield opened
        finally:
            if opened is not None:
                with self._lock:
                    self._n_requests -= 1
                    self._used = self._clock()

    def _take(self) -> OpenedMatter | None:
        """Count a request if the matter is open; otherwise begin to open it, and return None."""
        with self._lock:
            is_late = not self.problem or self._clock() - self._failed >= AGAIN_SECONDS
            if self._opened is None and self._changing is None and is_late and not self._is_removed:
                self.work, self.problem = "it is being opened", ""
                self._begin(self._make)
            if self._opened is not None and self._changing is None:
                self._n_requests += 1
                return self._opened
            return None

    def _begin(self, change: Callable[[], None]) -> None:
        self._changing = threading.Thread(target=change, daemon=True)
        self._changing.start()

    def _make(self) -> None:
        """Open the matter, or note why it cannot be opened."""
        opened, problem = None, ""
        try:
            opened = self._open(self.name, self.folder, self._say)
        except (HaybaleError, OSError) as error:
            problem = str(error)
            _LOGGER.warning("the matter %r cannot be opened: %s", self.name, problem)
        except Exception as error:
            problem = "the service has failed; its log says why"
            _LOGGER.error("the matter %r cannot be opened", self.name, exc_info=error)
        with self._lock:
            self._opened, self.problem, self.work, self._changing = opened, problem, "", None
            self._used = self._failed = self._clock()

    def _say(self, work: str) -> None:
        self.work = work

    def close_if_idle(self, idle_seconds: float) -> bool:
        """Close the matter if nobody has used it for so long, and nothing in it is unfinished; return whether it does.

        Requests that come while it is being closed wait, and then open it again.
        """
        with self._lock:
            opened, used = self._opened, self._used
            if opened is None or self._changing or self._n_requests or self._clock() - used < idle_seconds:
                return False
        unfinished = opened.workspace.unfinished()
        del opened  # so that closing frees it
        with self._lock:
            is_idle = self._changing is None and not self._n_requests and self._used == used
            if unfinished is None and is_idle:
                self._begin_to_close()
                return True
        return False

    def remove(self) -> bool:
        """Close the matter for good, as soon as no request is running; return whether it is closed."""
        with self._lock:
            self._is_removed = True
            if self._opened is not None and self._changing is None and not self._n_requests:
                self._begin_to_close()
            return self._opened is None and self._changing is None

    def stop(self) -> None:
        """Close the matter now, at the end of the service; wait until it is closed."""
        with self._lock:
            self._is_removed = True
            changing = self._changing
        if changing is not None:
            changing.join()
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def _begin_to_close(self) -> None:
        self.work = "it is being closed, and then opened again"
        self._begin(self._close)

    def _close(self) -> None:
        """Close the matter, and give its memory back."""
        assert self._opened is not None
        try:
            self._opened.close()
        except Exception as error:
            _LOGGER.error("the matter %r was not closed as it should be", self.name, exc_info=error)
        with self._lock:
            self._opened = None
        release_memory()
        with self._lock:
            self.work, self._changing = "", None
