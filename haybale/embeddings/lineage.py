"""Which queries an encoder was trained on: what nobody who ranks these queries with it may forget.

``training.json`` beside a trained encoder's weights has the ids of the queries that it learned from (``trained_on``)
and of those that it was chosen by (``selected_on``). Of neither can it say what it would have said without them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from haybale.manifest import check_kinds
from haybale.text_files import read_json

TRAINING = "training.json"


def trained_queries(encoder: Any) -> frozenset[str]:
    """The ids of the queries that an encoder, or one of its members, has seen; none if it was not trained here."""
    members = [*getattr(encoder, "encoders", ()), *(each for each in [getattr(encoder, "encoder", None)] if each)]
    found = frozenset[str]().union(*map(trained_queries, members))
    name = getattr(encoder, "name", None)
    return found | queries_of_model(name) if isinstance(name, str) else found


def queries_of_model(name: str) -> frozenset[str]:
    """The same of the model in a folder; none of any other."""
    path = Path(name, TRAINING)
    if not path.is_file():
        return frozenset()
    lineage = read_json(path)
    check_kinds(path, lineage, {"trained_on": [str], "selected_on": [str]})
    return frozenset(lineage["trained_on"]).union(lineage["selected_on"])
