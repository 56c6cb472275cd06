"""Search in several processes, because the threads of one Python process share one core."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from haybale.errors import HaybaleError
from haybale.manifest import digest
from haybale.ranking.saved_rankers import MANIFEST
from haybale.search import SearchResults
from haybale.stopping_work import check_wanted, current_work

if TYPE_CHECKING:
    from haybale.engine import Engine
    from haybale.rankers import Ranker

_LOGGER = logging.getLogger("haybale.service")
STOP_SIGNAL = signal.SIGUSR1  # tells a process to stop its search
_STOP_SECONDS = 3.0  # after STOP_SIGNAL, until a process that still searches is killed
_POLL_SECONDS = 0.1  # between two looks whether a search is still wanted
_MAX_PAUSE_SECONDS = 60.0  # until a process that could not start is started again


class SearchSetup(NamedTuple):
    """What a process gets before its first search.

    Parameters
    ----------
    engine : Path
        The folder of the engine.
    engine_id : str
    device : str or None
        Where the engine searches vectors.
    rankers : list of Path
        Folders of rankers to load at once; others are loaded when they are first needed.
    temporary : Path
        A folder to remove when the service is gone.
    """

    engine: Path
    engine_id: str
    device: str | None
    rankers: list[Path]
    temporary: Path


class SearchTask(NamedTuple):
    """A search for a process: the folder of a ranker, and the parameters of :func:`haybale.search.searching.search`.

    ``digest`` is the SHA-256 of the manifest in the folder; with another one, the process does not search. It is empty
    if any ranker in the folder will do.
    """

    ranker: Path
    text: str | list[str]
    k: int
    where: str | None
    offset: int
    is_current: bool  # whether the process has the documents that the service has
    digest: str = ""
    together: str | None = None


class RefreshTask(NamedTuple):
    """Take over new documents, and open what the first search with them needs."""


class SearchProcesses:
    """Processes that search an engine in a folder, each one search at a time. Several threads may use them.

    A search that is no longer wanted (:mod:`haybale.stopping_work`) is stopped in its process, too.

    Each process opens the engine and the rankers by their folders, so files are mapped into memory once for all. The
    documents that a process searches are those of the service or newer ones. A process that ends is replaced. The
    processes ignore SIGINT and SIGTERM, which a terminal and systemd send to all processes of a service, and end when
    the service does: they read from a pipe whose other end only the service has.

    :meth:`search` returns None where the caller has to search itself: before the first process is ready, if a ranker
    cannot be saved, or if a process was killed.

    Parameters
    ----------
    engine : Engine
        In a folder.
    rankers : mapping of str to Ranker
        Fitted. They are saved to a temporary folder.
    n : int
        The number of processes.
    """

    def __init__(self, engine: Engine, rankers: Mapping[str, Ranker], n: int) -> None:
        self.engine, self.n = engine, n
        self._rankers = dict(rankers)
        self._folders: dict[str, tuple[Path, str]] = {}  # by ranker: its folder, and the SHA-256 of its manifest
        self._changed = threading.Condition()  # guards the attributes below
        self._started: dict[int, _SearchProcess] = {}  # by their numbers
        self._ready: list[_SearchProcess] = []
        self._idle: list[_SearchProcess] = []  # those that are ready and do not search
        self._refreshing: _SearchProcess | None = None  # it gets no further search
        self._is_closed = False
        self._threads: list[threading.Thread] = []
        self._reported: set[str] = set()
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    def start(self) -> None:
        """Begin to start the processes, without waiting for them."""
        self._is_closed = False
        try:
            self._temporary = tempfile.TemporaryDirectory(prefix="haybale-", ignore_cleanup_errors=True)
        except OSError as error:
            self._report(f"the service searches itself, because rankers cannot be saved: {error}")
            return
        starting = threading.Thread(target=self._start, daemon=True)
        self._threads = [starting]
        starting.start()

    def close(self) -> None:
        """End the processes; searches that are running are done by their callers. It may be called again."""
        with self._changed:
            self._is_closed = True
            self._ready.clear()
            self._idle.clear()
            for process in self._started.values():
                process.kill()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        if self._temporary is not None:
            self._temporary.cleanup()

    def add(self, name: str, folder: Path) -> None:
        """Add a ranker that was saved to a folder."""
        with self._changed:
            self._folders[name] = folder.absolute(), digest(folder / MANIFEST)

    @property
    def n_ready(self) -> int:
        """The number of processes that can search."""
        with self._changed:
            return len(self._ready)

    @property
    def process_ids(self) -> dict[int, int]:
        """The process ids by number, from 0 to n - 1; a process that replaces another one gets its number."""
        with self._changed:
            return {number: process.process.pid for number, process in sorted(self._started.items())}

    def search(
        self,
        ranker: str,
        text: str | list[str],
        k: int,
        where: str | None = None,
        offset: int = 0,
        together: str | None = None,
    ) -> SearchResults | None:
        """Search in a process that is free, or wait for one; None if the caller has to search itself.

        Errors of the search are raised as :func:`haybale.search.searching.search` raises them.
        """
        saved, snapshot = self._folders.get(ranker), self.engine.snapshot()
        process = None if saved is None else self._take()
        if saved is None or process is None:
            return None
        is_current = process.snapshot is not None and process.snapshot() is snapshot
        search_task = SearchTask(saved[0], text, k, where, offset, is_current, saved[1], together)
        answer = self._ask(process, search_task, snapshot)
        check_wanted()  # otherwise the caller would search itself after the process was killed
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, str):
            self._report(f"{ranker} is searched in the service itself: {answer}")
        if not isinstance(answer, SearchResults):
            return None
        if (self.engine.collection.find_documents([hit.doc_id for hit in answer]) < 0).any():
            with suppress(HaybaleError):
                self.engine.refresh()  # so that the new documents that the process has found can be opened at once
        return answer

    def refresh(self) -> None:
        """Let one process after the other take over new documents, while the others search.

        Call it before the service takes them over. Otherwise each process does so during its next search.
        """
        with self._changed:
            processes = list(self._ready)
        for process in processes:
            if self._take_for_refreshing(process):
                self._ask(process, RefreshTask())

    def _take(self) -> _SearchProcess | None:
        """Return a process that is free, or wait for one; None if no process is ready."""
        with self._changed:
            while self._ready:
                free = [process for process in self._idle if process is not self._refreshing]
                if free:
                    self._idle.remove(free[-1])
                    return free[-1]  # the last one, whose memory is still in the caches of the cores
                self._changed.wait(_POLL_SECONDS)
                check_wanted()
            return None

    def _take_for_refreshing(self, process: _SearchProcess) -> bool:
        """Wait until a process is free; return False if it has ended."""
        with self._changed:
            self._refreshing = process
            self._changed.wait_for(lambda: process in self._idle or process not in self._ready)
            self._refreshing = None
            if process in self._idle:
                self._idle.remove(process)
                return True
            return False

    def _ask(self, process: _SearchProcess, task: SearchTask | RefreshTask, snapshot: Engine | None = None) -> Any:
        """Return the answer of a process that was taken, and give it back; None if it was killed.

        The process has the documents of the snapshot after the task.
        """
        try:
            answer = process.ask(task)
        except Exception:  # it was killed, or what it has sent cannot be read
            process.kill()
            return None
        if snapshot is not None and not isinstance(answer, str):
            process.snapshot = weakref.ref(snapshot)
        self._give_back(process)
        return answer

    def _give_back(self, process: _SearchProcess) -> None:
        with self._changed:
            if process in self._ready:
                self._idle.append(process)
                self._changed.notify_all()

    def _start(self) -> None:
        """Save the rankers, and start a thread for each process."""
        assert self._temporary is not None
        for number, (name, ranker) in enumerate(self._rankers.items()):
            folder = Path(self._temporary.name, str(number))
            try:
                ranker.save(folder)
            except (HaybaleError, OSError) as error:
                self._report(f"{name} is searched in the service itself: {error}")
            else:
                self.add(name, folder)
        with self._changed:
            if not self._is_closed:
                keeping = [threading.Thread(target=self._keep, args=(n,), daemon=True) for n in range(self.n)]
                self._threads += keeping
                for thread in keeping:
                    thread.start()

    def _keep(self, number: int) -> None:
        """Start a process, and another one whenever it has ended, until the processes are closed."""
        pause = 0.0
        while not self._is_closed_within(pause):
            try:
                problem = self._run(number)
            except OSError as error:  # no memory, or too many processes
                problem = str(error)
            pause = 0.0 if problem is None else min(_MAX_PAUSE_SECONDS, max(1.0, 2 * pause))
            if problem is not None and not self._is_closed_within(0):
                self._report(f"a search process cannot be started: {problem}")

    def _is_closed_within(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._is_closed, seconds)

    def _run(self, number: int) -> str | None:
        """Run a process until it ends; return why it could not be set up, or None."""
        with self._changed:
            if self._is_closed:
                return None
            self._started[number] = process = _SearchProcess()
        problem = process.set_up(self._setup())
        if problem is None:
            with self._changed:
                self._ready.append(process)
            self._give_back(process)
        status = process.wait()
        with self._changed:
            del self._started[number]
            for processes in (self._ready, self._idle):
                if process in processes:
                    processes.remove(process)
            self._changed.notify_all()  # if no other process is ready, those who wait have to search themselves
            if problem is None and not self._is_closed:
                _LOGGER.warning("search process %d ended with status %d; another one is started", number, status)
        return problem

    def _setup(self) -> SearchSetup:
        assert self._temporary is not None
        with self._changed:
            rankers = [folder for folder, _ in self._folders.values()]
        folder = Path(self.engine.folder or "").absolute()
        return SearchSetup(folder, self.engine.id, self.engine.device, rankers, Path(self._temporary.name))

    def _report(self, message: str) -> None:
        with self._changed:
            is_new = message not in self._reported
            self._reported.add(message)
        if is_new:
            _LOGGER.warning("%s", message)


class _SearchProcess:
    """A process that runs :mod:`haybale.service.search_worker`, and the pipe to it."""

    snapshot: weakref.ref[Engine] | None = None  # the service's; the process has its documents, or newer ones

    def __init__(self) -> None:
        self.connection, theirs = Pipe()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "haybale.service.search_worker", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={"OMP_NUM_THREADS": "1"} | os.environ,
            )

    def set_up(self, setup: SearchSetup) -> str | None:
        """Wait until the process is ready; return None then, and otherwise why it cannot search."""
        try:
            problem = self.ask(setup)
        except (EOFError, OSError):
            return f"it ended with status {self.wait()}"
        if problem is not None:
            self.kill()
        return None if problem is None else str(problem)

    def ask(self, what: SearchSetup | SearchTask | RefreshTask) -> Any:
        """Return what the process answers.

        If the work of the caller is stopped, the process is told to stop its search, and killed if it does not.
        """
        self.connection.send(what)
        work, kill_at = current_work(), None
        while work is not None and not self.connection.poll(_POLL_SECONDS):
            if work.is_stopped and kill_at is None:
                self.process.send_signal(STOP_SIGNAL)
                kill_at = time.monotonic() + _STOP_SECONDS
            elif kill_at is not None and time.monotonic() > kill_at:
                self.kill()
        return self.connection.recv()

    def kill(self) -> None:
        """End the process now. The thread that waits for its answer gets EOFError."""
        self.process.kill()

    def wait(self) -> int:
        """Wait until the process has ended, and return its status."""
        return self.process.wait()
