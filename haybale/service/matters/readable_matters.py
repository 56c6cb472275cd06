"""Which matters a user may read, and what a user may know of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from haybale.service.matters.kept_matters import Matters
from haybale.service.matters.matter import Matter
from haybale.service.request_errors import NotFoundError
from haybale.service.roles import ADMINISTER, NONE
from haybale.service.users import User


@dataclass(frozen=True)
class MatterSummary:
    """A matter, for a user who may read it.

    Parameters
    ----------
    name : str
    right : {"read", "judge", "administer"}
        The right of the user.
    status : {"open", "opening", "closed", "broken"}
        A matter that is closed is opened when it is asked for; a broken one cannot be opened.
    detail : str
        For administrators of a broken matter, why it cannot be opened; otherwise empty.
    documents : int or None
        The number of documents; None while it is not open.
    """

    name: str
    right: str
    status: str
    detail: str
    documents: int | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


def summary_of(matter: Matter, user: User) -> MatterSummary:
    """Return what a user who may read a matter may know of it."""
    right, opened = user.right_in(matter.name), matter.opened
    documents = None if opened is None else opened.workspace.engine.snapshot().collection.n_documents
    return MatterSummary(matter.name, right, matter.status, matter.problem if right == ADMINISTER else "", documents)


def readable(matters: Matters, user: User, names: Sequence[str] | None = None) -> list[Matter]:
    """Return the matters that a user may read; of these, those with the given names.

    Raises
    ------
    NotFoundError
        For a name of no matter, or of one that the user may not read.
    """
    by_name = {matter.name: matter for matter in matters.all() if user.right_in(matter.name) != NONE}
    for name in names or ():
        if name not in by_name:
            raise NotFoundError(f"expected the name of a matter that you may read, found {name!r:.200}; see the list")
    return list(by_name.values()) if names is None else [by_name[name] for name in dict.fromkeys(names)]
