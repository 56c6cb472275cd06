"""The application, and how commands join it.

A command is a function that :func:`command` decorates. Its module is found through an entry point of the group
``haybale.commands``, in which haybale declares its own, so adding a command touches its own file only. What a command
needs is imported when it runs, so that help costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from haybale.registry import Registry

Function = TypeVar("Function", bound=Callable[..., Any])

ENGINES, TRIALS, MORE = "Engines", "Comparisons", "More"  # panels of commands in the help
COMMANDS: Registry[Callable[..., Any]] = Registry("command", "haybale.commands")

app = typer.Typer(
    help="Find the few relevant passages and documents in a haystack of long ones.",
    add_completion=False,
    pretty_exceptions_enable=False,
)


def command(panel: str = MORE, name: str | None = None) -> Callable[[Function], Function]:
    """Return a decorator that adds a function to the application.

    Parameters
    ----------
    panel : str, default "More"
        The panel of the help that lists the command.
    name : str, optional
        Default: the function's name, with hyphens.
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
    """Find the few relevant passages and documents in a haystack of long ones."""
    if version:
        from haybale import __version__

        print(f"haybale {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())
