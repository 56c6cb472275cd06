"""The command line, a thin layer over the Python API; each command is one module."""

from __future__ import annotations

import re
import sys
import warnings
from typing import NoReturn

from haybale.cli.terminal import say
from haybale.errors import HaybaleError, InputError
from haybale.extras import import_optional

__all__ = ["main"]


def main() -> NoReturn:
    """Run a command; bad input ends with one line on stderr and exit status 2, without a traceback."""
    warnings.showwarning = lambda message, *_, **__: _say(str(message))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a character stops nothing
    try:
        for text in sys.argv[1:]:
            if re.search(r"[\ud800-\udfff]", text):  # stands for bytes that Python could not decode
                raise InputError(f"{text} is not UTF-8")
        import_optional("typer")
        from haybale.cli.application import COMMANDS, app

        list(COMMANDS)  # imports all commands, which join the application
        raise SystemExit(app(standalone_mode=False))
    except HaybaleError as error:
        _say(str(error))
    except OSError as error:  # while reading or writing a file
        _say(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
    except MemoryError as error:
        _say(f"memory is too small: {error}")
    except Exception as error:
        if not hasattr(error, "format_message"):  # a usage error, of click or of typer
            raise
        _say(f"{error.format_message()} (haybale COMMAND --help says what there is)")
    raise SystemExit(2)


def _say(message: str) -> None:
    say(f"haybale: {' '.join(message.split())}")
