"""Stage 1 of BERT-PLI: fine-tune a transformer to classify pairs of paragraphs.

Shao et al., "BERT-PLI", IJCAI 2020, section 3.2; Althammer et al., ECIR 2021, section 3.2.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from haybale.embeddings.lineage import TRAINING, queries_of_model
from haybale.embeddings.token_batches import check_texts
from haybale.errors import InputError
from haybale.extras import import_optional, quiet_transformers
from haybale.folders import check_output, whole_folder, write_json
from haybale.frames import Frame, column_names, to_pandas
from haybale.pairs.pair_encoders import PAIR_RANGES, CrossPairs
from haybale.parameters import COUNT, FROM_0, POSITIVE, RANDOM_STATE, SHARE, Constraints, check_parameters

_RANGES: dict[str, Constraints] = {
    "epochs": COUNT,
    "learning_rate": POSITIVE,
    "batch_size": COUNT,
    "frozen_layers": FROM_0,
    "held_out": SHARE,
    "max_length": PAIR_RANGES["max_length"],
    "precision": PAIR_RANGES["precision"],
    "device": PAIR_RANGES["device"],
    "random_state": RANDOM_STATE,
}
_BATCHES_PER_POOL = 50  # batches whose pairs are sorted by length together


@dataclass(frozen=True)
class TrainedPairs:
    """Result of :func:`train_pair_encoder`.

    Attributes
    ----------
    model : str
        The folder of the trained model.
    pairs, positives : int
        Numbers of training pairs and of positive training pairs.
    seconds : float
        Duration of the training.
    losses : list of float
        Mean loss of each epoch.
    f1 : list of float
        F1 of the positive class on the held-out pairs after each epoch; empty if none are held out.
    """

    model: str
    pairs: int
    positives: int
    seconds: float
    losses: list[float]
    f1: list[float]


def train_pair_encoder(
    model: str | Path,
    pairs: Frame,
    out: str | Path,
    *,
    epochs: int = 3,
    learning_rate: float = 1e-5,
    batch_size: int = 16,
    max_length: int | None = None,
    frozen_layers: int = 0,
    held_out: float = 0.1,
    precision: str = "auto",
    device: str | None = None,
    random_state: int | None = 0,
) -> TrainedPairs:
    """Fine-tune a transformer to classify pairs of paragraphs as positive or negative.

    It uses the CrossEncoderTrainer of sentence-transformers, with one logit over the pooler and binary cross-entropy.
    This is the paper's two-class softmax, expressed by the difference of its logits. The folder holds a cross-encoder
    of sentence-transformers, which transformers can load too: ``CrossPairs(out)`` reads its pooler, and
    ``CrossPairs(out, read="score")`` its score. Needs the extras ``neural`` and ``train``.

    Parameters
    ----------
    model : str or Path
        Hub id or folder of a transformer with a pooler, such as BERT. A cross-encoder gets a new head.
    pairs : frame, or table of pyarrow
        Texts in ``anchor``, ``positive`` and ``negative`` (or ``negative_1`` …); ``group``, which is equal for queries
        of one document; and optionally ``query_id``. Duplicate pairs are used once, as positive if any of them is.
    out : str or Path
        A new or empty folder. Its file ``training.json`` lists the queries that the model was trained on.
    epochs : int, default 3
        Number of passes over the pairs.
    learning_rate : float, default 1e-5
        Maximum learning rate. It is reached after a tenth of the steps and then falls to 0.
    batch_size : int, default 16
        Number of pairs in a batch.
    max_length : int, optional
        Maximum tokens of a pair. Default: 256, or the model's maximum if that is less.
    frozen_layers : int, default 0
        Number of first encoder layers that are not trained. If above 0, the embeddings are not trained either.
    held_out : float, default 0.1
        Share of the groups that F1 is measured on instead of training on them.
    precision, device : optional
        As for :class:`CrossPairs`. It has not been run on a GPU.
    random_state : int, default 0
        Seed of the held-out groups and of the training.

    Raises
    ------
    InputError
        A parameter is out of range, a column is missing, a text is empty, the pairs are all of one class, the model has
        no pooler, or the loss becomes infinite.
    OutputExistsError
        The folder is not empty.
    """
    settings = {name: value for name, value in locals().items() if name in _RANGES}
    check_parameters("train_pair_encoder", settings, _RANGES)
    check_output(Path(out))
    torch, start = import_optional("torch", "neural"), time.perf_counter()
    import_optional("accelerate", "train")
    table, rng = _labelled(pairs), np.random.default_rng(random_state)
    groups = np.unique(table["group"].to_numpy())
    n_held_out = min(round(held_out * len(groups)), len(groups) - 1)
    is_held_out = table["group"].isin(rng.permutation(groups)[:n_held_out])
    learned, measured = table[~is_held_out], table[is_held_out]
    if learned["label"].nunique() < 2:
        raise InputError(
            f"expected positive and negative pairs to train on, found {len(learned)} of one class; the other "
            f"{len(table) - len(learned)} pairs are held out"
        )
    reader = CrossPairs(model, max_length=max_length, precision=precision, device=device)
    with torch.random.fork_rng(devices=[]), quiet_transformers(), tempfile.TemporaryDirectory() as work:
        seed = int(rng.integers(2**31))
        torch.manual_seed(seed)
        trained = _cross_encoder(reader, frozen_layers)
        history = _train(trained, reader, learned, measured, settings, seed, work)
    losses = [float(entry["loss"]) for entry in history if "loss" in entry]
    if not np.isfinite(losses).all():
        raise InputError(f"the loss is not finite at learning_rate={learning_rate}; lower learning_rate")
    f1 = [float(entry["eval_f1"]) for entry in history if "eval_f1" in entry]
    done = TrainedPairs(str(out), len(learned), int(learned["label"].sum()), time.perf_counter() - start, losses, f1)
    with whole_folder(Path(out)) as aside, quiet_transformers():
        trained.model.save_pretrained(aside)
        reader.tokenizer.save_pretrained(aside)
        trained_on = queries_of_model(str(model)).union(learned["query_id"])
        seen = {"trained_on": sorted(trained_on), "selected_on": []}
        facts = {"pairs": done.pairs, "positives": done.positives, "losses": losses, "f1": f1}
        write_json(aside / TRAINING, seen | {"model": str(model), "settings": settings} | facts)
    return done


def _labelled(pairs: Frame) -> pd.DataFrame:
    """Return one row for each pair: ``first``, ``second``, ``label``, ``group``, ``query_id``."""
    names = column_names(pairs)
    negatives = [name for name in names if name == "negative" or name.startswith("negative_")]
    if not negatives:
        raise InputError(f"'pairs' must have a column 'negative', found {', '.join(names)}")
    more = [name for name in ("query_id",) if name in names]
    table = to_pandas(pairs, ["anchor", "positive", *negatives, "group", *more], "pairs")
    if not len(table):
        raise InputError("'pairs' must have at least one row, found none")
    parts = []
    for name in ("positive", *negatives):
        part = table[["anchor", name, "group", *more]].rename(columns={"anchor": "first", name: "second"})
        parts.append(part.assign(label=name == "positive"))
    labelled = pd.concat(parts, ignore_index=True).dropna(subset=["second"])
    for side in ("first", "second"):
        labelled[side] = check_texts(labelled[side].tolist())
    labelled["query_id"] = labelled["query_id" if more else "group"].astype(str)
    labelled = labelled.sort_values("label", ascending=False, kind="stable")  # the first of duplicates is kept
    return labelled.drop_duplicates(["first", "second"]).sort_index().reset_index(drop=True)


def _cross_encoder(reader: CrossPairs, frozen_layers: int) -> Any:
    """Load the model as a cross-encoder with a new one-logit head and frozen first layers."""
    library, torch = import_optional("sentence_transformers", "neural"), import_optional("torch", "neural")
    cross_encoder = library.CrossEncoder(
        reader.name,
        num_labels=1,
        max_length=reader.max_length,
        device=str(reader.model.device),
        model_kwargs={"ignore_mismatched_sizes": True},
    )
    with torch.no_grad():
        for name, value in cross_encoder.model.named_parameters():
            if not name.startswith(cross_encoder.model.base_model_prefix):
                value.normal_(0, 0.02) if value.ndim > 1 else value.zero_()
    transformer = getattr(cross_encoder.model, cross_encoder.model.base_model_prefix)
    layers = list(getattr(getattr(transformer, "encoder", transformer), "layer", ()))
    if frozen_layers > len(layers):
        raise InputError(f"frozen_layers must be at most {len(layers)} for this model, found {frozen_layers}")
    for module in [transformer.embeddings, *layers[:frozen_layers]] if frozen_layers else []:
        module.requires_grad_(False)
    return cross_encoder


def _train(
    model: Any,
    reader: CrossPairs,
    learned: pd.DataFrame,
    measured: pd.DataFrame,
    settings: dict[str, Any],
    seed: int,
    work: str,
) -> list[dict[str, Any]]:
    """Train a cross-encoder and return the log of the trainer."""
    torch, library = import_optional("torch", "neural"), import_optional("sentence_transformers.cross_encoder")
    evaluator: Any = import_optional("sentence_transformers.base.evaluation").BaseEvaluator
    sampler: Any = import_optional("sentence_transformers.base.sampler").DefaultBatchSampler
    lengths = (learned["first"].str.len() + learned["second"].str.len()).to_numpy()
    size, rng = settings["batch_size"], np.random.default_rng(seed)
    on_cpu = reader.model.device.type == "cpu"

    class PositiveF1(evaluator):  # type: ignore[misc]
        def __call__(self, model: Any, *_: Any, **__: Any) -> dict[str, float]:
            texts, label = list(zip(measured["first"], measured["second"], strict=True)), measured["label"].to_numpy()
            positive = model.predict(texts, activation_fn=torch.nn.Identity(), show_progress_bar=False) > 0
            return {"f1": float(2 * (positive & label).sum() / max(1, positive.sum() + label.sum()))}

    class SimilarLengths(sampler):  # type: ignore[misc]
        """Yield shuffled batches of pairs of similar length, which need less padding."""

        def __iter__(self) -> Iterator[list[int]]:
            order = rng.permutation(len(lengths))
            pools = np.split(order, range(_BATCHES_PER_POOL * size, len(order), _BATCHES_PER_POOL * size))
            pools = [pool[np.argsort(-lengths[pool], kind="stable")] for pool in pools]
            batches = [batch for pool in pools for batch in np.split(pool, range(size, len(pool), size))]
            return (batches[number].tolist() for number in rng.permutation(len(batches)))

        def __len__(self) -> int:
            return -(-len(learned) // int(size))

    arguments = library.CrossEncoderTrainingArguments(
        output_dir=work,
        num_train_epochs=settings["epochs"],
        per_device_train_batch_size=size,
        batch_sampler=SimilarLengths,
        learning_rate=settings["learning_rate"],
        warmup_steps=0.1,  # share of all steps
        weight_decay=0.01,
        bf16=reader.precision == "bfloat16",
        use_cpu=on_cpu,
        dataloader_pin_memory=not on_cpu,
        eval_strategy="epoch" if len(measured) else "no",
        logging_strategy="epoch",
        logging_nan_inf_filter=False,
        save_strategy="no",
        disable_tqdm=True,
        report_to="none",
        seed=seed,
    )
    columns = {"first": learned["first"].tolist(), "second": learned["second"].tolist()}
    dataset = import_optional("datasets", "train").Dataset.from_dict(
        columns | {"label": learned["label"].astype(float)}
    )
    trainer = library.CrossEncoderTrainer(
        model=model,
        args=arguments,
        train_dataset=dataset,
        loss=library.losses.BinaryCrossEntropyLoss(model),
        evaluator=PositiveF1() if len(measured) else None,
    )
    trainer.remove_callback(import_optional("transformers").PrinterCallback)
    trainer.train()
    return list(trainer.state.log_history)
