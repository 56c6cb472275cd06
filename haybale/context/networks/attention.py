"""Graph attention by relation in plain torch: one layer over node vectors, and networks of layers.

The layer is equation 1 of Albarède et al., "Passage Retrieval on Structured Documents using Graph Attention Networks",
ECIR 2022, with one vector a node; its attention is that of Vaswani et al., 2017. It was not yet run on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from haybale.context.neighbourhoods import Neighbourhoods


def segment_softmax(logits: Tensor, segment: Tensor, n: int) -> Tensor:
    """Return the softmax of ``logits`` (e, h) within each of n segments; ``segment`` (e,) names the segment of a row.

    >>> segment_softmax(torch.tensor([[0.0], [0.0], [5.0]]), torch.tensor([1, 1, 0]), 2)[:, 0].tolist()
    [0.5, 0.5, 1.0]
    """
    rows = segment[:, None].expand_as(logits)
    largest = logits.new_full((n, logits.shape[1]), -math.inf).scatter_reduce(0, rows, logits.detach(), "amax")
    weights = (logits - largest.index_select(0, segment)).exp()
    total = logits.new_zeros(n, logits.shape[1]).index_add(0, segment, weights)
    return weights / total.index_select(0, segment)


def _distinct(rows: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the distinct values of ``rows``, which are below n, and the place of each row among them."""
    if bool((rows[1:] > rows[:-1]).all()):
        return rows, torch.arange(len(rows), device=rows.device)
    if n > 8 * len(rows):  # sorting few rows is cheaper than marking all n
        used, place = torch.unique(rows, return_inverse=True)
        return used, place
    is_used = torch.zeros(n, dtype=torch.bool, device=rows.device)
    is_used[rows] = True
    return torch.nonzero(is_used)[:, 0], (torch.cumsum(is_used, 0) - 1).index_select(0, rows)


class RelationAttention(nn.Module):
    """One layer, in which every node attends to its neighbours, by the relation of each.

    For node i, whose neighbour j has relation r, each head computes

        h'_i = Σ_j α_ij · (V_r h_j) O_r,   α_ij = softmax_j(w_r + Q_r h_i · K_r h_j / √(dim / heads)).

    A node without neighbours becomes 0. Q, K, V and O are the identity plus learned matrices, which weight decay
    draws to 0: before training, a layer computes a mean.

    Parameters
    ----------
    dim : int
        Width of the vectors, a multiple of ``heads``.
    n_relations, heads : int
    dropout : float
        Share of the attention weights α that are dropped in training.
    """

    def __init__(self, dim: int, n_relations: int, heads: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads = heads
        self.weight = nn.Parameter(torch.zeros(n_relations))
        self.query, self.key, self.value, self.out = (
            nn.Parameter(torch.zeros(n_relations, dim, dim)) for _ in range(4)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, queries: Tensor, values: Tensor, source: Tensor, target: Tensor, relation: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the nodes' new vectors (n, dim) and the attention weights α (e, heads).

        Edges (e,) lead from a row of ``values`` (m, dim) to a row of ``queries`` (n, dim).
        """
        n, dim = queries.shape
        split = (-1, self.heads, dim // self.heads)
        order = None if bool((relation[1:] >= relation[:-1]).all()) else torch.argsort(relation, stable=True)
        if order is not None:
            source, target, relation = source[order], target[order], relation[order]
        relations, counts = torch.unique_consecutive(relation, return_counts=True)
        eye = torch.eye(dim, dtype=values.dtype, device=values.device)
        logits_of, inputs_of = [], []
        parts = zip(relations.tolist(), *(torch.split(each, counts.tolist()) for each in (source, target)), strict=True)
        for r, sources, targets in parts:
            # Nodes with several edges of a relation are projected once.
            (asking, ask_place), (used, place) = _distinct(targets, n), _distinct(sources, len(values))
            neighbours = values.index_select(0, used)
            ask = (queries.index_select(0, asking) @ (eye + self.query[r])).index_select(0, ask_place)
            key = (neighbours @ (eye + self.key[r])).index_select(0, place)
            logits_of.append((ask * key).view(split).sum(2) / math.sqrt(split[2]))
            inputs_of.append((r, targets, neighbours, place))
        logits = torch.cat(logits_of) if logits_of else values.new_empty(0, self.heads)
        alpha = segment_softmax(logits + self.weight[relation][:, None], target, n)
        made = queries.new_zeros(n, dim)
        weights = torch.split(self.dropout(alpha), counts.tolist())
        for (r, targets, neighbours, place), weight in zip(inputs_of, weights, strict=True):
            message = (neighbours @ (eye + self.value[r])).index_select(0, place).view(split) * weight[:, :, None]
            mixed = queries.new_zeros(n, dim).index_add(0, targets, message.reshape(-1, dim))
            made = made + mixed @ (eye + self.out[r])
        return made, alpha if order is None else torch.empty_like(alpha).index_copy(0, order, alpha)

    def carried(self, relation: int, alpha: Tensor, query: Tensor) -> Tensor:
        """Return u (dim,) such that u · h is the product of ``query`` with what a neighbour h adds at α (heads,)."""
        wide = alpha.repeat_interleave(len(query) // self.heads) * (query + self.out[relation] @ query)
        return wide + self.value[relation] @ wide


class ContextNetwork(nn.Module):
    """Layers of attention, and the learned weight λ of a passage's context beside the passage itself.

    Each layer adds its input to its output; a LayerNorm stands between two layers. ``layer`` makes a layer from
    ``dim``, ``n_relations``, ``heads`` and ``dropout``. With ``blind``, nodes ask with a learned vector of their type,
    passage or section, instead of their content. ``scale`` is the initial factor of scores in the loss.
    """

    def __init__(
        self,
        dim: int,
        n_relations: int,
        n_layers: int = 1,
        heads: int = 1,
        dropout: float = 0.0,
        *,
        blind: bool = False,
        layer: Callable[..., nn.Module] = RelationAttention,
        scale: float = 20.0,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layer(dim, n_relations, heads, dropout) for _ in range(n_layers))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(n_layers - 1))
        self.types = nn.Parameter(torch.zeros(2, dim)) if blind else None
        self.balance = nn.Parameter(torch.zeros(()))  # λ is its sigmoid
        self.log_scale = nn.Parameter(torch.tensor(math.log(scale)))

    @property
    def share(self) -> Tensor:
        """λ, the weight of the context."""
        return torch.sigmoid(self.balance)

    def forward(self, values: Any, around: Neighbourhoods, *tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the targets in context, the input of the last layer, and the second result of that layer.

        ``values``, (n, dim) or (n, t, dim), belong to the rows of ``around``, which has as many hops as there are
        layers. Layers over token matrices also need which tokens exist (n, t).
        """
        values, is_section, source, target, relation = (
            torch.as_tensor(each, device=self.balance.device)
            for each in (values, around.is_section, around.source, around.target, around.relation)
        )
        for number, layer in enumerate(self.layers):
            n, read = around.sizes[-2 - number], values  # rows that this layer computes
            if number:
                kept = target < n
                source, target, relation = source[kept], target[kept], relation[kept]
            asking = read[:n] if self.types is None else self.types[is_section[:n].long()]
            made, weights = layer(asking, read, source, target, relation, *(each[: len(read)] for each in tokens))
            values = torch.cat([made[: around.n_blind], made[around.n_blind :] + read[around.n_blind : n]])
            values = self.norms[number](values) if number < len(self.norms) else values
        return values, read, weights
