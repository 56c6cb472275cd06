"""The queries that an encoder was trained on, which it ranks better than others.

``training.json`` beside a trained encoder's weights holds the ids of the queries that it learned from (``trained_on``)
and of those that it was selected by (``selected_on``). It has no unbiased score for either.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from haybale.manifest import check_kinds
from haybale.text_files import read_json

TRAINING = "training.json"


def trained_queries(encoder: Any) -> frozenset[str]:
    """Return the ids of the queries that an encoder, or one of its members, was trained or selected on."""
    members = [*getattr(encoder, "encoders", ()), *(each for each in [getattr(encoder, "encoder", None)] if each)]
    found = frozenset[str]().union(*map(trained_queries, members))
    name = getattr(encoder, "model_name", None)
    return found | queries_of_model(name) if isinstance(name, str) else found


def queries_of_model(name: str) -> frozenset[str]:
    """Return the ids for the model in a folder; none for a model that was not trained by haybale."""
    path = Path(name, TRAINING)
    if not path.is_file():
        return frozenset()
    lineage = read_json(path)
    check_kinds(path, lineage, {"trained_on": [str], "selected_on": [str]})
    return frozenset(lineage["trained_on"]).union(lineage["selected_on"])
