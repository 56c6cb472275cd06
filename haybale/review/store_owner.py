"""The engine that the judgements of a store belong to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Owner:
    """The engine that the judgements of a store belong to.

    Parameters
    ----------
    identity : str
        Its :attr:`Engine.identity <haybale.Engine.identity>`.
    folder : str or None
        Its folder or address when it was bound to the store; None for an engine in memory.
    time : str
        When it was bound: ISO 8601, in UTC.
    """

    identity: str
    folder: str | None
    time: str
