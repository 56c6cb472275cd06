"""``haybale index``."""

from __future__ import annotations

import csv
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import haybale
from haybale.cli import options
from haybale.cli.application import ENGINES, command
from haybale.cli.options import RESULTS, TEXTS, chunking_of, engine_settings, given, option
from haybale.cli.terminal import note, reporter, resumable, show, size_on_disk

SKIPPED = "skipped.csv"  # in the engine's folder: the files that could not be read
_SHOWN = 20  # of them on the terminal


@command(ENGINES)
def index(
    collection: options.Source,
    out: Annotated[Path, option("A new folder for the engine, or one whose indexing was interrupted.", RESULTS)],
    encoder: options.Encoder = None,
    store: options.Store = None,
    layout: options.Layout = None,
    missing_judgements: options.MissingJudgements = None,
    language: options.Language = None,
    compounds: options.Compounds = False,
    paragraphs: options.Paragraphs = None,
    pieces: options.Pieces = None,
    stride: options.Stride = None,
    text: Annotated[str | None, option("The column of tables with the text. Default: recognised.", TEXTS)] = None,
    id: Annotated[str | None, option("The column of tables with the id. Default: recognised.", TEXTS)] = None,
    title: Annotated[str | None, option("The column of tables with the title. Default: recognised.", TEXTS)] = None,
    strict: Annotated[
        bool, option("Refuse a folder with files that cannot be read. Default: skip them.", TEXTS)
    ] = False,
    device: options.Device = None,
) -> None:
    """Build an engine: a folder with a collection, its encoder and its indexes, for train, rank and compare.

    The collection may be any folder of files: texts, Markdown, PDF, Word, OpenDocument, RTF, HTML, mail, CSV, Excel,
    JSON Lines, Parquet, RIS and zip files. Files that cannot be read are listed, also in skipped.csv in the engine's
    folder. After an interruption, the same command continues the work.
    """
    from haybale.collections.open import find_reader
    from haybale.collections.readers.files import Files, Skipped, read_files
    from haybale.errors import InputError
    from haybale.folders import check_file, whole_file
    from haybale.timing import record_timings, timed

    start = time.perf_counter()
    check_file(out / "engine.json")
    settings = engine_settings(
        language, store, encoder=encoder, paragraphs=paragraphs, compounds=compounds or None, device=device
    )
    settings |= given(chunking=chunking_of(pieces, stride))
    with resumable(), record_timings(reporter()):
        skipped: list[Skipped] = []
        with timed("read collection"):
            if isinstance(find_reader(collection, layout), Files):
                read, skipped = read_files(Path(collection), given(text=text, id=id, title=title))
                if skipped and strict:
                    raise InputError(f"{collection}: {_summary(skipped)}; --strict needs all: correct or remove them")
            else:
                read = haybale.open_collection(collection, layout, **given(missing_judgements=missing_judgements))
        engine = haybale.Engine.build(read, out, **settings).prepare()
    if skipped:
        for each in skipped[:_SHOWN]:
            note(f"skipped {each.file}: {each.reason}")
        with whole_file(out / SKIPPED) as file:
            csv.writer(file).writerows([("file", "reason"), *skipped])
        note(f"{_summary(skipped)}; {out / SKIPPED} lists them")
    show(f"{engine!r}; language: {engine.language}; {time.perf_counter() - start:.1f} s, {size_on_disk(out)} on disk")
    note(f"Next: haybale rank {shlex.quote(str(out))} QUERY")


def _summary(skipped: Sequence[Any]) -> str:
    n, first = len(skipped), skipped[0]
    return f"{n:,} files could not be read, such as {first.file} ({first.reason})"
