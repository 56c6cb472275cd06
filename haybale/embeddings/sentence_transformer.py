"""Any sentence-transformers model, by hub id or from a local folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.embeddings.counts import EncodeCounts
from haybale.embeddings.encoder import check_texts
from haybale.embeddings.token_batches import token_batches, worked
from haybale.embeddings.token_rows import token_rows, warn_truncated
from haybale.embeddings.weights import weights_digest
from haybale.errors import DeviceError, InputError, VectorError
from haybale.extras import require
from haybale.machine import free_cached, is_out_of_memory
from haybale.progress import track
from haybale.vectors import Floats

_PROBE = ["one text", "and another one that is longer than the first"]


class SentenceTransformerEncoder:
    """Encodes with a ``SentenceTransformer`` (extra ``neural``), L2-normalised.

    ``model`` is a hub id, a local folder as sentence-transformers saves them, or a loaded
    ``SentenceTransformer``; the prompts are put before each text, empty ones are those the model was saved with
    (its ``prompts`` of ``query`` and ``document``, or its default). ``device`` is ``"cpu"``, ``"cuda"``, … or None
    for its choice.

    Texts are tokenised once, sorted by token count and sent through the model in batches of at most
    ``tokens_per_batch`` tokens, padding included; None is as many as ``batch_size`` texts of 128 tokens have. Where
    the model is fed otherwise than by a plain tokenizer (``packed`` is False then), sentence-transformers' own
    ``encode`` does the work, ``batch_size`` texts at once. The vectors are the same either way.

    ``counts`` (:class:`EncodeCounts`) adds up what was encoded; texts only where ``packed`` is False.

    A batch that the device has no memory for is halved, and so are those after it.

    Errors: :class:`MissingExtraError` without the extra; :class:`InputError` where neither a folder nor a
    reachable hub has the model; :class:`DeviceError` where there is no memory for a single text.
    """

    def __init__(
        self,
        model: Any,
        *,
        batch_size: int = 64,
        device: str | None = None,
        query_prompt: str = "",
        passage_prompt: str = "",
        tokens_per_batch: int | None = None,
    ) -> None:
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, found {batch_size}")
        if tokens_per_batch is not None and tokens_per_batch < 1:
            raise InputError(f"tokens_per_batch must be at least 1, found {tokens_per_batch}")
        self.batch_size = batch_size
        self.tokens_per_batch = tokens_per_batch or 128 * batch_size
        self.query_prompt, self.passage_prompt = query_prompt, passage_prompt
        library = require("sentence_transformers", "neural")
        if isinstance(model, (str, Path)):
            try:
                self.model = library.SentenceTransformer(str(model), device=device)
            except (OSError, ValueError) as error:
                raise InputError(f"cannot load the sentence-transformers model {str(model)!r}: {error}") from error
        else:
            self.model = model
        self.name = str(model) if isinstance(model, (str, Path)) else type(model).__name__
        self.packed = self._feeds_as_the_library()
        self.counts = EncodeCounts()

    @property
    def width(self) -> int:
        """d, the number of columns of the vectors."""
        width = self.model.get_embedding_dimension()
        return int(width) if width is not None else self.model.encode(_PROBE).shape[1]

    def encode(self, texts: Sequence[str]) -> Floats:
        """(n,) passages to (n, d) float32; a text longer than the model reads is cut there, with a warning."""
        return np.asarray(self._encode(texts, self._prompt("document")).cpu().numpy())

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """The same with the prompt of queries."""
        return np.asarray(self._encode(texts, self._prompt("query")).cpu().numpy())

    def encode_tensor(self, texts: Sequence[str]) -> Any:
        """(n,) passages to a float32 tensor (n, d) on the model's device; no copy is made elsewhere."""
        return self._encode(texts, self._prompt("document"))

    def encode_queries_tensor(self, texts: Sequence[str]) -> Any:
        """The same with the prompt of queries."""
        return self._encode(texts, self._prompt("query"))

    def _prompt(self, kind: str) -> str:
        """The prompt given here, or else the one the model was saved with for the kind, or for all texts."""
        given = self.query_prompt if kind == "query" else self.passage_prompt
        saved = self.model.prompts
        return given or saved.get(kind) or saved.get(self.model.default_prompt_name) or ""

    def _encode(self, texts: Sequence[str], prompt: str) -> Any:
        torch = require("torch", "neural")
        texts = list(check_texts(texts))
        if not texts:
            return torch.empty((0, self.width), dtype=torch.float32, device=self.model.device)
        # Some models leave the tokens of the prompt out of the mean, which only the library knows how to do.
        pools_all = all(getattr(module, "include_prompt", True) for module in self.model)
        if self.packed and (pools_all or not prompt):
            vectors = self._encode_packed([prompt + text for text in texts])
        else:
            vectors = self._encode_by_library(texts, prompt)
        finite = torch.isfinite(vectors).all(dim=1)
        if not bool(finite.all()):
            raise VectorError(f"encoder output: row {int(finite.int().argmin())} has NaN or infinity")
        return torch.nn.functional.normalize(vectors, dim=1)

    def _encode_packed(self, texts: list[str]) -> Any:
        torch = require("torch", "neural")
        rows, truncated = token_rows(self.model.tokenizer, texts, self.model.max_seq_length)
        warn_truncated(truncated, len(rows), self.model.max_seq_length)
        device = self.model.device
        slots = 0
        self.model.eval()

        def one(batch: NDArray[np.int64]) -> tuple[Any, int]:
            features = self._features([rows[i].tolist() for i in batch])
            with torch.inference_mode():
                on_device = {name: value.to(device) for name, value in features.items()}
                return self.model(on_device)["sentence_embedding"].float(), features["input_ids"].numel()

        result = None
        batches = token_batches([len(row) for row in rows], self.tokens_per_batch, padded=True)
        for batch, (vectors, used) in worked(track(batches, "encoding"), one):
            slots += used
            if result is None:
                result = torch.empty((len(rows), vectors.shape[1]), dtype=torch.float32, device=vectors.device)
            result[torch.from_numpy(batch).to(result.device)] = vectors
        self.counts += EncodeCounts(len(rows), sum(map(len, rows)), slots, truncated)
        return result

    def _encode_by_library(self, texts: list[str], prompt: str) -> Any:
        how = {"prompt": prompt, "show_progress_bar": sys.stderr.isatty(), "convert_to_tensor": True}
        size = min(self.batch_size, len(texts))
        while True:
            try:
                vectors = self.model.encode(texts, batch_size=size, **how)
                break
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                if size == 1:
                    raise DeviceError(f"out of memory at one text at a time: {error}") from error
            size //= 2
            free_cached()  # after the error, whose traceback held tensors, is gone
        self.counts += EncodeCounts(texts=len(texts))
        return vectors.float()

    def _features(self, rows: list[list[int]]) -> dict[str, Any]:
        """``input_ids``, ``attention_mask`` and, for models that have them, ``token_type_ids``: (texts, longest)."""
        padded: dict[str, Any] = self.model.tokenizer.pad({"input_ids": rows}, return_tensors="pt").data
        if "token_type_ids" in self.model.tokenizer.model_input_names:
            padded["token_type_ids"] = padded["input_ids"] * 0  # one segment
        return padded

    def _feeds_as_the_library(self) -> bool:
        """Whether the features we make of the probe are those that the model makes of it, tensor by tensor."""
        torch = require("torch", "neural")
        tokenizer, limit = getattr(self.model, "tokenizer", None), getattr(self.model, "max_seq_length", None)
        truncates = getattr(self.model, "truncate_dim", None) is not None
        if truncates or not getattr(tokenizer, "is_fast", False) or not isinstance(limit, int):
            return False
        first = type(self.model[0])
        if first.__name__ != "Transformer" or not first.__module__.startswith("sentence_transformers."):
            return False
        theirs = {k: v for k, v in self.model.preprocess(_PROBE).items() if isinstance(v, torch.Tensor)}
        ours = self._features([row.tolist() for row in token_rows(tokenizer, _PROBE, limit)[0]])
        return theirs.keys() == ours.keys() and all(torch.equal(theirs[name], ours[name]) for name in ours)

    def describe(self) -> dict[str, Any]:
        """What decides the vectors, as JSON can hold it; ``weights`` is the SHA-256 of the weights in use."""
        return {
            "class": "SentenceTransformerEncoder",
            "model": self.name,
            "modules": [type(module).__name__ for module in self.model],
            "weights": weights_digest(self.model),
            "max_length": self.model.max_seq_length,
            "query_prompt": self._prompt("query"),
            "passage_prompt": self._prompt("document"),
            "width": self.width,
        }
