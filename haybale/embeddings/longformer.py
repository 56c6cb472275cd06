"""Longformer without padding: the encoder, and the checkpoints it reads."""

# torch's annotations are partial, and may be absent.
# mypy: disable-error-code="misc,no-any-return,no-untyped-call,unused-ignore"

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from haybale.embeddings.longformer_model import PackedLongformer, State
from haybale.embeddings.token_batches import Batch, check_texts, in_batches, token_batches, token_rows, weights_digest
from haybale.errors import InputError
from haybale.extras import import_optional, quiet_transformers
from haybale.parameters import COUNT_OR_NONE, Constraints, check_parameters, one_of
from haybale.vectors import Floats

# Tokens of a batch. On a CPU what a layer makes should stay in the cache; a GPU wants work.
# The CPU's is measured, CUDA's is not yet.
TOKENS_PER_BATCH = {"cpu": 2048, "cuda": 65_536}
_CONSTRAINTS: dict[str, Constraints] = {
    "pooling": one_of(("mean", "cls")),
    "dtype": one_of(("float32", "float16", "bfloat16")),
    "max_length": COUNT_OR_NONE,
    "tokens_per_batch": COUNT_OR_NONE,
}


class LongformerEncoder:
    """Encodes with a Longformer (extra ``neural``): the numbers of transformers' LongformerModel, without its padding.

    Beltagy, Peters and Cohan, "Longformer: The Long-Document Transformer", 2020. No token has global attention.

    Parameters
    ----------
    model : str or Path
        Hub id or folder of any Longformer, as transformers or sentence-transformers save it, with or without a head.
    pooling : {"mean", "cls"}, default "mean"
        Of a text's tokens, or the first; then vectors are scaled to length 1.
    device : str, optional
        None or ``"auto"``: CUDA if there is some.
    dtype : {"float32", "float16", "bfloat16"}, default "float32"
        Of weights and activations; pooling is float32.
    query_prompt, passage_prompt : str, default ""
        Put before each text.
    max_length : int, optional
        Texts are cut there; None is what model and tokenizer read (longformer-base-4096: 4096).
    tokens_per_batch : int, optional
        None is 2,048 on a CPU and 65,536 on CUDA. A batch that the device has no memory for is halved.

    Attributes
    ----------
    counts : Counter
        ``texts``, ``tokens`` and ``truncated`` texts, added up.

    Raises
    ------
    InputError
        For a checkpoint that cannot be reached, is no Longformer, or lacks weights or tokenizer; for bad settings.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        pooling: str = "mean",
        device: str | None = None,
        dtype: str = "float32",
        query_prompt: str = "",
        passage_prompt: str = "",
        max_length: int | None = None,
        tokens_per_batch: int | None = None,
    ) -> None:
        check_parameters("LongformerEncoder", locals(), _CONSTRAINTS)
        self.name, self.pooling = str(model), pooling
        self.query_prompt, self.passage_prompt, self.tokens_per_batch = query_prompt, passage_prompt, tokens_per_batch
        config, state, self.tokenizer = _read_checkpoint(self.name)
        readable = config.max_position_embeddings - config.pad_token_id - 1
        special = self.tokenizer.num_special_tokens_to_add()
        if max_length is not None and not special < max_length <= readable:
            raise InputError(
                f"max_length must be above the {special} special tokens and at most the {readable} tokens that "
                f"{self.name!r} reads, found {max_length}"
            )
        self.max_length = max_length or min(readable, self.tokenizer.model_max_length)
        state = {name: tensor.to(getattr(torch, dtype)) for name, tensor in state.items()}
        self.model = PackedLongformer(config, state)
        self.counts = Counter[str]()
        there = "cuda" if torch.cuda.is_available() else "cpu"
        self.model.eval().to(there if device in (None, "auto") else device)

    @property
    def dim(self) -> int:
        """The columns of the vectors."""
        return int(self.model.config.hidden_size)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.model.word_embeddings.device

    def encode(self, texts: Sequence[str]) -> Floats:
        """(n,) passages to (n, d) float32; longer ones than ``max_length`` are cut, with one warning for the call."""
        return self._encode(texts, self.passage_prompt)

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """The same with ``query_prompt`` instead of ``passage_prompt``."""
        return self._encode(texts, self.query_prompt)

    def _encode(self, texts: Sequence[str], prompt: str) -> Floats:
        rows, truncated = token_rows(self.tokenizer, [prompt + text for text in check_texts(texts)], self.max_length)
        budget = self.tokens_per_batch or TOKENS_PER_BATCH.get(self.device.type, TOKENS_PER_BATCH["cuda"])
        vectors = np.empty((len(rows), self.dim), dtype=np.float32)

        def one(batch: Batch) -> Floats:
            chosen = [rows[i] for i in batch]
            with torch.inference_mode():
                return self._pooled(self._hidden(chosen), [len(row) for row in chosen]).cpu().numpy()

        for batch, pooled in in_batches(token_batches([len(row) for row in rows], budget), one):
            vectors[batch] = pooled
        self.counts.update(texts=len(rows), tokens=sum(map(len, rows)), truncated=truncated)
        return vectors

    def _hidden(self, rows: Sequence[NDArray[np.int32]]) -> Tensor:
        """Hidden states (tokens, d) of texts end to end, each given by its token numbers."""
        ids = torch.from_numpy(np.concatenate(rows)).to(self.device, torch.int64)
        # Positions count from ``padding`` + 1; a padding token in the text itself gets none, as in transformers.
        padding = self.model.config.pad_token_id
        positions = np.concatenate([np.cumsum(row != padding) * (row != padding) + padding for row in rows])
        return self.model(ids, torch.from_numpy(positions).to(self.device), [len(row) for row in rows])

    def _pooled(self, hidden: Tensor, lengths: Sequence[int]) -> Tensor:
        """(tokens, d) to (texts, d) float32."""
        counts = torch.tensor(lengths, device=hidden.device)
        if self.pooling == "cls":
            vectors = hidden[counts.cumsum(0) - counts].float()
        else:
            vectors = torch.segment_reduce(hidden.float(), "mean", lengths=counts, axis=0)
        return torch.nn.functional.normalize(vectors, dim=1)

    def describe(self) -> dict[str, Any]:
        """What decides the vectors, as JSON can hold it; ``weights`` is the SHA-256 of the weights in use."""
        return {
            "class": "LongformerEncoder",
            "model": self.name,
            "weights": weights_digest(self.model),
            "pooling": self.pooling,
            "dtype": str(self.model.word_embeddings.dtype).removeprefix("torch."),
            "normalize": True,
            "global_attention": "none",  # which were settings until 0.2
            "max_length": self.max_length,
            "query_prompt": self.query_prompt,
            "passage_prompt": self.passage_prompt,
            "width": self.dim,
        }


def _read_checkpoint(model: str) -> tuple[Any, State, Any]:
    """Config, weights on the CPU in the dtype they were saved in, and tokenizer; the heads of task models are left out.

    Errors: :class:`InputError` for what cannot be reached, is no Longformer, lacks its tokenizer, or lacks weights.
    """
    transformers = import_optional("transformers", "neural")
    modules = Path(model, "modules.json")  # of sentence-transformers
    with quiet_transformers():
        try:
            where = model
            if modules.is_file():
                where = str(Path(model, json.loads(modules.read_text(encoding="utf-8"))[0]["path"]))
            config = transformers.AutoConfig.from_pretrained(where)
            if config.model_type != "longformer" or config.hidden_act != "gelu":
                raise InputError(f"expected model_type 'longformer' and GELU, found {config.model_type!r}")
            windows, layers = config.attention_window, config.num_hidden_layers
            windows = [windows] * layers if isinstance(windows, int) else list(windows)
            if len(windows) != layers or any(window < 2 or window % 2 for window in windows):
                raise InputError(f"expected an even attention_window for each of {layers} layers, found {windows}")
            config.attention_window = windows
            standard, info = transformers.LongformerModel.from_pretrained(where, output_loading_info=True)
            tokenizer = transformers.AutoTokenizer.from_pretrained(where)
        except Exception as error:  # the library raises whatever its parsers raise
            raise InputError(f"cannot load the Longformer {model!r}: {error}") from error
    pooler = {name for name in info["missing_keys"] if name.startswith("pooler.")}  # is made up where it is missing
    missing = sorted(set(info["missing_keys"]) - pooler)
    ours = ("embeddings.", "encoder.", "longformer.")  # of the encoder; other names are of a task's head
    unexpected = sorted(n for n in info["unexpected_keys"] if n.startswith(ours) and not n.endswith("position_ids"))
    if missing or unexpected or info["mismatched_keys"]:
        raise InputError(
            f"{model!r}: the weights are not those of its config: {len(missing)} missing {missing[:3]}, "
            f"{len(unexpected)} unexpected {unexpected[:3]}, of another shape {sorted(info['mismatched_keys'])[:3]}"
        )
    # Without files, transformers makes up a tokenizer that knows the special tokens only.
    if not getattr(tokenizer, "is_fast", False) or len(tokenizer) <= len(tokenizer.all_special_ids):
        raise InputError(f"cannot load the Longformer {model!r}: its tokenizer lacks tokenizer.json or vocab.json")
    if len(tokenizer) > config.vocab_size:
        raise InputError(f"{model!r}: the tokenizer has {len(tokenizer)} tokens, the model {config.vocab_size}")
    return (
        config,
        {name: tensor.detach() for name, tensor in standard.state_dict().items() if name not in pooler},
        tokenizer,
    )
