"""Loading models of PyTorch: the device, the digest of the weights, and late-interaction models."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from haybale.errors import DeviceError, InputError, UnknownNameError
from haybale.extras import import_optional, quiet_transformers


def torch_device(name: str | None) -> str:
    """Return the name of a torch device; None and ``"auto"`` are a GPU if there is one."""
    torch = import_optional("torch", "neural")
    if name is None or name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(name).type
    except RuntimeError:
        raise UnknownNameError("device", name, ["auto", "cpu", "cuda", "cuda:1", "…"]) from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise DeviceError(f"device {name!r}: torch finds no CUDA device")
    return name


def weights_digest(module: Any) -> str:
    """Return the SHA-256 of names, shapes, dtypes and values of a torch module's weights, in hexadecimal."""
    torch = import_optional("torch", "neural")
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def late_interaction(name: str, device: str | None = None) -> Any:
    """Load a multi-vector model; any other text encoder without the random projection that it would get."""
    library = import_optional("sentence_transformers", "neural")
    try:
        with quiet_transformers():
            found = library.MultiVectorEncoder(name, device=device)
        paths = [library.util.load_file_path(name, file) for file in ("modules.json", "config.json")]
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"cannot load the model {name!r}: {str(error).splitlines()[0]}") from error
    said = "".join(Path(path).read_text(encoding="utf-8") for path in paths if path is not None)
    if any(sign in said for sign in ("Dense", "MultiVector", "HF_ColBERT", "ForRetrieval")):
        return found
    modules = [module for module in found if type(module).__name__ != "Dense"]
    return library.MultiVectorEncoder(modules=modules, device=device)
