"""Encoding with a Longformer, without padding; and reading its checkpoints. Imports torch only when it is used."""

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
from haybale.extras import import_optional, quiet_transformers
from haybale.parameters import COUNT_OR_NONE, Constraints, check_parameters, one_of
from haybale.text_files import parsed_json
from haybale.vectors import Floats

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from haybale.embeddings.networks.longformer_model import State

# The number of tokens in a batch. On a CPU the output of a layer should stay in the cache; a GPU needs more work at
# once. The CPU's number is measured, CUDA's is not yet.
TOKENS_PER_BATCH = {"cpu": 2048, "cuda": 65_536}


class LongformerEncoder(Encoder):
    """Encode with a Longformer (extra ``neural``), with the numbers of transformers' LongformerModel but no padding.

    Beltagy, Peters and Cohan, "Longformer: The Long-Document Transformer", 2020. No token has global attention.

    Parameters
    ----------
    model : str or Path
        Hub id or folder of any Longformer, saved by transformers or sentence-transformers, with or without a head.
    pooling : {"mean", "cls"}, default "mean"
        Makes a text's vector the mean of its tokens' states, or the state of the first; then scales it to length 1.
    device : str, optional
        ``"cpu"``, ``"cuda"``, …; default, and ``"auto"``: CUDA if there is a device.
    dtype : {"float32", "float16", "bfloat16"}, default "float32"
        The type of weights and activations; pooling is float32.
    query_prompt, passage_prompt : str, default ""
        Texts put before each query and passage.
    max_length : int, optional
        The number of tokens at which texts are cut; default: what model and tokenizer read, often 4096.
    tokens_per_batch : int, optional
        Default: 2,048 on a CPU and 65,536 on CUDA. A batch that does not fit into memory is halved.

    Attributes
    ----------
    model_name : str
        The hub id or folder.
    counts : Counter
        Sums of ``texts``, ``tokens`` and ``truncated`` texts.

    Raises
    ------
    InputError
        A checkpoint cannot be reached, is no Longformer, or lacks weights or tokenizer; a setting is out of range.
    MissingExtraError
        The extra is not installed.
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
        readable = config.max_position_embeddings - config.pad_token_id - 1
        special = self.tokenizer.num_special_tokens_to_add()
        if max_length is not None and not special < max_length <= readable:
            raise InputError(
                f"max_length must be above the {special} special tokens and at most the {readable} tokens that "
                f"{self.model_name!r} reads, found {max_length}"
            )
        self.max_length = max_length or min(readable, self.tokenizer.model_max_length)
        state = {name: tensor.to(getattr(torch, dtype)) for name, tensor in state.items()}
        self.model = PackedLongformer(config, state)
        self.counts = Counter[str]()
        self.model.eval().to(device)

    @classmethod
    def recognises(cls, folder: Path) -> bool:
        """Return whether transformers saved a Longformer in the folder, without modules of sentence-transformers."""
        config = folder / "config.json"
        if not config.is_file() or (folder / "modules.json").exists():
            return False
        try:
            return bool(parsed_json(config, config.read_bytes()).get("model_type") == "longformer")
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
        """Encode (n,) passages to (n, d) float32; those beyond ``max_length`` are cut, with one warning a call."""
        return self._encode(texts, self.passage_prompt)

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Encode (n,) queries to (n, d) float32, with ``query_prompt``."""
        return self._encode(texts, self.query_prompt)

    def _encode(self, texts: Sequence[str], prompt: str) -> Floats:
        import torch

        rows, truncated = token_rows(self.tokenizer, [prompt + text for text in check_texts(texts)], self.max_length)
        budget = self.tokens_per_batch or TOKENS_PER_BATCH.get(self.device.type, TOKENS_PER_BATCH["cuda"])

        def one(batch: Batch) -> Floats:
            chosen = [rows[i] for i in batch]
            with torch.inference_mode():
                return self._pooled(self._hidden(chosen), [len(row) for row in chosen]).cpu().numpy()

        vectors = encode_batches(token_batches([len(row) for row in rows], budget), one, self.dim)
        self.counts.update(texts=len(rows), tokens=sum(map(len, rows)), truncated=truncated)
        return vectors

    def _hidden(self, rows: Sequence[NDArray[np.int32]]) -> Tensor:
        """Return hidden states (tokens, d) of texts laid end to end, each given by its token numbers."""
        import torch

        ids = torch.from_numpy(np.concatenate(rows)).to(self.device, torch.int64)
        # Positions count from ``padding`` + 1; a padding token in the text itself gets none, as in transformers.
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
        """Return what decides the vectors; ``weights`` is the SHA-256 of the weights in use."""
        return {
            "class": "LongformerEncoder",
            "model": self.model_name,
            "weights": weights_digest(self.model),
            "pooling": self.pooling,
            "dtype": str(self.model.word_embeddings.dtype).removeprefix("torch."),
            "normalize": True,
            "global_attention": "none",  # "normalize" and this were settings until 0.2
            "max_length": self.max_length,
            "query_prompt": self.query_prompt,
            "passage_prompt": self.passage_prompt,
            "width": self.dim,
        }


def _read_checkpoint(model: str) -> tuple[Any, State, Any]:
    """Return config, weights on the CPU in their saved dtype, and tokenizer; the heads of task models are left out."""
    transformers = import_optional("transformers", "neural")
    modules = Path(model, "modules.json")  # as sentence-transformers saves it
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
        except Exception as error:  # the library passes on whatever its parsers raise
            raise InputError(f"cannot load the Longformer {model!r}: {error}") from error
    pooler = {
        name for name in info["missing_keys"] if name.startswith("pooler.")
    }  # made with random weights where it is missing
    missing = sorted(set(info["missing_keys"]) - pooler)
    ours = ("embeddings.", "encoder.", "longformer.")  # other names belong to the head of a task
    unexpected = sorted(n for n in info["unexpected_keys"] if n.startswith(ours) and not n.endswith("position_ids"))
    if missing or unexpected or info["mismatched_keys"]:
        raise InputError(
            f"{model!r}: the weights are not those of its config: {len(missing)} missing {missing[:3]}, "
            f"{len(unexpected)} unexpected {unexpected[:3]}, of another shape {sorted(info['mismatched_keys'])[:3]}"
        )
    # Without files, transformers makes a tokenizer that knows the special tokens only.
    if not getattr(tokenizer, "is_fast", False) or len(tokenizer) <= len(tokenizer.all_special_ids):
        raise InputError(f"cannot load the Longformer {model!r}: its tokenizer lacks tokenizer.json or vocab.json")
    if len(tokenizer) > config.vocab_size:
        raise InputError(f"{model!r}: the tokenizer has {len(tokenizer)} tokens, the model {config.vocab_size}")
    return (
        config,
        {name: tensor.detach() for name, tensor in standard.state_dict().items() if name not in pooler},
        tokenizer,
    )
