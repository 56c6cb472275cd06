"""Run the trainer of sentence-transformers with planned batches, resumable checkpoints and checkpoint selection.

This module imports torch, so it is imported only when a training begins.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from datasets import Dataset
from safetensors.torch import load_model, save_model
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.util import cos_sim, dot_score
from transformers import PrinterCallback, TrainerCallback

from haybale.errors import TruncationWarning
from haybale.extras import quiet_transformers
from haybale.finetune.checkpoints import (
    check_checkpoint,
    checkpoint_at,
    finish_checkpoint,
    last_checkpoint,
    read_before,
    write_before,
)
from haybale.finetune.recipe import Recipe
from haybale.finetune.selection import MEASURES, Selection
from haybale.finetune.trainee import Trainee
from haybale.folders import write_json
from haybale.normalisation import normalise
from haybale.progress import track
from haybale.text_files import read_json
from haybale.timing import timed

_WEIGHTS, _CLOCK = "model.safetensors", "clock.json"
_MIN_PAIRS_FOR_GRADCACHE, _PAIRS_PER_MINI_BATCH = 129, 32  # batches of 129 pairs or more are encoded by 32 pairs
_CHOICE = "choice"  # the measure that selects a checkpoint


class Trained(NamedTuple):
    """The report of a training; the trainee has the selected weights."""

    history: pd.DataFrame
    seconds: float  # of the steps, without evaluations
    step: int  # of the selected checkpoint


def run_training(
    trainee: Trainee,
    pairs: pa.Table,
    plan: list[list[int]],
    selection: Selection | None,
    work: Path,
    n_evaluations: int,
    random_state: int | None,
) -> Trained:
    """Train, or resume from the last checkpoint in ``work``.

    Parameters
    ----------
    trainee : Trainee
        The model to train.
    pairs : pa.Table
        Columns ``anchor``, ``positive`` and, optionally, ``negative…``.
    plan : list of list of int
        The rows of ``pairs`` in each batch.
    selection : Selection, optional
        Evaluates each checkpoint to select the best. None: the last one is taken.
    work : Path
        The folder of checkpoints.
    n_evaluations : int
        The number of checkpoints, a divisor of the number of batches.
    random_state : int, optional
        Seed of the trainer, which draws dropout masks.
    """
    every = len(plan) // n_evaluations
    columns = [name for name in pairs.column_names if name in ("anchor", "positive") or name.startswith("negative")]
    evaluator = None if selection is None else _SelectionEvaluator(selection, trainee)
    with quiet_transformers():
        checkpoint, before = last_checkpoint(work), read_before(work)
        if evaluator is not None and before is None:
            before = evaluator()
            write_before(work, before)
        progress = _Progress(len(plan), every)
        trainer = _Trainer(
            model=trainee.model,
            args=_arguments(trainee, columns, plan, every, work, random_state, select=evaluator is not None),
            train_dataset=Dataset.from_dict({name: [*map(normalise, pairs[name].to_pylist())] for name in columns}),
            loss=_loss(trainee.model, trainee.recipe),
            evaluator=evaluator,
            callbacks=[progress],
        )
        trainer.progress = progress
        trainer.remove_callback(PrinterCallback)
        if checkpoint is not None:
            progress.seconds = float(read_json(checkpoint / _CLOCK)["seconds"])
        with timed("train"):
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        trainee.model.eval()
    if trainee.device != "cpu":
        torch.cuda.empty_cache()
    sizes = np.cumsum(list(map(len, plan)))
    best = trainer.state.best_global_step
    step = len(plan) if evaluator is None or best is None else best
    return Trained(_history(trainer.state.log_history, before or {}, sizes, every), progress.seconds, step)


def _arguments(
    trainee: Trainee,
    columns: list[str],
    plan: list[list[int]],
    every: int,
    work: Path,
    random_state: int | None,
    *,
    select: bool,
) -> SentenceTransformerTrainingArguments:
    """Return the trainer's settings: a checkpoint every ``every`` steps, which is evaluated if ``select``."""
    recipe = trainee.recipe
    evaluation: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": every, "load_best_model_at_end": True}
    evaluation |= {"metric_for_best_model": f"eval_{_CHOICE}", "greater_is_better": True}
    sides = {column: "query" if column == "anchor" else "document" for column in columns}
    return SentenceTransformerTrainingArguments(
        output_dir=str(work),
        max_steps=len(plan),
        per_device_train_batch_size=recipe.batch_size,
        learning_rate=recipe.learning_rate,
        warmup_steps=recipe.warmup,
        weight_decay=recipe.weight_decay,
        max_grad_norm=recipe.max_grad_norm,
        bf16=trainee.dtype == "bfloat16",
        fp16=trainee.dtype == "float16",
        use_cpu=trainee.device == "cpu",
        dataloader_pin_memory=trainee.device != "cpu",
        batch_sampler=_planned_sampler(plan),
        router_mapping=sides if trainee.has_two_towers else {},
        prompts=trainee.prompts(columns),
        save_strategy="steps",
        save_steps=every,
        logging_strategy="steps",
        # It must divide the number of steps between checkpoints, so that resuming loses no logged loss.
        logging_steps=next(steps for steps in range(max(1, every // 20), every + 1) if every % steps == 0),
        disable_tqdm=True,
        report_to="none",
        seed=random_state or 0,
        **(evaluation if select else {}),
    )


def _planned_sampler(plan: list[list[int]]) -> type[DefaultBatchSampler]:
    """Return a sampler class that yields the planned batches; the trainer creates the instance."""

    class Planned(DefaultBatchSampler):
        def __iter__(self) -> Iterator[list[int]]:
            return iter(plan)

        def __len__(self) -> int:
            return len(plan)

    return Planned


class _Progress(TrainerCallback):
    """Show a progress bar with the last loss, sum the seconds of the steps only, and complete checkpoints."""

    def __init__(self, n_steps: int, every: int) -> None:
        self.n_steps, self.every = n_steps, every
        self.loss, self.seconds = "", 0.0
        self.since = time.perf_counter()  # the start of the first step after a checkpoint

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.bar = track(range(state.global_step, self.n_steps + 1), "training", status=lambda: self.loss)
        next(self.bar)
        self.since = time.perf_counter()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if "loss" in (logs or {}):
            self.loss = f"loss {float(logs['loss']):.3f}"

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        next(self.bar)
        if state.global_step % self.every == 0:
            self.seconds += time.perf_counter() - self.since

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        finish_checkpoint(Path(args.output_dir), state.global_step, state.best_global_step)
        self.since = time.perf_counter()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        next(self.bar, None)


class _Trainer(SentenceTransformerTrainer):
    """A trainer whose checkpoints hold only the weights, for models of any modules, and no model card."""

    progress: _Progress

    def add_model_card_callback(self, default_args_dict: Any) -> None:
        pass

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        folder = Path(str(output_dir or self.args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        save_model(self.model, str(folder / _WEIGHTS))
        write_json(folder / _CLOCK, {"seconds": self.progress.seconds})

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:
        load_model(self.model, str(Path(checkpoint_path, _WEIGHTS)))

    def _load_best_model(self) -> None:
        folder = checkpoint_at(Path(str(self.args.output_dir)), int(self.state.best_global_step or 0))
        check_checkpoint(folder)  # the library would only log an error, and keep the last weights
        self._load_from_checkpoint(str(folder))


class _SelectionEvaluator(BaseEvaluator):
    """Evaluate a checkpoint on the held-out queries; ties of the first measure are broken by the second."""

    def __init__(self, selection: Selection, trainee: Trainee) -> None:
        super().__init__()
        self.selection, self.trainee = selection, trainee

    def __call__(self, *_: Any, **__: Any) -> dict[str, float]:
        with timed("measure"), warnings.catch_warnings():
            warnings.simplefilter("ignore", TruncationWarning)
            measures = self.selection.evaluate(self.trainee.encoder)
            return measures | {_CHOICE: measures[MEASURES[0]] + measures[MEASURES[1]] / 1000}


def _loss(model: Any, recipe: Recipe) -> Any:
    """Return the loss. Large batches are encoded in parts (GradCache), with the same gradients.

    Gao et al., "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup", 2021.
    """
    settings: Any = {"scale": recipe.scale, "similarity_fct": cos_sim if recipe.similarity == "cosine" else dot_score}
    if recipe.mini_batch_size is None and recipe.batch_size < _MIN_PAIRS_FOR_GRADCACHE:
        return losses.MultipleNegativesRankingLoss(model, **settings)
    size = recipe.mini_batch_size or _PAIRS_PER_MINI_BATCH
    return losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=size, **settings)


def _history(log: list[dict[str, Any]], before: dict[str, Any], sizes: Any, every: int) -> pd.DataFrame:
    """Return one row for each evaluation, with the mean loss since the previous one."""
    rows = [{"step": 0, "pairs": 0, "loss": None} | {name: before[name] for name in MEASURES if name in before}]
    for step in range(every, len(sizes) + 1, every):
        logged = [row["loss"] for row in log if "loss" in row and step - every < row["step"] <= step]
        row = {"step": step, "pairs": int(sizes[step - 1]), "loss": float(np.mean(logged)) if logged else None}
        for entry in log:
            if entry["step"] == step:
                row |= {name: entry[f"eval_{name}"] for name in MEASURES if f"eval_{name}" in entry}
        rows.append(row)
    return pd.DataFrame(rows)
