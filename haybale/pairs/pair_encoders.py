"""Pair encoders: they turn pairs of paragraphs into vectors.

:class:`CrossPairs` reads both texts together, :class:`VectorPairs` multiplies their vectors, and :class:`TokenPairs`
compares their tokens. Pairs are two lists of texts and an array of their indices, so that each text is tokenised or
encoded once, however many pairs contain it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.cached import cached_property
from haybale.collections.collection import Ints
from haybale.device import device_of, to_device, to_numpy
from haybale.embeddings import encode_texts
from haybale.embeddings.encoder import description_of
from haybale.embeddings.token_batches import Batch, check_texts, encode_batches, token_batches
from haybale.embeddings.torch_models import late_interaction, model_digests, torch_device, weights_digest
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.extras import hub_options, import_optional, loading_model, quiet_transformers
from haybale.parameters import COUNT_OR_NONE, TEXT_OR_NONE, Interval, check_parameters, one_of
from haybale.text_files import read_json
from haybale.vectors import Floats, check_vectors

READS = ("pooler", "cls", "score")
PRECISIONS = ("auto", "float32", "bfloat16")
_MAX_CACHED_TEXTS = 2**18  # texts whose tokens or vectors one cache holds; a full cache is emptied
_BATCH_TOKENS = {"cpu": 2048, "cuda": 65_536}
_PROBE_TEXT = "a"

T = TypeVar("T")


@runtime_checkable
class PairEncoder(Protocol):
    """The protocol of pair encoders. Texts must not be empty; equal pairs may be encoded once."""

    @property
    def dim(self) -> int:
        """The width d of the vectors."""
        ...

    def encode(self, firsts: Sequence[str], seconds: Sequence[str], which: Ints) -> Floats:
        """Return vectors (n, d) float32; row r encodes ``firsts[which[r, 0]]`` and ``seconds[which[r, 1]]``."""
        ...

    def padding(self) -> Floats:
        """Return the vector (d,) of a pair with a missing paragraph."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return the settings that determine the vectors, as JSON values."""
        ...


class CrossPairs(PairEncoder):
    """Encode a pair with a transformer that reads ``[CLS] first [SEP] second [SEP]``.

    Devlin et al., "BERT", NAACL 2019, for the pooler; Shao et al., "BERT-PLI", IJCAI 2020, eq. 1, for its use. A pair
    that is too long is truncated on its longer side. Pairs of similar length share a batch. It has not been run on a
    GPU.

    Parameters
    ----------
    model : str or Path
        Hub id or folder; for ``read="score"``, of a cross-encoder that sentence-transformers can load.
    read : {"pooler", "cls", "score"}, default "pooler"
        The output: the pooler's, the last layer at the first token (d is the model's width for both), or a
        cross-encoder's score after its own activation (d = 1).
    max_length : int, optional
        Maximum tokens of a pair, including special tokens. Default: 256, or the model's maximum if that is less.
    precision : {"auto", "float32", "bfloat16"}, default "auto"
        ``"auto"`` is bfloat16 on a GPU, by autocast, and float32 on a CPU.
    batch_tokens : int, optional
        Maximum tokens of a batch. Default: 2,048 on a CPU, 65,536 on a GPU. Halved if memory runs out.
    device : str, optional
        ``"cpu"``, ``"cuda"``, …; None or ``"auto"`` is a GPU if there is one.

    Raises
    ------
    InputError
        The model does not exist or has no pooler weights, its tokenizer has no separator token, or ``max_length`` is
        larger than the model's maximum.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        read: str = "pooler",
        max_length: int | None = None,
        precision: str = "auto",
        batch_tokens: int | None = None,
        device: str | None = None,
    ) -> None:
        parameters = {"read": read, "max_length": max_length, "precision": precision, "batch_tokens": batch_tokens}
        check_parameters("CrossPairs", parameters | {"device": device}, PAIR_RANGES)
        self.name, self.read = str(model), read
        device, options = torch_device(device), hub_options(self.name)
        with loading_model("cross-encoder" if read == "score" else "model", self.name, options):
            self.model, self.tokenizer, self._activation = _loaded(self.name, read, device, options)
        self.model.eval()
        kind = self.model.device.type
        self.precision = ("bfloat16" if kind == "cuda" else "float32") if precision == "auto" else precision
        self.batch_tokens = batch_tokens or _BATCH_TOKENS.get(kind, _BATCH_TOKENS["cpu"])
        self._special = _special_tokens(self.tokenizer, self.name)
        limit = _limit(self.model, self.tokenizer)
        if max_length is not None and max_length > limit:
            raise InputError(f"max_length must be at most {limit} for {self.name!r}, found {max_length}")
        self.max_length = max_length or min(256, limit)
        self._tokens = _TextCache(self._tokenize)

    @cached_property
    def dim(self) -> int:
        return 1 if self.read == "score" else int(self.model.config.hidden_size)

    def encode(self, firsts: Sequence[str], seconds: Sequence[str], which: Ints) -> Floats:
        (firsts, seconds), which = _distinct(firsts, seconds, which)
        pairs, pair_of_row = np.unique(which, axis=0, return_inverse=True)
        (one, first_length), (two, second_length) = (
            zip(*self._tokens(texts), strict=True) for texts in (firsts, seconds)
        )
        room = self.max_length - sum(map(len, self._special.tokens))
        kept = longest_first(np.array(first_length)[pairs[:, 0]], np.array(second_length)[pairs[:, 1]], room)
        lengths = (kept.sum(axis=1) + self.max_length - room).tolist()

        def read(batch: Batch) -> Floats:
            cut = zip(pairs[batch].tolist(), kept[batch].tolist(), strict=True)
            return self._forward(self._special.joined([(one[i][:a], two[j][:b]) for (i, j), (a, b) in cut]))

        out = encode_batches(token_batches(lengths, self.batch_tokens), read, self.dim)
        return np.asarray(check_vectors(out, f"output of {self.name}", self.dim)[pair_of_row.reshape(-1)])

    def padding(self) -> Floats:
        """Return the vector (d,) of an input of padding tokens only, which the paper's code uses for a missing pair."""
        shape = (1, self.max_length)
        pad = self._special.padding
        vectors = self._forward({name: np.full(shape, pad[name]) for name in pad})
        return check_vectors(vectors, f"output of {self.name} for padding", self.dim)[0]  # type: ignore[no-any-return]

    def describe(self) -> dict[str, Any]:
        return {
            "class": "CrossPairs",
            "model": self.name,
            "read": self.read,
            "weights": self._weights,
            "max_length": self.max_length,
            "precision": self.precision,
            "width": self.dim,
        }

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of ``weights`` and ``tokenizer``, with which a saved ranker checks the model."""
        return model_digests(self.model, self.tokenizer)

    @cached_property
    def _weights(self) -> str:
        return weights_digest(self.model)

    def _tokenize(self, texts: Sequence[str]) -> list[tuple[NDArray[np.int32], int]]:
        """Return the first ``max_length`` tokens of each text, without special tokens, and its full length."""
        rows = self.tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
        return [(np.asarray(row[: self.max_length], dtype=np.int32), len(row)) for row in rows]

    def _forward(self, inputs: dict[str, Any]) -> Floats:
        torch = import_optional("torch")
        device = self.model.device
        mixed = torch.autocast(device.type, dtype=torch.bfloat16, enabled=self.precision == "bfloat16")
        with torch.inference_mode(), mixed:
            out = self.model(**{name: torch.from_numpy(values).to(device) for name, values in inputs.items()})
            if self.read == "score":
                encoded = self._activation(out.logits.float())
            else:
                encoded = out.pooler_output if self.read == "pooler" else out.last_hidden_state[:, 0]
        return encoded.float().cpu().numpy()  # type: ignore[no-any-return]


class VectorPairs(PairEncoder):
    """Encode a pair as the elementwise product of its texts' vectors; needs no torch.

    Parameters
    ----------
    encoder : Encoder
        An encoder of dense vectors.
    engine : Engine, optional
        An engine with this encoder; the vectors of its passages are used instead of encoding them again.
    """

    def __init__(self, encoder: Any, engine: Engine | None = None) -> None:
        self.encoder, self.engine = encoder, engine
        self._vectors = _TextCache(self._encoded)
        if sparse.issparse(encode_texts(encoder, [_PROBE_TEXT])):
            raise InputError(f"VectorPairs needs an encoder of dense vectors, found {type(encoder).__name__}")

    @cached_property
    def dim(self) -> int:
        return int(encode_texts(self.encoder, [_PROBE_TEXT]).shape[1])

    def encode(self, firsts: Sequence[str], seconds: Sequence[str], which: Ints) -> Floats:
        texts, which = _distinct(firsts, seconds, which)
        one, two = (np.stack(self._vectors(side)) for side in texts)
        return check_vectors(one[which[:, 0]] * two[which[:, 1]], "products of vectors", self.dim)  # type: ignore[no-any-return]

    def padding(self) -> Floats:
        """Return zeros (d,), the product with a missing paragraph."""
        return np.zeros(self.dim, dtype=np.float32)

    def describe(self) -> dict[str, Any]:
        return {"class": "VectorPairs", "encoder": description_of(self.encoder)}

    def _encoded(self, texts: Sequence[str]) -> list[Floats]:
        rows = np.array([self._row_of_digest.get(_digest(text), -1) for text in texts], dtype=np.int64)
        out = np.empty((len(texts), self.dim), dtype=np.float32)
        if (rows >= 0).any():
            assert self.engine is not None
            vectors = self.engine.passages.vectors
            out[rows >= 0] = to_numpy(vectors[to_device(rows[rows >= 0], device_of(vectors))])
        others = np.flatnonzero(rows < 0)
        if len(others):
            encoded: Any = encode_texts(self.encoder, [texts[i] for i in others.tolist()])
            out[others] = encoded
        return list(out)

    @cached_property
    def _row_of_digest(self) -> dict[bytes, int]:
        """The row of each passage of the engine, by the digest of its text."""
        texts = () if self.engine is None else self.engine.collection.passages.texts
        return {_digest(text.as_py()): row for row, text in enumerate(texts)}


class TokenPairs(PairEncoder):
    """Score a pair by MaxSim: the mean, over the tokens of the first text, of the best product with one of the second.

    This is Khattab & Zaharia, "ColBERT", SIGIR 2020, eq. 3, divided by the number of terms, which makes texts of
    different lengths comparable. d = 1.

    Parameters
    ----------
    model : str or Path
        Hub id or folder of a late-interaction model of sentence-transformers, or of any text encoder, whose token
        vectors are then used without a projection.
    max_length : int, optional
        Maximum tokens of a text. Default: the model's own maximum.
    device : str, optional
        Torch device. Default: a GPU if there is one.
    """

    def __init__(self, model: str | Path, *, max_length: int | None = None, device: str | None = None) -> None:
        check_parameters("TokenPairs", {"max_length": max_length, "device": device}, PAIR_RANGES)
        self.name = str(model)
        self.model = late_interaction(self.name, torch_device(device))
        if max_length is not None:
            self.model.max_seq_length = max_length
        self._as_first = _TextCache(lambda texts: self._tokens(self.model.encode_query, texts))
        self._as_second = _TextCache(lambda texts: self._tokens(self.model.encode_document, texts))

    dim = 1

    def encode(self, firsts: Sequence[str], seconds: Sequence[str], which: Ints) -> Floats:
        (firsts, seconds), which = _distinct(firsts, seconds, which)
        one, two = self._as_first(firsts), self._as_second(seconds)
        similarities = [(one[i] @ two[j].T).max(axis=1).mean() for i, j in which.tolist()]
        return check_vectors(np.array(similarities, dtype=np.float32).reshape(-1, 1), f"MaxSim of {self.name}")  # type: ignore[no-any-return]

    def padding(self) -> Floats:
        """Return zero (1,), the similarity to a missing paragraph."""
        return np.zeros(1, dtype=np.float32)

    def describe(self) -> dict[str, Any]:
        weights, length = weights_digest(self.model), self.model.max_seq_length
        return {"class": "TokenPairs", "model": self.name, "weights": weights, "max_length": length, "width": 1}

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of ``weights`` and ``tokenizer``, with which a saved ranker checks the model."""
        return model_digests(self.model, self.model.tokenizer)

    def _tokens(self, encode: Callable[..., Any], texts: Sequence[str]) -> list[Floats]:
        """Return the token vectors (tokens, d) of each text."""
        matrices = encode(list(texts), convert_to_numpy=True, show_progress_bar=False)
        return [matrix.astype(np.float32) for matrix in matrices]


PAIR_RANGES: dict[str, list[Any]] = {
    "read": one_of(READS),
    "max_length": [Interval(Integral, 8, 10**6, closed="both"), None],
    "precision": one_of(PRECISIONS),
    "batch_tokens": COUNT_OR_NONE,
    "device": TEXT_OR_NONE,
}


def longest_first(first: Ints, second: Ints, room: int) -> Ints:
    """Return the lengths (n, 2) of both sides after truncating pairs with ``first`` and ``second`` (n,) tokens.

    It truncates as fast tokenizers do: one token at a time from the longer side, which keeps an odd token.

    >>> longest_first(np.array([3, 9, 2]), np.array([4, 9, 9]), 7)
    array([[3, 4],
           [3, 4],
           [2, 5]])
    """
    shorter = np.minimum(first, second)
    stays = np.maximum(shorter, room - shorter)
    stays = np.where(shorter > room, shorter, np.minimum(stays, np.maximum(first, second)))
    both = shorter + stays > room
    short, long = np.where(both, room // 2, shorter), np.where(both, room // 2 + room % 2, stays)
    is_longer = first > second
    return np.stack([np.where(is_longer, long, short), np.where(is_longer, short, long)], axis=1)


class _SpecialTokens:
    """The special tokens before, between and after two texts, and the token types of both texts."""

    def __init__(self, tokens: list[list[int]], types: list[int] | None, pad: int) -> None:
        self.tokens, self.types = [np.array(part, dtype=np.int32) for part in tokens], types
        self.padding: dict[str, int] = {"input_ids": pad, "attention_mask": 0}
        if types is not None:
            self.padding["token_type_ids"] = 0

    def joined(self, pairs: Sequence[tuple[Any, Any]]) -> dict[str, Any]:
        """Return the model's inputs for a batch of tokenised pairs, padded to the longest."""
        before, between, behind = self.tokens
        rows = [np.concatenate([before, one, between, two, behind]) for one, two in pairs]
        shape = len(rows), max(map(len, rows))
        inputs = {name: np.full(shape, value, dtype=np.int64) for name, value in self.padding.items()}
        for number, (row, (one, _)) in enumerate(zip(rows, pairs, strict=True)):
            inputs["input_ids"][number, : len(row)] = row
            inputs["attention_mask"][number, : len(row)] = 1
            if self.types is not None:
                start = len(before) + len(one) + len(between)
                inputs["token_type_ids"][number, :start] = self.types[0]
                inputs["token_type_ids"][number, start : len(row)] = self.types[1]
        return inputs


def _special_tokens(tokenizer: Any, name: str) -> _SpecialTokens:
    """Find a tokenizer's special tokens in a tokenised pair of one-word texts."""
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(f"the tokenizer of {name!r} must be a fast one; choose another model")
    encoded = tokenizer(_PROBE_TEXT, _PROBE_TEXT)
    side = np.array([-1 if sequence is None else sequence for sequence in encoded.sequence_ids()])
    first, second = np.flatnonzero(side == 0), np.flatnonzero(side == 1)
    ids = encoded["input_ids"]
    tokens = [ids[: first[0]], ids[first[-1] + 1 : second[0]], ids[second[-1] + 1 :]]
    if not tokens[1] or tokenizer.pad_token_id is None:
        raise InputError(f"the tokenizer of {name!r} has no separator or no padding token; choose another model")
    types = encoded.get("token_type_ids")
    return _SpecialTokens(
        tokens, None if types is None else [types[first[0]], types[second[0]]], tokenizer.pad_token_id
    )


def _limit(model: Any, tokenizer: Any) -> int:
    """Return the maximum number of tokens of a model."""
    config = model.config
    positions = getattr(config, "max_position_embeddings", None) or 10**6
    if getattr(config, "model_type", "") in ("roberta", "xlm-roberta", "camembert", "longformer"):
        positions -= config.pad_token_id + 1  # positions start after the padding index
    return int(min(positions, tokenizer.model_max_length))


def _loaded(name: str, read: str, device: str | None, options: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return the model, its tokenizer, and the activation of its score (None for other outputs)."""
    with quiet_transformers():
        library = import_optional("transformers", "neural")
        tokenizer = library.AutoTokenizer.from_pretrained(name, **options)
        if read == "score":
            of_scores = library.AutoModelForSequenceClassification
            model, report = of_scores.from_pretrained(name, num_labels=1, output_loading_info=True, **options)
            if report["missing_keys"]:
                raise ValueError(f"expected weights {min(report['missing_keys'])!r}, found none")
            return model.to(device), tokenizer, _activation(name, model.config, options)
        how = {"add_pooling_layer": False, **options} if read == "cls" else options
        try:
            model, report = library.AutoModel.from_pretrained(name, output_loading_info=True, **how)
        except TypeError:  # this architecture has no pooler
            model, report = library.AutoModel.from_pretrained(name, output_loading_info=True, **options)
    missing = sorted(report["missing_keys"])
    if read == "pooler" and (getattr(model, "pooler", None) is None or any("pooler" in key for key in missing)):
        raise ValueError('expected weights of a pooler, found none; read="cls" needs none')
    if missing:
        raise ValueError(f"expected weights {missing[0]!r}, found none")
    return model.to(device), tokenizer, None


def _activation(model: str, config: Any, options: dict[str, Any]) -> Any:
    """Return the activation that sentence-transformers applies: the one saved with the model, or a sigmoid."""
    util = import_optional("sentence_transformers.util", "neural")
    saved = util.load_file_path(model, "config_sentence_transformers.json", **options)  # written by version 6
    name = None if saved is None else read_json(Path(saved)).get("activation_fn")
    name = name or (getattr(config, "sentence_transformers", None) or {}).get("activation_fn")
    name = name or getattr(config, "sbert_ce_default_activation_function", None) or "torch.nn.Sigmoid"
    if not name.startswith("torch."):
        raise ValueError(f"expected an activation of torch, found {name}")
    return util.import_from_string(name)()


class _TextCache:
    """A cache of the values that ``make`` returns for texts."""

    def __init__(self, make: Callable[[Sequence[str]], list[Any]]) -> None:
        self._make, self._made = make, dict[str, Any]()

    def __call__(self, texts: Sequence[str]) -> list[Any]:
        made = self._made  # another thread may replace it
        wanted = [text for text in texts if text not in made]
        if len(made) + len(wanted) > _MAX_CACHED_TEXTS:
            made = self._made = {}
            wanted = list(texts)
        if wanted:
            made.update(zip(wanted, self._make(wanted), strict=True))
        return [made[text] for text in texts]


def _distinct(firsts: Sequence[str], seconds: Sequence[str], which: Ints) -> tuple[list[list[str]], Ints]:
    """Return the distinct texts of both sides, and the pairs as indices of these; raises for empty texts."""
    columns, texts = [], []
    for side, side_texts in enumerate((firsts, seconds)):
        numbers: dict[str, int] = {}
        indices = np.array([numbers.setdefault(text, len(numbers)) for text in check_texts(side_texts)], dtype=np.int64)
        columns.append(indices[which[:, side]])
        texts.append(list(numbers))
    return texts, np.stack(columns, axis=1)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
