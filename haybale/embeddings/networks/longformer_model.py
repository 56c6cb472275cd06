"""The layers of a Longformer over one row of tokens: all texts of a batch end to end, without padding.

Beltagy, Peters and Cohan, "Longformer: The Long-Document Transformer", 2020. The numbers are those of transformers'
LongformerModel; its padding and chunking are not needed for them.
"""

# torch's annotations are partial, and may be absent.
# mypy: disable-error-code="misc,no-any-return,no-untyped-call"

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import groupby, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, scaled_dot_product_attention

Group = tuple[slice, int]  # the tokens of neighbours, all of so many tokens
State = dict[str, Tensor]  # by the names that transformers' LongformerModel gives its weights

# Queries of one block of attention. Small blocks waste fewer masked keys, large ones have less overhead.
# The CPU's is measured, CUDA's is not yet.
BLOCK = {"cpu": 128, "cuda": 512}

_LINEAR = {  # ours: those of the standard model that ours has side by side, relative to a layer
    "qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "out": ("attention.output.dense",),
    "up": ("intermediate.dense",),
    "down": ("output.dense",),
}
_NORM = {"norm_attention": "attention.output.LayerNorm", "norm_output": "output.LayerNorm"}


class PackedLongformer(nn.Module):
    """Compute the hidden states of a LongformerModel, whose ``config`` and ``state`` are given."""

    word_embeddings: nn.Parameter  # (vocabulary, d)
    position_embeddings: nn.Parameter  # (positions, d)
    token_type_embeddings: nn.Parameter  # (types, d)

    def __init__(self, config: Any, state: State) -> None:
        super().__init__()
        self.config = config
        for name in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
            self.register_parameter(name, nn.Parameter(state[f"embeddings.{name}.weight"]))
        self.norm = _layer_norm(state, "embeddings.LayerNorm", config.layer_norm_eps)
        self.layers = nn.ModuleList(
            PackedLayer(config, state, f"encoder.layer.{i}.", window)
            for i, window in enumerate(config.attention_window)
        )

    def forward(self, ids: Tensor, positions: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return hidden states (tokens, d) of texts laid end to end; ``ids`` and ``positions`` are (tokens,) int64.

        Equal ``lengths`` that are neighbours go through attention together.
        """
        # The rows are added in the order of the standard model; of the token types there is only the first.
        x = self.word_embeddings[ids] + self.position_embeddings[positions] + self.token_type_embeddings[0]
        x = self.norm(x)
        groups, start = [], 0
        for length, run in groupby(lengths):
            groups.append((slice(start, start := start + sum(run)), length))
        for layer in self.layers:
            x = layer(x, groups)
        return x

    def standard_state(self) -> State:
        """Return the weights under the names of transformers' LongformerModel.

        The projections of tokens with global attention are copies of the others, with which their training begins.
        """
        state = {
            f"embeddings.{name}.weight": getattr(self, name).detach()
            for name in ("word_embeddings", "position_embeddings", "token_type_embeddings")
        }
        state |= _norm_state(self.norm, "embeddings.LayerNorm")
        for number, layer in enumerate(self.layers):
            prefix = f"encoder.layer.{number}."
            for name, sources in _LINEAR.items():
                linear = getattr(layer, name)
                parts = (tensor.detach().chunk(len(sources)) for tensor in (linear.weight, linear.bias))
                for source, weight, bias in zip(sources, *parts, strict=True):
                    state |= {f"{prefix}{source}.weight": weight, f"{prefix}{source}.bias": bias}
                    if name == "qkv":
                        state |= {f"{prefix}{source}_global.weight": weight, f"{prefix}{source}_global.bias": bias}
            for name, source in _NORM.items():
                state |= _norm_state(getattr(layer, name), prefix + source)
        return state


class PackedLayer(nn.Module):
    """One layer; ``prefix`` is its place in the standard state, ``window`` the two-sided attention window."""

    qkv: PackedLinear
    out: PackedLinear
    up: PackedLinear
    down: PackedLinear
    norm_attention: nn.LayerNorm
    norm_output: nn.LayerNorm

    def __init__(self, config: Any, state: State, prefix: str, window: int) -> None:
        super().__init__()
        self.heads, self.reach = config.num_attention_heads, window // 2
        for name, sources in _LINEAR.items():
            weight = torch.cat([state[f"{prefix}{source}.weight"] for source in sources])
            bias = torch.cat([state[f"{prefix}{source}.bias"] for source in sources])
            self.add_module(name, PackedLinear(weight, bias))
        for name, source in _NORM.items():
            self.add_module(name, _layer_norm(state, prefix + source, config.layer_norm_eps))

    def forward(self, x: Tensor, groups: Sequence[Group]) -> Tensor:
        """Map (tokens, d) to (tokens, d); ``groups`` cover the tokens in order."""
        y = self.out(self._attended(x, groups))
        y = self.norm_attention(y.add_(x))
        return self.norm_output(self.down(self.up(y, gelu_behind=True)).add_(y))

    def _attended(self, x: Tensor, groups: Sequence[Group]) -> Tensor:
        """Return the context vectors of attention, (tokens, d)."""
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, -1))  # (tokens, 3, heads, head_dim)
        pieces = []
        for tokens, length in groups:
            q, k, v = qkv[tokens].unflatten(0, (-1, length)).permute(2, 0, 3, 1, 4)  # (texts, heads, length, head_dim)
            pieces.append(window_attention(q, k, v, self.reach).transpose(1, 2).flatten(2).flatten(0, 1))
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


class PackedLinear(nn.Module):
    """Compute ``x @ weight.T + bias``, optionally followed by erf-GELU; ``weight`` (out, in), ``bias`` (out,).

    PyTorch multiplies float32 through MKL, which repacks the weights at each call and leaves GELU a pass of its own;
    oneDNN with prepacked weights is 5 to 50 % faster (more for fewer tokens) and equal to 1e-5. Its operators have no
    public name; where they are missing, the plain way is taken. The packed copy doubles the memory of the layer.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach())
        self.bias = nn.Parameter(bias.detach())
        self._packed: Tensor | None = None
        self._packed_at = 0  # the version of the weight that is packed

    def forward(self, x: Tensor, gelu_behind: bool = False) -> Tensor:
        """Map (tokens, in) to (tokens, out)."""
        # oneDNN's operators know no gradient.
        if x.dtype == torch.float32 and x.device.type == "cpu" and not torch.is_grad_enabled() and _has_onednn():
            # Inference tensors have no version: they cannot be trained.
            version = 0 if self.weight.is_inference() else self.weight._version
            if self._packed is None or self._packed_at != version:  # trained since
                self._packed_at = version
                self._packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach())
            attribute, algorithm = ("gelu", "none") if gelu_behind else ("none", "")
            return torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, attribute, [], algorithm)
        y = linear(x, self.weight, self.bias)
        return gelu(y) if gelu_behind else y


@cache
def _has_onednn() -> bool:
    mkldnn: Any = torch.backends.mkldnn
    operators = ("_reorder_linear_weight", "_linear_pointwise")
    return bool(mkldnn.is_available() and mkldnn.enabled and all(hasattr(torch.ops.mkldnn, name) for name in operators))


def _layer_norm(state: State, name: str, eps: float) -> nn.LayerNorm:
    weight = state[f"{name}.weight"]
    norm = nn.LayerNorm(len(weight), eps, device="meta")
    norm.weight, norm.bias = nn.Parameter(weight), nn.Parameter(state[f"{name}.bias"])
    return norm


def _norm_state(norm: nn.LayerNorm, name: str) -> State:
    return {f"{name}.weight": norm.weight.detach(), f"{name}.bias": norm.bias.detach()}


def window_attention(q: Tensor, k: Tensor, v: Tensor, reach: int) -> Tensor:
    """Compute exact sliding-window attention in dense blocks of queries, each with the keys its window can reach.

    ``q``, ``k``, ``v`` are (n, heads, L, head_dim) each; token i attends to the tokens j with |i - j| <= ``reach``.
    """
    length = q.shape[2]
    if length <= reach + 1:
        return scaled_dot_product_attention(q, k, v)
    # Blocks of about equal size rather than a small last one.
    count = -(-length // BLOCK.get(q.device.type, BLOCK["cuda"]))
    blocks = []
    for start, stop in pairwise([length * i // count for i in range(count + 1)]):
        low, high = max(0, start - reach), min(length, stop + reach)
        mask = _band(stop - start, high - low, start - low, reach, q.dtype, q.device)
        keys, values = k[:, :, low:high], v[:, :, low:high]
        blocks.append(scaled_dot_product_attention(q[:, :, start:stop], keys, values, attn_mask=mask))
    return torch.cat(blocks, 2)


@lru_cache(maxsize=64)  # the layers of a model and the blocks of a text share theirs
def _band(queries: int, keys: int, offset: int, reach: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return (queries, keys): 0 where query i, at the position of key i + offset, sees the key, else -inf."""
    with torch.inference_mode(False):  # what is kept may be needed for a gradient later
        position = torch.arange(queries, device=device)[:, None] + offset
        seen = (position - torch.arange(keys, device=device)).abs() <= reach
        return torch.zeros(seen.shape, dtype=dtype, device=device).masked_fill_(~seen, -torch.inf)
