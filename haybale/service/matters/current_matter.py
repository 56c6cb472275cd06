"""The matter that a request is about, for the routes that all matters of a service share.

One application answers for all matters, because one for each would take memory that stays when the matter is closed.
Its routes are given :data:`WORKSPACE` and :data:`METRICS`, which stand for those of the matter of the running request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, cast

from haybale.service.metrics import Metrics
from haybale.service.workspace import Workspace


class MatterParts(NamedTuple):
    """What routes use of a matter."""

    workspace: Workspace
    metrics: Metrics


_current: ContextVar[MatterParts] = ContextVar("matter")


@contextmanager
def about_matter(parts: MatterParts) -> Iterator[None]:
    """Let the stand-ins stand for parts of a matter in the block, and in threads that get its context."""
    token = _current.set(parts)
    try:
        yield
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
