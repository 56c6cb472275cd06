"""Record and look up the queries that an encoder was trained on, for which its rankings are biased.

The file ``training.json`` beside a trained encoder's weights holds the ids of the queries that it was trained on
(``trained_on``), and of those that its checkpoint was selected on (``selected_on``).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.manifest import check_kinds
from haybale.text_files import read_json

TRAINING = "training.json"


def trained_queries(encoder: Any) -> frozenset[str]:
    """Return the ids of the queries that an encoder, or an encoder it contains, was trained or selected on."""
    members = [*getattr(encoder, "encoders", ()), *(inner for inner in [getattr(encoder, "encoder", None)] if inner)]
    query_ids = frozenset[str]().union(*map(trained_queries, members))
    modules: Any = getattr(getattr(encoder, "model", None), "modules", list)()  # modules of a model given as an object
    names = {getattr(encoder, "model_name", None), *(getattr(module, "name_or_path", None) for module in modules)}
    return query_ids.union(*(queries_of_model(name) for name in names if isinstance(name, str) and name))


def queries_of_model(name: str) -> frozenset[str]:
    """Return the ids of the queries that the model in a folder was trained or selected on by haybale."""
    path = Path(name, TRAINING)
    if not path.is_file():
        return frozenset()
    lineage = read_json(path)
    check_kinds(path, lineage, {"trained_on": [str], "selected_on": [str]})
    return frozenset(lineage["trained_on"]).union(lineage["selected_on"])


def first_unseen(query_ids: Sequence[str], seen: Sequence[frozenset[str]]) -> NDArray[np.int64]:
    """Return for each query the number of the first model that was not trained on it; there must be one.

    ``seen`` holds the queries that each model was trained on.

    >>> first_unseen(["q1", "q2"], [frozenset(["q1"]), frozenset()])
    array([1, 0])
    """
    unseen = np.array([[query not in ids for query in query_ids] for ids in seen])
    return np.asarray(unseen.argmax(axis=0))
