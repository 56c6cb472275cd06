"""The training of context networks: losses and the loop over epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from haybale.context.networks.attention import ContextNetwork, segment_softmax
from haybale.progress import track
from haybale.retrieval.hits import Ints

# The scores (n,) of documents, the number of each document's query (0, 1, …), and whether the document is relevant.
Scored: TypeAlias = "tuple[Tensor, Ints, NDArray[np.bool_]]"


def train(
    network: ContextNetwork,
    batches: Callable[[], Iterable[Scored]],
    epochs: int,
    learning_rate: float,
    weight_decay: float,
    pairwise: bool,
) -> float:
    """Train a network with AdamW and return the mean loss of the last epoch.

    ``batches()`` iterates over the batches of one epoch and scores each batch after the step on the previous one. λ,
    the weights of relations and the scale learn ten times as fast as the matrices, without weight decay.
    """
    fast = [p for name, p in network.named_parameters() if p.ndim < 2 and "norms" not in name]
    slow = [p for p in network.parameters() if not any(p is parameter for parameter in fast)]
    rates: list[dict[str, Any]] = [{"params": slow}, {"params": fast, "lr": 10 * learning_rate, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(rates, lr=learning_rate, weight_decay=weight_decay)
    losses: list[float] = []
    for _ in track(range(epochs), "learning context"):
        losses = []
        for scores, query, relevant in batches():
            loss: Any = ranking_loss(scores * network.log_scale.exp(), query, relevant, pairwise=pairwise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    network.eval()
    return float(np.mean(losses)) if losses else 0.0


def ranking_loss(scores: Tensor, query: Ints, relevant: NDArray[np.bool_], *, pairwise: bool = False) -> Tensor:
    """Return the mean loss of queries with scored documents (n,).

    The listwise loss of a query is the mean of −log softmax over its relevant documents; the softmax is over all of its
    documents. The pairwise loss is the mean of −log σ(s⁺ − s⁻) over pairs of a relevant and another document.
    """
    n = int(query.max()) + 1
    if not pairwise:
        segment = torch.from_numpy(query).to(scores.device)
        target = torch.from_numpy(relevant / np.maximum(np.bincount(query, relevant, n), 1)[query]).to(scores)
        return -(target * segment_softmax(scores[:, None], segment, n)[:, 0].clamp_min(1e-30).log()).sum() / n
    losses = [
        torch.nn.functional.softplus(scores[of & ~relevant][None] - scores[of & relevant][:, None]).mean()
        for of in (query == number for number in range(n))
        if (of & ~relevant).any()
    ]
    return torch.stack(losses).mean() if losses else scores.sum() * 0
