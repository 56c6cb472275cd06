"""Longformer as an encoder of haybale, and as a module of sentence-transformers."""

# Of the libraries one has partial annotations and one, for a first module, wider ones than text; both may be absent.
# mypy: disable-error-code="misc,no-any-return,no-untyped-call,return-value,union-attr,call-arg,override,unused-ignore"

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import InputModule
from torch import Tensor

from haybale.embeddings.counts import EncodeCounts
from haybale.embeddings.encoder import check_texts
from haybale.embeddings.longformer.checkpoint import read_checkpoint, stack_settings
from haybale.embeddings.longformer.model import PackedLongformer
from haybale.embeddings.longformer.standard_stack import standard_stack
from haybale.embeddings.token_batches import token_batches, worked
from haybale.embeddings.token_rows import token_rows, warn_truncated
from haybale.embeddings.weights import weights_digest
from haybale.errors import InputError, UnknownNameError
from haybale.extras import require
from haybale.progress import track
from haybale.vectors import Floats

POOLINGS = ("mean", "cls")
DTYPES = ("float32", "float16", "bfloat16")
GLOBAL_ATTENTIONS = ("none", "cls")
# Tokens of a batch. On a CPU what a layer makes should stay in the cache; a GPU wants work.
# The CPU's is measured, CUDA's is not yet.
TOKENS_PER_BATCH = {"cpu": 2048, "cuda": 65_536}

T = TypeVar("T")
Rows = Sequence[NDArray[np.int32]]  # token numbers, one array a text


class LongformerEncoder(InputModule):
    """Encodes with a Longformer (extra ``neural``): the numbers of transformers' LongformerModel, without its padding.

    Beltagy, Peters and Cohan, "Longformer: The Long-Document Transformer", 2020.

    ``model``: hub id or folder of any Longformer, as transformers or sentence-transformers save it, with or without
    a task's head. ``pooling``: ``"mean"`` of a text's tokens or ``"cls"``, the first. ``normalize``: to length 1.
    ``device``: ``"auto"`` is CUDA if there is some. ``dtype``: None is ``"float32"``; ``"float16"`` and
    ``"bfloat16"`` hold for weights and activations, pooling is float32. ``global_attention``: ``"none"``, or
    ``"cls"`` for the first token. The prompts are put before each text. ``max_length``: texts are cut there; None is
    what model and tokenizer read (longformer-base-4096: 4096). ``tokens_per_batch``: None is 2,048 on a CPU and
    65,536 on CUDA.

    ``counts`` (:class:`EncodeCounts`) adds up what was encoded.

    It is a module too: ``SentenceTransformer(modules=[encoder])`` gives the same vectors, and both its ``save`` and
    this one's write the standard modules, which load without haybale. It can be trained; there is no dropout.

    Errors: :class:`MissingExtraError` without the extra; :class:`UnknownNameError` for the names above;
    :class:`InputError` for a checkpoint that cannot be reached, is no Longformer, or lacks weights or tokenizer.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        pooling: str = "mean",
        normalize: bool = True,
        device: str = "auto",
        dtype: str | None = None,
        global_attention: str = "none",
        query_prompt: str = "",
        passage_prompt: str = "",
        max_length: int | None = None,
        tokens_per_batch: int | None = None,
    ) -> None:
        super().__init__()
        dtype = dtype or "float32"
        for kind, name, known in (
            ("pooling", pooling, POOLINGS),
            ("dtype", dtype, DTYPES),
            ("global attention", global_attention, GLOBAL_ATTENTIONS),
        ):
            if name not in known:
                raise UnknownNameError(kind, name, known)
        if tokens_per_batch is not None and tokens_per_batch < 1:
            raise InputError(f"tokens_per_batch must be at least 1, found {tokens_per_batch}")
        self.name = str(model)
        self.pooling, self.normalize, self.global_attention = pooling, normalize, global_attention
        self.query_prompt, self.passage_prompt, self.tokens_per_batch = query_prompt, passage_prompt, tokens_per_batch
        checkpoint = read_checkpoint(self.name)
        config, self.tokenizer = checkpoint.config, checkpoint.tokenizer
        readable = config.max_position_embeddings - config.pad_token_id - 1
        special = self.tokenizer.num_special_tokens_to_add()
        if max_length is not None and not special < max_length <= readable:
            raise InputError(
                f"max_length must be above the {special} special tokens and at most the {readable} tokens that "
                f"{self.name!r} reads, found {max_length}"
            )
        self.max_length = max_length or min(readable, self.tokenizer.model_max_length)
        state = {name: tensor.to(getattr(torch, dtype)) for name, tensor in checkpoint.state.items()}
        act = config.hidden_act
        activation = None if act == "gelu" else require("transformers.activations", "neural").ACT2FN[act]
        self.model = PackedLongformer(config, state, global_attention == "cls", activation)
        self.counts = EncodeCounts()
        self.eval().to(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)

    @property
    def width(self) -> int:
        """d, the number of columns of the vectors."""
        return int(self.model.config.hidden_size)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.model.word_embeddings.device

    @property
    def dtype(self) -> str:
        """``"float32"``, ``"float16"`` or ``"bfloat16"``."""
        return str(self.model.word_embeddings.dtype).removeprefix("torch.")

    def encode(self, texts: Sequence[str]) -> Floats:
        """(n,) passages to (n, d) float32; longer ones than ``max_length`` are cut, with one warning for the call."""
        return self._tensor(texts, self.passage_prompt).cpu().numpy()

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """The same with ``query_prompt`` instead of ``passage_prompt``."""
        return self._tensor(texts, self.query_prompt).cpu().numpy()

    def encode_tensor(self, texts: Sequence[str], *, dtype: str = "float32") -> Tensor:
        """(n,) passages to (n, d) on the encoder's device, float32 or float16; no copy is made elsewhere."""
        return self._tensor(texts, self.passage_prompt, dtype)

    def encode_queries_tensor(self, texts: Sequence[str], *, dtype: str = "float32") -> Tensor:
        """The same with ``query_prompt``."""
        return self._tensor(texts, self.query_prompt, dtype)

    def encode_tokens(self, texts: Sequence[str]) -> list[Floats]:
        """For each text the hidden states of its tokens, (tokens, d) float32, special ones included."""
        result: list[Floats] = [np.empty((0, self.width), dtype=np.float32)] * len(texts)
        for batch, pieces in self._batches(texts, self.passage_prompt, lambda hidden, n: hidden.float().cpu().split(n)):
            for i, piece in zip(batch, pieces, strict=True):
                result[i] = piece.numpy()
        return result

    def _tensor(self, texts: Sequence[str], prompt: str, dtype: str = "float32") -> Tensor:
        if dtype not in ("float32", "float16"):
            raise UnknownNameError("dtype of vectors", dtype, ("float32", "float16"))
        vectors = torch.empty((len(texts), self.width), dtype=getattr(torch, dtype), device=self.device)
        for batch, pooled in self._batches(texts, prompt, self._pooled):
            vectors[torch.from_numpy(batch).to(self.device)] = pooled.to(vectors.dtype)
        return vectors

    def _batches(
        self, texts: Sequence[str], prompt: str, work: Callable[[Tensor, list[int]], T]
    ) -> Iterator[tuple[NDArray[np.int64], T]]:
        """Batch by batch: which texts, and what ``work`` makes of their hidden states (tokens, d) and token counts.

        The hidden states are end to end. A batch that the device has no memory for is halved.
        """
        prompted = [prompt + text for text in check_texts(texts)]
        rows, truncated = token_rows(self.tokenizer, prompted, self.max_length)
        warn_truncated(truncated, len(rows), self.max_length)
        budget = self.tokens_per_batch or TOKENS_PER_BATCH.get(self.device.type, TOKENS_PER_BATCH["cuda"])
        training = self.training
        self.eval()

        def one(batch: NDArray[np.int64]) -> T:
            chosen = [rows[i] for i in batch]
            with torch.inference_mode():
                return work(self._hidden(chosen), [len(row) for row in chosen])

        yield from worked(track(token_batches([len(row) for row in rows], budget), "encoding"), one)
        self.train(training)
        tokens = sum(map(len, rows))
        self.counts += EncodeCounts(texts=len(rows), tokens=tokens, slots=tokens, truncated=truncated)

    def _hidden(self, rows: Rows) -> Tensor:
        """Hidden states (tokens, d) of the texts end to end."""
        ids = torch.from_numpy(np.concatenate(rows)).to(self.device, torch.int64)
        padding = self.model.config.pad_token_id
        positions = np.concatenate([_positions(row, padding) for row in rows])
        return self.model(ids, torch.from_numpy(positions).to(self.device), [len(row) for row in rows])

    def _pooled(self, hidden: Tensor, lengths: Sequence[int]) -> Tensor:
        """(tokens, d) to (texts, d) float32."""
        counts = torch.tensor(lengths, device=hidden.device)
        if self.pooling == "cls":
            vectors = hidden[counts.cumsum(0) - counts].float()
        else:
            vectors = torch.segment_reduce(hidden.float(), "mean", lengths=counts, axis=0)
        return torch.nn.functional.normalize(vectors, dim=1) if self.normalize else vectors

    def describe(self) -> dict[str, Any]:
        """What decides the vectors, as JSON can hold it; ``weights`` is the SHA-256 of the weights in use."""
        return {
            "class": "LongformerEncoder",
            "model": self.name,
            "weights": weights_digest(self.model),
            "pooling": self.pooling,
            "normalize": self.normalize,
            "dtype": self.dtype,
            "global_attention": self.global_attention,
            "max_length": self.max_length,
            "query_prompt": self.query_prompt,
            "passage_prompt": self.passage_prompt,
            "width": self.width,
        }

    # What sentence-transformers asks of a first module.

    @property
    def max_seq_length(self) -> int:
        """``max_length`` by its name there."""
        return self.max_length

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        self.max_length = value

    def preprocess(self, inputs: Sequence[str], prompt: str | None = None, **_: Any) -> dict[str, Any]:
        """``input_ids`` and ``attention_mask``, (n, longest) int64; without a ``prompt`` that of passages."""
        prompt = self.passage_prompt if prompt is None else prompt
        rows, _truncated = token_rows(self.tokenizer, [prompt + text for text in inputs], self.max_length)
        ids = [torch.from_numpy(row).long() for row in rows]
        real = [torch.ones(len(row), dtype=torch.int64) for row in rows]
        pad = torch.nn.utils.rnn.pad_sequence
        return {
            "input_ids": pad(ids, batch_first=True, padding_value=self.model.config.pad_token_id),
            "attention_mask": pad(real, batch_first=True),
        }

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Adds ``sentence_embedding`` (n, d) and ``token_embeddings`` (n, longest, d), zero where there is no token."""
        lengths = features["attention_mask"].sum(1).tolist()
        rows = [row[:n].numpy() for row, n in zip(features["input_ids"].cpu(), lengths, strict=True)]
        hidden = self._hidden(rows)
        features["token_embeddings"] = torch.nn.utils.rnn.pad_sequence(hidden.split(lengths), batch_first=True)
        features["sentence_embedding"] = self._pooled(hidden, lengths)
        return features

    def get_embedding_dimension(self) -> int:
        """``width`` by its name there."""
        return self.width

    get_sentence_embedding_dimension = get_embedding_dimension

    def on_model_ready(self, model: Any) -> None:
        """Called by a SentenceTransformer when it is made of this module: it takes over the prompts and ``save``.

        Its own ``save`` would name this class in the folder, which then loads with haybale and a trust in its code
        only; and a module has no other way to be saved as several.
        """
        for name, prompt in (("query", self.query_prompt), ("document", self.passage_prompt)):
            model.prompts[name] = model.prompts.get(name) or prompt
        if model._first_module() is self:
            model.save = partial(_save_as_standard, model)

    def to_sentence_transformer(self) -> SentenceTransformer:
        """Transformer + Pooling (+ Normalize) with the same weights and prompts.

        Errors: :class:`InputError` with global attention, for which these modules have no place.
        """
        prompts = {"query": self.query_prompt, "document": self.passage_prompt}
        default = "document" if self.passage_prompt else None
        return SentenceTransformer(
            modules=standard_stack(self), device=str(self.device), prompts=prompts, default_prompt_name=default
        )

    def save(self, folder: str | Path, *, create_model_card: bool = False, **_: Any) -> None:
        """Write the folder of :meth:`to_sentence_transformer`, in the dtype of the weights."""
        self.to_sentence_transformer().save(str(folder), create_model_card=create_model_card)

    @classmethod
    def load(cls, folder: str | Path, **parameters: Any) -> LongformerEncoder:
        """A folder of sentence-transformers with the pooling, normalisation, prompts and cut it was saved with."""
        return cls(folder, **{**stack_settings(folder), **parameters})


def _save_as_standard(model: Any, path: str, *args: Any, **kwargs: Any) -> None:
    """``SentenceTransformer.save`` with the first module replaced by the standard ones."""
    encoder, *rest = model
    SentenceTransformer(
        modules=[*standard_stack(encoder), *rest],
        device=str(encoder.device),
        prompts=model.prompts,
        default_prompt_name=model.default_prompt_name or ("document" if encoder.passage_prompt else None),
        similarity_fn_name=model.similarity_fn_name,
    ).save(path, *args, **kwargs)


def _positions(row: NDArray[np.int32], padding: int) -> NDArray[np.int64]:
    """Counted from ``padding`` + 1; a padding token that stands in the text itself gets none, as in transformers."""
    real = row != padding
    return np.asarray(np.cumsum(real) * real + padding, dtype=np.int64)
