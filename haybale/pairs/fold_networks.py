"""Train the BERT-PLI network of each fold on the queries of the other folds, each network in a separate task."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from haybale.engine import Engine
from haybale.engine.workers import Workers
from haybale.errors import InputError
from haybale.kept_results import Arrays
from haybale.pairs.bert_pli import BERTPLI
from haybale.pairs.interactions import Interactions
from haybale.ranking.out_of_fold import learning
from haybale.retrieval.hits import Ints

Relevant = Mapping[str, Collection[str]]


def train_folds(
    network: BERTPLI,
    engine: Engine,
    interactions: Interactions,
    relevant: Relevant,
    query_ids: Sequence[str],
    fold_of: Ints,
) -> list[BERTPLI | None]:
    """Return a network like ``network`` for each fold; None where the other folds cannot train one.

    ``fold_of`` (n,) are the folds of the queries ``query_ids``, whose blocks ``interactions`` holds.
    """
    outside = []
    for fold in range(int(fold_of.max()) + 1):
        inside = set(np.array(query_ids)[fold_of == fold])
        outside.append({query: sorted(documents) for query, documents in relevant.items() if query not in inside})

    def keys() -> Iterator[tuple[Any, ...]]:
        blocks = {name: column.tolist() for name, column in interactions.blocks.items()}
        arrays = interactions.values, interactions.paragraphs, interactions.padding
        for judged in outside:
            yield network.get_params(), interactions.settings, blocks, *arrays, judged

    tasks = [(judged,) for judged in outside]
    results = Workers(engine).run(_train, (network, interactions), tasks, keys, "training without folds")
    return [_loaded(files) if files else None for files in results]


def _train(network: BERTPLI, interactions: Interactions, relevant: Relevant) -> Arrays:
    """Train a network; return the bytes of each file of its saved form, or no file if it cannot be trained."""
    with learning, tempfile.TemporaryDirectory() as folder:
        try:
            trained = BERTPLI(**network.get_params()).fit(interactions, relevant)
        except InputError:
            return {}
        trained.save(Path(folder, "network"))
        return {path.name: np.frombuffer(path.read_bytes(), np.uint8) for path in Path(folder, "network").iterdir()}


def _loaded(files: Arrays) -> BERTPLI:
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            Path(folder, name).write_bytes(content.tobytes())
        return BERTPLI.load(folder)
