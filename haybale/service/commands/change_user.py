"""``haybale change-user``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from haybale.cli.application import MORE, command
from haybale.cli.options import argument, option
from haybale.cli.terminal import note, show
from haybale.service.commands.add_user import ACCESS, MATTER


@command(MORE)
def change_user(
    users: Annotated[Path, argument("The file of users.")],
    name: Annotated[str, argument("The name of the user.")],
    right: Annotated[
        str | None,
        option(
            "What the user may do where no matter says it: none, read, judge or administer. Default: as it is.", ACCESS
        ),
    ] = None,
    matter: MATTER = None,
    without_matter: Annotated[
        list[str] | None, option("A matter in which the right of all matters holds again. Repeatable.", ACCESS)
    ] = None,
    monitor: Annotated[
        bool | None,
        option("Whether the user may read /metrics and /openapi.json without a right. Default: as it is.", ACCESS),
    ] = None,
    new_token: Annotated[
        bool, option("Make a new token, and end the old one and all sessions. Default: no.", ACCESS, "--new-token")
    ] = False,
    end_sessions: Annotated[
        bool, option("Log the user out of all browsers. Default: no.", ACCESS, "--end-sessions")
    ] = False,
) -> None:
    """Change the rights or the token of a user of haybale serve, or end all sessions of the user.

    A service that is running notices it within a second.
    """
    from haybale.service.sessions import end_sessions_in
    from haybale.service.users_file import change_user as change
    from haybale.service.users_file import renew_token, rights_by_matter

    matters: dict[str, str | None] = {**dict.fromkeys(without_matter or []), **rights_by_matter(matter or [])}
    user = change(users, name, right, matters, monitor)
    in_matters = "".join(f", {matter_right} in {named}" for named, matter_right in user.matters.items())
    note(f"The right of {name!r} is {user.default_right}{in_matters}.")
    if new_token:
        show(renew_token(users, name))
        note("It is kept nowhere, and the token before has ended.")
    if new_token or end_sessions:
        note(f"{end_sessions_in(users, name):,} sessions have ended.")
