"""``haybale remove-user``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from haybale.cli.application import MORE, command
from haybale.cli.options import argument
from haybale.cli.terminal import note


@command(MORE)
def remove_user(
    users: Annotated[Path, argument("The file of users.")],
    name: Annotated[str, argument("The name of the user.")],
) -> None:
    """Remove a user of haybale serve, and end all sessions of the user; judgements stay.

    A service that is running notices it within a second.
    """
    from haybale.service.sessions import end_sessions_in
    from haybale.service.users_file import remove_user as remove

    remove(users, name)
    note(f"Removed {name!r}; {end_sessions_in(users, name):,} sessions have ended.")
