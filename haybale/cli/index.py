"""``haybale index``."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Annotated

import haybale
from haybale.cli import options
from haybale.cli.application import ENGINES, command
from haybale.cli.options import RESULTS, chunking_of, engine_settings, given, option
from haybale.cli.terminal import reporter, resumable, say, show, size_on_disk


@command(ENGINES)
def index(
    collection: options.Source,
    out: Annotated[Path, option("A new folder for the engine, or one whose indexing was interrupted.", RESULTS)],
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
    """Build an engine: a folder with a collection, its encoder and its indexes, for train, rank and compare.

    After an interruption, the same command continues the work.
    """
    from haybale.folders import check_file
    from haybale.timing import record_timings, timed

    start = time.perf_counter()
    check_file(out / "engine.json")
    settings = engine_settings(language, store, encoder=encoder, paragraphs=paragraphs, device=device)
    settings |= given(chunking=chunking_of(pieces, stride))
    with resumable(), record_timings(reporter()):
        with timed("read collection"):
            read = haybale.open_collection(collection, layout, **given(missing_judgements=missing_judgements))
        engine = haybale.Engine.build(read, out, **settings).prepare()
    show(f"{engine!r}; language: {engine.language}; {time.perf_counter() - start:.1f} s, {size_on_disk(out)} on disk")
    say(f"Next: haybale rank {shlex.quote(str(out))} QUERY")
