"""Which weights a neural encoder runs on."""

from __future__ import annotations

import hashlib
from typing import Any

from haybale.extras import require


def weights_digest(module: Any) -> str:
    """SHA-256 over names, shapes, dtypes and values of a torch module's weights, in hexadecimal."""
    torch = require("torch", "neural")
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
