"""Select the device of PyTorch models, hash their weights, and load late-interaction models."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from haybale.errors import DeviceError, UnknownNameError
from haybale.extras import import_optional, loading_model, quiet_transformers

_ODD_TEXTS = ("Größe ÉCOLE naïve", "don't (x-y) 1,234.5 §\u200b\ufb01", "東京 كتاب e\u0301 [MASK]</s>", " a\tb\n c ")


def torch_device(name: str | None) -> str:
    """Return the name of a torch device; None and ``"auto"`` select CUDA if there is a device.

    Raise :class:`UnknownNameError` for an unknown name, and :class:`DeviceError` if CUDA is not available.
    """
    torch = import_optional("torch", "neural")
    if name is None or name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(name).type
    except RuntimeError:
        raise UnknownNameError("device", name, ["auto", "cpu", "cuda", "cuda:1", "…"]) from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise DeviceError(f"device {name!r}: torch finds no CUDA device; use 'cpu'")
    return name


def weights_digest(module: Any) -> str:
    """Return the SHA-256 of the names, shapes, dtypes and values of a torch module's weights, in hexadecimal."""
    torch = import_optional("torch", "neural")
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def tokenizer_digest(tokenizer: Any) -> str:
    """Return a SHA-256 of what a tokenizer does, in hexadecimal: with its own vocabulary, odd texts, and a pair."""
    vocabulary = sorted(tokenizer.get_vocab().items())
    texts = [*(word for word, _ in vocabulary), *_ODD_TEXTS]
    made = [tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"], dict(tokenizer("a", "b"))]
    behaviour = [vocabulary, *made, tokenizer.pad_token_id, tokenizer.model_max_length]
    return hashlib.sha256(json.dumps(behaviour).encode()).hexdigest()


def model_digests(model: Any, tokenizer: Any) -> dict[str, str]:
    """Return the digests with which a saved ranker checks its model: of the ``weights`` and of the ``tokenizer``."""
    return {"weights": weights_digest(model), "tokenizer": tokenizer_digest(tokenizer)}


def late_interaction(name: str, device: str | None = None) -> Any:
    """Load a multi-vector model. Any other text encoder is loaded without the random projection that it would get."""
    library = import_optional("sentence_transformers", "neural")
    with loading_model("model", name, {}), quiet_transformers():
        model = library.MultiVectorEncoder(name, device=device)
        paths = [library.util.load_file_path(name, file) for file in ("modules.json", "config.json")]
    configs = "".join(Path(path).read_text(encoding="utf-8") for path in paths if path is not None)
    if any(word in configs for word in ("Dense", "MultiVector", "HF_ColBERT", "ForRetrieval")):
        return model
    modules = [module for module in model if type(module).__name__ != "Dense"]
    return library.MultiVectorEncoder(modules=modules, device=device)
