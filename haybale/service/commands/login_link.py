"""``haybale login-link``."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

from haybale.cli.application import MORE, command
from haybale.cli.options import argument, option
from haybale.cli.terminal import note, show
from haybale.service.commands.add_user import ACCESS


@command(MORE)
def login_link(
    users: Annotated[Path, argument("The file of users.")],
    name: Annotated[str, argument("The name of the user.")],
    address: Annotated[
        str,
        option(
            "The address at which browsers reach the service, such as https://search.example.org/cases. Default: "
            "http://127.0.0.1:8000.",
            ACCESS,
        ),
    ] = "http://127.0.0.1:8000",
    hours: Annotated[float, option("For how long the link works. Default: 24.", ACCESS, min=0.01, max=720)] = 24.0,
) -> None:
    """Print a link that logs a user of haybale serve in, once; whoever opens it first is logged in."""
    from haybale.errors import UnknownNameError
    from haybale.service.sessions import Sessions, sessions_file_of
    from haybale.service.users import Users
    from haybale.service.users_file import read_users

    by_name = Users(read_users(users)).by_name()
    if name not in by_name:
        raise UnknownNameError("user", name, by_name)
    with closing(Sessions(sessions_file_of(users))) as sessions:
        link, _ = sessions.make_link(by_name[name], hours * 3600)
    show(f"{address.rstrip('/')}/login?link={link}")
    note(f"It logs {name!r} in, once, within {hours:g} hours. Send it to {name!r} alone.")
