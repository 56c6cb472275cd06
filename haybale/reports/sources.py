"""The input of a report: runs with their recorded settings, their collection, and an engine for the pictures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from haybale.collections import Collection, open_collection
from haybale.collections.open import source_of
from haybale.embeddings import Chunking, EmbeddingStore
from haybale.engine import Engine
from haybale.engine.document_filter import DocumentFilter
from haybale.errors import FileFormatError, InputError
from haybale.evaluation.comparison import file_name
from haybale.evaluation.measures import MEASURES, parse_measures
from haybale.retrieval import Run
from haybale.text_files import read_json

SUFFIXES = (".trec", ".run", ".txt")
_VECTOR_SETTINGS = ("encoder", "store", "paragraphs", "language")


class Source(NamedTuple):
    """The runs of one folder or file by name, with ``settings`` and ``results`` if ``haybale compare`` wrote them."""

    name: str
    runs: dict[str, Run]
    settings: dict[str, Any]
    results: dict[str, Any]


def load(path: Path | str) -> Source:
    """Read a folder written by ``haybale compare --out``, a folder of run files, or one run file (also ``.gz``).

    Raises
    ------
    InputError
        If there is no run; :class:`FileFormatError` if a file is not a run.
    """
    path = Path(path).absolute()
    folder = path / "runs" if (path / "runs").is_dir() else path
    files = {_stem(file): file for file in (sorted(folder.iterdir()) if folder.is_dir() else [path]) if file.is_file()}
    if not any(files):
        raise InputError(
            f"{path}: no run found; give a folder written by haybale compare --out, or TREC run files that end in "
            f"{', '.join(SUFFIXES)} or these with .gz"
        )
    settings, results = (
        read_json(file) if file.is_file() else {} for file in (path / "settings.json", path / "results.json")
    )
    names = {file_name(name): name for name in results.get("rankers", {})}
    runs = {}
    for stem in [*names, *(stem for stem in files if stem not in names)]:  # in the order of the results table
        if stem and stem in files:
            run = runs[names.get(stem, stem)] = Run.from_trec(files[stem])
            if not len(run):
                raise FileFormatError(
                    files[stem], None, "expected a TREC run with lines such as 'q1 Q0 doc7 1 12.5 tag', found none"
                )
    return Source((path if path.is_dir() else path.parent).name, runs, settings, results)


def _stem(path: Path) -> str:
    """Return the name of a run file without its suffixes, or an empty string for other files."""
    name = path.name.removesuffix(".gz")
    return next((name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)), "")


def named_runs(sources: Sequence[Source]) -> dict[str, Run]:
    """Return all runs by name; if two sources have different runs of a name, it gets the source as a prefix."""
    runs: dict[str, Run] = {}
    for source in sources:
        for name, run in source.runs.items():
            differ = any(other.runs.get(name, run) != run for other in sources)
            full = f"{source.name}/{name}" if differ else name
            if runs.setdefault(full, run) != run:
                raise InputError(f"two different runs cannot have the same name {full!r}; rename a folder or a file")
    return runs


def open_for(
    sources: Sequence[Source], collection: Collection | Engine | str | Path | None, layout: str | None
) -> Collection | Engine:
    """Open the given collection or engine, or the one that the sources record."""
    if isinstance(collection, Collection | Engine):
        return collection
    if collection is None:
        named = {}
        for source in sources:
            about = source.results.get("collection", {})
            name = about.get("source") or ("pydocs" if about.get("name") == "pydocs" else None)
            if name is not None:
                named[source_of(name)] = about.get("layout")
        collection = _single("collection", list(named), "")
        layout = layout or named[collection]
    is_engine = (Path(collection) / "engine.json").is_file()
    if is_engine:
        return Engine.open(collection)
    return open_collection(collection, layout, missing_judgements="skip")  # the comparison may have skipped them too


def find_split(sources: Sequence[Source], collection: Collection, split: str | None) -> str:
    """Return the given split, the one that the sources record, or the only one of the collection."""
    if split is None:
        named = list(dict.fromkeys(source.settings["split"] for source in sources if "split" in source.settings))
        splits = list(collection.splits)
        split = _single("split", named or (splits if len(splits) == 1 else []), f" ({', '.join(splits)})")
    collection.split(split)
    return split


def recorded_limit(sources: Sequence[Source], name: str) -> str | None:
    """Return the condition ``where``, or the column ``before``, that the sources record; None if they record none."""
    named = {source.settings.get(name) for source in sources if source.settings}
    if len(named) > 1:
        shown = ", ".join(sorted(str(limit) for limit in named))
        raise InputError(f"the runs must have one setting {name!r}, found {shown}; write a report for each")
    return next(iter(named), None)


def recorded_measures(sources: Sequence[Source]) -> list[str]:
    """Return the measures that the sources record, as far as they can be computed here; by default ``MEASURES``."""
    recorded = (ranker for source in sources for ranker in source.results.get("rankers", {}).values())
    measures = dict.fromkeys(measure for ranker in recorded for measure in ranker.get("measures", ()))
    return list(filter(_is_computable, measures)) or list(MEASURES)


def _is_computable(measure: str) -> bool:
    """Return whether a measure is known; a user's own one is known only where its module is imported."""
    try:
        parse_measures([measure])
    except InputError:
        return False
    return True


def limited(opened: Collection | Engine, where: str | None) -> Collection | Engine:
    """Return a collection, or a view of an engine, with only the documents that fulfil a condition."""
    if where is None:
        return opened
    if isinstance(opened, Engine):
        return opened.within(where=where)
    return opened.take(DocumentFilter(opened.documents_table()).numbers(where))


def _single(kind: str, named: list[str], choices: str) -> str:
    """Return the only recorded collection or split; raise an error if there is none or more than one."""
    if not named:
        raise InputError(f"the {kind} of the runs is not recorded; give --{kind}{choices}")
    if len(named) > 1:
        raise InputError(f"the runs must be of one {kind}, found {', '.join(named)}; write a report for each")
    return named[0]


def engine_for(sources: Sequence[Source], opened: Collection | Engine) -> Engine | None:
    """Return the engine whose vectors the pictures show.

    It is the opened engine, or one in memory with the settings that a source records; without such settings, its
    encoder is TF-IDF. None if the encoder cannot be made from the settings.
    """
    if isinstance(opened, Engine):
        return opened
    recorded = next((source.settings for source in sources if source.settings), {})
    settings = {"encoder": "tfidf"} | {name: recorded[name] for name in _VECTOR_SETTINGS if name in recorded}
    if recorded.get("chunking") and settings.get("store") is None:
        settings["chunking"] = Chunking(**recorded["chunking"])
    return Engine(opened, **settings) if isinstance(settings["encoder"], str) else None


def describe_vectors(engine: Engine) -> str:
    """Return a phrase that names the encoder of the vectors, without the folders of models."""
    settings = engine.settings
    if settings["store"] is not None:
        made = EmbeddingStore(settings["store"]).manifest["encoder"]
        return f"vectors of a store ({made.get('model') or made.get('class')})"
    encoder = settings["encoder"]
    name = encoder if isinstance(encoder, str) else str(encoder.get("model") or encoder["class"])
    return "vectors of " + re.sub(r"[^'(]*/", "", name.rstrip("/"))
