"""The typer application, and the decorator that adds a command to it.

A command is a function decorated with :func:`command`. Its module is found through an entry point of the group
``haybale.commands``, so adding a command needs no change to another file. A command imports what it needs when it runs,
so that ``--help`` stays fast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from haybale.registry import Registry

Function = TypeVar("Function", bound=Callable[..., Any])

ENGINES, TRIALS, MORE = "Build, train and search", "Evaluate", "More"  # panels of the help
COMMANDS: Registry[Callable[..., Any]] = Registry("command", "haybale.commands")

app = typer.Typer(
    help="Find the few relevant passages and documents in a large collection of long texts.",
    epilog=(
        'Start with "haybale demo". For your own documents: "haybale index FOLDER --out engine", then '
        '"haybale rank engine QUERY". "haybale COMMAND --help" describes a command.'
    ),
    add_completion=False,
    pretty_exceptions_enable=False,
)


def command(panel: str = MORE, name: str | None = None) -> Callable[[Function], Function]:
    """Return a decorator that adds a function to the application as a command.

    Parameters
    ----------
    panel : str, default "More"
        The panel of ``haybale --help`` that lists the command.
    name : str, optional
        The name of the command. The default is the function's name, with hyphens instead of underscores.
    """

    def register(function: Function) -> Function:
        shown = name or function.__name__.replace("_", "-")
        COMMANDS.add(shown, function, function)
        app.command(shown, rich_help_panel=panel)(function)
        return function

    return register


@app.callback(invoke_without_command=True)
def about(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Show the version or the help if no command is given."""
    if version:
        from haybale import __version__

        print(f"haybale {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())
