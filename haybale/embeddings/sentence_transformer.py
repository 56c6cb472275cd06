"""Any sentence-transformers model, by hub id or from a local folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from haybale.embeddings.token_batches import Batch, check_texts, in_batches, token_rows, weights_digest
from haybale.errors import InputError
from haybale.extras import import_optional
from haybale.parameters import COUNT, COUNT_OR_NONE, Constraints, check_parameters, one_of
from haybale.vectors import Floats, check_vectors

_CONSTRAINTS: dict[str, Constraints] = {
    "batch_size": COUNT,
    "max_length": COUNT_OR_NONE,
    "dtype": one_of(["float32", "bfloat16", "float16"]),
}


class SentenceTransformerEncoder:
    """Encodes with a ``SentenceTransformer`` (extra ``neural``), L2-normalised.

    Parameters
    ----------
    model : str, Path or SentenceTransformer
        Hub id, a local folder as sentence-transformers saves them, or a loaded model.
    batch_size : int, default 64
        Texts at once; a batch that the device has no memory for is halved.
    device : str, optional
        ``"cpu"``, ``"cuda"``, …; None or ``"auto"``: the library's choice.
    query_prompt, passage_prompt : str, default ""
        Put before each text; empty ones are those the model was saved with (its ``prompts`` of ``query`` and
        ``document``, or its default).
    max_length : int, optional
        Texts are cut at so many tokens; default: the model's own.
    dtype : {"float32", "bfloat16", "float16"}, default "float32"
        In which products are computed; weights and vectors stay float32. A processor with AMX is two to three times as
        fast in bfloat16, with the same rankings but for near ties; one without is slower.

    Attributes
    ----------
    counts : Counter
        ``texts``, ``tokens`` and ``truncated`` texts, added up; texts only where the tokenizer is not a fast one.

    Raises
    ------
    InputError, MissingExtraError
        Where neither a folder nor a reachable hub has the model; without the extra.
    """

    def __init__(
        self,
        model: Any,
        *,
        batch_size: int = 64,
        device: str | None = None,
        query_prompt: str = "",
        passage_prompt: str = "",
        max_length: int | None = None,
        dtype: str = "float32",
    ) -> None:
        check_parameters("SentenceTransformerEncoder", locals(), _CONSTRAINTS)
        self.batch_size, self.query_prompt, self.passage_prompt = batch_size, query_prompt, passage_prompt
        self.dtype = dtype
        library = import_optional("sentence_transformers", "neural")
        self.model, self.name = model, type(model).__name__
        if isinstance(model, (str, Path)):
            self.name = str(model)
            try:
                self.model = library.SentenceTransformer(self.name, device=None if device == "auto" else device)
            except (OSError, ValueError) as error:
                why = " ".join(str(error).split())
                raise InputError(f"cannot load the sentence-transformers model {self.name!r}: {why}") from error
        if max_length is not None:
            readable = readable_length(self.model)
            if readable is not None and max_length > readable:
                raise InputError(f"max_length: {self.name!r} reads {readable} tokens at most, found {max_length}")
            self.model.max_seq_length = max_length
        self.counts = Counter[str]()

    @property
    def dim(self) -> int:
        """d, the columns of the vectors."""
        dim = self.model.get_embedding_dimension()
        return int(dim) if dim is not None else self.model.encode(["a text"]).shape[1]

    def encode(self, texts: Sequence[str]) -> Floats:
        """(n,) passages to (n, d) float32; a text longer than the model reads is cut there, with a warning."""
        return self._encode(texts, "document")

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """The same with the prompt of queries."""
        return self._encode(texts, "query")

    def _prompt(self, kind: str) -> str:
        """The prompt given here, or else the one the model was saved with for the kind, or for all texts."""
        given = self.query_prompt if kind == "query" else self.passage_prompt
        saved = self.model.prompts
        return given or saved.get(kind) or saved.get(self.model.default_prompt_name) or ""

    def _encode(self, texts: Sequence[str], kind: str) -> Floats:
        prompt = self._prompt(kind)
        self.counts["texts"] += len(check_texts(texts))
        tokenizer, limit = getattr(self.model, "tokenizer", None), getattr(self.model, "max_seq_length", None)
        if getattr(tokenizer, "is_fast", False) and isinstance(limit, int):
            rows, truncated = token_rows(tokenizer, [prompt + text for text in texts], limit)
            self.counts.update(tokens=sum(map(len, rows)), truncated=truncated)
        # The task is what a model with two towers goes by; others do not mind.
        how = {"prompt": prompt, "task": kind, "show_progress_bar": False, "normalize_embeddings": True}
        torch = import_optional("torch", "neural")
        type_of, mixed = getattr(torch, self.dtype), self.dtype != "float32"

        def one(batch: Batch) -> Any:
            with torch.autocast(self.model.device.type, type_of, enabled=mixed):
                found = self.model.encode([texts[i] for i in batch], batch_size=len(batch), **how)
            return np.asarray(found, dtype=np.float32)

        order = np.argsort([-len(text) for text in texts], kind="stable")  # neighbours are of about equal length
        result = np.empty((len(texts), self.dim), dtype=np.float32)
        for batch, vectors in in_batches(np.split(order, range(self.batch_size, len(order), self.batch_size)), one):
            result[batch] = vectors
        return check_vectors(result, "encoder output")  # type: ignore[no-any-return]

    def describe(self) -> dict[str, Any]:
        """What decides the vectors, as JSON can hold it; ``weights`` is the SHA-256 of the weights in use."""
        mixed = {} if self.dtype == "float32" else {"dtype": self.dtype}  # which earlier versions did not have
        return mixed | {
            "class": "SentenceTransformerEncoder",
            "model": self.name,
            "modules": [type(module).__name__ for module in self.model],
            "weights": weights_digest(self.model),
            "max_length": self.model.max_seq_length,
            "query_prompt": self._prompt("query"),
            "passage_prompt": self._prompt("document"),
            "width": self.dim,
        }


def readable_length(model: Any) -> int | None:
    """Tokens that a model of sentence-transformers reads at most, by its config and tokenizer; None if none says."""
    configs = [getattr(module, "config", None) for module in model.modules()]
    limits = [getattr(found, "max_position_embeddings", None) for found in configs]
    return min(filter(None, [*limits, getattr(model.tokenizer, "model_max_length", None)]), default=None)
