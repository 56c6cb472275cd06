"""BERT-PLI: a recurrent network with attention scores a document by its interactions with the query's paragraphs.

Shao et al., "BERT-PLI: Modeling Paragraph-Level Interactions for Legal Case Retrieval", IJCAI 2020; Althammer et al.,
"Cross-domain Retrieval in the Legal and Patent Domains: a Reproducibility Study", ECIR 2021.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from haybale.collections.collection import Ints, ragged_take
from haybale.embeddings.torch_models import torch_device
from haybale.errors import FileFormatError, InputError, NotFittedError
from haybale.extras import import_optional
from haybale.folders import whole_folder
from haybale.manifest import check_files, read_manifest, read_tensors, write_manifest, write_tensors
from haybale.pairs.interactions import Interactions
from haybale.parameters import (
    BOOLEAN,
    COUNT,
    NOT_NEGATIVE,
    POSITIVE,
    RANDOM_STATE,
    TEXT_OR_NONE,
    Constraints,
    Interval,
    check_parameters,
    one_of,
)
from haybale.progress import track

Scores = NDArray[np.float64]

FORMAT, VERSION = "haybale BERT-PLI", 1
_WEIGHTS = "weights.safetensors"
_BLOCKS_AT_ONCE = 256  # blocks that are scored at once
# A column is centred but not scaled if its standard deviation is below this share of its largest value.
_MIN_RELATIVE_DEVIATION = 1e-7
# The authors' configuration where it differs from the defaults.
PAPER: dict[str, Any] = {"variant": "paper", "loss": "binary", "residual": False, "hidden": 256}
PAPER |= {"epochs": 60, "learning_rate": 1e-4, "weight_decay": 1e-6, "batch_size": 64, "held_out": 0.0}


@dataclass(eq=False, repr=False, kw_only=True)
class BERTPLI:
    """Score blocks of interactions. A block is a matrix x (n, d), with one row for each query paragraph.

        H = GRU(x);  u = W_a · max_t H_t + b_a;  α = softmax_t(H_t · u);  logits = W_f · Σ_t α_t H_t + b_f

    The score is the difference of the two logits, averaged over the seeds. With a residual, β times the candidate's
    standardised first-stage score is added. W_f then starts at 0, and β and b_f start at the values that fit best
    without a network, so that training starts from the run that is re-ranked. Needs the extra ``neural``.

    Parameters
    ----------
    cell : {"gru", "lstm"}, default "gru"
        Recurrent cell.
    hidden : int, default 64
        Width of H; 256 in the paper.
    variant : {"masked", "paper"}, default "masked"
        ``"masked"`` ignores missing paragraphs and standardises columns by the training blocks. ``"paper"`` treats
        missing paragraphs as padding, as the authors' code does: padding enters the maximum of documents with fewer
        than m passages, and fills the rows of queries with fewer than n paragraphs.
    loss : {"listwise", "binary"}, default "listwise"
        ``"listwise"`` is −log of the softmax mass of the relevant documents among a query's candidates; ``"binary"`` is
        the cross-entropy of each block.
    residual : bool, default True
        Whether to add β times the standardised first-stage score.
    n_seeds : int, default 3
        Number of networks, each trained with its own seed.
    epochs : int, default 10
        Number of passes over the training blocks.
    learning_rate, weight_decay : float, default 2e-4 and 1e-4
        Parameters of Adam.
    batch_size : int, default 64
        Blocks of a step. With the listwise loss, the blocks of a query are in one step.
    held_out : float, default 0.2
        Share of the queries held out for early stopping, sampled for each seed. The weights with the smallest loss on
        them are kept, including the initial weights. With 0 the last epoch's weights are kept, as in the paper.
    device : str, optional
        ``"cpu"`` (the default) or ``"cuda"``; it has not been run on a GPU.
    random_state : int, default 0
        The first seed; the others follow it.

    Attributes
    ----------
    threshold_ : float
        The threshold of :meth:`decide`: 0 for the binary loss, as in the paper, and the value with the best micro-F1
        on the training blocks for the listwise loss.
    n_queries_, n_blocks_, n_relevant_ : int
        Numbers of queries, blocks and relevant blocks in training.
    losses_ : list of list of float
        For each seed, the mean loss of each epoch.
    held_out_losses_ : list of list of float
        For each seed, the loss on held-out queries before the first epoch and after each epoch.
    """

    _parameter_constraints: ClassVar[dict[str, Constraints]] = {
        "cell": one_of(["gru", "lstm"]),
        "hidden": COUNT,
        "variant": one_of(["masked", "paper"]),
        "loss": one_of(["listwise", "binary"]),
        "residual": BOOLEAN,
        "n_seeds": COUNT,
        "epochs": COUNT,
        "learning_rate": POSITIVE,
        "weight_decay": NOT_NEGATIVE,
        "batch_size": COUNT,
        "held_out": [Interval(Real, 0, 1, closed="left")],
        "device": TEXT_OR_NONE,
        "random_state": RANDOM_STATE,
    }

    cell: str = "gru"
    hidden: int = 64
    variant: str = "masked"
    loss: str = "listwise"
    residual: bool = True
    n_seeds: int = 3
    epochs: int = 10
    learning_rate: float = 2e-4
    weight_decay: float = 1e-4
    batch_size: int = 64
    held_out: float = 0.2
    device: str | None = None
    random_state: int | None = 0

    def get_params(self) -> dict[str, Any]:
        """Return the parameters of the constructor."""
        return {name: getattr(self, name) for name in self._parameter_constraints}

    def fit(self, interactions: Interactions, relevant: Mapping[str, Collection[str]]) -> Self:
        """Train the networks on the blocks of judged queries.

        Parameters
        ----------
        interactions : Interactions
        relevant : mapping of str to collection of str
            The ids of each query's relevant documents. Blocks of other queries are ignored.

        Raises
        ------
        InputError
            A parameter is out of range, there is no block of a judged query, all or none of the candidates are
            relevant, or the loss becomes infinite.
        """
        check_parameters("BERTPLI", self.get_params(), self._parameter_constraints)
        torch = import_optional("torch", "neural")
        self.settings_, self.padding_ = interactions.settings, interactions.padding
        chosen, labels = self._labelled(interactions, relevant)
        data = interactions.take(chosen)
        self.mean_ = self.scale_ = None
        if self.variant == "masked":
            values = data.values.astype(np.float32)
            self.mean_, deviation = values.mean(axis=0), values.std(axis=0)
            is_flat = deviation <= _MIN_RELATIVE_DEVIATION * np.abs(values).max(axis=0)
            self.scale_ = np.where(is_flat, 1.0, 1 / np.where(is_flat, 1.0, deviation)).astype(np.float32)
        groups = data.blocks.groupby("query_id", sort=False).indices.values()
        levels = data.blocks["level"].to_numpy()
        start = self._first_stage_fit(levels, labels, list(groups)) if self.residual else np.zeros(2)
        rng = np.random.default_rng(self.random_state)
        first = int(rng.integers(2**31)) if self.random_state is None else self.random_state
        self._networks, self.losses_, self.held_out_losses_ = [], [], []
        with torch.random.fork_rng(devices=[]):
            for seed in range(first, first + self.n_seeds):
                network, losses, chosen_by = self._trained(data, labels, list(groups), seed, start)
                self._networks.append(network)
                self.losses_.append(losses)
                self.held_out_losses_.append(chosen_by)
        self.n_blocks_, self.n_relevant_ = len(data), int(labels.sum())
        self.n_queries_ = data.blocks["query_id"].nunique()
        self.threshold_ = 0.0 if self.loss == "binary" else best_threshold(self.score(data), labels)
        return self

    def _labelled(
        self, interactions: Interactions, relevant: Mapping[str, Collection[str]]
    ) -> tuple[Any, NDArray[np.bool_]]:
        """Return the numbers of the blocks to learn from, and whether each is relevant."""
        blocks = interactions.blocks
        judged = {query: set(documents) for query, documents in relevant.items() if len(documents)}
        if not blocks["query_id"].isin(list(judged)).any():
            raise InputError("'relevant' must name queries of the interactions, found none; give judgements of these")
        pairs = zip(blocks["query_id"], blocks["doc_id"], strict=True)
        labels = np.array([document in judged.get(query, ()) for query, document in pairs])
        used = blocks["query_id"].isin(list(judged)).to_numpy()
        if not labels[used].any():
            n_judged = blocks["query_id"][used].nunique()
            raise InputError(
                f"expected a relevant candidate, found none among the {int(used.sum())} candidates of {n_judged} "
                "judged queries; take more candidates, or add the relevant documents"
            )
        if labels[used].all():
            raise InputError(f"expected candidates that are not relevant, found {int(used.sum())} relevant ones only")
        if self.loss == "listwise":
            share = pd.Series(labels, dtype=float).groupby(blocks["query_id"].to_numpy()).transform("mean").to_numpy()
            used = used & (share > 0) & (share < 1)
            if not used.any():
                raise InputError(
                    'loss="listwise" needs a query with a relevant candidate and another one; take more candidates, or '
                    'set loss="binary"'
                )
        chosen = np.flatnonzero(used)
        return chosen, labels[chosen]

    def _first_stage_fit(self, levels: Scores, labels: Any, groups: list[Any]) -> Scores:
        """Return β, and the constant b_f for the binary loss, that fit best without a network.

        Uses Newton's method; for the listwise loss with the Hessian of its convex part only.
        """
        beta = np.zeros(2)
        features = np.stack([levels, np.ones_like(levels)], axis=1)
        for _ in range(30):
            scores, gradient, hessian = features @ beta, np.zeros(2), 1e-3 * np.eye(2)
            if self.loss == "binary":
                p = 1 / (1 + np.exp(-scores))
                gradient = features.T @ (p - labels)
                hessian = hessian + (features * (p * (1 - p))[:, None]).T @ features
            else:
                for at in groups:
                    p, q = softmax(scores[at]), softmax(np.where(labels[at], scores[at], -np.inf))
                    x = levels[at]
                    gradient[0] += (p - q) @ x
                    hessian[0, 0] += p @ x**2 - (p @ x) ** 2
            step = np.linalg.solve(hessian, gradient + 1e-3 * beta)
            beta = beta - np.clip(step, -2, 2)
            if np.abs(step).max() < 1e-6:
                break
        return beta

    def _network(self, d: int) -> Any:
        torch = import_optional("torch", "neural")
        cell = torch.nn.GRU if self.cell == "gru" else torch.nn.LSTM
        network = torch.nn.ModuleDict(
            {
                "rnn": cell(d, self.hidden, batch_first=True),
                "attention": torch.nn.Linear(self.hidden, self.hidden),
                "final": torch.nn.Linear(self.hidden, 2),
                "first_stage": torch.nn.Linear(1, 1, bias=False),
            }
        )
        return network.to(torch_device(self.device or "cpu"))

    def _trained(
        self, data: Interactions, labels: Any, groups: list[Any], seed: int, start: Scores
    ) -> tuple[Any, list[float], list[float]]:
        """Train one network; return it with the losses of each epoch on the training and the held-out queries."""
        torch = import_optional("torch")
        torch.manual_seed(seed)
        network, rng = self._network(data.values.shape[1]), np.random.default_rng(seed)
        with torch.no_grad():
            network["first_stage"].weight.fill_(start[0])
            if self.residual:
                network["final"].weight.zero_()
                network["final"].bias.copy_(torch.tensor([0.0, start[1]]))
        how = {"lr": self.learning_rate, "weight_decay": self.weight_decay}
        learned = [value for name, value in network.named_parameters() if self.residual or "first_stage" not in name]
        optimiser, losses, chosen_by = torch.optim.Adam(learned, **how), [], []
        order = rng.permutation(len(groups))
        n_held = min(round(self.held_out * len(groups)), len(groups) - 1)
        held, groups = [groups[number] for number in order[:n_held]], [groups[number] for number in order[n_held:]]
        best: Any = None

        def keep() -> None:
            nonlocal best
            chosen_by.append(self._held_out_loss(network, data, labels, held))
            if chosen_by[-1] == min(chosen_by):
                best = {name: value.clone() for name, value in network.state_dict().items()}

        if held:
            keep()
        for _ in track(range(self.epochs), f"training, seed {seed}"):
            total, count = 0.0, 0
            for numbers, sizes in self._steps(groups, rng):
                logits, _ = self._forward(network, data, numbers)
                loss = _loss(torch, logits, labels[numbers], sizes)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                n = len(sizes) or len(numbers)
                total, count = total + float(loss.detach()) * n, count + n
            losses.append(total / count)
            if held:
                keep()
        if not np.isfinite(losses[-1]):
            raise InputError(f"the loss is not finite at learning_rate={self.learning_rate}; lower learning_rate")
        if held:
            network.load_state_dict(best)
        return network.eval(), losses, chosen_by

    def _held_out_loss(self, network: Any, data: Interactions, labels: Any, groups: list[Any]) -> float:
        """Return the mean loss of queries, or of their blocks for the binary loss."""
        torch, total, count = import_optional("torch"), 0.0, 0
        with torch.inference_mode():
            for at in groups:
                logits, _ = self._forward(network, data, at)
                sizes = [] if self.loss == "binary" else [len(at)]
                n = len(sizes) or len(at)
                total, count = total + float(_loss(torch, logits, labels[at], sizes)) * n, count + n
        return total / count

    def _steps(self, groups: list[Any], rng: np.random.Generator) -> Iterator[tuple[Any, list[int]]]:
        """Yield the blocks of each step, and the number of blocks of each query (empty for the binary loss)."""
        if self.loss == "binary":
            order = rng.permutation(np.concatenate(groups))
            yield from ((order[at : at + self.batch_size], []) for at in range(0, len(order), self.batch_size))
            return
        taken: list[Any] = []
        for number in rng.permutation(len(groups)):
            taken.append(groups[number])
            if sum(map(len, taken)) >= self.batch_size:
                yield np.concatenate(taken), [*map(len, taken)]
                taken = []
        if taken:
            yield np.concatenate(taken), [*map(len, taken)]

    def _forward(self, network: Any, data: Interactions, numbers: Ints) -> tuple[Any, Any]:
        """Return the logits (n, 2) of blocks, and the contribution (n, t) of each row to their difference.

        The second logit contains the residual.
        """
        torch = import_optional("torch")
        x, lengths = self._padded(data, numbers)
        device = network["final"].weight.device
        x, lengths = torch.from_numpy(x).to(device), torch.from_numpy(lengths).to(device)
        hidden, _ = network["rnn"](x)
        outside = (torch.arange(x.shape[1], device=device)[None] >= lengths[:, None])[..., None]
        u = network["attention"](hidden.masked_fill(outside, -torch.inf).amax(dim=1))
        energy = torch.einsum("nth,nh->nt", hidden, u).masked_fill(outside[..., 0], -torch.inf)
        alpha = energy.softmax(dim=1)
        logits = network["final"](torch.einsum("nt,nth->nh", alpha, hidden))
        if self.residual:
            level = torch.from_numpy(data.levels[numbers]).to(device)
            logits = logits + torch.nn.functional.pad(network["first_stage"](level[:, None]), (1, 0))
        row_logits = network["final"](hidden)
        return logits, alpha * (row_logits[..., 1] - row_logits[..., 0])

    def _padded(self, data: Interactions, numbers: Ints) -> tuple[NDArray[np.float32], Any]:
        """Return the rows of blocks, padded to one length (n, t, d), and the lengths without padding (n,)."""
        (at, offsets), d = ragged_take(data.offsets, numbers), data.values.shape[1]
        rows = np.diff(offsets)
        if len(self.padding_) != d:
            raise InputError(f"expected interactions of width {len(self.padding_)}, found {d}")
        values = data.values[at].astype(np.float32)
        if self.mean_ is not None:
            values = (values - self.mean_) * self.scale_
        filled = np.repeat(np.arange(len(rows)), rows), np.arange(len(at)) - np.repeat(offsets[:-1], rows)
        if self.variant == "masked":
            x = np.zeros((len(rows), rows.max(), d), dtype=np.float32)
            x[filled] = values
            return x, rows.astype(np.int64)
        n, m = self.settings_["n"], self.settings_["m"]
        x = np.broadcast_to(self.padding_.astype(np.float32), (len(rows), n, d)).copy()
        short = np.repeat(data.blocks["passages"].to_numpy()[numbers] < m, rows)
        x[filled] = np.where(short[:, None], np.maximum(values, self.padding_), values)
        return x, np.full(len(rows), n, dtype=np.int64)

    def score(self, interactions: Interactions) -> Scores:
        """Return the scores (n_blocks,), averaged over the seeds. Other blocks may change their last bits."""
        return self.scores_by_seed(interactions).mean(axis=0)  # type: ignore[no-any-return]

    def scores_by_seed(self, interactions: Interactions) -> Scores:
        """Return the scores (n_seeds, n_blocks) of each network."""
        return np.stack([part for part, _ in self._scored(interactions)])

    def decide(self, interactions: Interactions, threshold: float | None = None) -> NDArray[np.bool_]:
        """Return a mask (n_blocks,) of the scores above ``threshold``, by default ``threshold_``."""
        return self.score(interactions) > (self.threshold_ if threshold is None else threshold)

    def shares(self, interactions: Interactions) -> tuple[Scores, Scores]:
        """Return the contributions of the first stage (1,) and of each row (rows + 1,) to the score of one block.

        The last row is the padding. Since Σ_t α_t = 1, W_f · Σ_t α_t H_t + b_f is the sum of α_t · (W_f · H_t + b_f).
        """
        scored = list(self._scored(interactions.take([0])))
        parts = np.mean([shares[0] for _, shares in scored], axis=0)
        of_first = float(np.mean([scores[0] for scores, _ in scored])) - float(parts.sum())
        rows = int(interactions.blocks["rows"].iloc[0])
        return np.array([of_first]), np.append(parts[:rows], parts[rows:].sum())

    def _scored(self, interactions: Interactions) -> Iterator[tuple[Scores, Scores]]:
        """Yield for each network the scores (n_blocks,) and the shares of the rows of each block (n_blocks, t)."""
        self._check_fitted()
        # "engine" may differ, since it only selects the paragraphs.
        differing = [key for key in ("pairs", "n", "m", "select") if interactions.settings[key] != self.settings_[key]]
        if differing:
            names = ", ".join(differing)
            raise InputError(f"expected interactions with the settings of the training, found a different {names}")
        torch, n = import_optional("torch", "neural"), len(interactions)
        width = int(interactions.blocks["rows"].max()) if self.variant == "masked" else self.settings_["n"]
        for network in self._networks:
            scores, shares = np.empty(n), np.zeros((n, width))
            for start in range(0, n, _BLOCKS_AT_ONCE):
                numbers = np.arange(start, min(start + _BLOCKS_AT_ONCE, n))
                with torch.inference_mode():
                    logits, parts = self._forward(network, interactions, numbers)
                scores[numbers] = (logits[:, 1] - logits[:, 0]).double().cpu().numpy()
                shares[numbers, : parts.shape[1]] = parts.double().cpu().numpy()
            yield scores, shares

    def _check_fitted(self) -> None:
        if not hasattr(self, "_networks"):
            raise NotFittedError("BERTPLI is not fitted: call fit(interactions, relevant) first")

    def save(self, folder: str | Path) -> None:
        """Write the networks to a new folder, as safetensors and JSON."""
        self._check_fitted()
        tensors = {
            f"{seed}.{name}": value.detach().cpu().numpy()
            for seed, network in enumerate(self._networks)
            for name, value in network.state_dict().items()
        }
        tensors |= {"padding": self.padding_} | (
            {} if self.mean_ is None else {"mean": self.mean_, "scale": self.scale_}
        )
        with whole_folder(Path(folder)) as aside:
            write_tensors(aside / _WEIGHTS, tensors)
            head = {"format": FORMAT, "version": VERSION, "parameters": self.get_params(), "settings": self.settings_}
            learned = {"threshold": self.threshold_, "losses": self.losses_, "queries": self.n_queries_}
            learned |= {"held_out_losses": self.held_out_losses_}
            write_manifest(aside, head | learned | {"blocks": self.n_blocks_, "relevant": self.n_relevant_})

    @classmethod
    def load(cls, folder: str | Path) -> BERTPLI:
        """Load a model that :meth:`save` wrote; raises :class:`FileFormatError` for a damaged one."""
        folder = Path(folder)
        kinds = {"parameters": dict, "settings": {"n": int, "m": int, "pairs": dict}, "threshold": float}
        manifest = read_manifest(folder, "BERT-PLI", {"format": FORMAT, "version": VERSION}, kinds)
        check_files(folder, manifest, [_WEIGHTS])
        torch, tensors = import_optional("torch", "neural"), read_tensors(folder / _WEIGHTS)
        try:
            model = cls(**manifest["parameters"])
            check_parameters("BERTPLI", model.get_params(), cls._parameter_constraints)
            model.settings_, model.threshold_ = manifest["settings"], manifest["threshold"]
            model.losses_, model.n_queries_ = manifest["losses"], manifest["queries"]
            model.held_out_losses_ = manifest["held_out_losses"]
            model.n_blocks_, model.n_relevant_ = manifest["blocks"], manifest["relevant"]
            model.padding_ = tensors.pop("padding")
            model.mean_, model.scale_ = tensors.pop("mean", None), tensors.pop("scale", None)
            model._networks = []
            for seed in range(model.n_seeds):
                network, prefix = model._network(len(model.padding_)), f"{seed}."
                state = {
                    key.removeprefix(prefix): torch.from_numpy(v)
                    for key, v in tensors.items()
                    if key.startswith(prefix)
                }
                network.load_state_dict(state)
                model._networks.append(network.eval())
        except (KeyError, TypeError, RuntimeError, InputError) as error:
            reason = str(error).splitlines()[0]
            raise FileFormatError(
                folder, None, f"not a saved BERT-PLI model ({reason}); save the model again"
            ) from None
        return model


def softmax(values: Scores) -> Scores:
    """Return the softmax of a vector; −∞ becomes 0."""
    exponentials = np.exp(values - values.max())
    return exponentials / exponentials.sum()  # type: ignore[no-any-return]


def _loss(torch: Any, logits: Any, labels: NDArray[np.bool_], sizes: list[int]) -> Any:
    """Return the listwise loss of queries with ``sizes`` blocks each, or the binary loss if ``sizes`` is empty.

    The listwise loss is the mean over queries of −log of the softmax mass of the relevant blocks.
    """
    scores = logits[:, 1] - logits[:, 0]
    target = torch.from_numpy(labels).to(scores.device)
    if not sizes:
        return torch.nn.functional.binary_cross_entropy_with_logits(scores, target.float())
    losses = [
        part.logsumexp(0) - part.masked_fill(~relevant, -torch.inf).logsumexp(0)
        for part, relevant in zip(scores.split(sizes), target.split(sizes), strict=True)
    ]
    return torch.stack(losses).mean()


def best_threshold(scores: Scores, labels: NDArray[np.bool_]) -> float:
    """Return the threshold with the best micro-F1, halfway between two scores.

    >>> best_threshold(np.array([3.0, 2.0, 1.0, 0.0]), np.array([True, True, False, True]))
    -0.5
    >>> best_threshold(np.array([3.0, 2.0, 1.0, 0.0]), np.array([True, True, False, False]))
    1.5
    """
    order = np.argsort(-scores, kind="stable")
    hits, falling = np.cumsum(labels[order]), scores[order]
    f1 = 2 * hits / (np.arange(1, len(scores) + 1) + labels.sum())
    following = np.append(falling[1:], falling[-1] - 1.0)
    f1[:-1][falling[:-1] == falling[1:]] = -1.0  # no threshold separates equal scores
    best = int(np.argmax(f1))
    return float((falling[best] + following[best]) / 2)
