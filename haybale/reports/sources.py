"""The sources of a report: runs with their records, their collection, and an engine for the pictures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from haybale.collections import Collection, open_collection
from haybale.collections.open import source_of
from haybale.embeddings import Chunking, EmbeddingStore
from haybale.engine import Engine
from haybale.engine.storage import upgraded
from haybale.errors import FileFormatError, InputError
from haybale.evaluation.comparison import file_name
from haybale.retrieval import Run
from haybale.text_files import read_json

SUFFIXES = (".trec", ".run", ".txt")
# With these settings of the comparison vectors are made again.
_MAKING = ("encoder", "store", "paragraphs", "language")


class Source(NamedTuple):
    """Runs by name from one folder or file, with ``settings`` and ``results`` if ``haybale compare`` wrote them."""

    name: str
    runs: dict[str, Run]
    settings: dict[str, Any]
    results: dict[str, Any]


def load(path: Path | str) -> Source:
    """Read a folder written by ``haybale compare --out``, a folder of run files, or one run file (also ``.gz``).

    Raises
    ------
    InputError
        Where there is no run; :class:`FileFormatError` for a file that is none.
    """
    path = Path(path).absolute()
    folder = path / "runs" if (path / "runs").is_dir() else path
    files = {_stem(file): file for file in (sorted(folder.iterdir()) if folder.is_dir() else [path]) if file.is_file()}
    if not any(files):
        raise InputError(
            f"{path}: no run found; expected a folder written by haybale compare --out (runs/*.trec), or TREC run "
            f"files ({', '.join(SUFFIXES)}, plain or .gz)"
        )
    settings, results = (
        read_json(file) if file.is_file() else {} for file in (path / "settings.json", path / "results.json")
    )
    names = {file_name(name): name for name in results.get("rankers", {})}
    runs = {}
    for stem in [*names, *(stem for stem in files if stem not in names)]:  # in the order of the table
        if stem and stem in files:
            run = runs[names.get(stem, stem)] = Run.from_trec(files[stem])
            if not len(run):
                raise FileFormatError(files[stem], None, "expected a TREC run, found no line")
    return Source((path if path.is_dir() else path.parent).name, runs, settings, results)


def _stem(path: Path) -> str:
    """Return the name of a run file without its suffixes; empty for other files."""
    name = path.name.removesuffix(".gz")
    return next((name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)), "")


def named_runs(sources: Sequence[Source]) -> dict[str, Run]:
    """Return all runs by name; different runs of the same name get the name of their source as a prefix."""
    runs: dict[str, Run] = {}
    for source in sources:
        for name, run in source.runs.items():
            differ = any(other.runs.get(name, run) != run for other in sources)
            full = f"{source.name}/{name}" if differ else name
            if runs.setdefault(full, run) != run:
                raise InputError(f"two runs that differ are called {full!r}; rename a folder or a file")
    return runs


def open_for(
    sources: Sequence[Source], collection: Collection | Engine | str | Path | None, layout: str | None
) -> Collection | Engine:
    """Open the collection or engine that is given, or the one that the sources name."""
    if isinstance(collection, Collection | Engine):
        return collection
    if collection is None:
        named = {}
        for source in sources:
            about = source.results.get("collection", {})
            name = about.get("source") or ("pydocs" if about.get("name") == "pydocs" else None)
            if name is not None:
                named[source_of(name)] = about.get("layout")
        collection = _one("collection", list(named), "give --collection (and --split)")
        layout = layout or named[collection]
    is_engine = (Path(collection) / "engine.json").is_file()
    if is_engine:
        return Engine.open(collection)
    return open_collection(collection, layout, missing_judgements="skip")  # as the comparison may have opened it


def find_split(sources: Sequence[Source], collection: Collection, split: str | None) -> str:
    """Return the split that is given, that the sources name, or that is the only one."""
    if split is None:
        named = list(dict.fromkeys(source.settings["split"] for source in sources if "split" in source.settings))
        known = list(collection.splits)
        split = _one("split", named or (known if len(known) == 1 else []), f"give --split: {', '.join(known)}")
    collection.split(split)
    return split


def _one(kind: str, named: list[str], otherwise: str) -> str:
    if not named:
        raise InputError(f"the runs do not say what {kind} they are of; {otherwise}")
    if len(named) > 1:
        raise InputError(f"the runs are of different {kind}s: {', '.join(named)}; a report is about one")
    return named[0]


def engine_for(sources: Sequence[Source], opened: Collection | Engine) -> Engine | None:
    """Return the opened engine, or one in memory with the settings of the first source that has some, else TF-IDF.

    None where the comparison was given an encoder that is an object.
    """
    if isinstance(opened, Engine):
        return opened
    recorded = upgraded(next((source.settings for source in sources if source.settings), {}))
    settings = {"encoder": "tfidf"} | {name: recorded[name] for name in _MAKING if name in recorded}
    if recorded.get("chunking") and settings.get("store") is None:
        settings["chunking"] = Chunking(**recorded["chunking"])
    return Engine(opened, **settings) if isinstance(settings["encoder"], str) else None


def described(engine: Engine) -> str:
    """Return what the vectors are, in words, without the folders of models."""
    settings = engine.settings
    if settings["store"] is not None:
        made = EmbeddingStore(settings["store"]).manifest["encoder"]
        return f"vectors of a store ({made.get('model') or made.get('class')})"
    encoder = settings["encoder"]
    name = encoder if isinstance(encoder, str) else str(encoder.get("model") or encoder["class"])
    return "vectors of " + re.sub(r"[^'(]*/", "", name.rstrip("/"))
