"""Change saved folders so that their checksums agree with the change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from haybale.manifest import digest, mapped_tensors, with_checksum, write_tensors


def change_manifest(folder: Path, **changes: Any) -> None:
    """Change entries of ``manifest.json``."""
    path = folder / "manifest.json"
    path.write_text(json.dumps(with_checksum(json.loads(path.read_text()) | changes)))


def change_tensors(folder: Path, file: str, **changes: Any) -> None:
    """Change tensors of a file: ``__`` in a name is a dot, None removes a tensor."""
    path = folder / file
    tensors = {name: array.copy() for name, array in mapped_tensors(path).items()}
    tensors |= {name.replace("__", "."): value for name, value in changes.items()}
    path.unlink()
    write_tensors(path, {name: np.asarray(value) for name, value in tensors.items() if value is not None})
    sign_file(folder, file)


def sign_file(folder: Path, file: str) -> None:
    """Write the checksum that a changed file has now into the manifest."""
    files = json.loads((folder / "manifest.json").read_text())["files"]
    change_manifest(folder, files=files | {file: digest(folder / file)})
