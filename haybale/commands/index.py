"""``haybale index``."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import haybale
from haybale.cli import options
from haybale.cli.application import ENGINES, command
from haybale.cli.options import MACHINE, RESULTS, TEXTS, chunking_of, engine_settings, given, option
from haybale.cli.resuming import explain_interrupt
from haybale.cli.terminal import note, note_unread, reporter, show, size_on_disk
from haybale.errors import InputError

if TYPE_CHECKING:
    from haybale.engine.update import Update
    from haybale.review import JudgementStore

_MAX_IDS_SHOWN = 10  # ids of documents whose text is no longer the judged one
# What each option means for a folder of files whose engine exists: "applied" to this update, or "compared" with what
# the engine was built with; other values are refused. "refused": it is for other collections.
FOR_AN_EXISTING_ENGINE = {
    **dict.fromkeys(("collection", "out", "layout", "strict", "dask", "device", "ocr", "ocr_languages"), "applied"),
    **dict.fromkeys(("encoder", "store", "language", "compounds", "paragraphs", "pieces", "stride"), "compared"),
    **dict.fromkeys(("text", "id", "title", "html", "segments"), "compared"),
    "missing_judgements": "refused",
}


@command(ENGINES)
def index(
    collection: options.Source,
    out: Annotated[Path, option("A new folder for the engine, or one whose indexing was interrupted.", RESULTS)],
    encoder: options.Encoder = None,
    store: options.Store = None,
    layout: options.Layout = None,
    missing_judgements: options.MissingJudgements = None,
    language: options.Language = None,
    compounds: options.Compounds = None,
    paragraphs: options.Paragraphs = None,
    pieces: options.Pieces = None,
    stride: options.Stride = None,
    text: options.TextColumn = None,
    id: options.IdColumn = None,
    title: options.TitleColumn = None,
    html: options.HtmlText = None,
    ocr: options.Ocr = None,
    ocr_languages: options.OcrLanguages = None,
    strict: Annotated[
        bool, option("Refuse a folder with files, or parts of files, that cannot be read. Default: skip them.", TEXTS)
    ] = False,
    segments: Annotated[
        int | None,
        option(
            "Index the documents in this many segments, each by a task. Default: 1, all in this process.",
            MACHINE,
            min=1,
        ),
    ] = None,
    dask: options.Dask = None,
    device: options.Device = None,
) -> None:
    """Build an engine: a folder with a collection, its encoder and its indexes, for train, rank and compare.

    The collection may be any folder of files: texts, Markdown, PDF, Word, OpenDocument, RTF, HTML, mail, CSV, Excel,
    JSON Lines, Parquet, RIS, pictures and zip files. What cannot be read, files and parts of files, is listed with the
    reasons, also in skipped.csv in the engine's folder. With --ocr, pages without a text and pictures are recognised
    by the program Tesseract. After an interruption, the same command continues the work: recognised pages are kept in
    the engine's folder. If files were added, changed or deleted, the same command updates the engine: only these files
    are read. Judgements stay at the texts that were judged: they follow a text to its new id, and those whose text is
    gone are counted.

    With --segments, the indexes need not fit into the memory of one machine, and --dask indexes the segments on the
    workers of a cluster. Rankings are the same. Workers must reach the engine's folder by the same path.
    """
    from haybale.collections.files.ocr import keeping_pages, with_languages
    from haybale.collections.open import find_reader
    from haybale.collections.readers.files import Files, read_files
    from haybale.collections.unread import UNREAD_FILE, counted, refuse_unread
    from haybale.device import find_device
    from haybale.engine.indexed_source import FILES
    from haybale.engine.storage import RECOGNISED
    from haybale.engine.update import record_files, signatures, update
    from haybale.folders import check_file
    from haybale.timing import record_timings, timed

    start = time.perf_counter()
    find_device(device or "cpu")  # raises for a missing device before any work
    check_file(out / "engine.json")
    if dask is not None and segments is None:
        raise InputError("--dask needs --segments, since a segment is what a worker indexes; give their number")
    settings = engine_settings(
        language, store, encoder=encoder, paragraphs=paragraphs, compounds=compounds, device=device
    )
    settings |= given(chunking=chunking_of(pieces, stride))
    with explain_interrupt(), record_timings(reporter()):
        reader = find_reader(collection, layout)
        of_files, is_new = isinstance(reader, Files), not (out / FILES).exists()
        reading = given(text=text, id=id, title=title, html=html, ocr=ocr, ocr_languages=ocr_languages)
        for name in () if of_files else (*reading, *(["strict"] if strict else [])):
            option_name = name.replace("_", "-")
            raise InputError(
                f"--{option_name} needs a folder of files, but {collection} has the layout {reader.name}; omit it"
            )
        if of_files and missing_judgements is not None:
            raise InputError(
                f"--missing-judgements needs a collection with judgements, but {collection} has files only; omit it"
            )
        if of_files and not is_new:
            engine = haybale.Engine.open(out, device=device)
            _check_settings(engine, settings | given(segments=segments))
            with _judgements_of(engine) as stores:
                reading = with_languages(reading, engine.language)
                with options.on_cluster_of(dask), keeping_pages(out / RECOGNISED):
                    changes = update(engine, Path(collection), reading, strict=strict)
                counts = f"{changes.n_added:,} documents added, {changes.n_replaced:,} replaced"
                note(f"{counts}, {changes.n_removed:,} removed")
                if changes.n_described:
                    note(f"metadata of {changes.n_described:,} documents changed")
                _say_judgements(engine, changes, stores)
        else:
            files: dict[str, Any] = {}
            with timed("read collection"):
                if of_files:
                    files = signatures(Path(collection))  # before reading: the next update sees what changes meanwhile
                    reading = with_languages(reading, language)
                    with keeping_pages(out / RECOGNISED):
                        read = read_files(Path(collection), reading)
                    if strict:
                        refuse_unread(Path(collection), read.unread)
                else:
                    read = haybale.open_collection(collection, layout, **given(missing_judgements=missing_judgements))
            with options.on_cluster_of(dask):
                engine = haybale.Engine.build(read, out, **given(segments=segments), **settings)
            del read  # free its texts: the engine reads them from its folder
            if of_files:
                record_files(engine, files, Path(collection), reading)
        engine.write_indexes()
        duplicates = engine.duplicates() if of_files else None
    if duplicates is not None and duplicates.groups:
        note(f"{duplicates.in_words()}; Engine.duplicates() lists them, and a review reads each group once")
    if unread := engine.unread:
        note_unread(unread)
        note(f"{counted(unread)} could not be read; {out / UNREAD_FILE} lists them with the reasons")
    show(f"{engine!r}; language: {engine.language}; {time.perf_counter() - start:.1f} s, {size_on_disk(out)} on disk")
    note(f"Next: haybale search {shlex.quote(str(out))} QUERY")


@contextmanager
def _judgements_of(engine: haybale.Engine) -> Iterator[list[JudgementStore]]:
    """Open the file of judgements that an engine uses, if there is one, before the engine changes."""
    from haybale.review import JudgementStore, judgement_file_of
    from haybale.review.engine_of_judgements import belongs_to, bind

    path = judgement_file_of(engine)
    if not path.is_file():
        yield []
        return
    with JudgementStore(path) as store:
        if belongs_to(store, engine):
            bind(store, engine)
            yield [store]
        else:
            note(f"{path} has judgements of another engine, and stays as it is")
            yield []


def _say_judgements(engine: haybale.Engine, changes: Update, stores: list[JudgementStore]) -> None:
    """Let the judgements of stores follow their documents; print what became of them and of the engine's judgements."""
    from haybale.review.reattachment import reattach

    if engine.added_judgements.splits:
        lost = changes.unattached
        counts = changes.n_moved, len(lost.orphaned), len(lost.replaced), len(lost.undecided)
        _say_counts("judgements in the engine", *counts, [*lost.orphaned, *lost.replaced])
    for store in stores:
        done = reattach(store, engine)
        ids = [doc_id for topic in done.topics.values() for doc_id in (*topic.orphaned, *topic.replaced)]
        counts = done.n_moved, done.n_orphaned, done.n_replaced, done.n_undecided
        _say_counts(f"judgements in {store.path}", *counts, ids)


def _say_counts(what: str, n_moved: int, n_orphaned: int, n_replaced: int, n_undecided: int, ids: list[str]) -> None:
    """Say how many judged documents moved, and which ones do not have the text that was judged."""
    note(
        f"{what}: {n_moved:,} moved with their text, {n_orphaned:,} lost their text, {n_replaced:,} are of a text that "
        f"was changed, {n_undecided:,} could not be decided"
    )
    for doc_id in ids[:_MAX_IDS_SHOWN]:
        note(f"  without the text that was judged: {doc_id}")
    if len(ids) > _MAX_IDS_SHOWN:
        note(f"  and {len(ids) - _MAX_IDS_SHOWN:,} more, which the topic's page and its export list")


def _check_settings(engine: haybale.Engine, settings: dict[str, Any]) -> None:
    """Refuse settings that the engine was not built with."""
    from haybale.embeddings.encoder import encoder_text

    built_with: dict[str, Any] = {"segments": engine.settings["segments"] or 1}
    built_with |= {"language": engine.language} | {
        name: engine.settings[name] for name in ("encoder", "paragraphs", "store")
    }
    built_with["compounds"] = engine.analyzer.compounds is not None
    built_with["chunking"] = None if engine.chunking is None else engine.chunking.describe()
    for name, value in settings.items():
        wanted = value.describe() if name == "chunking" else encoder_text(value) if name == "encoder" else value
        if name in built_with and built_with[name] != wanted:
            raise InputError(
                f"{engine.folder}: expected the {name} it was built with, {built_with[name]!r}, found {wanted!r}; "
                "give a new folder"
            )
