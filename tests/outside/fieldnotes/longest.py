"""A command that lists the longest documents of an engine."""

from typing import Annotated

from haybale import Engine
from haybale.cli import options
from haybale.cli.application import MORE, command
from haybale.cli.options import RESULTS, option
from haybale.cli.terminal import show


@command(MORE)
def longest(
    engine: options.EngineFolder, top: Annotated[int, option("Number of documents to list.", RESULTS, min=1)] = 3
) -> None:
    """List the documents of an engine that have the most passages."""
    table = Engine.open(engine).documents_table().sort_by([("passages", "descending"), ("id", "ascending")])
    for document in table.slice(0, top).to_pylist():
        show(f"{document['id']}: {document['passages']} passages")
