"""Relational graph attention in plain torch: one layer over node vectors, and networks of layers.

The layer is equation 1 of Albarède et al., "Passage Retrieval on Structured Documents using Graph Attention Networks",
ECIR 2022, with one vector per node and the attention of Vaswani et al., 2017. It has not been run on a GPU yet.
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
    """Return the softmax of ``logits`` (e, h) within each of n segments; ``segment`` (e,) is the segment of each row.

    >>> segment_softmax(torch.tensor([[0.0], [0.0], [5.0]]), torch.tensor([1, 1, 0]), 2)[:, 0].tolist()
    [0.5, 0.5, 1.0]
    """
    rows = segment[:, None].expand_as(logits)
    largest = logits.new_full((n, logits.shape[1]), -math.inf).scatter_reduce(0, rows, logits.detach(), "amax")
    weights = (logits - largest.index_select(0, segment)).exp()
    total = logits.new_zeros(n, logits.shape[1]).index_add(0, segment, weights)
    return weights / total.index_select(0, segment)


def _distinct(rows: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the distinct values of ``rows``, which are below n, and the index of each row among them."""
    if bool((rows[1:] > rows[:-1]).all()):
        return rows, torch.arange(len(rows), device=rows.device)
    if n > 8 * len(rows):  # sorting few rows is cheaper than marking all n
        used, index = torch.unique(rows, return_inverse=True)
        return used, index
    is_used = torch.zeros(n, dtype=torch.bool, device=rows.device)
    is_used[rows] = True
    return torch.nonzero(is_used)[:, 0], (torch.cumsum(is_used, 0) - 1).index_select(0, rows)


class RelationAttention(nn.Module):
    """One layer of graph attention, with separate projections for each relation.

    For node i and each neighbour j by relation r, a head computes

        h'_i = Σ_j α_ij · (V_r h_j) O_r,   α_ij = softmax_j(w_r + Q_r h_i · K_r h_j / √(dim / heads)).

    A node without neighbours becomes 0. Q, K, V and O are the identity plus learned matrices, which start at 0 and
    decay towards 0. So an untrained layer weights neighbours by their similarity alone.

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
        parts = zip(relations.tolist(), *(torch.split(ends, counts.tolist()) for ends in (source, target)), strict=True)
        for r, sources, targets in parts:
            # Nodes with several edges of a relation are projected once.
            (distinct, query_index), (used, key_index) = _distinct(targets, n), _distinct(sources, len(values))
            neighbours = values.index_select(0, used)
            query = (queries.index_select(0, distinct) @ (eye + self.query[r])).index_select(0, query_index)
            key = (neighbours @ (eye + self.key[r])).index_select(0, key_index)
            logits_of.append((query * key).view(split).sum(2) / math.sqrt(split[2]))
            inputs_of.append((r, targets, neighbours, key_index))
        logits = torch.cat(logits_of) if logits_of else values.new_empty(0, self.heads)
        alpha = segment_softmax(logits + self.weight[relation][:, None], target, n)
        out = queries.new_zeros(n, dim)
        weights = torch.split(self.dropout(alpha), counts.tolist())
        for (r, targets, neighbours, key_index), weight in zip(inputs_of, weights, strict=True):
            message = (neighbours @ (eye + self.value[r])).index_select(0, key_index).view(split) * weight[:, :, None]
            mixed = queries.new_zeros(n, dim).index_add(0, targets, message.reshape(-1, dim))
            out = out + mixed @ (eye + self.out[r])
        return out, alpha if order is None else torch.empty_like(alpha).index_copy(0, order, alpha)

    def query_projection(self, relation: int, alpha: Tensor, query: Tensor) -> Tensor:
        """Return u (dim,): u · h is the product of ``query`` with the contribution of neighbour h with α (heads,)."""
        wide = alpha.repeat_interleave(len(query) // self.heads) * (query + self.out[relation] @ query)
        return wide + self.value[relation] @ wide


class ContextNetwork(nn.Module):
    """Layers of attention with residual connections and LayerNorm between them, and λ, the weight of the context.

    Parameters
    ----------
    dim, n_relations, n_layers, heads, dropout
        Shape of the layers, as for :class:`RelationAttention`.
    blind : bool, default False
        Use a learned vector of the node's type, passage or section, as attention query instead of the node's vector.
    layer : callable, default RelationAttention
        ``layer(dim, n_relations, heads, dropout)`` returns a layer.
    scale : float, default 20
        Initial factor of the scores in the loss; it is learned.
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

        ``values``, (n, dim) or (n, t, dim), are the vectors of the rows of ``around``, which has one hop for each
        layer. Layers over token matrices also need a mask of the tokens (n, t).
        """
        values, is_section, source, target, relation = (
            torch.as_tensor(array, device=self.balance.device)
            for array in (values, around.is_section, around.source, around.target, around.relation)
        )
        for number, layer in enumerate(self.layers):
            n, read = around.sizes[-2 - number], values  # n rows are computed from all rows of ``read``
            if number:
                kept = target < n
                source, target, relation = source[kept], target[kept], relation[kept]
            queries = read[:n] if self.types is None else self.types[is_section[:n].long()]
            out, weights = layer(queries, read, source, target, relation, *(mask[: len(read)] for mask in tokens))
            values = torch.cat([out[: around.n_blind], out[around.n_blind :] + read[around.n_blind : n]])
            values = self.norms[number](values) if number < len(self.norms) else values
        return values, read, weights
