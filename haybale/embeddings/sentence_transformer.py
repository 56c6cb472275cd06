"""Any sentence-transformers model, by hub id or from a local folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from haybale.embeddings.counts import EncodeCounts
from haybale.embeddings.encoder import check_texts
from haybale.embeddings.token_batches import token_batches
from haybale.embeddings.token_rows import token_rows, warn_truncated
from haybale.embeddings.weights import weights_digest
from haybale.errors import InputError
from haybale.extras import require
from haybale.progress import track
from haybale.vectors import Floats, check_vectors, normalized

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

    Errors: :class:`MissingExtraError` without the extra; :class:`InputError` where neither a folder nor a
    reachable hub has the model.
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
        return self._encode(texts, self._prompt("document"))

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """The same with the prompt of queries."""
        return self._encode(texts, self._prompt("query"))

    def _prompt(self, kind: str) -> str:
        """The prompt given here, or else the one the model was saved with for the kind, or for all texts."""
        given = self.query_prompt if kind == "query" else self.passage_prompt
        saved = self.model.prompts
        return given or saved.get(kind) or saved.get(self.model.default_prompt_name) or ""

    def _encode(self, texts: Sequence[str], prompt: str) -> Floats:
        texts = list(check_texts(texts))
        if not texts:
            return np.empty((0, self.width), dtype=np.float32)
        # Some models leave the tokens of the prompt out of the mean, which only the library knows how to do.
        pools_all = all(getattr(module, "include_prompt", True) for module in self.model)
        if self.packed and (pools_all or not prompt):
            vectors = self._encode_packed([prompt + text for text in texts])
        else:
            bar = sys.stderr.isatty()
            vectors = self.model.encode(texts, prompt=prompt, batch_size=self.batch_size, show_progress_bar=bar)
            self.counts += EncodeCounts(texts=len(texts))
        return normalized(check_vectors(np.asarray(vectors, dtype=np.float32), "encoder output"))

    def _encode_packed(self, texts: list[str]) -> Floats:
        torch = require("torch", "neural")
        rows, truncated = token_rows(self.model.tokenizer, texts, self.model.max_seq_length)
        warn_truncated(truncated, len(rows), self.model.max_seq_length)
        result: Floats | None = None
        slots = 0
        self.model.eval()
        for batch in track(token_batches([len(row) for row in rows], self.tokens_per_batch, padded=True), "encoding"):
            features = self._features([rows[i].tolist() for i in batch])
            slots += features["input_ids"].numel()
            with torch.inference_mode():
                on_device = {name: value.to(self.model.device) for name, value in features.items()}
                vectors = self.model(on_device)["sentence_embedding"].float().cpu().numpy()
            if result is None:
                result = np.empty((len(rows), vectors.shape[1]), dtype=np.float32)
            result[batch] = vectors
        assert result is not None  # there is a text
        self.counts += EncodeCounts(len(rows), sum(map(len, rows)), slots, truncated)
        return result

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
