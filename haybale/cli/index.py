"""``haybale index``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import haybale
from haybale.cli import options
from haybale.cli.application import ENGINES, command
from haybale.cli.options import RESULTS, given, option
from haybale.cli.settings import chunking_of, engine_settings
from haybale.cli.terminal import reporter, resumable, show, size_on_disk


@command(ENGINES)
def index(
    collection: options.Source,
    out: Annotated[Path, option("Folder for the engine: new, or an interrupted one.", RESULTS)],
    encoder: options.Encoder = None,
    store: options.Store = None,
    layout: options.Layout = None,
    missing_judgements: options.MissingJudgements = None,
    language: options.Language = None,
    paragraphs: options.Paragraphs = None,
    pieces: options.Pieces = None,
    stride: options.Stride = None,
    device: options.Device = None,
) -> None:
    """Build an engine: a collection with its encoder and all its indexes, in one folder that opens in a moment.

    The same command continues after an interruption.
    """
    from haybale.folders import check_file
    from haybale.timing import record_timings, timed

    start = time.perf_counter()
    check_file(out / "engine.json")
    settings = engine_settings(encoder=encoder, store=store, language=language, paragraphs=paragraphs, device=device)
    settings |= given(chunking=chunking_of(pieces, stride))
    with resumable(), record_timings(reporter()):
        with timed("read collection"):
            read = haybale.open_collection(collection, layout, **given(missing_judgements=missing_judgements))
        engine = haybale.Engine.build(read, out, **settings).prepare()
    show(f"{engine!r}; language: {engine.language}; {time.perf_counter() - start:.1f} s, {size_on_disk(out)} on disk")
