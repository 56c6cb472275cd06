"""The workspace that a request is about, for the routes that all workspaces of a process share.

Routes for each workspace would take a quarter of a second, and memory that stays when a matter is closed. The shared
routes are given :data:`WORKSPACE` and :data:`METRICS`, which stand for those of the running request.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple, cast

from starlette.types import ASGIApp, Receive, Scope, Send

from haybale.service.metrics import Metrics
from haybale.service.workspace import Workspace


class WorkspaceParts(NamedTuple):
    """What routes use."""

    workspace: Workspace
    metrics: Metrics


_current: ContextVar[WorkspaceParts] = ContextVar("workspace")


class AboutWorkspace:
    """The ASGI middleware within which all requests are about one workspace.

    Parameters
    ----------
    application : ASGI application
    parts : WorkspaceParts
    """

    def __init__(self, application: ASGIApp, parts: WorkspaceParts) -> None:
        self.application, self.parts = application, parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on; here, and in threads that get its context, the stand-ins stand for the parts."""
        token = _current.set(self.parts)
        try:
            await self.application(scope, receive, send)
        finally:
            _current.reset(token)


class StandIn:
    """Stands for an object that is looked up whenever an attribute of it is used, or when it is called.

    Outside a request, such as when routes are made, an attribute is a stand-in, too.

    Parameters
    ----------
    look_up : callable
        Returns the object; raises LookupError outside a request.
    """

    def __init__(self, look_up: Callable[[], Any]) -> None:
        self._look_up = look_up

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # names of Python's own, such as __wrapped__, which inspect follows without an end
            raise AttributeError(name)
        try:
            current = self._look_up()
        except LookupError:
            return StandIn(lambda: getattr(self._look_up(), name))
        return getattr(current, name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the object."""
        return self._look_up()(*arguments, **named)


WORKSPACE = cast(Workspace, StandIn(lambda: _current.get().workspace))
METRICS = cast(Metrics, StandIn(lambda: _current.get().metrics))
