"""Encoders fine-tuned on judgements, by the trainer of sentence-transformers (extra ``train``)."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
import warnings
from collections.abc import Iterator
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
from haybale.embeddings.token_batches import weights_digest
from haybale.engine import Engine
from haybale.errors import FileFormatError, InputError, StoreError, TruncationWarning
from haybale.extras import import_optional, quiet_transformers
from haybale.finetune.batches import plan_batches
from haybale.finetune.recipe import Recipe, recipe_of
from haybale.finetune.selection import MEASURES, Selection
from haybale.finetune.trainee import Trainee
from haybale.finetune.training_pairs import Judged, training_pairs
from haybale.folders import check_output, replace_json, whole_folder, write_json
from haybale.frames import Frame
from haybale.parameters import COUNT_OR_NONE, RANDOM_STATE, Interval, check_parameters
from haybale.progress import track
from haybale.rankers import Training
from haybale.retrieval.hits import Ints
from haybale.text_files import read_json
from haybale.timing import timed

_RUN = "run.json"  # in the folder of checkpoints: whose they are
_WEIGHTS, _CLOCK, _STATE = "model.safetensors", "clock.json", "trainer_state.json"  # of a checkpoint, the last at last
_CACHED_FROM, _MINI_BATCH = 129, 32  # pairs of a batch, from which on it goes through the encoder in parts, so large
_CONSTRAINTS = {
    "held_out": [Interval(Real, 0, 1, closed="left")],
    "selection_passages": COUNT_OR_NONE,
    "random_state": RANDOM_STATE,
}
_KIND = "haybale encoder training"
_CHOICE = "choice"


@dataclass(frozen=True)
class TrainedEncoder:
    """What :func:`train_encoder` did.

    Parameters
    ----------
    folder : Path
        Of sentence-transformers, with a card (``README.md``) and ``training.json``.
    history : pd.DataFrame
        A row a measurement, the first before any step: ``step``, ``pairs``, ``loss``, ``Recall@100``, ``nDCG@10``.
    step : int
        After which the weights were taken.
    n_pairs : int
        Different ones that were learned from.
    seconds : float
        Of steps, without measuring.
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

    The positive of a pair shall be nearer to its anchor than all other passages of the batch: −log softmax of the
    scaled similarities (Karpukhin et al., "Dense Passage Retrieval", EMNLP 2020; Althammer et al., "PARM", ECIR 2022).
    The best checkpoint is taken, by what PARM (VRRF) finds for queries that were set aside.

    While it works, checkpoints are in ``OUT.training``; killed and called again it goes on with the last, and ends with
    the same weights on the same CPU. (The optimizer's state in there is torch's own format; nothing of it stays.)

    Parameters
    ----------
    engine : Engine
    encoder : str
        Hub id or folder of sentence-transformers, of a plain BERT, or of a Longformer, which goes through the layers of
        :class:`~haybale.LongformerEncoder`, without dropout.
    out : str or Path
        A new folder. ``training.json`` in it has the ids of all queries that it has seen, so that nothing is learned
        from what it says of these.
    queries, qrels : optional
        As of :func:`training_pairs`; default: the split ``train``.
    pairs : pa.Table, optional
        In place of those that the recipe asks for; rows of queries that are set aside are left out.
    recipe : Recipe or {"small", "gpu", "parm"}, default "small"
    held_out : float, default 0.1
        Share of the query documents that are set aside to choose the checkpoint by; 0: none, the last is taken.
    selection_passages : int, default 20,000
        How many passages their documents are sought among; None: all of the engine.
    fold : (int, int), optional
        ``(i, n)``: nothing is learned from the i-th (from 0) of n parts of the query documents. Encoders of all folds
        say of every training query what they would if they had not seen it: see :class:`~haybale.InSpace`.
    device : str, optional
        ``"cpu"`` or ``"cuda"``; default: a GPU where there is one. **Not run on a GPU yet.**
    random_state : int, default 0
    **changes : optional
        Values of the recipe: ``epochs=2``.

    Raises
    ------
    InputError
        Nothing to learn from, an encoder that cannot be trained, values out of range: before any work.
    OutputExistsError, StoreError
        ``out`` is not empty; ``OUT.training`` is of another run, or somebody works in it.
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
    check_output(out)
    training = Judged.of(engine, queries, qrels).training
    learned, aside = _dealt(training, held_out, fold, random_state)
    trainee = Trainee(encoder, chosen, device, random_state)
    if pairs is None:
        pairs = training_pairs(engine, queries, qrels, **chosen.of_pairs, random_state=random_state)
    ids = {training.batch.ids[row] for row in learned}
    pairs = _checked(pairs).filter(pa.array([query in ids for query in pairs.column("query_id").to_pylist()]))
    plan = plan_batches(pairs, chosen.batch_size, chosen.epochs, random_state)
    if not plan:
        raise InputError("no two pairs can be told from each other: there is one query document, or one passage")
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
        history, seconds, step = _trained(trainee, pairs, plan, selection, work, n_evaluations, random_state)
        found = TrainedEncoder(out, history, step, len(pairs), seconds)
        with timed("write encoder"), whole_folder(out) as folder:
            trainee.save(folder)
            facts = seen | {
                "base": encoder,
                "collection": engine.collection.name,
                "recipe": chosen.to_dict(),
                "fold": fold,
                "random_state": random_state,
                "pairs": len(pairs),
                "step": step,
                "seconds": round(seconds, 1),
                "pairs_per_second": round(found.pairs_per_second, 2),
                "history": history.astype(object).where(history.notna(), None).to_dict("records"),
            }
            write_json(folder / TRAINING, as_json(facts))
            (folder / "README.md").write_text(_card(facts), encoding="utf-8")
    shutil.rmtree(work, ignore_errors=True)
    return found


def _dealt(
    training: Training, held_out: float, fold: tuple[int, int] | None, random_state: int | None
) -> tuple[Ints, Ints]:
    """Rows of queries that are learned from and that are set aside, without those of the fold; whole groups of them."""
    groups = training.batch.queries.groups
    name = pd.Series(training.batch.ids).groupby(groups).transform("min").to_numpy()
    names, place = np.unique(name, return_inverse=True)
    deal = np.random.default_rng(random_state).permutation(len(names))
    in_fold = deal % fold[1] == fold[0] if fold else np.zeros(len(names), dtype=bool)
    judged = np.bincount(place, list(map(len, training.relevant)), len(names)) > 0
    rest = np.flatnonzero(~in_fold & judged)
    rest = rest[np.argsort(deal[rest])]
    n_aside = min(int(np.ceil(held_out * len(rest))), max(0, len(rest) - 1))
    is_aside = np.isin(np.arange(len(names)), rest[:n_aside])
    is_learned = np.isin(np.arange(len(names)), rest[n_aside:])
    return np.flatnonzero(is_learned[place]), np.flatnonzero(is_aside[place])


def _selection(training: Training, rows: Ints, n_passages: int | None, random_state: int | None) -> Selection | None:
    """What the checkpoint is chosen by; None where nothing was set aside."""
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
    """Begin the folder of checkpoints, or refuse one of another run."""
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


def _trained(
    trainee: Trainee,
    pairs: pa.Table,
    plan: list[list[int]],
    selection: Selection | None,
    work: Path,
    n_evaluations: int,
    random_state: int | None,
) -> tuple[pd.DataFrame, float, int]:
    """``(history, seconds of steps, step whose weights the trainee now has)``; begun before, it goes on."""
    torch, transformers = import_optional("torch", "neural"), import_optional("transformers", "neural")
    library = import_optional("sentence_transformers", "neural")
    of_torch = import_optional("safetensors.torch")
    sampler: Any = import_optional("sentence_transformers.base.sampler", "neural").DefaultBatchSampler
    evaluator: Any = import_optional("sentence_transformers.base.evaluation", "neural").BaseEvaluator
    callback: Any = transformers.TrainerCallback
    of_library: Any = library.SentenceTransformerTrainer
    recipe, model = trainee.recipe, trainee.model
    every = len(plan) // n_evaluations
    texts = [name for name in pairs.column_names if name in ("anchor", "positive") or name.startswith("negative")]
    sizes = np.cumsum(list(map(len, plan)))
    clock = _Clock()

    class Planned(sampler):  # type: ignore[misc]
        def __iter__(self) -> Iterator[list[int]]:
            return iter(plan)

        def __len__(self) -> int:
            return len(plan)

    class Watching(callback):  # type: ignore[misc]
        """Draws the bar, with the last loss; holds the clock while something is measured or written."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.loss = ""
            self.bar = track(range(state.global_step, len(plan) + 1), "training", status=lambda: self.loss)
            next(self.bar)
            clock.start()

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if "loss" in (logs or {}):
                self.loss = f"loss {float(logs['loss']):.3f}"

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            next(self.bar)
            if state.global_step % every == 0:
                clock.stop()

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            clock.start()

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            clock.stop()
            next(self.bar, None)

    class Trainer(of_library):  # type: ignore[misc]
        """Checkpoints of weights alone, whatever the model is made of; no card, which is written here."""

        def add_model_card_callback(self, default_args_dict: Any) -> None:
            pass

        def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
            folder = Path(output_dir or self.args.output_dir)
            folder.mkdir(parents=True, exist_ok=True)
            of_torch.save_model(self.model, str(folder / _WEIGHTS))
            write_json(folder / _CLOCK, {"seconds": clock.seconds})

        def _load_from_checkpoint(self, checkpoint_path: str) -> None:
            of_torch.load_model(self.model, str(Path(checkpoint_path, _WEIGHTS)))

    class Evaluator(evaluator):  # type: ignore[misc]
        def __call__(self, *_: Any, **__: Any) -> dict[str, float]:
            assert selection is not None
            with timed("measure"), warnings.catch_warnings():
                warnings.simplefilter("ignore", TruncationWarning)
                found = selection.measured(trainee.encoder)
                return found | {_CHOICE: found[MEASURES[0]] + found[MEASURES[1]] / 1000}  # the latter decides ties

    select: dict[str, Any] = {}
    if selection is not None:
        select = {"eval_strategy": "steps", "eval_steps": every, "load_best_model_at_end": True}
        select |= {"metric_for_best_model": f"eval_{_CHOICE}", "greater_is_better": True}
    arguments = library.SentenceTransformerTrainingArguments(
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
        batch_sampler=Planned,
        router_mapping={name: "query" if name == "anchor" else "document" for name in texts} if trainee.routed else {},
        prompts=trainee.prompts(texts),
        save_strategy="steps",
        save_steps=every,
        save_total_limit=2,
        logging_strategy="steps",
        # Of equal parts of what lies between checkpoints, so that no loss is lost where one goes on.
        logging_steps=next(steps for steps in range(max(1, every // 20), every + 1) if every % steps == 0),
        disable_tqdm=True,
        report_to="none",
        seed=random_state or 0,
        **select,
    )
    with quiet_transformers():
        begun = _last_checkpoint(work)
        first = work / "before.json"  # what is measured before the first step, also of a training that goes on
        if selection is not None and not first.exists():
            replace_json(first, Evaluator()())
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=import_optional("datasets", "train").Dataset(
                pairs.select(texts).replace_schema_metadata(None)
            ),
            loss=_loss(model, recipe),
            evaluator=None if selection is None else Evaluator(),
            callbacks=[Watching()],
        )
        trainer.remove_callback(transformers.PrinterCallback)
        clock.seconds = 0.0 if begun is None else float(read_json(begun / _CLOCK)["seconds"])
        with timed("train"):
            trainer.train(resume_from_checkpoint=None if begun is None else str(begun))
        model.eval()
    best = trainer.state.best_global_step if selection is not None else len(plan)
    if trainee.device != "cpu":
        torch.cuda.empty_cache()
    before = read_json(first) if selection is not None else {}
    return _history(trainer.state.log_history, before, sizes, every), clock.seconds, int(best)


class _Clock:
    """Seconds while it runs."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since: float | None = None

    def start(self) -> None:
        self._since = time.perf_counter()

    def stop(self) -> None:
        if self._since is not None:
            self.seconds += time.perf_counter() - self._since
            self._since = None


def _loss(model: Any, recipe: Recipe) -> Any:
    """The loss of a batch; of a large one by parts, with the same gradients (Gao et al., "Scaling Deep Contrastive
    Learning Batch Size under Memory Limited Setup", 2021)."""
    losses = import_optional("sentence_transformers.sentence_transformer.losses", "neural")
    near = import_optional("sentence_transformers.util", "neural")
    how = {"scale": recipe.scale, "similarity_fct": near.cos_sim if recipe.similarity == "cosine" else near.dot_score}
    if recipe.mini_batch_size is None and recipe.batch_size < _CACHED_FROM:
        return losses.MultipleNegativesRankingLoss(model, **how)
    size = recipe.mini_batch_size or _MINI_BATCH
    return losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=size, **how)


def _last_checkpoint(work: Path) -> Path | None:
    """The last that is whole: one that was being written when it was killed lacks its last file, or the end of it."""
    for folder in sorted(work.glob("checkpoint-*"), key=lambda path: -int(path.name.rpartition("-")[2])):
        try:
            read_json(folder / _STATE)
            return folder
        except FileFormatError:
            shutil.rmtree(folder)
    return None


def _history(log: list[dict[str, Any]], before: dict[str, Any], sizes: Ints, every: int) -> pd.DataFrame:
    """A row a measurement; the loss is the mean since the one before."""
    rows = [{"step": 0, "pairs": 0, "loss": None} | {name: before[name] for name in MEASURES if name in before}]
    for step in range(every, len(sizes) + 1, every):
        losses = [row["loss"] for row in log if "loss" in row and step - every < row["step"] <= step]
        row = {"step": step, "pairs": int(sizes[step - 1]), "loss": float(np.mean(losses)) if losses else None}
        for entry in log:
            if entry["step"] == step:
                row |= {name: entry[f"eval_{name}"] for name in MEASURES if f"eval_{name}" in entry}
        rows.append(row)
    return pd.DataFrame(rows)


def _card(facts: dict[str, Any]) -> str:
    """What the encoder was trained on, for a reader."""
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
            f"What it says of these queries is no measure of what it can: `{TRAINING}` has their ids.",
            "",
            *lines,
            "",
            f"Recipe: {recipe}.",
            "",
        ]
    )
