"""Without the extra `neural` there is nothing to collect in the package that defines modules of torch."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["haybale/embeddings/longformer/*"]
