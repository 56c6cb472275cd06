"""Stage 1 of BERT-PLI: a transformer learns which pairs of paragraphs belong together, for its pooler or its score.

Shao et al., "BERT-PLI", IJCAI 2020, section 3.2; Althammer et al., ECIR 2021, section 3.2.
"""

from __future__ import annotations

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
from haybale.extras import import_optional
from haybale.folders import check_output, whole_folder, write_json
from haybale.frames import Frame, column_names, to_pandas
from haybale.pairs.pair_encoders import PAIR_RANGES, CrossPairs, longest_first
from haybale.parameters import COUNT, FROM_0, NOT_NEGATIVE, POSITIVE, RANDOM_STATE, SHARE, Constraints, check_parameters
from haybale.progress import track

_RANGES: dict[str, Constraints] = {
    "epochs": COUNT,
    "learning_rate": POSITIVE,
    "batch_size": COUNT,
    "weight_decay": NOT_NEGATIVE,
    "warmup": SHARE,
    "frozen_layers": FROM_0,
    "held_out": SHARE,
    "max_length": PAIR_RANGES["max_length"],
    "precision": PAIR_RANGES["precision"],
    "device": PAIR_RANGES["device"],
    "random_state": RANDOM_STATE,
}
_POOL = 50  # batches of neighbours in length are made of so many batches' pairs


@dataclass(frozen=True)
class TrainedPairs:
    """What training did: ``pairs`` of which ``positives`` belong together, ``seconds``, the mean loss of each epoch.

    ``f1`` is that of yes, after each epoch, on the pairs of queries that were held out; empty without.
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
    weight_decay: float = 0.01,
    warmup: float = 0.1,
    frozen_layers: int = 0,
    held_out: float = 0.1,
    precision: str = "auto",
    device: str | None = None,
    random_state: int | None = 0,
) -> TrainedPairs:
    """Train a transformer to tell pairs of paragraphs that belong together from others, and write it to a folder.

    One logit over the pooler's output, and the cross-entropy of yes and no: the paper's two-class softmax, in the
    difference of its logits. The folder is a cross-encoder of sentence-transformers and a model of transformers, so
    that ``CrossPairs(out)`` has its pooler and ``CrossPairs(out, read="score")`` its score.

    Parameters
    ----------
    model : str or Path
        Hub id or folder of a transformer with a pooler, such as BERT.
    pairs : frame, or table of pyarrow
        ``anchor``, ``positive`` and ``negative`` (or ``negative_1`` …), texts; ``group``, which queries of one document
        share; and, where known, ``query_id``. Equal pairs count once, one that is positive anywhere as positive.
    out : str or Path
        A new or empty folder.
    epochs : int, default 3
    learning_rate : float, default 1e-5
        Reached after the ``warmup`` share of the steps, then falling to 0.
    batch_size : int, default 16
    max_length : int, optional
        Tokens of a pair; default: 256, or what the model reads where that is less.
    weight_decay : float, default 0.01
    warmup : float, default 0.1
    frozen_layers : int, default 0
        Of the encoder's layers, from the first, that stay as they are; with any, the embeddings do too.
    held_out : float, default 0.1
        Share of the groups that is not learned from, but measured by; 0: none.
    precision, device : optional
        As of :class:`CrossPairs`; ``"auto"`` is float32 on a CPU. Written for a GPU, it has not run on one.
    random_state : int, default 0

    Returns
    -------
    TrainedPairs

    Raises
    ------
    InputError
        Only positives, a missing column, an empty text, a model without a pooler, nothing left to learn from.
    """
    values = {name: value for name, value in locals().items() if name in _RANGES}
    check_parameters("train_pair_encoder", values, _RANGES)
    check_output(Path(out))
    torch, start = import_optional("torch", "neural"), time.perf_counter()
    table = _labelled(pairs)
    rng = np.random.default_rng(random_state)
    kept = _held_out(table["group"].to_numpy(), held_out, rng)
    learned, measured = table[~kept], table[kept]
    if learned["label"].nunique() < 2:
        raise InputError(f"of {len(table)} pairs {len(learned)} are learned from, all of them of one kind")
    reader = CrossPairs(model, max_length=max_length, precision=precision, device=device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**31)))
        trained = _with_score(reader)
        parameters = _trainable(trained, frozen_layers)
        optimiser = torch.optim.AdamW(parameters, lr=learning_rate, weight_decay=weight_decay)
        n_steps = epochs * -(-len(learned) // batch_size)
        rise = max(1, round(warmup * n_steps))
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimiser, lambda step: min((step + 1) / rise, (n_steps - step) / max(1, n_steps - rise))
        )
        losses, f1 = [], []
        for epoch in range(epochs):
            trained.train()
            total = 0.0
            batches = list(_batches(reader, learned, batch_size, rng))
            for rows, inputs in track(batches, f"training, epoch {epoch + 1} of {epochs}"):
                target = torch.tensor(learned["label"].to_numpy()[rows], dtype=torch.float32, device=trained.device)
                loss = torch.nn.functional.binary_cross_entropy_with_logits(_logits(reader, trained, inputs), target)
                optimiser.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(parameters, 1.0)
                optimiser.step()
                schedule.step()
                total += float(loss.detach()) * len(rows)
            losses.append(total / len(learned))
            if not np.isfinite(losses[-1]):
                raise InputError(f"training diverged at learning_rate={learning_rate}: the loss is no number")
            if len(measured):
                f1.append(_f1(reader, trained, measured))
    done = TrainedPairs(str(out), len(learned), int(learned["label"].sum()), time.perf_counter() - start, losses, f1)
    with whole_folder(Path(out)) as aside:
        trained.eval().float().save_pretrained(aside)
        reader.tokenizer.save_pretrained(aside)
        seen = {"trained_on": sorted(set(learned["query_id"])), "selected_on": []}
        facts = {"pairs": done.pairs, "positives": done.positives, "losses": losses, "f1": f1}
        write_json(aside / TRAINING, seen | {"model": str(model), "settings": values} | facts)
    return done


def _labelled(pairs: Frame) -> pd.DataFrame:
    """A row a pair: ``first``, ``second``, ``label``, ``group``, ``query_id``."""
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
    if not more:
        found["query_id"] = found["group"].astype(str)
    found["query_id"] = found["query_id"].astype(str)
    found = found.sort_values("label", ascending=False, kind="stable")  # what is positive anywhere stays so
    return found.drop_duplicates(["first", "second"]).sort_index().reset_index(drop=True)


def _held_out(groups: NDArray[Any], share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """(n,) whether a pair is of a group that is not learned from; one group at least is."""
    distinct = np.unique(groups)
    count = min(round(share * len(distinct)), len(distinct) - 1)
    return np.isin(groups, rng.permutation(distinct)[:count])


def _with_score(reader: CrossPairs) -> Any:
    """The model with one logit over its pooler, of the architecture's own class."""
    library, torch = import_optional("transformers", "neural"), import_optional("torch", "neural")
    config = type(reader.model.config).from_dict(reader.model.config.to_dict())
    config.num_labels = 1
    found = library.AutoModelForSequenceClassification.from_config(config).to(reader.model.device)
    own = getattr(found, found.base_model_prefix)
    own.load_state_dict(reader.model.state_dict())
    with torch.no_grad():
        for name, value in found.named_parameters():
            if not name.startswith(found.base_model_prefix):
                value.normal_(0, 0.02) if value.ndim > 1 else value.zero_()
    return found


def _trainable(model: Any, frozen_layers: int) -> list[Any]:
    """The parameters that are learned."""
    own = getattr(model, model.base_model_prefix)
    layers = list(getattr(getattr(own, "encoder", own), "layer", ()))
    if frozen_layers > len(layers):
        raise InputError(f"frozen_layers is {frozen_layers}, and the model has {len(layers)} layers")
    for module in [own.embeddings, *layers[:frozen_layers]] if frozen_layers else []:
        module.requires_grad_(False)
    return [value for value in model.parameters() if value.requires_grad]


def _batches(
    reader: CrossPairs, table: pd.DataFrame, size: int, rng: np.random.Generator | None
) -> Iterator[tuple[NDArray[np.int64], dict[str, Any]]]:
    """Rows of each batch and its inputs: neighbours in length among those that chance has put together."""
    tokens = [reader._rows(table[side].tolist()) for side in ("first", "second")]
    first, second = (np.array([n for _, n in side], dtype=np.int64) for side in tokens)
    kept = longest_first(first, second, reader.max_length - sum(map(len, reader._special.tokens)))
    order = np.arange(len(table)) if rng is None else rng.permutation(len(table))
    pools = np.split(order, range(_POOL * size, len(order), _POOL * size))
    sorted_pools = [pool[np.argsort(-kept[pool].sum(axis=1), kind="stable")] for pool in pools]
    batches = [batch for pool in sorted_pools for batch in np.split(pool, range(size, len(pool), size))]
    for place in range(len(batches)) if rng is None else rng.permutation(len(batches)):
        rows = batches[place]
        cut = [(tokens[0][row][0][: kept[row, 0]], tokens[1][row][0][: kept[row, 1]]) for row in rows.tolist()]
        yield rows, reader._special.joined(cut)


def _logits(reader: CrossPairs, model: Any, inputs: dict[str, Any]) -> Any:
    torch = import_optional("torch")
    with reader._autocast():
        out = model(**{name: torch.from_numpy(values).to(model.device) for name, values in inputs.items()})
    return out.logits[:, 0].float()


def _f1(reader: CrossPairs, model: Any, table: pd.DataFrame) -> float:
    """Of yes."""
    torch, yes = import_optional("torch"), np.zeros(len(table), dtype=bool)
    model.eval()
    with torch.inference_mode():
        for rows, inputs in _batches(reader, table, 64, None):
            yes[rows] = (_logits(reader, model, inputs) > 0).cpu().numpy()
    label = table["label"].to_numpy()
    return float(2 * (yes & label).sum() / max(1, yes.sum() + label.sum()))
