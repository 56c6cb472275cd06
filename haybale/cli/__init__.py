"""The command line: thin over the Python API. ``haybale demo | compare | tune | report | embed | rank | doctor``."""

from __future__ import annotations

import sys
import warnings

from haybale.errors import HaybaleError
from haybale.extras import require

__all__ = ["main"]


def main() -> None:
    """Entry point: bad input ends with one line on stderr and exit status 2, not with a traceback."""
    warnings.showwarning = lambda message, *_, **__: print(f"haybale: {message}", file=sys.stderr)
    try:
        require("typer")
        from haybale.cli.app import app

        app()
    except HaybaleError as error:
        print(f"haybale: {error}", file=sys.stderr)
        raise SystemExit(2) from None
