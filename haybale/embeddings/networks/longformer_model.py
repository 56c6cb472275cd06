"""Compute a Longformer over the concatenated tokens of a batch, without padding.

Beltagy, Peters and Cohan, "Longformer: The Long-Document Transformer", 2020. The hidden states equal those of
transformers' LongformerModel, which pads texts and splits them into chunks.
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

Group = tuple[slice, int]  # the tokens of consecutive texts of equal length, and that length
State = dict[str, Tensor]  # weights under the names of transformers' LongformerModel

# The number of query tokens in a block of attention. Small blocks compute fewer masked keys, large blocks have less
# overhead. The number for the CPU is measured, that for CUDA is not.
BLOCK = {"cpu": 128, "cuda": 512}

_LINEAR = {  # our layer: the layers of the standard model that it concatenates
    "qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "out": ("attention.output.dense",),
    "up": ("intermediate.dense",),
    "down": ("output.dense",),
}
_NORM = {"norm_attention": "attention.output.LayerNorm", "norm_output": "output.LayerNorm"}


class PackedLongformer(nn.Module):
    """A LongformerModel with the given ``config`` and weights ``state`` that needs no padding."""

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
        """Return the hidden states (tokens, d) of concatenated texts; ``ids`` and ``positions`` are (tokens,) int64.

        Attention is computed together for consecutive texts of equal length.
        """
        # Added in the order of the standard model; only the first token type is used.
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

        The projections for global attention are copies of those for local attention, as when their training starts.
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
    """One layer; ``prefix`` is its prefix in the standard state, ``window`` the two-sided attention window."""

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
        return self.norm_output(self.down(self.up(y, with_gelu=True)).add_(y))

    def _attended(self, x: Tensor, groups: Sequence[Group]) -> Tensor:
        """Return the context vectors of the attention, (tokens, d)."""
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, -1))  # (tokens, 3, heads, head_dim)
        pieces = []
        for tokens, length in groups:
            q, k, v = qkv[tokens].unflatten(0, (-1, length)).permute(2, 0, 3, 1, 4)  # (texts, heads, length, head_dim)
            pieces.append(window_attention(q, k, v, self.reach).transpose(1, 2).flatten(2).flatten(0, 1))
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


class PackedLinear(nn.Module):
    """Compute ``x @ weight.T + bias``, optionally followed by erf-GELU; ``weight`` (out, in), ``bias`` (out,).

    PyTorch multiplies float32 matrices with MKL, which repacks the weights in each call and needs a second pass for
    GELU. oneDNN with prepacked weights is 5 to 50 % faster (more for fewer tokens) and equal to 1e-5. Its operators
    have no public name; where they are missing, PyTorch's own are used. The packed copy doubles the layer's memory.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach())
        self.bias = nn.Parameter(bias.detach())
        self._packed: Tensor | None = None
        self._packed_version = 0  # the version of the weight that was packed

    def forward(self, x: Tensor, with_gelu: bool = False) -> Tensor:
        """Map (tokens, in) to (tokens, out)."""
        # oneDNN's operators have no gradient.
        if x.dtype == torch.float32 and x.device.type == "cpu" and not torch.is_grad_enabled() and _has_onednn():
            # Inference tensors have no version, since they cannot be trained.
            version = 0 if self.weight.is_inference() else self.weight._version
            if self._packed is None or self._packed_version != version:  # the weight was trained since
                self._packed_version = version
                self._packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach())
            attribute, algorithm = ("gelu", "none") if with_gelu else ("none", "")
            return torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, attribute, [], algorithm)
        y = linear(x, self.weight, self.bias)
        return gelu(y) if with_gelu else y


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
    """Compute exact sliding-window attention in dense blocks of queries, each with the keys within its window.

    ``q``, ``k``, ``v`` are (n, heads, L, head_dim) each; token i attends to the tokens j with |i - j| <= ``reach``.
    """
    length = q.shape[2]
    if length <= reach + 1:
        return scaled_dot_product_attention(q, k, v)
    # Blocks of about equal size avoid a small last block.
    count = -(-length // BLOCK.get(q.device.type, BLOCK["cuda"]))
    blocks = []
    for start, stop in pairwise([length * i // count for i in range(count + 1)]):
        low, high = max(0, start - reach), min(length, stop + reach)
        mask = _band(stop - start, high - low, start - low, reach, q.dtype, q.device)
        keys, values = k[:, :, low:high], v[:, :, low:high]
        blocks.append(scaled_dot_product_attention(q[:, :, start:stop], keys, values, attn_mask=mask))
    return torch.cat(blocks, 2)


@lru_cache(maxsize=64)  # the layers of a model and the blocks of a text share their masks
def _band(queries: int, keys: int, offset: int, reach: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the mask (queries, keys): 0 where |i + ``offset`` - j| <= ``reach``, else -inf."""
    with torch.inference_mode(False):  # a cached mask may be used for a gradient later
        position = torch.arange(queries, device=device)[:, None] + offset
        in_reach = (position - torch.arange(keys, device=device)).abs() <= reach
        return torch.zeros(in_reach.shape, dtype=dtype, device=device).masked_fill_(~in_reach, -torch.inf)
