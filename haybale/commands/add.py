"""``haybale add``."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import haybale
from haybale.cli import options
from haybale.cli.application import ENGINES, command
from haybale.cli.options import TEXTS, argument, given, option
from haybale.cli.terminal import note, note_unread, reporter, show
from haybale.errors import FileFormatError, InputError

if TYPE_CHECKING:
    from haybale import Collection
    from haybale.collections.unread import UnreadPart


@command(ENGINES)
def add(
    engine: options.EngineFolder,
    files: Annotated[
        list[Path], argument("Files in any format that haybale index reads, such as .pdf, .docx or .csv, or folders.")
    ],
    replace: Annotated[
        bool, option("Replace documents whose ids the engine has, or had before a removal.", TEXTS, "--replace")
    ] = False,
    text: options.TextColumn = None,
    id: options.IdColumn = None,
    title: options.TitleColumn = None,
    html: options.HtmlText = None,
    ocr: options.Ocr = None,
    ocr_languages: options.OcrLanguages = None,
    strict: Annotated[
        bool, option("Add nothing if a file cannot be read. Default: skip such files.", TEXTS, "--strict")
    ] = False,
) -> None:
    """Add documents to an engine. Searches find them at once; trained rankers need not be trained again.

    The id of a document is the name of its file, or its path in a given folder; rows of tables have their own ids. In
    an engine that was not built from a folder of files, the id of a .txt file is its name without .txt, and .jsonl
    files have an _id and a text on each line. Files that cannot be read are listed. If an id is taken, nothing is
    added; with --replace, all such documents are replaced at once, and records that a file no longer has are removed. A
    process that has the engine open sees the change when it calls Engine.refresh() or opens the engine again.
    """
    from haybale.collections.files.ocr import keeping_pages, with_languages
    from haybale.collections.unread import refuse_unread
    from haybale.engine.indexed_source import FILES
    from haybale.engine.storage import RECOGNISED
    from haybale.engine.update import earlier_records
    from haybale.timing import record_timings

    start = time.perf_counter()
    with record_timings(reporter()):
        grown = haybale.Engine.open(engine)
        reading = given(text=text, id=id, title=title, html=html, ocr=ocr, ocr_languages=ocr_languages)
        of_files = (engine / FILES).exists()
        with keeping_pages(engine / RECOGNISED):
            added = _read_documents(files, with_languages(reading, grown.language), of_files)
        if strict:
            refuse_unread(engine, added.unread)
        note_unread(added.unread)
        gone = earlier_records(grown, added) if replace else []
        n_replaced = grown.replace(added, remove=gone) if replace else 0
        if not replace:
            grown.add(added)
        grown.write_indexes()  # so that the first ranking need not wait for their vectors
        duplicates = grown.duplicates() if of_files else None
    if duplicates is not None and duplicates.groups:
        note(duplicates.in_words())
    counts = f"{added.n_documents:,} documents and {added.n_passages:,} passages"
    counts += f" ({n_replaced:,} replaced{f', {len(gone):,} removed' if gone else ''})" if replace else ""
    show(f"added {counts} in {time.perf_counter() - start:.1f} s; {grown!r}")


def _read_documents(paths: Sequence[Path], reading: Mapping[str, str], of_files: bool) -> Collection:
    """Return the documents of folders and files as one collection, with what could not be read."""
    from haybale.collections.files.references import has_references
    from haybale.collections.open import find_reader
    from haybale.collections.readers.beir import add_beir_file
    from haybale.collections.readers.files import Files, read_files, read_single_files
    from haybale.text_files import read_bytes, read_text

    builder, texts = haybale.CollectionBuilder("added documents"), 0
    parts, single = list[haybale.Collection](), list[Path]()
    unread: list[UnreadPart] = []
    for path in paths:
        name = path.name.removesuffix(".gz")
        if not path.exists():
            raise InputError(f"{path}: no such file or folder; check the path")
        if path.is_dir() and not isinstance(find_reader(path), Files):
            for option in reading:
                raise InputError(
                    f"--{option.replace('_', '-')} needs files, but {path} is a collection of another layout; omit it"
                )
            parts.append(haybale.open_collection(path))
        elif path.is_dir():
            parts.append(read_files(path, reading))
        elif name.endswith(".jsonl") and not of_files and not reading:
            add_beir_file(builder, path)
            texts += 1
        elif path.suffix == ".txt" and not of_files and not has_references(read_bytes(path)):
            passages = [part.text for part in haybale.find_splitter("blank-lines")(read_text(path))]
            if not passages:
                raise FileFormatError(path, None, f"expected text, found none; remove {path.name!r} from the command")
            builder.add_document(path.stem, passages, at=(path, 1))
            texts += 1
        else:
            single.append(path)
    if single:
        single_documents, unread = read_single_files(single, reading)
        parts += [] if single_documents is None else [single_documents]
    if texts:
        parts.append(builder.build())
    if not parts:
        raise InputError(f"{unread[0]}; expected files with text, give others")
    whole = reduce(lambda collection, part: collection.extended(part), parts)
    return dataclasses.replace(whole, unread=tuple(dict.fromkeys((*whole.unread, *unread))))
