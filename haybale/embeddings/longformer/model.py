"""The layers of a Longformer over one row of tokens: all texts of a batch end to end, without padding."""

# torch's annotations are partial, and may be absent.
# mypy: disable-error-code="misc,no-any-return,no-untyped-call"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from haybale.embeddings.longformer.attention import window_attention
from haybale.embeddings.longformer.groups import Group, attention_groups
from haybale.embeddings.longformer.linear import PackedLinear

State = dict[str, Tensor]  # by the names that transformers' LongformerModel gives its weights

_LINEAR = {  # ours: those of the standard model that ours has side by side, relative to a layer
    "qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "out": ("attention.output.dense",),
    "up": ("intermediate.dense",),
    "down": ("output.dense",),
    "global_q": ("attention.self.query_global",),
    "global_kv": ("attention.self.key_global", "attention.self.value_global"),
}
_GLOBAL = ("global_q", "global_kv")
_NORM = {"norm_attention": "attention.output.LayerNorm", "norm_output": "output.LayerNorm"}
_EMBEDDING = ("word_embeddings", "position_embeddings", "token_type_embeddings")


class PackedLayer(nn.Module):
    """One layer; ``prefix`` is its place in the standard state, ``window`` the two-sided attention window."""

    qkv: PackedLinear
    out: PackedLinear
    up: PackedLinear
    down: PackedLinear
    global_q: PackedLinear  # with global attention only
    global_kv: PackedLinear
    norm_attention: nn.LayerNorm
    norm_output: nn.LayerNorm

    def __init__(self, config: Any, state: State, prefix: str, window: int, activation: nn.Module | None) -> None:
        super().__init__()
        self.heads, self.reach, self.activation = config.num_attention_heads, window // 2, activation
        for name, sources in _LINEAR.items():
            if name not in _GLOBAL or f"{prefix}{sources[0]}.weight" in state:
                weight = torch.cat([state[f"{prefix}{source}.weight"] for source in sources])
                bias = torch.cat([state[f"{prefix}{source}.bias"] for source in sources])
                self.add_module(name, PackedLinear(weight, bias))
        for name, source in _NORM.items():
            self.add_module(name, _layer_norm(state, prefix + source, config.layer_norm_eps))
        self.is_global = hasattr(self, "global_q")

    def forward(self, x: Tensor, groups: Sequence[Group]) -> Tensor:
        """(tokens, d) to (tokens, d); ``groups`` cover the tokens in order."""
        y = self.out(self._attended(x, groups))
        y = self.norm_attention(y.add_(x))
        inner = self.up(y, gelu=True) if self.activation is None else self.activation(self.up(y))  # (tokens, inner)
        return self.norm_output(self.down(inner).add_(y))

    def _attended(self, x: Tensor, groups: Sequence[Group]) -> Tensor:
        """The attention's context vectors, (tokens, d)."""
        qkv = self.qkv(x)  # (tokens, 3 d)
        global_kv = self.global_kv(x) if self.is_global else None  # (tokens, 2 d)
        pieces = []
        for group in groups:
            q, k, v = self._heads(group.lay(qkv), 3)  # (texts, heads, length, head_dim) each
            laid = window_attention(q, k, v, self.reach, real=group.real, first_seen_by_all=self.is_global)
            laid = laid.transpose(1, 2).flatten(2)  # (texts, length, d)
            if global_kv is not None:
                mask = None if group.real is None else group.real[:, None, None, :]
                (q,) = self._heads(self.global_q(group.lay(x)[:, 0]).unsqueeze(1), 1)  # (texts, heads, 1, head_dim)
                k, v = self._heads(group.lay(global_kv), 2)
                first = scaled_dot_product_attention(q, k, v, attn_mask=mask)
                laid = torch.cat((first.transpose(1, 2).flatten(2), laid[:, 1:]), 1)
            pieces.append(group.row(laid))
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def _heads(self, laid: Tensor, parts: int) -> tuple[Tensor, ...]:
        """(texts, length, parts d) to ``parts`` views (texts, heads, length, head_dim)."""
        return laid.unflatten(-1, (parts, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind()

    def standard_state(self, prefix: str) -> State:
        """The weights by their standard names."""
        state: State = {}
        for name, sources in _LINEAR.items():
            if hasattr(self, name):
                for kind in ("weight", "bias"):
                    pieces = getattr(getattr(self, name), kind).detach().chunk(len(sources))
                    state |= {f"{prefix}{s}.{kind}": piece for s, piece in zip(sources, pieces, strict=True)}
        for name, source in _NORM.items():
            state |= {f"{prefix}{source}.{k}": p.detach() for k, p in getattr(self, name).named_parameters()}
        return state


class PackedLongformer(nn.Module):
    """The weights of a LongformerModel and its hidden states, without its padding and chunking.

    ``config`` and ``state`` are those of a LongformerModel; ``is_global`` gives the first token of each text global
    attention. What is not needed (the pooler, the global projections without global attention) stays on the CPU in
    ``unused``, so that :meth:`standard_state` is complete.
    """

    word_embeddings: nn.Parameter  # (vocabulary, d)
    position_embeddings: nn.Parameter  # (positions, d)
    token_type_embeddings: nn.Parameter  # (types, d)

    def __init__(self, config: Any, state: State, is_global: bool, activation: nn.Module | None) -> None:
        super().__init__()
        self.config = config
        unused = [name for name in state if name.startswith("pooler.") or (not is_global and "_global." in name)]
        self.unused = {name: state[name] for name in unused}
        state = {name: tensor for name, tensor in state.items() if name not in self.unused}
        for name in _EMBEDDING:
            self.register_parameter(name, nn.Parameter(state[f"embeddings.{name}.weight"]))
        self.norm = _layer_norm(state, "embeddings.LayerNorm", config.layer_norm_eps)
        self.layers = nn.ModuleList(
            PackedLayer(config, state, f"encoder.layer.{i}.", window, activation)
            for i, window in enumerate(config.attention_window)
        )

    def forward(self, ids: Tensor, positions: Tensor, lengths: Sequence[int]) -> Tensor:
        """Hidden states (tokens, d) of texts laid end to end: ``ids`` and ``positions`` (tokens,) int64.

        Fastest if equal ``lengths`` are neighbours.
        """
        # The rows are added in the order of the standard model; of the token types there is only the first.
        x = self.word_embeddings[ids] + self.position_embeddings[positions] + self.token_type_embeddings[0]
        x = self.norm(x)
        groups = attention_groups(lengths, 0.0 if ids.device.type == "cpu" else 0.1, ids.device)
        for layer in self.layers:
            x = layer(x, groups)
        return x

    def standard_state(self) -> State:
        """All weights by their standard names, on the CPU."""
        state = {f"embeddings.{name}.weight": getattr(self, name).detach() for name in _EMBEDDING}
        state |= {f"embeddings.LayerNorm.{k}": p.detach() for k, p in self.norm.named_parameters()}
        layers: Any = self.layers
        for i, layer in enumerate(layers):
            state |= layer.standard_state(f"encoder.layer.{i}.")
        dtype = self.word_embeddings.dtype
        state |= {name: tensor.to(dtype) for name, tensor in self.unused.items()}
        return {name: tensor.to("cpu").contiguous() for name, tensor in state.items()}


def _layer_norm(state: State, name: str, eps: float) -> nn.LayerNorm:
    weight = state[f"{name}.weight"]
    norm = nn.LayerNorm(len(weight), eps, device="meta")
    norm.weight, norm.bias = nn.Parameter(weight), nn.Parameter(state[f"{name}.bias"])
    return norm
