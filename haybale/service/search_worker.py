"""Search for a service: the work of a process of :mod:`haybale.service.search_processes`.

``python -m haybale.service.search_worker NUMBER`` reads from the pipe with this file number, and answers to it: first a
``SearchSetup`` with None, or a text that says why it cannot search; then each ``SearchTask`` with its results, an error
that the search has raised, or a text that says why the service has to search itself; and each ``RefreshTask`` with
None, or a text that says why new documents cannot be used. It ends when the pipe does.
"""

from __future__ import annotations

import shutil
import signal
import sys
import traceback
import warnings
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from haybale.engine import Engine
from haybale.errors import HaybaleError, StoppedError
from haybale.manifest import digest
from haybale.parallel import limit_threads
from haybale.rankers import Ranker, load
from haybale.ranking.saved_rankers import MANIFEST
from haybale.search import SearchResults
from haybale.search.hit_groups import COPIES
from haybale.search.searching import search
from haybale.service.search_processes import STOP_SIGNAL, RefreshTask, SearchSetup, SearchTask
from haybale.stopping_work import Work, stoppable

_WARM_UP_CHARACTERS = 300  # of the search that prepares each ranker


class SearchWorker:
    """An engine with rankers, which are loaded when they are first needed.

    Raises
    ------
    HaybaleError
        If the engine cannot be opened, or is not the one of the service.
    """

    def __init__(self, setup: SearchSetup) -> None:
        self.engine = Engine.open(setup.engine, device=setup.device).prepare()
        if self.engine.id != setup.engine_id:
            raise HaybaleError(f"{setup.engine}: expected the engine of the service, found another; start it again")
        self.work = Work()  # the running search, which a signal stops
        self._rankers: dict[Path, tuple[str, Ranker]] = {}  # by folder: the SHA-256 of its manifest, and the ranker
        for folder in setup.rankers:
            with suppress(HaybaleError):  # a search that needs the ranker reports the error
                self._ranker(folder)
        self._warm_up()

    def _warm_up(self) -> None:
        """Search once with each ranker, so that what searches need is open."""
        text = self.engine.collection.passages.texts[0].as_py()[:_WARM_UP_CHARACTERS]
        for _, ranker in self._rankers.values():
            with suppress(Exception):  # such as for a passage without words; a user's search reports its errors
                search(ranker, text, 10, together=COPIES)

    def _ranker(self, folder: Path, expected: str = "") -> Ranker:
        """Return the ranker in a folder; raise HaybaleError if its manifest has another digest than expected."""
        loaded = self._rankers.get(folder)
        if loaded is None or expected not in ("", loaded[0]):
            ranker = load(folder, self.engine)
            loaded = self._rankers[folder] = digest(folder / MANIFEST), ranker
        if expected not in ("", loaded[0]):
            raise HaybaleError(f"{folder}: expected the ranker of the service, found another; restart the service")
        return loaded[1]

    def answer(self, task: SearchTask | RefreshTask) -> SearchResults | Exception | str | None:
        """Do a task, and return what the service gets."""
        return self._refresh() if isinstance(task, RefreshTask) else self._search(task)

    def _refresh(self) -> str | None:
        try:
            if self.engine.refresh():
                self._warm_up()
        except HaybaleError as error:
            return str(error)
        return None

    def _search(self, task: SearchTask) -> SearchResults | Exception | str:
        self.work = Work()
        with stoppable(self.work):
            return self._results_of(task)

    def _results_of(self, task: SearchTask) -> SearchResults | Exception | str:
        try:
            if not task.is_current:
                self.engine.refresh()
            ranker = self._ranker(task.ranker, task.digest)
        except StoppedError as error:
            return error
        except HaybaleError as error:
            return str(error)
        try:
            return search(ranker, task.text, task.k, task.where, task.offset, task.together)
        except Exception as error:
            if not isinstance(error, HaybaleError):
                error.add_note(traceback.format_exc())  # for the log of the service: a traceback cannot be sent
            return error


def run(connection: Connection) -> None:
    """Answer what comes through a connection, until it ends."""
    setup: SearchSetup = connection.recv()
    try:
        worker = SearchWorker(setup)
    except HaybaleError as error:
        connection.send(str(error))
        return
    signal.signal(STOP_SIGNAL, lambda number, frame: worker.work.stop())
    connection.send(None)
    while True:
        try:
            task = connection.recv()
        except (EOFError, OSError):  # the service is gone; if it was killed, it has not removed its folder
            shutil.rmtree(setup.temporary, ignore_errors=True)
            return
        answer = worker.answer(task)
        with suppress(OSError):  # the service is gone; the next recv() reports it
            connection.send(answer)


def main() -> None:
    """Use one thread, and answer until the service is gone."""
    for number in (signal.SIGINT, signal.SIGTERM, STOP_SIGNAL):
        signal.signal(number, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    limit_threads(1)  # the other processes use the other cores
    with suppress(EOFError, OSError):
        run(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
