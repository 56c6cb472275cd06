"""Without an extra there is nothing to collect in the modules that are made of its packages."""

from __future__ import annotations

from importlib.util import find_spec

_MODULES = {
    "torch": (
        "haybale/embeddings/networks/*",
        "haybale/context/networks/*",
        "haybale/finetune/trainable_longformer.py",
        "haybale/finetune/training_loop.py",
    ),
    "pyterrier": ("haybale/pyterrier.py",),
}
collect_ignore_glob = [path for package, paths in _MODULES.items() if not find_spec(package) for path in paths]
