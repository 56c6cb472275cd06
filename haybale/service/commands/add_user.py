"""``haybale add-user``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from haybale.cli.application import MORE, command
from haybale.cli.options import argument, option
from haybale.cli.terminal import note, show

ACCESS = "Access"  # a panel of the help


@command(MORE)
def add_user(
    users: Annotated[Path, argument("The file of users; it is made if it does not exist.")],
    name: Annotated[str, argument("The name under which the user judges.")],
    role: Annotated[str, option("judge, or admin, who may train and import, too. Default: judge.", ACCESS)] = "judge",
) -> None:
    """Add a user of haybale serve to a file, or give one a new token, and print the token.

    The file has a digest of the token only, and is readable by its owner only if it is new. A service that is running
    reads it when it starts again.
    """
    from haybale.service.users import add_user as added

    show(added(users, name, role))
    note(f"This is the token of {name!r}. It is kept nowhere; run the command again to make another.")
