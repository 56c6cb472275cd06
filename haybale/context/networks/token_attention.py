"""Graph attention where a node is a matrix, a vector a token, as in the paper; and late interaction. Plain torch.

Albarède et al., "Passage Retrieval on Structured Documents using Graph Attention Networks", ECIR 2022, equations 1
and 2. It was not yet run on a GPU.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from haybale.context.networks.attention import segment_softmax


def max_sim(queries: Tensor, asked: Tensor, values: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
    """``((n,) MaxSim, (n, q) the token of the text that is nearest to each of the query)``.

    The sum over the tokens of a query of the largest inner product with a token of the text: Khattab & Zaharia,
    "ColBERT", SIGIR 2020.

    Parameters
    ----------
    queries, asked : (n, q, dim) floats, (n, q) bool
        The tokens of a query for each text, and which of them there are.
    values, there : (n, t, dim) floats, (n, t) bool
    """
    products = queries @ values.transpose(1, 2)
    best, place = products.masked_fill(~there[:, None, :], -math.inf).max(dim=2)
    return torch.where(asked, best, 0.0).sum(dim=1), place


class TokenAttention(nn.Module):
    """One layer: h'_i = Σ_j softmax_j(w_r) · MultiHead_r(h_i, h_j, h_j), r the relation of the neighbour j to i.

    The tokens of i ask those of j; the softmax of w is over the neighbours of i. As in
    :class:`~haybale.context.networks.attention.RelationAttention`, projections are the identity plus what is learned.

    Parameters
    ----------
    dim, n_relations, heads, dropout : as there
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
        self, asking: Tensor, values: Tensor, there: Tensor, source: Tensor, target: Tensor, relation: Tensor
    ) -> tuple[Tensor, Tensor]:
        """``((n, t, dim) made, (e, t, dim) what each edge adds)``.

        ``asking``, ``values`` (n, t, dim) are tokens of nodes, of which those of ``there`` (n, t) exist; edges (e,).
        """
        n, t, dim = values.shape
        share = segment_softmax(self.weight[relation][:, None], target, n)
        messages = values.new_empty(len(source), t, dim)
        for r in torch.unique(relation).tolist():
            of = torch.nonzero(relation == r)[:, 0]
            tokens = values[source[of]]
            pairs = (asking[target[of]], self.query[r]), (tokens, self.key[r]), (tokens, self.value[r])
            ask, key, value = (
                (given + given @ more).view(len(of), t, self.heads, -1).transpose(1, 2) for given, more in pairs
            )
            logits = ask @ key.transpose(2, 3) / math.sqrt(dim / self.heads)
            alpha = logits.masked_fill(~there[source[of]][:, None, None, :], -math.inf).softmax(dim=3)
            mixed = (self.dropout(alpha) @ value).transpose(1, 2).reshape(len(of), t, dim)
            messages = messages.index_put((of,), (mixed + mixed @ self.out[r]) * share[of][:, :, None])
        return values.new_zeros(n, t, dim).index_add(0, target, messages), messages


class TokenNetwork(nn.Module):
    """Layers of :class:`TokenAttention`, as :class:`.ContextNetwork` has them of vectors."""

    def __init__(
        self, dim: int, n_relations: int, layers: int = 1, heads: int = 1, dropout: float = 0.0, residual: bool = True
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(TokenAttention(dim, n_relations, heads, dropout) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(layers - 1))
        self.residual = residual
        self.balance = nn.Parameter(torch.zeros(()))  # λ is its sigmoid
        self.log_scale = nn.Parameter(torch.zeros(()))  # of scores, in the loss

    @property
    def share(self) -> Tensor:
        """λ, of the context."""
        return torch.sigmoid(self.balance)

    def forward(
        self, values: Tensor, there: Tensor, source: Tensor, target: Tensor, relation: Tensor, n_blind: int = 0
    ) -> tuple[Tensor, Tensor, Tensor]:
        """``((n, t, dim) nodes in context, (e, t, dim) what each edge adds in the last layer, what that read)``.

        The first ``n_blind`` nodes have nothing of their own content added.
        """
        kept = (torch.arange(len(values), device=values.device) >= n_blind)[:, None, None]
        for number, layer in enumerate(self.layers):
            read = values
            made, messages = layer(read, read, there, source, target, relation)
            made = made + read * kept if self.residual else made
            values = self.norms[number](made) if number < len(self.norms) else made
        return values, messages, read
