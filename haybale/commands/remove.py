"""``haybale remove``."""

from __future__ import annotations

from typing import Annotated

import haybale
from haybale.cli import options
from haybale.cli.application import ENGINES, command
from haybale.cli.options import argument
from haybale.cli.terminal import show


@command(ENGINES)
def remove(engine: options.EngineFolder, ids: Annotated[list[str], argument("The ids of the documents.")]) -> None:
    """Remove documents from an engine, so that no search finds them.

    Their texts stay in the folder until the engine is built again. haybale add --replace takes their ids again.
    """
    shrunk = haybale.Engine.open(engine)
    shrunk.remove(ids)
    show(f"removed {len(set(ids)):,} documents; {shrunk!r}")
