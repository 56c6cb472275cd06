"""Stage 1 of BERT-PLI: fine-tune a transformer to tell which pairs of paragraphs belong together.

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
from numpy.typing import NDArray

from haybale.embeddings.lineage import TRAINING
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
_POOL = 50  # batches of similar length are drawn from the pairs of so many batches


@dataclass(frozen=True)
class TrainedPairs:
    """What training did.

    Attributes
    ----------
    model : str
        The folder of the trained model.
    pairs, positives : int
        Pairs that it learned from, and how many of them belong together.
    seconds : float
    losses : list of float
        Mean loss of each epoch.
    f1 : list of float
        F1 of the positive class after each epoch, on the pairs of held-out queries; empty without any.
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
    """Fine-tune a transformer to tell pairs of paragraphs that belong together from others.

    It is trained by the CrossEncoderTrainer of sentence-transformers, with one logit over the pooler and binary
    cross-entropy: the paper's two-class softmax, in the difference of its logits. The folder is a cross-encoder of
    sentence-transformers and a model of transformers, so ``CrossPairs(out)`` reads its pooler and
    ``CrossPairs(out, read="score")`` its score. (Extras ``neural`` and ``train``.)

    Parameters
    ----------
    model : str or Path
        Hub id or folder of a transformer with a pooler, such as BERT. A cross-encoder gets a new head.
    pairs : frame, or table of pyarrow
        ``anchor``, ``positive`` and ``negative`` (or ``negative_1`` …), texts; ``group``, which queries of one document
        share; and ``query_id``, if known. Equal pairs count once, as positive if any of them is.
    out : str or Path
        A new or empty folder. ``training.json`` in it has the ids of the queries that the model learned from.
    epochs : int, default 3
    learning_rate : float, default 1e-5
        Reached after a tenth of the steps, then falling to 0.
    batch_size : int, default 16
    max_length : int, optional
        Tokens of a pair. Default: 256, or what the model reads if that is less.
    frozen_layers : int, default 0
        Number of the encoder's first layers that are not trained; with any, the embeddings are not trained either.
    held_out : float, default 0.1
        Share of the groups that F1 is measured on instead of learning from them.
    precision, device : optional
        As of :class:`CrossPairs`. It has not been run on a GPU.
    random_state : int, default 0

    Raises
    ------
    InputError
        There are only positives, a missing column, an empty text, a model without a pooler, or nothing to learn from.
    """
    settings = {name: value for name, value in locals().items() if name in _RANGES}
    check_parameters("train_pair_encoder", settings, _RANGES)
    check_output(Path(out))
    torch, start = import_optional("torch", "neural"), time.perf_counter()
    import_optional("accelerate", "train")
    table, rng = _labelled(pairs), np.random.default_rng(random_state)
    kept = _held_out(table["group"].to_numpy(), held_out, rng)
    learned, measured = table[~kept], table[kept]
    if learned["label"].nunique() < 2:
        raise InputError(f"of {len(table)} pairs {len(learned)} are learned from, all of them of one kind")
    reader = CrossPairs(model, max_length=max_length, precision=precision, device=device)
    with torch.random.fork_rng(devices=[]), quiet_transformers(), tempfile.TemporaryDirectory() as work:
        seed = int(rng.integers(2**31))
        torch.manual_seed(seed)
        trained = _cross_encoder(reader, frozen_layers)
        history = _train(trained, reader, learned, measured, settings, seed, work)
    losses = [float(entry["loss"]) for entry in history if "loss" in entry]
    if not np.isfinite(losses).all():
        raise InputError(f"training diverged at learning_rate={learning_rate}: the loss is not finite")
    f1 = [float(entry["eval_f1"]) for entry in history if "eval_f1" in entry]
    done = TrainedPairs(str(out), len(learned), int(learned["label"].sum()), time.perf_counter() - start, losses, f1)
    with whole_folder(Path(out)) as aside, quiet_transformers():
        trained.model.save_pretrained(aside)
        reader.tokenizer.save_pretrained(aside)
        seen = {"trained_on": sorted(set(learned["query_id"])), "selected_on": []}
        facts = {"pairs": done.pairs, "positives": done.positives, "losses": losses, "f1": f1}
        write_json(aside / TRAINING, seen | {"model": str(model), "settings": settings} | facts)
    return done


def _labelled(pairs: Frame) -> pd.DataFrame:
    """Return one row for each pair: ``first``, ``second``, ``label``, ``group``, ``query_id``."""
    names = column_names(pairs)
    negatives = [name for name in names if name == "negative" or name.startswith("negative_")]
    if not negatives:
        raise InputError("pairs have only positives: there is no column negative")
    more = [name for name in ("query_id",) if name in names]
    table = to_pandas(pairs, ["anchor", "positive", *negatives, "group", *more], "pairs")
    if not len(table):
        raise InputError("pairs hold no row")
    parts = []
    for name in ("positive", *negatives):
        part = table[["anchor", name, "group", *more]].rename(columns={"anchor": "first", name: "second"})
        parts.append(part.assign(label=name == "positive"))
    found = pd.concat(parts, ignore_index=True).dropna(subset=["second"])
    for side in ("first", "second"):
        check_texts(found[side].tolist())
    found["query_id"] = found["query_id" if more else "group"].astype(str)
    found = found.sort_values("label", ascending=False, kind="stable")  # positives first: of equal pairs one is kept
    return found.drop_duplicates(["first", "second"]).sort_index().reset_index(drop=True)


def _held_out(groups: NDArray[Any], share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return (n,) whether the group of each pair is held out; at least one group is not."""
    distinct = np.unique(groups)
    count = min(round(share * len(distinct)), len(distinct) - 1)
    return np.isin(groups, rng.permutation(distinct)[:count])


def _cross_encoder(reader: CrossPairs, frozen_layers: int) -> Any:
    """Load the model as a cross-encoder with a new head of one logit, its first layers frozen."""
    library, torch = import_optional("sentence_transformers", "neural"), import_optional("torch", "neural")
    found = library.CrossEncoder(
        reader.name,
        num_labels=1,
        max_length=reader.max_length,
        device=str(reader.model.device),
        model_kwargs={"ignore_mismatched_sizes": True},
    )
    with torch.no_grad():
        for name, value in found.model.named_parameters():
            if not name.startswith(found.model.base_model_prefix):
                value.normal_(0, 0.02) if value.ndim > 1 else value.zero_()
    own = getattr(found.model, found.model.base_model_prefix)
    layers = list(getattr(getattr(own, "encoder", own), "layer", ()))
    if frozen_layers > len(layers):
        raise InputError(f"frozen_layers is {frozen_layers}, and the model has {len(layers)} layers")
    for module in [own.embeddings, *layers[:frozen_layers]] if frozen_layers else []:
        module.requires_grad_(False)
    return found


def _train(
    model: Any,
    reader: CrossPairs,
    learned: pd.DataFrame,
    measured: pd.DataFrame,
    settings: dict[str, Any],
    seed: int,
    work: str,
) -> list[dict[str, Any]]:
    """Train a cross-encoder and return the trainer's log."""
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
        """Shuffled batches of pairs of similar length, which need less padding."""

        def __iter__(self) -> Iterator[list[int]]:
            order = rng.permutation(len(lengths))
            pools = np.split(order, range(_POOL * size, len(order), _POOL * size))
            pools = [pool[np.argsort(-lengths[pool], kind="stable")] for pool in pools]
            batches = [batch for pool in pools for batch in np.split(pool, range(size, len(pool), size))]
            return (batches[place].tolist() for place in rng.permutation(len(batches)))

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
