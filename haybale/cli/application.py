"""The typer application, and the decorator that adds a command to it.

A command is a function decorated with :func:`command`. Its module is found through an entry point of the group
``haybale.commands``, so adding a command needs no change to another file. A command imports what it needs when it runs,
so that ``--help`` stays fast.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from haybale.cli.terminal import printing
from haybale.registry import Registry

Function = TypeVar("Function", bound=Callable[..., Any])

ENGINES, TRIALS, MORE = "Build, train and search", "Evaluate", "More"  # panels of the help
QUIET = "Print only results, warnings and errors: no stages, no progress."
VERBOSE = "Print the start and the seconds of every stage; for train, also everything that training found."
COMMANDS: Registry[Callable[..., Any]] = Registry("command", "haybale.commands")

app = typer.Typer(
    help="Find the few relevant passages and documents in a large collection of long texts.",
    epilog=(
        'Start with "haybale demo". For your own documents: "haybale index FOLDER --out engine", then '
        '"haybale search engine QUERY". "haybale COMMAND --help" describes a command.'
    ),
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
        app.command(shown, rich_help_panel=panel)(_with_verbosity(function))
        return function

    return register


def _with_verbosity(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes ``quiet`` and ``verbose`` too, and prints less or more (:func:`printing`)."""

    @wraps(function)
    def run(*args: Any, quiet: bool, verbose: bool, **options: Any) -> Any:
        with printing(quiet, verbose):
            return function(*args, **options)

    flags = {"quiet": _flag("--quiet", QUIET), "verbose": _flag("--verbose", VERBOSE)}
    hints = get_type_hints(function, include_extras=True) | flags
    declared = inspect.signature(function).parameters.values()
    added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False) for name in flags]
    parameters = [parameter.replace(annotation=hints[parameter.name]) for parameter in (*declared, *added)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = hints
    return run


def _flag(name: str, help: str) -> Any:
    return Annotated[bool, typer.Option(name, help=help, rich_help_panel="Output", show_default=False)]


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
