"""``haybale add``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import haybale
from haybale.cli import options
from haybale.cli.application import ENGINES, command
from haybale.cli.options import TEXTS, argument, option
from haybale.cli.terminal import reporter, show
from haybale.errors import FileFormatError, InputError

if TYPE_CHECKING:
    from haybale import Collection


@command(ENGINES)
def add(
    engine: options.EngineFolder,
    files: Annotated[
        list[Path],
        argument(
            "Text files (.txt, one document each), .jsonl files (_id and text on each line), or folders of collections."
        ),
    ],
    replace: Annotated[
        bool, option("Replace documents whose ids the engine has, or had before a removal.", TEXTS, "--replace")
    ] = False,
) -> None:
    """Add documents to an engine. Searches find them at once; trained rankers need not be trained again.

    If one document cannot be added, none is. With --replace, all are replaced at once. A process that has the engine
    open sees the change when it calls Engine.refresh() or opens the engine again.
    """
    from haybale.timing import record_timings

    start = time.perf_counter()
    with record_timings(reporter()):
        grown = haybale.Engine.open(engine)
        added = _read_documents(files)
        n_replaced = grown.replace(added) if replace else 0
        if not replace:
            grown.add(added)
        grown.prepare()  # so that the first ranking need not wait for their vectors
    counts = f"{added.n_documents:,} documents and {added.n_passages:,} passages"
    counts += f" ({n_replaced:,} replaced)" if replace else ""
    show(f"added {counts} in {time.perf_counter() - start:.1f} s; {grown!r}")


def _read_documents(files: Sequence[Path]) -> Collection:
    """Return the documents of folders and files as one collection."""
    from haybale.collections.readers.beir import add_beir_file
    from haybale.text_files import read_text

    builder = haybale.CollectionBuilder("added documents")
    plain = [path for path in files if not path.is_dir()]
    for path in plain:
        if not path.exists():
            raise InputError(f"{path}: no such file or folder; check the path")
        if path.name.removesuffix(".gz").endswith(".jsonl"):
            add_beir_file(builder, path)
        elif path.suffix == ".txt":
            passages = [part.text for part in haybale.find_splitter("blank-lines")(read_text(path))]
            if not passages:
                raise FileFormatError(path, None, f"expected text, found none; remove {path.name!r} from the command")
            builder.add_document(path.stem, passages, at=(path, 1))
        else:
            raise InputError(f"{path}: expected a folder or a file that ends in .jsonl or .txt; convert it")
    parts = [builder.build()] if plain else []
    parts += [haybale.open_collection(path) for path in files if path.is_dir()]
    return reduce(lambda one, other: one.extended(other), parts)
