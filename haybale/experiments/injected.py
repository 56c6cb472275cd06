"""The ensemble paper's own protocol: classify injected passages. Repeats its table; says nothing of rankings.

For each test query the candidates are its k nearest passages, all called negative, and the last passage of
each relevant document, called positive. The figures are of the positive class under the vote. What is measured
is how well the injected passages are told from the neighbours, not how well a user finds them: to make the
candidates one must know the answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from haybale.collections import Collection
from haybale.ensemble import candidate_rows
from haybale.errors import InputError
from haybale.evaluation import Classification, classify
from haybale.experiments.settings import Settings
from haybale.experiments.workbench import Workbench
from haybale.folders import whole_folder, write_json
from haybale.retrieval.hits import from_flat

CAVEAT = (
    "protocol 'injected': relevant passages are put among the candidates by their labels, and relevant neighbours "
    "count as negatives. These are classification figures, not retrieval results; they cannot be compared with the "
    "end-to-end table."
)


@dataclass(frozen=True)
class InjectedOutcome:
    """Figures of the positive class for the paper's settings, and what they rest on."""

    figures: Classification
    settings: Settings
    seconds: dict[str, float]
    facts: dict[str, Any]


def classify_injected(
    collection: Collection,
    settings: Settings | None = None,
    report: Callable[[str, float], None] = lambda stage, seconds: None,
) -> InjectedOutcome:
    """Train on injected candidates of the training queries, classify those of ``settings.split``."""
    settings = settings or Settings(protocol="injected")
    if settings.protocol != "injected":
        raise InputError(f"expected protocol 'injected' in the settings, found {settings.protocol!r}")
    part = collection.split(settings.split)  # an unknown one is refused before the training
    bench = Workbench(collection, settings, report)
    ensemble = bench.ensemble("svr-paper")
    index, vectors = bench.index, bench.query_vectors(settings.split)
    with bench.stage("classify"):
        near = index.search(vectors, min(ensemble.k, len(index)), exclude=bench.own(settings.split))
        rows = candidate_rows("injected", near, part.relevant_rows(), index, vectors)
        # The labels travel as scores: one table holds the candidates of each query, the other what they are.
        table = from_flat(int(vectors.shape[0]), rows.query, rows.passage, rows.label.astype(np.float32))
        real = table.passages >= 0
        figures = classify(ensemble.relevant(vectors, table.passages)[real], table.scores[real] > 0)
    return InjectedOutcome(figures, settings, bench.seconds, bench.facts)


def write_injected(outcome: InjectedOutcome, folder: Path | str) -> None:
    """Write ``injected.json``: the figures, what they are, and how they were made."""
    with whole_folder(Path(folder)) as aside:
        record = {"figures": asdict(outcome.figures), "caveat": CAVEAT, "settings": outcome.settings.to_dict()}
        write_json(aside / "injected.json", record | {"seconds": outcome.seconds, "facts": outcome.facts})
