"""Encode with any model of sentence-transformers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from haybale.embeddings.compiled_network import BACKENDS, compile_network
from haybale.embeddings.encoder import Encoder
from haybale.embeddings.token_batches import Batch, check_texts, encode_batches, token_rows
from haybale.embeddings.torch_models import weights_digest
from haybale.errors import InputError
from haybale.extras import hub_options, import_optional, loading_model
from haybale.parameters import COUNT, COUNT_OR_NONE, Constraints, check_parameters, one_of
from haybale.vectors import Floats, check_vectors


class SentenceTransformerEncoder(Encoder):
    """Encode with a ``SentenceTransformer`` (extra ``neural``); vectors have length 1.

    Parameters
    ----------
    model : str, Path or SentenceTransformer
        A hub id, a folder that sentence-transformers saved, or a loaded model.
    batch_size : int, default 64
        The number of texts encoded at once. A batch that does not fit into memory is halved.
    device : str, optional
        ``"cpu"``, ``"cuda"``, …; by default, and for ``"auto"``, sentence-transformers chooses.
    query_prompt, passage_prompt : str, default ""
        Texts put before each query and before each passage. If empty, the model's own prompts are used: those named
        ``query`` and ``document``, or its default prompt.
    max_length : int, optional
        The number of tokens after which texts are truncated; default: the model's own.
    dtype : {"float32", "bfloat16", "float16"}, default "float32"
        The type of matrix products; weights and vectors stay float32. On a processor with AMX, bfloat16 is two to three
        times as fast, with the same rankings except for near ties; on others it is slower.
    backend : {"torch", "openvino"}, default "torch"
        The library that runs the network on the CPU: PyTorch or OpenVINO (extra ``openvino``). The network is exported
        when the model is loaded, which takes seconds. Vectors of backends differ by rounding, so an engine keeps the
        backend that it was built with.

    Attributes
    ----------
    model_name : str
        The hub id or folder, or the class of a model that was given as an object.
    counts : Counter
        Sums of ``texts``, ``tokens`` and ``truncated`` texts; only ``texts`` if the tokenizer is not a fast one.

    Raises
    ------
    InputError
        The model cannot be loaded, or a setting is out of range.
    MissingExtraError
        The extra ``neural`` is not installed, or the one of the backend.
    """

    name = "sentence-transformers"
    _parameter_constraints: ClassVar[Mapping[str, Constraints]] = {
        "batch_size": COUNT,
        "max_length": COUNT_OR_NONE,
        "dtype": one_of(["float32", "bfloat16", "float16"]),
        "backend": one_of(BACKENDS),
    }

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
        backend: str = "torch",
    ) -> None:
        check_parameters("SentenceTransformerEncoder", locals(), self._parameter_constraints)
        self.batch_size, self.query_prompt, self.passage_prompt = batch_size, query_prompt, passage_prompt
        self.dtype, self.backend = dtype, backend
        if backend != "torch":
            if not isinstance(model, (str, Path)):
                raise InputError(f"backend={backend!r} needs the folder or hub id of a model, found a loaded model")
            if device not in (None, "auto", "cpu"):
                raise InputError(f"backend={backend!r}: expected device='cpu', found {device!r}; use backend='torch'")
            device = "cpu"
            import_optional("openvino", "openvino")
        library = import_optional("sentence_transformers", "neural")
        self.model, self.model_name = model, type(model).__name__
        if isinstance(model, (str, Path)):
            self.model_name = str(model)
            where, options = None if device == "auto" else device, hub_options(self.model_name)
            with loading_model("model", self.model_name, options):
                self.model = library.SentenceTransformer(self.model_name, device=where, **options)
        if max_length is not None:
            limit = length_limit(self.model)
            if limit is not None and max_length > limit:
                raise InputError(f"max_length of {self.model_name!r} must be at most {limit}, found {max_length}")
            self.model.max_seq_length = max_length
        self._weights = ""  # the digest of the weights, if the network is compiled
        if backend != "torch":
            self._weights = weights_digest(self.model)
            compile_network(self.model, self.model_name, dtype)
        self.counts = Counter[str]()

    @property
    def dim(self) -> int:
        """The number of columns of the vectors."""
        dim = self.model.get_embedding_dimension()
        return int(dim) if dim is not None else self.model.encode(["a text"]).shape[1]

    def encode(self, texts: Sequence[str]) -> Floats:
        """Encode (n,) passages to (n, d) float32. Longer texts are truncated at ``max_length``, with one warning."""
        return self._encode(texts, "document")

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Encode (n,) queries to (n, d) float32, with the query prompt."""
        return self._encode(texts, "query")

    def _prompt(self, kind: str) -> str:
        """Return the given prompt, else the model's own for ``kind`` ("query" or "document"), else its default."""
        prompt = self.query_prompt if kind == "query" else self.passage_prompt
        saved = self.model.prompts
        return prompt or saved.get(kind) or saved.get(self.model.default_prompt_name) or ""

    def _encode(self, texts: Sequence[str], kind: str) -> Floats:
        prompt = self._prompt(kind)
        texts = check_texts(texts)
        self.counts["texts"] += len(texts)
        tokenizer, limit = getattr(self.model, "tokenizer", None), getattr(self.model, "max_seq_length", None)
        if getattr(tokenizer, "is_fast", False) and isinstance(limit, int):
            rows, truncated = token_rows(tokenizer, [prompt + text for text in texts], limit)
            self.counts.update(tokens=sum(map(len, rows)), truncated=truncated)
        # A model with two towers selects one by the task; other models ignore it.
        options = {"prompt": prompt, "task": kind, "show_progress_bar": False, "normalize_embeddings": True}
        torch = import_optional("torch", "neural")
        dtype, is_mixed = getattr(torch, self.dtype), self.dtype != "float32" and self.backend == "torch"

        def encode_batch(batch: Batch) -> Any:
            with torch.autocast(self.model.device.type, dtype, enabled=is_mixed):
                vectors = self.model.encode([texts[i] for i in batch], batch_size=len(batch), **options)
            return np.asarray(vectors, dtype=np.float32)

        order = np.argsort([-len(text) for text in texts], kind="stable")  # texts of a batch have about equal length
        batches = np.split(order, range(self.batch_size, len(order), self.batch_size))
        result = encode_batches(batches, encode_batch, self.dim)
        return check_vectors(result, "encoder output")  # type: ignore[no-any-return]

    def describe(self) -> dict[str, Any]:
        """Return JSON values that determine the vectors; ``weights`` is the SHA-256 of the weights."""
        dtype = {} if self.dtype == "float32" else {"dtype": self.dtype}  # descriptions name no defaults
        backend = {} if self.backend == "torch" else {"backend": self.backend}
        return (
            dtype
            | backend
            | {
                "class": "SentenceTransformerEncoder",
                "model": self.model_name,
                "modules": [type(module).__name__ for module in self.model],
                "weights": self._weights or weights_digest(self.model),
                "max_length": self.model.max_seq_length,
                "query_prompt": self._prompt("query"),
                "passage_prompt": self._prompt("document"),
                "width": self.dim,
            }
        )


def length_limit(model: Any) -> int | None:
    """Return the largest number of tokens that a model's config and tokenizer allow; None if neither sets a limit."""
    configs = [getattr(module, "config", None) for module in model.modules()]
    limits = [getattr(config, "max_position_embeddings", None) for config in configs]
    return min(filter(None, [*limits, getattr(model.tokenizer, "model_max_length", None)]), default=None)
