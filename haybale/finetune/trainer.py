"""Fine-tune encoders on judgements with the trainer of sentence-transformers (extra ``train``)."""

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
from haybale.embeddings.lineage import TRAINING, trained_queries
from haybale.embeddings.store_files import StoreFiles, as_json, writer_lock
from haybale.embeddings.torch_models import weights_digest
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.extras import import_optional
from haybale.finetune.batches import plan_batches
from haybale.finetune.checkpoints import check_run
from haybale.finetune.recipe import Recipe, recipe_of
from haybale.finetune.selection import Selection
from haybale.finetune.trainee import Trainee
from haybale.finetune.training_pairs import JudgedQueries, training_pairs
from haybale.folders import check_output, whole_folder, write_json
from haybale.frames import Frame
from haybale.parameters import COUNT_OR_NONE, RANDOM_STATE, Interval, check_parameters
from haybale.rankers import Training
from haybale.retrieval.hits import Ints
from haybale.timing import timed

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
        The encoder's folder, in the format of sentence-transformers, with a model card (``README.md``) and
        ``training.json``.
    history : pd.DataFrame
        One row for each evaluation, the first before any step: ``step``, ``pairs``, ``loss``, ``Recall@100``,
        ``nDCG@10``.
    step : int
        The step of the checkpoint that was selected.
    n_pairs : int
        The number of distinct training pairs.
    seconds : float
        The time of the steps, without evaluations.
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
    """Fine-tune an encoder on an engine's judged queries, and write it in the format of sentence-transformers.

    The loss is −log softmax of the scaled similarities: the positive of a pair should be nearer to its anchor than all
    other passages of the batch (Karpukhin et al., "Dense Passage Retrieval", EMNLP 2020; Althammer et al., "PARM", ECIR
    2022). The checkpoint with the best results of PARM (VRRF) on held-out queries is selected.

    Checkpoints are kept in ``OUT.training``, with checksums. After an interruption, the same call resumes from the last
    checkpoint and gives the same weights on the same CPU; a damaged checkpoint is refused. (The optimizer's state is
    stored in torch's own format; the folder is removed at the end.)

    Parameters
    ----------
    engine : Engine
        The engine with the passages and the judged queries.
    encoder : str
        Hub id or folder of a sentence-transformers model, a plain BERT, or a Longformer. A Longformer is trained in the
        layers of :class:`~haybale.LongformerEncoder`, without dropout.
    out : str or Path
        A new folder. Its ``training.json`` lists the ids of all queries that the encoder was trained or selected on, so
        that no ranker learns from its biased vectors of them.
    queries, qrels : optional
        As in :func:`training_pairs`; default: the split ``train``.
    pairs : pa.Table, optional
        Pairs to use instead of those that the recipe makes. Rows of held-out queries are left out.
    recipe : Recipe or {"small", "gpu", "parm"}, default "small"
        The pairs, loss and schedule, or their name.
    held_out : float, default 0.1
        The share of the query documents that are held out to select the checkpoint. 0 selects the last checkpoint.
    selection_passages : int or None, default 20,000
        The number of passages that the selection searches; None: all passages of the engine.
    fold : (int, int), optional
        ``(i, n)`` leaves out the i-th (from 0) of n folds of the query documents. With one encoder for each fold, every
        training query has an encoder that was not trained on it: see :class:`~haybale.InSpace`.
    device : str, optional
        ``"cpu"`` or ``"cuda"``; default: a GPU if there is one. **Not run on a GPU yet.**
    random_state : int, default 0
        Seed of the splits, the negatives, the batches and the trainer.
    **changes : optional
        Values of the recipe to change, such as ``epochs=2``.

    Raises
    ------
    InputError
        There is nothing to learn from, the encoder cannot be trained, or a value is out of range; checked before
        training starts.
    OutputExistsError
        ``out`` is not empty.
    StoreError
        ``OUT.training`` belongs to another training, a file in it is damaged, or another process uses it.
    MissingExtraError
        The extra ``train`` is not installed.
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
    engine = engine.snapshot()
    training = JudgedQueries.of(engine, queries, qrels).training
    train_rows, held_out_rows = _split_queries(training, held_out, fold, random_state)
    trainee = Trainee(encoder, chosen, device, random_state)
    if pairs is None:
        pairs = training_pairs(engine, queries, qrels, **chosen.pair_settings, random_state=random_state)
    ids = training.twins.with_twins({training.batch.ids[row] for row in train_rows})
    for name in ("anchor", "positive", "query_id", "group", "documents", "forbidden"):
        if name not in pairs.column_names:
            raise InputError(f"pairs: expected the columns of training_pairs, but {name!r} is missing")
    pairs = pairs.filter(pa.array([query in ids for query in pairs.column("query_id").to_pylist()]))
    plan = plan_batches(pairs, chosen.batch_size, chosen.epochs, random_state)
    if not plan:
        raise InputError(f"expected pairs of at least two query documents and two passages, found {len(pairs)} pairs")
    held_out_ids = {training.batch.ids[row] for row in held_out_rows}
    selection, relevant = None, [training.relevant[row] for row in held_out_rows]
    if any(relevant):
        part = Training(training.batch.take(held_out_rows), relevant, twins=training.twins)
        selection = Selection(part, selection_passages, random_state)
    n_evaluations = min(chosen.evaluations, len(plan))
    plan = plan[: len(plan) // n_evaluations * n_evaluations]  # so that the last step is evaluated
    lineage = {
        "trained_on": sorted(ids | trained_queries(trainee.encoder)),  # and those of the initial encoder
        "selected_on": sorted(training.twins.with_twins(held_out_ids)) if selection else [],
    }
    identity = as_json(
        {
            "kind": _KIND,
            "version": 2,  # since which checkpoints have checksums
            "recipe": chosen.to_dict(),
            "weights": weights_digest(trainee.model),
            "pairs": _digest(pairs),
            "seen": lineage,
            "selection": None if selection is None else part.digest,
            "selection_passages": selection_passages,
            "random_state": random_state,
        }
    )
    work = out.with_name(out.name + ".training")
    with writer_lock(StoreFiles(work)):
        check_run(work, identity)
        done = run_training(trainee, pairs, plan, selection, work, n_evaluations, random_state)
        trained = TrainedEncoder(out, done.history, done.step, len(pairs), done.seconds)
        with timed("write encoder"), whole_folder(out) as folder:
            trainee.save(folder)
            report = lineage | {
                "base": encoder,
                "collection": engine.collection.name,
                "recipe": chosen.to_dict(),
                "fold": fold,
                "random_state": random_state,
                "pairs": len(pairs),
                "step": done.step,
                "seconds": round(done.seconds, 1),
                "pairs_per_second": round(trained.pairs_per_second, 2),
                "history": done.history.astype(object).where(done.history.notna(), None).to_dict("records"),
            }
            write_json(folder / TRAINING, as_json(report))
            (folder / "README.md").write_text(_model_card(report), encoding="utf-8")
    shutil.rmtree(work, ignore_errors=True)
    return trained


def _split_queries(
    training: Training, held_out: float, fold: tuple[int, int] | None, random_state: int | None
) -> tuple[Ints, Ints]:
    """Split the queries outside the fold into training and held-out rows; groups are not divided."""
    group_of = training.batch.groups_by_id()
    n_groups = len(np.unique(group_of))
    order = np.random.default_rng(random_state).permutation(n_groups)
    in_fold = order % fold[1] == fold[0] if fold else np.zeros(n_groups, dtype=bool)
    is_judged = np.bincount(group_of, list(map(len, training.relevant)), n_groups) > 0
    groups = np.flatnonzero(~in_fold & is_judged)
    groups = groups[np.argsort(order[groups])]
    n_held_out = min(int(np.ceil(held_out * len(groups))), max(0, len(groups) - 1))
    return (
        np.flatnonzero(np.isin(group_of, groups[n_held_out:])),
        np.flatnonzero(np.isin(group_of, groups[:n_held_out])),
    )


def _digest(pairs: pa.Table) -> str:
    sha256 = hashlib.sha256()
    for name in pairs.column_names:
        sha256.update(json.dumps([name, pairs.column(name).to_pylist()]).encode())
    return sha256.hexdigest()


def _model_card(report: dict[str, Any]) -> str:
    """Return the model card: what the encoder was trained on, its results, and its recipe."""
    history = pd.DataFrame(report["history"])
    lines = ["| " + " | ".join(history.columns) + " |", "|" + " ---: |" * len(history.columns)]
    for row in history.itertuples(index=False):
        cells = ("" if pd.isna(value) else f"{value:.4f}" if isinstance(value, float) else str(value) for value in row)
        lines.append("| " + " | ".join(cells) + " |")
    table = "\n".join(lines)
    recipe = ", ".join(f"{name} {value}" for name, value in report["recipe"].items() if value is not None)
    selected = f"selected on {len(report['selected_on']):,} other queries" if report["selected_on"] else "the last one"
    return f"""---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
---

# {report["base"]}, fine-tuned on {report["collection"]}

Trained by haybale on {report["pairs"]:,} pairs of paragraphs from {len(report["trained_on"]):,} judged queries. The
weights are those after step {report["step"]:,}, {selected}. Results on all these queries are biased;
`{TRAINING}` lists their ids.

{table}

Recipe: {recipe}.
"""
