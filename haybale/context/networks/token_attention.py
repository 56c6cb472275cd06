"""Graph attention over token matrices, with a vector for each token of a node, and late interaction in plain torch.

Equations 1 and 2 of Albarède et al., "Passage Retrieval on Structured Documents using Graph Attention Networks", ECIR
2022. It has not been run on a GPU yet.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from haybale.context.networks.attention import segment_softmax


def max_sim(query: Tensor, values: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
    """Return the MaxSim of a query and n texts (n,), and each query token's nearest token in each text (n, q).

    MaxSim sums, over the tokens of the query, the largest inner product with a token of the text: Khattab & Zaharia,
    "ColBERT", SIGIR 2020.

    Parameters
    ----------
    query : (q, dim) floats
    values : (n, t, dim) floats
        The tokens of each text, padded.
    there : (n, t) bool
        False for padding.
    """
    products = query @ values.transpose(1, 2)
    best, nearest = products.masked_fill(~there[:, None, :], -math.inf).max(dim=2)
    return best.sum(dim=1), nearest


class TokenAttention(nn.Module):
    """One layer: h'_i = Σ_j softmax_j(w_r) · MultiHead_r(h_i, h_j, h_j), where r is the relation of neighbour j to i.

    The tokens of i attend to the tokens of j; the softmax of w is over the neighbours of i. Parameters and projections
    are as in :class:`~haybale.context.networks.attention.RelationAttention`.
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
        self, queries: Tensor, values: Tensor, source: Tensor, target: Tensor, relation: Tensor, there: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the nodes' new tokens (n, t, dim) and the contribution of each edge to them (e, t, dim).

        Edges (e,) lead from a row of ``values`` (m, t, dim), with padding where ``there`` (m, t) is False, to a row of
        ``queries`` (n, t, dim).
        """
        n, t, dim = queries.shape
        share = segment_softmax(self.weight[relation][:, None], target, n)
        eye = torch.eye(dim, dtype=values.dtype, device=values.device)
        edge_groups, parts = [torch.nonzero(relation == r)[:, 0] for r in torch.unique(relation).tolist()], []
        for edges in edge_groups:
            r, sources = int(relation[edges[0]]), source[edges]
            longest = int(torch.nonzero(there[sources].any(dim=0)).max()) + 1  # titles are shorter than passages
            tokens, is_token = values[sources, :longest], there[sources, :longest]
            inputs = (queries[target[edges]], self.query[r]), (tokens, self.key[r]), (tokens, self.value[r])
            query, key, value = (
                (vectors @ (eye + learned)).view(len(edges), -1, self.heads, dim // self.heads).transpose(1, 2)
                for vectors, learned in inputs
            )
            dropped = self.dropout.p if self.training else 0.0
            mixed = functional.scaled_dot_product_attention(query, key, value, is_token[:, None, None, :], dropped)
            joined = mixed.transpose(1, 2).reshape(len(edges), t, dim)
            parts.append(joined @ (eye + self.out[r]) * share[edges][:, :, None])
        if not parts:
            return values.new_zeros(n, t, dim), values.new_empty(0, t, dim)
        messages = torch.cat(parts)[torch.argsort(torch.cat(edge_groups))]
        return values.new_zeros(n, t, dim).index_add(0, target, messages), messages
