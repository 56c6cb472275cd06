"""Encode with a Longformer without padding, and load its checkpoints. Imports torch only when an encoder is made."""

# torch's annotations are partial, and may be absent.
# mypy: disable-error-code="misc,no-any-return,no-untyped-call,unused-ignore"

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from haybale.embeddings.encoder import Encoder
from haybale.embeddings.token_batches import Batch, check_texts, encode_batches, token_batches, token_rows
from haybale.embeddings.torch_models import torch_device, weights_digest
from haybale.errors import InputError
from haybale.extras import hub_options, import_optional, loading_model, quiet_transformers
from haybale.parameters import COUNT_OR_NONE, Constraints, check_parameters, one_of
from haybale.text_files import parsed_json, read_bytes
from haybale.vectors import Floats

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from haybale.embeddings.networks.longformer_model import State

# On a CPU the output of a layer should stay in the cache; a GPU needs larger batches. The number for the CPU is
# measured, that for CUDA is not.
TOKENS_PER_BATCH = {"cpu": 2048, "cuda": 65_536}


class LongformerEncoder(Encoder):
    """Encode with a Longformer (extra ``neural``). Equal to transformers' LongformerModel, but without its padding.

    Beltagy, Peters and Cohan, "Longformer: The Long-Document Transformer", 2020. No token has global attention.

    Parameters
    ----------
    model : str or Path
        Hub id or folder of any Longformer, saved by transformers or sentence-transformers, with or without a head.
    pooling : {"mean", "cls"}, default "mean"
        How the hidden states of a text become its vector: their mean, or the state of the first token. The vector is
        then scaled to length 1.
    device : str, optional
        ``"cpu"``, ``"cuda"``, …; by default, and for ``"auto"``, CUDA if there is a device.
    dtype : {"float32", "float16", "bfloat16"}, default "float32"
        The type of weights and activations. Pooling is always in float32.
    query_prompt, passage_prompt : str, default ""
        Texts put before each query and before each passage.
    max_length : int, optional
        The number of tokens after which texts are truncated; default: what model and tokenizer allow, often 4096.
    tokens_per_batch : int, optional
        The number of tokens encoded at once; default: 2,048 on a CPU and 65,536 on CUDA. A batch that does not fit into
        memory is halved.

    Attributes
    ----------
    model_name : str
        The hub id or folder.
    counts : Counter
        Sums of ``texts``, ``tokens`` and ``truncated`` texts.

    Raises
    ------
    InputError
        The checkpoint cannot be loaded, is not a Longformer, or lacks weights or tokenizer; a setting is out of range.
    MissingExtraError
        The extra ``neural`` is not installed.
    """

    name = "longformer"
    _parameter_constraints: ClassVar[Mapping[str, Constraints]] = {
        "pooling": one_of(("mean", "cls")),
        "dtype": one_of(("float32", "float16", "bfloat16")),
        "max_length": COUNT_OR_NONE,
        "tokens_per_batch": COUNT_OR_NONE,
    }

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
        check_parameters("LongformerEncoder", locals(), self._parameter_constraints)
        torch, device = import_optional("torch", "neural"), torch_device(device)
        from haybale.embeddings.networks.longformer_model import PackedLongformer

        self.model_name, self.pooling = str(model), pooling
        self.query_prompt, self.passage_prompt, self.tokens_per_batch = query_prompt, passage_prompt, tokens_per_batch
        config, state, self.tokenizer = _read_checkpoint(self.model_name)
        limit = config.max_position_embeddings - config.pad_token_id - 1
        special = self.tokenizer.num_special_tokens_to_add()
        if max_length is not None and not special < max_length <= limit:
            raise InputError(
                f"max_length of {self.model_name!r} must be between {special + 1} and {limit}, found {max_length}"
            )
        self.max_length = max_length or min(limit, self.tokenizer.model_max_length)
        state = {name: tensor.to(getattr(torch, dtype)) for name, tensor in state.items()}
        self.model = PackedLongformer(config, state)
        self.counts = Counter[str]()
        self.model.eval().to(device)

    @classmethod
    def recognises(cls, folder: Path) -> bool:
        """Return whether a folder holds a Longformer of transformers without modules of sentence-transformers."""
        config = folder / "config.json"
        if not config.is_file() or (folder / "modules.json").exists():
            return False
        try:
            return bool(parsed_json(config, read_bytes(config)).get("model_type") == "longformer")
        except (ValueError, AttributeError):
            return False

    @property
    def dim(self) -> int:
        """The number of columns of the vectors."""
        return int(self.model.config.hidden_size)

    @property
    def device(self) -> torch.device:
        """The device that holds the weights."""
        return self.model.word_embeddings.device

    def encode(self, texts: Sequence[str]) -> Floats:
        """Encode (n,) passages to (n, d) float32. Longer texts are truncated at ``max_length``, with one warning."""
        return self._encode(texts, self.passage_prompt)

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Encode (n,) queries to (n, d) float32, with ``query_prompt``."""
        return self._encode(texts, self.query_prompt)

    def _encode(self, texts: Sequence[str], prompt: str) -> Floats:
        import torch

        rows, truncated = token_rows(self.tokenizer, [prompt + text for text in check_texts(texts)], self.max_length)
        budget = self.tokens_per_batch or TOKENS_PER_BATCH.get(self.device.type, TOKENS_PER_BATCH["cuda"])

        def encode_batch(batch: Batch) -> Floats:
            chosen = [rows[i] for i in batch]
            with torch.inference_mode():
                return self._pooled(self._hidden(chosen), [len(row) for row in chosen]).cpu().numpy()

        vectors = encode_batches(token_batches([len(row) for row in rows], budget), encode_batch, self.dim)
        self.counts.update(texts=len(rows), tokens=sum(map(len, rows)), truncated=truncated)
        return vectors

    def _hidden(self, rows: Sequence[NDArray[np.int32]]) -> Tensor:
        """Return the hidden states (tokens, d) of concatenated texts, each given by its token numbers."""
        import torch

        ids = torch.from_numpy(np.concatenate(rows)).to(self.device, torch.int64)
        # As in transformers, positions count from ``padding`` + 1, and padding tokens within a text are not counted.
        padding = self.model.config.pad_token_id
        positions = np.concatenate([np.cumsum(row != padding) * (row != padding) + padding for row in rows])
        return self.model(ids, torch.from_numpy(positions).to(self.device), [len(row) for row in rows])

    def _pooled(self, hidden: Tensor, lengths: Sequence[int]) -> Tensor:
        """Pool hidden states (tokens, d) to vectors (texts, d) float32."""
        import torch

        counts = torch.tensor(lengths, device=hidden.device)
        if self.pooling == "cls":
            vectors = hidden[counts.cumsum(0) - counts].float()
        else:
            vectors = torch.segment_reduce(hidden.float(), "mean", lengths=counts, axis=0)
        return torch.nn.functional.normalize(vectors, dim=1)

    def describe(self) -> dict[str, Any]:
        """Return JSON values that determine the vectors; ``weights`` is the SHA-256 of the weights."""
        return {
            "class": "LongformerEncoder",
            "model": self.model_name,
            "weights": weights_digest(self.model),
            "pooling": self.pooling,
            "dtype": str(self.model.word_embeddings.dtype).removeprefix("torch."),
            "normalize": True,
            "global_attention": "none",
            "max_length": self.max_length,
            "query_prompt": self.query_prompt,
            "passage_prompt": self.passage_prompt,
            "width": self.dim,
        }


def _read_checkpoint(model: str) -> tuple[Any, State, Any]:
    """Return the config, the weights (on the CPU, in their saved dtype, without task heads) and the tokenizer."""
    transformers = import_optional("transformers", "neural")
    options = hub_options(model)
    modules = Path(model, "modules.json")  # written by sentence-transformers
    with loading_model("Longformer", model, options), quiet_transformers():
        where = model
        if modules.is_file():
            where = str(Path(model, json.loads(modules.read_text(encoding="utf-8"))[0]["path"]))
        config = transformers.AutoConfig.from_pretrained(where, **options)
        if config.model_type != "longformer" or config.hidden_act != "gelu":
            raise InputError(f"expected model_type 'longformer' and GELU, found {config.model_type!r}")
        windows, layers = config.attention_window, config.num_hidden_layers
        windows = [windows] * layers if isinstance(windows, int) else list(windows)
        if len(windows) != layers or any(window < 2 or window % 2 for window in windows):
            raise InputError(f"expected an even attention_window for each of {layers} layers, found {windows}")
        config.attention_window = windows
        standard, info = transformers.LongformerModel.from_pretrained(where, output_loading_info=True, **options)
        tokenizer = transformers.AutoTokenizer.from_pretrained(where, **options)
    pooler = {name for name in info["missing_keys"] if name.startswith("pooler.")}  # a missing one has random weights
    missing = sorted(set(info["missing_keys"]) - pooler)
    backbone = ("embeddings.", "encoder.", "longformer.")  # other names belong to a task head
    unexpected = sorted(n for n in info["unexpected_keys"] if n.startswith(backbone) and not n.endswith("position_ids"))
    if missing or unexpected or info["mismatched_keys"]:
        raise InputError(
            f"{model!r}: the weights do not fit the config: {len(missing)} missing {missing[:3]}, "
            f"{len(unexpected)} unexpected {unexpected[:3]}, of another shape {sorted(info['mismatched_keys'])[:3]}; "
            "save the model again"
        )
    # Without its files, transformers makes a tokenizer of the special tokens only.
    if not getattr(tokenizer, "is_fast", False) or len(tokenizer) <= len(tokenizer.all_special_ids):
        raise InputError(f"the tokenizer of {model!r} lacks tokenizer.json or vocab.json; save it beside the model")
    if len(tokenizer) > config.vocab_size:
        raise InputError(
            f"the tokenizer of {model!r} must have at most {config.vocab_size} tokens, found {len(tokenizer)}"
        )
    state = {name: tensor.detach() for name, tensor in standard.state_dict().items() if name not in pooler}
    return config, state, tokenizer
