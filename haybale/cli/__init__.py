"""The command line: a thin layer over the Python API, with one module for each command."""

from __future__ import annotations

import sys
import warnings
from typing import Any, NoReturn

from haybale.cli.process import prepare_process
from haybale.cli.terminal import say
from haybale.errors import HaybaleError
from haybale.extras import import_optional

__all__ = ["main"]


def main() -> NoReturn:
    """Run a command; an error of the user ends with one line on stderr and exit status 2, without a traceback.

    Ctrl-C ends with exit status 130.
    """
    try:
        warnings.showwarning = lambda message, *_, **__: _say(str(message))
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")  # print characters the terminal cannot show as escapes
        prepare_process()
        import_optional("typer")
        from haybale.cli.application import COMMANDS, app

        # The modules of commands register them: that of the given command is imported, or, for the help, all are.
        name = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), None)
        if name is None or name not in COMMANDS:
            list(COMMANDS)
        raise SystemExit(app(standalone_mode=False, prog_name="haybale"))
    except KeyboardInterrupt:  # while the command is imported; typer handles it while the command runs
        raise SystemExit(130) from None
    except HaybaleError as error:
        _say(str(error))
    except OSError as error:  # while reading or writing a file
        _say(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
    except MemoryError as error:
        _say(_too_little_memory(error))
    except Warning as warning:  # a warning that PYTHONWARNINGS=error turned into an error
        _say(str(warning))
    except Exception as error:
        if isinstance(error, ImportError) and "failed to map segment" in str(error):  # no memory for a compiled module
            _say(_too_little_memory(error))
        elif hasattr(error, "format_message"):
            _say(_usage(error))
        else:
            raise
    raise SystemExit(2)


def _too_little_memory(error: Exception) -> str:
    return f"there is not enough memory ({error or 'an allocation failed'}); free some, or raise ulimit -v"


def _usage(error: Any) -> str:
    """Return the message of a usage error of typer or click, and the command that shows the correct usage."""
    context = getattr(error, "ctx", None)
    command = "haybale" if context is None else context.command_path
    return f"{error.format_message()} (see {command} --help)"


def _say(message: str) -> None:
    say(f"haybale: {' '.join(message.split())}")
