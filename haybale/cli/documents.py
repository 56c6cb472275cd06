"""``haybale add`` and ``haybale remove``: documents that an engine gets, or has had."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import reduce
from pathlib import Path

from haybale.cli.output import reporter, visible
from haybale.collections import Collection, CollectionBuilder, find_splitter, open_collection
from haybale.collections.lines import read_text
from haybale.collections.readers.beir import add_beir_file
from haybale.engine import Engine
from haybale.errors import FileFormatError, InputError
from haybale.stages import listening


def run_add(folder: Path, files: Sequence[Path]) -> None:
    """Read all the files, then add what they hold; say in one line what there is."""
    start = time.perf_counter()
    with listening(reporter()):
        engine = Engine.open(folder)
        added = documents_of(files)
        engine.add(added)
        engine.prepare()  # so that the first ranking need not wait for their vectors
    seconds = time.perf_counter() - start
    counts = f"{added.n_documents:,} documents and {added.n_passages:,} passages"
    print(visible(f"added {counts} in {seconds:.1f} s; {engine!r}"))


def run_remove(folder: Path, ids: Sequence[str]) -> None:
    """Remove them; say in one line what there is."""
    engine = Engine.open(folder)
    engine.remove(ids)
    print(visible(f"removed {len(set(ids)):,} documents; {engine!r}"))


def documents_of(files: Sequence[Path]) -> Collection:
    """The documents of folders and files, as one collection; an error names the file."""
    builder = CollectionBuilder("added documents")
    folders, plain = [path for path in files if path.is_dir()], [path for path in files if not path.is_dir()]
    for path in plain:
        _read(builder, path)
    parts = [builder.build()] if plain else []
    parts += [open_collection(path) for path in folders]
    return reduce(lambda one, other: one.extended(other), parts)


def _read(builder: CollectionBuilder, path: Path) -> None:
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    kind = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if kind == ".jsonl":
        add_beir_file(builder, path)
    elif path.suffix == ".txt":
        passages = [part.text for part in find_splitter("blank-lines")(read_text(path))]
        if not passages:
            raise FileFormatError(path, None, "the text is empty")
        builder.add_document(path.stem, passages, at=(path, 1))
    else:
        raise InputError(f"{path}: expected a folder, or a file that ends in .jsonl or .txt")
