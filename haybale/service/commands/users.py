"""``haybale users``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from haybale.cli.application import MORE, command
from haybale.cli.options import argument
from haybale.cli.terminal import console_for_tables, visible


@command(MORE)
def users(users: Annotated[Path, argument("The file of users.")]) -> None:
    """List the users of haybale serve with their rights, and when they were last seen."""
    from rich.table import Table

    from haybale.service.sessions import MAX_SECONDS, Sessions, sessions_file_of
    from haybale.service.times import in_iso
    from haybale.service.users_file import read_users

    listed, path = read_users(users), sessions_file_of(users)
    sessions = Sessions(path, MAX_SECONDS) if path.exists() else None
    table = Table(box=None, pad_edge=False)
    for column in ("user", "right", "except in", "token", "sessions", "last seen"):
        table.add_column(column)
    for user in sorted(listed, key=lambda user: user.name):
        matters = ", ".join(f"{matter}={right}" for matter, right in user.matters.items())
        of_user = [] if sessions is None else sessions.of(user.name)
        seen = in_iso(of_user[0].seen)[:16].replace("T", " ") if of_user else ""
        right = f"{user.default_right}, metrics" if user.is_monitor else user.default_right
        cells = user.name, right, matters, "yes" if user.digest else "no", str(len(of_user)), seen
        table.add_row(*map(visible, cells))
    console_for_tables().print(table, markup=False)
