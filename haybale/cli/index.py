"""``haybale index``: an engine in a folder, with all its indexes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from haybale.cli.arguments import check_device, chunking_of, settled
from haybale.cli.options import given
from haybale.cli.output import check_parent, reporter, resumable, size_on_disk, visible
from haybale.collections import open_collection
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.stages import listening, stage


def run_index(
    collection: str,
    out: Path,
    *,
    layout: str | None,
    pieces: int | None,
    stride: int | None,
    settings: dict[str, Any],
) -> None:
    """Build, or go on; then say in one line what there is. ``settings`` are those of :class:`~haybale.Engine`."""
    start = time.perf_counter()
    settings = settled(settings) | given(chunking=chunking_of(pieces, stride))
    check_device(settings.get("encoder", "tfidf"), settings.get("store"), settings.get("device"))
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is no folder")
    check_parent(out)
    with resumable(), listening(reporter()):
        with stage("read collection"):
            read = open_collection(collection, layout)
        engine = Engine.build(read, out, **settings).prepare()
    seconds = time.perf_counter() - start
    print(visible(f"{engine!r}; {seconds:.1f} s, {size_on_disk(out)} on disk"))
