"""Encoders fine-tuned on judgements, by the trainer of sentence-transformers (extra ``train``)."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from haybale.collections.queries import QueriesLike
from haybale.embeddings.lineage import TRAINING
from haybale.embeddings.store_files import StoreFiles, as_json, writer_lock
from haybale.embeddings.torch_models import weights_digest
from haybale.engine import Engine
from haybale.errors import InputError, StoreError
from haybale.extras import import_optional
from haybale.finetune.batches import plan_batches
from haybale.finetune.recipe import Recipe, recipe_of
from haybale.finetune.selection import Selection
from haybale.finetune.trainee import Trainee
from haybale.finetune.training_pairs import Judged, training_pairs
from haybale.folders import check_output, replace_json, whole_folder, write_json
from haybale.frames import Frame
from haybale.parameters import COUNT_OR_NONE, RANDOM_STATE, Interval, check_parameters
from haybale.rankers import Training
from haybale.retrieval.hits import Ints
from haybale.text_files import read_json
from haybale.timing import timed

_RUN = "run.json"  # in the folder of checkpoints: what identifies the run
_CONSTRAINTS = {
    "held_out": [Interval(Real, 0, 1, closed="left")],
    "selection_passages": COUNT_OR_NONE,
    "random_state": RANDOM_STATE,
}
_KIND = "haybale encoder training"


@dataclass(frozen=True)
class TrainedEncoder:
    """The result of :func:`train_encoder`.

    Parameters
    ----------
    folder : Path
        The encoder's folder, in the format of sentence-transformers, with a card (``README.md``) and ``training.json``.
    history : pd.DataFrame
        A row a measurement, the first before any step: ``step``, ``pairs``, ``loss``, ``Recall@100``, ``nDCG@10``.
    step : int
        The step after which the weights were taken.
    n_pairs : int
        Distinct pairs that were learned from.
    seconds : float
        Time of the steps, without measurements.
    """

    folder: Path
    history: pd.DataFrame
    step: int
    n_pairs: int
    seconds: float

    @property
    def pairs_per_second(self) -> float:
        return float(self.history["pairs"].iloc[-1]) / max(self.seconds, 1e-9)


def train_encoder(
    engine: Engine,
    encoder: str,
    out: str | Path,
    queries: QueriesLike | None = None,
    qrels: Frame | None = None,
    *,
    pairs: pa.Table | None = None,
    recipe: Recipe | str = "small",
    held_out: float = 0.1,
    selection_passages: int | None = 20_000,
    fold: tuple[int, int] | None = None,
    device: str | None = None,
    random_state: int | None = 0,
    **changes: Any,
) -> TrainedEncoder:
    """Fine-tune an encoder on an engine's judged queries, and write it as a plain folder of sentence-transformers.

    The loss is −log softmax of the scaled similarities: the positive of a pair should be nearer to its anchor than all
    other passages of the batch (Karpukhin et al., "Dense Passage Retrieval", EMNLP 2020; Althammer et al., "PARM", ECIR
    2022). The checkpoint is taken for which PARM (VRRF) is best on queries that were set aside.

    Checkpoints are kept in ``OUT.training``. The same call after an interruption resumes from the last one, and gives
    the same weights on the same CPU. (The optimizer's state there is in torch's own format; it is removed at the end.)

    Parameters
    ----------
    engine : Engine
    encoder : str
        Hub id or folder of a sentence-transformers model, a plain BERT, or a Longformer. A Longformer is trained in the
        layers of :class:`~haybale.LongformerEncoder`, without dropout.
    out : str or Path
        A new folder. Its ``training.json`` lists the ids of all queries that the encoder has seen, so that no ranker
        learns from its vectors of these.
    queries, qrels : optional
        See :func:`training_pairs`; default: the split ``train``.
    pairs : pa.Table, optional
        Pairs to use in place of those that the recipe makes; rows of queries that are set aside are left out.
    recipe : Recipe or {"small", "gpu", "parm"}, default "small"
    held_out : float, default 0.1
        Share of the query documents that are set aside to select the checkpoint; 0: none, and the last one is taken.
    selection_passages : int, default 20,000
        Passages among which the selection searches; None: all of the engine.
    fold : (int, int), optional
        ``(i, n)``: nothing is learned from the i-th (from 0) of n parts of the query documents. With an encoder for
        each fold, every training query has an encoder that has not seen it: see :class:`~haybale.InSpace`.
    device : str, optional
        ``"cpu"`` or ``"cuda"``; default: a GPU where there is one. **Not run on a GPU yet.**
    random_state : int, default 0
    **changes : optional
        Values of the recipe to change, such as ``epochs=2``.

    Raises
    ------
    InputError
        Nothing to learn from, an encoder that cannot be trained, values out of range: before any work.
    OutputExistsError, StoreError
        ``out`` is not empty; ``OUT.training`` belongs to another run, or another process is using it.
    MissingExtraError
        Without the extra ``train``.
    """
    check_parameters("train_encoder", locals(), _CONSTRAINTS)
    chosen, out = recipe_of(recipe, changes), Path(out)
    if fold is not None and not 0 <= fold[0] < fold[1]:
        raise InputError(f"fold: expected (i, n) with 0 <= i < n, found {fold}")
    for package in ("sentence_transformers", "torch"):
        import_optional(package, "neural")
    for package in ("accelerate", "datasets", *(["peft"] if chosen.lora_rank else [])):
        import_optional(package, "train")
    from haybale.finetune.training_loop import run_training

    check_output(out)
    training = Judged.of(engine, queries, qrels).training
    learned, aside = _split_queries(training, held_out, fold, random_state)
    trainee = Trainee(encoder, chosen, device, random_state)
    if pairs is None:
        pairs = training_pairs(engine, queries, qrels, **chosen.of_pairs, random_state=random_state)
    ids = {training.batch.ids[row] for row in learned}
    pairs = _checked(pairs).filter(pa.array([query in ids for query in pairs.column("query_id").to_pylist()]))
    plan = plan_batches(pairs, chosen.batch_size, chosen.epochs, random_state)
    if not plan:
        raise InputError("expected pairs of at least two query documents and two passages, to make batches of")
    selection = _selection(training, aside, selection_passages, random_state)
    n_evaluations = min(chosen.evaluations, len(plan))
    plan = plan[: len(plan) // n_evaluations * n_evaluations]  # so that the last step is measured
    seen = {
        "trained_on": sorted(ids),
        "selected_on": sorted(training.batch.ids[row] for row in aside) if selection else [],
    }
    identity = as_json(
        {
            "kind": _KIND,
            "recipe": chosen.to_dict(),
            "weights": weights_digest(trainee.model),
            "pairs": _digest(pairs),
            "seen": seen,
            "selection_passages": selection_passages,
            "random_state": random_state,
        }
    )
    work = out.with_name(out.name + ".training")
    with writer_lock(StoreFiles(work)):
        _check_run(work, identity)
        done = run_training(trainee, pairs, plan, selection, work, n_evaluations, random_state)
        found = TrainedEncoder(out, done.history, done.step, len(pairs), done.seconds)
        with timed("write encoder"), whole_folder(out) as folder:
            trainee.save(folder)
            facts = seen | {
                "base": encoder,
                "collection": engine.collection.name,
                "recipe": chosen.to_dict(),
                "fold": fold,
                "random_state": random_state,
                "pairs": len(pairs),
                "step": done.step,
                "seconds": round(done.seconds, 1),
                "pairs_per_second": round(found.pairs_per_second, 2),
                "history": done.history.astype(object).where(done.history.notna(), None).to_dict("records"),
            }
            write_json(folder / TRAINING, as_json(facts))
            (folder / "README.md").write_text(_card(facts), encoding="utf-8")
    shutil.rmtree(work, ignore_errors=True)
    return found


def _split_queries(
    training: Training, held_out: float, fold: tuple[int, int] | None, random_state: int | None
) -> tuple[Ints, Ints]:
    """Split the queries into rows to learn from and rows to set aside, without those of the fold; groups stay whole."""
    place = training.batch.groups_by_id()
    n_groups = len(np.unique(place))
    deal = np.random.default_rng(random_state).permutation(n_groups)
    in_fold = deal % fold[1] == fold[0] if fold else np.zeros(n_groups, dtype=bool)
    judged = np.bincount(place, list(map(len, training.relevant)), n_groups) > 0
    rest = np.flatnonzero(~in_fold & judged)
    rest = rest[np.argsort(deal[rest])]
    n_aside = min(int(np.ceil(held_out * len(rest))), max(0, len(rest) - 1))
    is_aside = np.isin(np.arange(n_groups), rest[:n_aside])
    is_learned = np.isin(np.arange(n_groups), rest[n_aside:])
    return np.flatnonzero(is_learned[place]), np.flatnonzero(is_aside[place])


def _selection(training: Training, rows: Ints, n_passages: int | None, random_state: int | None) -> Selection | None:
    """Return what the checkpoint is selected by; None if no judged query was set aside."""
    batch = training.batch
    relevant = [training.relevant[row] for row in rows]
    if not any(relevant):
        return None
    part = Training(batch.take(rows), relevant)
    return Selection(part, n_passages, random_state)


def _checked(pairs: pa.Table) -> pa.Table:
    needed = ("anchor", "positive", "query_id", "group", "documents", "forbidden")
    missing = [name for name in needed if name not in pairs.column_names]
    if missing:
        raise InputError(f"pairs: expected the columns of training_pairs, {missing[0]!r} is missing")
    return pairs


def _digest(pairs: pa.Table) -> str:
    known = hashlib.sha256()
    for name in pairs.column_names:
        known.update(json.dumps([name, pairs.column(name).to_pylist()]).encode())
    return known.hexdigest()


def _check_run(work: Path, identity: dict[str, Any]) -> None:
    """Begin the folder of checkpoints, or refuse the folder of another run."""
    if not (work / _RUN).exists():
        replace_json(work / _RUN, identity)
        return
    before = read_json(work / _RUN)
    for name, value in identity.items():
        if before.get(name) != value:
            known = ""
            if name == "recipe" and isinstance(before.get(name), dict):
                known = next((f" ({key})" for key in value if before[name].get(key) != value[key]), "")
            raise StoreError(
                f"{work}: this training was begun with other {name}{known}; give the same, or remove that folder"
            )


def _card(facts: dict[str, Any]) -> str:
    """Return the model card: what the encoder was trained on."""
    front = ["---", "library_name: sentence-transformers", "pipeline_tag: sentence-similarity", "---", ""]
    history = pd.DataFrame(facts["history"])
    lines = ["| " + " | ".join(history.columns) + " |", "|" + " ---: |" * len(history.columns)]
    for row in history.itertuples(index=False):
        cells = ("" if pd.isna(value) else f"{value:.4f}" if isinstance(value, float) else str(value) for value in row)
        lines.append("| " + " | ".join(cells) + " |")
    recipe = ", ".join(f"{name} {value}" for name, value in facts["recipe"].items() if value is not None)
    return "\n".join(
        [
            *front,
            f"# {facts['base']}, fine-tuned on {facts['collection']}",
            "",
            f"Trained by haybale on {facts['pairs']:,} pairs of paragraphs of {len(facts['trained_on']):,} judged "
            "queries;"
            f" the weights are those after step {facts['step']:,}"
            + (
                f", the best for {len(facts['selected_on']):,} other queries among part of the documents."
                if facts["selected_on"]
                else ", the last."
            ),
            f"Its results on these queries say nothing about other queries; `{TRAINING}` lists their ids.",
            "",
            *lines,
            "",
            f"Recipe: {recipe}.",
            "",
        ]
    )
