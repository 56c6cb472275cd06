"""Change manifests of saved folders so that their checksums agree with the change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from haybale.manifest import with_checksum


def change_manifest(folder: Path, **changes: Any) -> None:
    """Change entries of ``manifest.json``."""
    path = folder / "manifest.json"
    path.write_text(json.dumps(with_checksum(json.loads(path.read_text()) | changes)))
