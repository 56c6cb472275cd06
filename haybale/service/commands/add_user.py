"""``haybale add-user``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from haybale.cli.application import MORE, command
from haybale.cli.options import argument, option
from haybale.cli.terminal import note, show

ACCESS = "Access"  # a panel of the help
MATTER = Annotated[
    list[str] | None,
    option("MATTER=RIGHT: what the user may do in one matter, by the name of its engine's folder. Repeatable.", ACCESS),
]


@command(MORE)
def add_user(
    users: Annotated[Path, argument("The file of users; it is made if it does not exist.")],
    name: Annotated[str, argument("The name under which the user judges.")],
    right: Annotated[
        str,
        option(
            "What the user may do where no --matter says it: none, read, judge or administer. Default: judge.", ACCESS
        ),
    ] = "judge",
    matter: MATTER = None,
    monitor: Annotated[
        bool,
        option(
            "Let the user read /metrics and /openapi.json, also with --right none. Default: no.", ACCESS, "--monitor"
        ),
    ] = False,
    no_token: Annotated[
        bool,
        option("Make no token, for a user who logs in by a link or a proxy. Default: make one.", ACCESS, "--no-token"),
    ] = False,
) -> None:
    """Add a user of haybale serve to a file, and print the token.

    The file has a digest of the token only, and is readable by its owner only if it is new. A service that is running
    reads it within a second.
    """
    from haybale.service.users import User
    from haybale.service.users_file import add_user as add
    from haybale.service.users_file import rights_by_matter

    user = User(name, right, rights_by_matter(matter or []), monitor)
    token = add(users, user, has_token=not no_token)
    if token is not None:
        show(token)
        note(f"This is the token of {name!r}. It is kept nowhere; haybale change-user --new-token makes another.")
