"""Graph attention by relation, in plain torch: layers, and the networks of them that put nodes in context.

Albarède et al., "Passage Retrieval on Structured Documents using Graph Attention Networks", ECIR 2022, equation 1, with
one vector a node; the attention is that of Vaswani et al., 2017. It was not yet run on a GPU.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn


def segment_softmax(logits: Tensor, segment: Tensor, n: int) -> Tensor:
    """(e, h) softmax over the rows of each segment (e,), of n.

    >>> segment_softmax(torch.tensor([[0.0], [0.0], [5.0]]), torch.tensor([1, 1, 0]), 2)[:, 0].tolist()
    [0.5, 0.5, 1.0]
    """
    rows = segment[:, None].expand_as(logits)
    largest = logits.new_full((n, logits.shape[1]), -math.inf).scatter_reduce(0, rows, logits.detach(), "amax")
    weights = (logits - largest.index_select(0, segment)).exp()
    total = logits.new_zeros(n, logits.shape[1]).index_add(0, segment, weights)
    return weights / total.index_select(0, segment)


def _distinct(places: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The distinct ones of places among n, and where each is among them; rising ones are distinct."""
    if bool((places[1:] > places[:-1]).all()):
        return places, torch.arange(len(places), device=places.device)
    if n > 8 * len(places):  # sorting them is less than looking at all
        used, at = torch.unique(places, return_inverse=True)
        return used, at
    there = torch.zeros(n, dtype=torch.bool, device=places.device)
    there[places] = True
    return torch.nonzero(there)[:, 0], (torch.cumsum(there, 0) - 1).index_select(0, places)


class RelationAttention(nn.Module):
    """One layer: every node attends to its neighbours, by the relation that leads from each.

    h'_i = Σ_j α_ij · (V_r h_j) O_r, a head at a time, with r the relation of j to i, and over the neighbours j of i
    α_ij = softmax(w_r + Q_r h_i · K_r h_j / √(dim / heads)); or, with ``over="relations"``, the softmax of w over the
    relations that lead to i, times that of the products over the neighbours of one relation. A node without neighbours
    has 0. Q, K, V and O are the identity plus what is learned, which weight decay draws to 0: a layer begins as a mean.

    Parameters
    ----------
    dim : int
        A multiple of ``heads``.
    n_relations, heads : int
    dropout : float
        Of the weights of neighbours.
    over : {"neighbours", "relations"}
    """

    def __init__(
        self, dim: int, n_relations: int, heads: int = 1, dropout: float = 0.0, over: str = "neighbours"
    ) -> None:
        super().__init__()
        self.heads = heads
        self.over = over
        self.weight = nn.Parameter(torch.zeros(n_relations))
        self.query, self.key, self.value, self.out = (
            nn.Parameter(torch.zeros(n_relations, dim, dim)) for _ in range(4)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, queries: Tensor, values: Tensor, source: Tensor, target: Tensor, relation: Tensor
    ) -> tuple[Tensor, Tensor]:
        """``(made (n, dim), α (e, heads))`` of n nodes that ask with ``queries`` (n, dim).

        ``values`` (m, dim) are of those that are asked; edges (e,) go from places there to places in ``queries``.
        """
        n, dim = queries.shape
        split = (-1, self.heads, dim // self.heads)
        rising = bool((relation[1:] >= relation[:-1]).all())
        order = None if rising else torch.argsort(relation, stable=True)
        if order is not None:
            source, target, relation = source[order], target[order], relation[order]
        relations, counts = torch.unique_consecutive(relation, return_counts=True)
        eye = torch.eye(dim, dtype=values.dtype, device=values.device)
        found, parts = [], []
        edges = zip(relations.tolist(), *(torch.split(each, counts.tolist()) for each in (source, target)), strict=True)
        for r, come_from, lead_to in edges:
            (asked, ask_at), (used, at) = _distinct(lead_to, n), _distinct(come_from, len(values))
            some = values.index_select(0, used)  # each projected once
            ask = (queries.index_select(0, asked) @ (eye + self.query[r])).index_select(0, ask_at)
            key = (some @ (eye + self.key[r])).index_select(0, at)
            found.append((ask * key).view(split).sum(2) / math.sqrt(split[2]))
            parts.append((r, lead_to, some, at))
        logits = torch.cat(found) if found else values.new_empty(0, self.heads)
        if self.over == "neighbours":
            alpha = segment_softmax(logits + self.weight[relation][:, None], target, n)
        else:
            group, place = torch.unique(target * len(self.weight) + relation, return_inverse=True)
            size = len(self.weight)
            share = segment_softmax(self.weight[group % size][:, None], group // size, n)[place]
            alpha = segment_softmax(logits, place, len(group)) * share
        made = queries.new_zeros(n, dim)
        weights = torch.split(self.dropout(alpha), counts.tolist())
        for (r, lead_to, some, at), weight in zip(parts, weights, strict=True):
            message = (some @ (eye + self.value[r])).index_select(0, at).view(split) * weight[:, :, None]
            mixed = queries.new_zeros(n, dim).index_add(0, lead_to, message.reshape(-1, dim))
            made = made + mixed @ (eye + self.out[r])
        return made, alpha if order is None else torch.empty_like(alpha).index_copy(0, order, alpha)

    def carried(self, relation: int, alpha: Tensor, query: Tensor) -> Tensor:
        """(dim,) u with u · h the product of ``query`` (dim,) and what a neighbour h adds at weights α (heads,)."""
        wide = alpha.repeat_interleave(len(query) // self.heads) * (query + self.out[relation] @ query)
        return wide + self.value[relation] @ wide


class ContextNetwork(nn.Module):
    """Layers of :class:`RelationAttention`, and how their result is weighed against what a passage itself says.

    Parameters
    ----------
    dim, n_relations, layers, heads, dropout, over : as of the layers
    residual : bool
        Add what a node had before; of a target whose own content must not count, nothing.
    blind : bool
        A node asks with a learned vector of its type, passage or section, in place of what it has.
    """

    def __init__(
        self,
        dim: int,
        n_relations: int,
        layers: int = 1,
        heads: int = 1,
        dropout: float = 0.0,
        over: str = "neighbours",
        residual: bool = True,
        blind: bool = False,
    ) -> None:
        super().__init__()
        self.n_relations = n_relations
        self.layers = nn.ModuleList(RelationAttention(dim, n_relations, heads, dropout, over) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(layers - 1))
        self.residual = residual
        self.types = nn.Parameter(torch.zeros(2, dim)) if blind else None
        self.balance = nn.Parameter(torch.zeros(()))  # λ is its sigmoid
        self.log_scale = nn.Parameter(torch.tensor(math.log(20.0)))  # of scores, in the loss

    @property
    def share(self) -> Tensor:
        """λ, of the context."""
        return torch.sigmoid(self.balance)

    def forward(
        self, values: Tensor, is_section: Tensor, source: Tensor, target: Tensor, relation: Tensor, n_blind: int = 0
    ) -> Tensor:
        """(n, dim) nodes in context; the first ``n_blind`` have nothing of their own content added."""
        return self.last(values, is_section, source, target, relation, n_blind)[0]

    def last(
        self, values: Tensor, is_section: Tensor, source: Tensor, target: Tensor, relation: Tensor, n_blind: int = 0
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The same with what the last layer read, and its α."""
        edges = source, target, relation
        kept = (torch.arange(len(values), device=values.device) >= n_blind)[:, None]
        for number, layer in enumerate(self.layers):
            read = values
            made, alpha = layer(self.asking(read, is_section), read, *edges)
            made = made + read * kept if self.residual else made
            values = self.norms[number](made) if number < len(self.norms) else made
        return values, read, alpha

    def of_means(
        self, own: Tensor, means: Tensor, target: Tensor, relation: Tensor, *, context_only: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """:meth:`last` of one layer in which each of ``means`` (m, dim) is asked by one target alone, that has ``own``.

        The last relation is that of a target to itself, which is left out where only its context counts.
        """
        if not context_only:
            itself = torch.arange(len(own), device=own.device)
            means, target = torch.cat([means, own]), torch.cat([target, itself])
            relation = torch.cat([relation, torch.full_like(itself, self.n_relations - 1)])
        source = torch.arange(len(means), device=own.device)
        asking = self.asking(own, torch.zeros(len(own), dtype=torch.bool, device=own.device))
        made, alpha = self.layers[0](asking, means, source, target, relation)
        return made + own if self.residual and not context_only else made, means, alpha

    def asking(self, values: Tensor, is_section: Tensor) -> Tensor:
        """What nodes ask with."""
        return values if self.types is None else self.types[is_section.long()]

    def rates(self, rate: float) -> list[dict[str, Any]]:
        """Parameters for an optimizer: the few that weigh things move ten times as fast, and do not decay."""
        few = [p for name, p in self.named_parameters() if p.ndim < 2 and "norms" not in name]
        many = [p for p in self.parameters() if not any(p is each for each in few)]
        return [{"params": many, "lr": rate}, {"params": few, "lr": 10 * rate, "weight_decay": 0.0}]
