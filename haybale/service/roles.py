"""Rights: what a user may do in a matter, and the right that each route needs, declared at its function.

A matter is an engine with its judgements, by the name of the engine's folder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

OPEN = "open"  # what a route needs that anybody may ask, without being a user
NONE, READ, JUDGE, ADMINISTER = "none", "read", "judge", "administer"
RIGHTS = (NONE, READ, JUDGE, ADMINISTER)  # each includes the ones before it
RANKS = {OPEN: 0, NONE: 1, READ: 2, JUDGE: 3, ADMINISTER: 4}
READING = ("GET", "HEAD", "OPTIONS")  # methods that change nothing

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


def needs(
    right: str,
    *,
    is_large: bool = False,
    max_body: int | None = None,
    by_monitors: bool = False,
    of_service: bool = False,
) -> Callable[[Endpoint], Endpoint]:
    """Return a decorator that declares the right which the route of a function needs.

    Parameters
    ----------
    right : {"open", "none", "read", "judge", "administer"}
        ``"open"`` needs no user at all, and ``"none"`` any user, also one without rights here.
    is_large : bool, default False
        Whether a request takes as long as a large one, so that only a few work at once
        (:class:`~haybale.service.request_work.LargeRequests`).
    max_body : int, optional
        The largest number of bytes of a request. Default: 5,000,000.
    by_monitors : bool, default False
        Whether users who monitor the service (:class:`~haybale.service.users.User`) may ask, too, without the right.
    of_service : bool, default False
        Whether the right must hold in the whole service, as it does for changes of users, not just in the matter.
    """
    if right not in RANKS:
        raise ValueError(f"expected a right of {', '.join(RANKS)}, found {right!r}")

    def declared(endpoint: Endpoint) -> Endpoint:
        endpoint.right, endpoint.is_large = right, is_large  # type: ignore[attr-defined]
        endpoint.max_body, endpoint.by_monitors = max_body, by_monitors  # type: ignore[attr-defined]
        endpoint.of_service = of_service  # type: ignore[attr-defined]
        return endpoint

    return declared
