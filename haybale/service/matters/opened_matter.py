"""A matter while it is open: its engine, rankers, judgements and log, and how they are opened and closed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import TextIO

from starlette.types import ASGIApp, Receive, Scope, Send

from haybale import Engine
from haybale.review import JudgementStore, judgement_file_of
from haybale.review.interrupted_restore import finish_restore
from haybale.service.access_log import AccessLog
from haybale.service.current_workspace import AboutWorkspace, WorkspaceParts
from haybale.service.matters.matter_app import matter_app
from haybale.service.metrics import Metrics, workspace_gauges
from haybale.service.named_rankers import fitted_rankers
from haybale.service.refreshing import Refreshing
from haybale.service.security import Access
from haybale.service.workspace import Workspace


class MatterOpener:
    """Opens matters, with what is the same for all of a service.

    Parameters
    ----------
    access : Access
    rankers : sequence of (str, str)
        Names and texts of rankers, which are fitted on each engine.
    models : mapping of str to sequence of (str, Path), optional
        By matter: names and folders of trained rankers, before the others.
    processes : int, default 0
        The number of processes that search an open matter.
    log : Path or "-", optional
        The folder of the logs of requests, where each matter has a file; "-" for stderr. Default: no log.
    is_logged : bool, optional
        Whether the log of what everybody does (:class:`~haybale.service.MatterLog`) is turned on, or off, when a matter
        is opened. Default: it stays as it is.
    """

    def __init__(
        self,
        access: Access,
        rankers: Sequence[tuple[str, str]],
        models: Mapping[str, Sequence[tuple[str, Path]]] | None = None,
        processes: int = 0,
        log: Path | str | None = None,
        is_logged: bool | None = None,
    ) -> None:
        self.access, self.rankers, self.models, self.processes = access, rankers, models or {}, processes
        self.log, self.is_logged, self.application = log, is_logged, matter_app(access)

    def __call__(self, name: str, folder: Path, say: Callable[[str], None]) -> OpenedMatter:
        """Open a matter; ``say`` is called with what is being done.

        Raises
        ------
        HaybaleError, OSError
            If the engine, a ranker or the judgements cannot be opened, or the judgements belong to another engine.
        """
        with ExitStack() as block:
            say("the engine is being opened")
            finish_restore(judgement_file_of(folder))
            engine = Engine.open(folder)
            say(f"the indexes of {engine.collection.n_documents:,} documents are being opened")
            engine.prepare()
            say("the rankers are being prepared")
            rankers = fitted_rankers(engine, self.models.get(name, ()), self.rankers)
            say("the judgements are being opened")
            store = block.enter_context(JudgementStore(judgement_file_of(engine)))
            workspace = Workspace(engine, rankers, store, processes=self.processes)
            block.callback(workspace.close)
            workspace.log.begin(self.is_logged)
            log = block.enter_context(self.log_of(name))
            refreshing = Refreshing(workspace)
            refreshing.start()
            block.callback(refreshing.stop)
            workspace.start_processes()
            block.callback(workspace.stop_processes)  # first of all, since refreshing may wait for a process
            return OpenedMatter(name, workspace, self.application, log, block.pop_all().close)

    def log_of(self, name: str) -> AbstractContextManager[TextIO | None]:
        """Return the log of a matter, or with an empty name that of requests of no matter, open within a block."""
        if self.log is None or self.log == "-":
            return nullcontext(None if self.log is None else sys.stderr)
        path = Path(self.log, "matters", f"{name}.log") if name else Path(self.log, "service.log")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a", encoding="utf-8")


class OpenedMatter:
    """A workspace of a matter, and the ASGI application that answers requests about it.

    Parameters
    ----------
    name : str
    workspace : Workspace
    application : ASGI application
        That of all matters.
    log : text stream or None
        Gets a line of JSON for each request about the matter.
    close : callable
        Ends the threads and processes, and closes the judgements and the log.
    """

    def __init__(
        self, name: str, workspace: Workspace, application: ASGIApp, log: TextIO | None, close: Callable[[], None]
    ) -> None:
        self.workspace, self.close = workspace, close
        metrics = Metrics(partial(workspace_gauges, workspace))
        logged = AccessLog(application, metrics, log, name)
        self._application = AboutWorkspace(logged, WorkspaceParts(workspace, metrics))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._application(scope, receive, send)
