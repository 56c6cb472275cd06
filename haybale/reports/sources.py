"""What a report is made of: runs with what is recorded about them, their collection, and an engine for the pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from haybale.collections import Collection, open_collection
from haybale.collections.open import source_of
from haybale.embeddings import Chunking, EmbeddingStore
from haybale.embeddings.encoder import FITTED, rebuild
from haybale.embeddings.tfidf import from_parameters
from haybale.engine import Engine
from haybale.errors import FileFormatError, InputError
from haybale.evaluation.comparison import file_name
from haybale.folders import read_json
from haybale.rankers import PARM, from_spec
from haybale.retrieval import Run

SUFFIXES = (".trec", ".run", ".txt")
# With these settings of the comparison, and its encoder or store, vectors are made again.
_MAKING = ("paragraphs", "query_prompt", "passage_prompt", "n_components", "language", "random_state")


@dataclass(frozen=True)
class Source:
    """Runs by name from one place; ``settings`` and ``results`` as ``haybale compare`` wrote them, if it did."""

    path: Path
    name: str
    runs: dict[str, Run]
    settings: dict[str, Any] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)


def load(path: Path | str) -> Source:
    """Read a folder written by ``haybale compare --out``, a folder of run files, or one run file (also ``.gz``).

    Raises
    ------
    InputError
        Where there is no run; :class:`FileFormatError` for a file that is none.
    """
    path = Path(path)
    if not path.is_dir():
        if not path.is_file():
            raise InputError(f"{path}: no such folder or file; expected the folder of a comparison or a TREC run file")
        if stem_of(path) is None:
            raise InputError(f"{path}: expected a TREC run file, {', '.join(SUFFIXES)}, plain or .gz")
        return Source(path, path.absolute().parent.name, {str(stem_of(path)): _run(path)})
    folder = path / "runs" if (path / "runs").is_dir() else path
    files = {stem_of(file): file for file in sorted(folder.iterdir()) if file.is_file() and stem_of(file) is not None}
    if not files:
        raise InputError(
            f"{path}: no runs found; expected a folder written by haybale compare --out (runs/*.trec) "
            "or one with TREC run files"
        )
    settings, results = _json(path / "settings.json"), _json(path / "results.json")
    names = {file_name(name): name for name in results.get("rankers", {})}  # in the order of the table
    order = [*(stem for stem in names if stem in files), *(stem for stem in files if stem not in names)]
    runs = {names.get(str(stem), str(stem)): _run(files[stem]) for stem in order}
    return Source(path, path.absolute().name, runs, settings or results.get("settings", {}), results)


def stem_of(path: Path) -> str | None:
    """The name of a run file without its suffixes; None where it has none of a run file.

    >>> stem_of(Path("a/bm25.trec.gz")), stem_of(Path("table.md"))
    ('bm25', None)
    """
    name = path.name.removesuffix(".gz")
    return next((name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix) and name != suffix), None)


def _run(path: Path) -> Run:
    run = Run.from_trec(path)
    if not len(run):
        raise FileFormatError(path, None, "expected a TREC run, found no line")
    return run


def _json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def named_runs(sources: Sequence[Source]) -> dict[str, Run]:
    """All runs by name. A name that several sources have gets theirs before it, unless the runs are equal."""
    runs: dict[str, Run] = {}
    for name in dict.fromkeys(name for source in sources for name in source.runs):
        having = [source for source in sources if name in source.runs]
        differ = any(source.runs[name] != having[0].runs[name] for source in having)
        for source in having:
            full = f"{source.name}/{name}" if differ else name
            if runs.setdefault(full, source.runs[name]) != source.runs[name]:
                raise InputError(f"two runs that differ are called {full!r}; rename a folder or a file")
    return runs


def open_for(
    sources: Sequence[Source], collection: Collection | Engine | str | Path | None, layout: str | None
) -> Collection | Engine:
    """The collection or engine that is given, or the one the sources name."""
    if isinstance(collection, Collection | Engine):
        return collection
    if collection is None:
        named = {}
        for source in sources:
            about = source.results.get("collection", {})
            name = about.get("source") or ("pydocs" if about.get("name") == "pydocs" else None)
            if name is not None:
                named[source_of(name)] = about.get("layout")
        if not named:
            raise InputError("the runs do not say what collection they are of; give --collection (and --split)")
        if len(named) > 1:
            raise InputError(f"the runs are of different collections: {', '.join(named)}; a report is about one")
        ((collection, recorded),) = named.items()
        layout = layout or recorded
    is_engine = (Path(collection) / "engine.json").is_file()
    return Engine.open(collection) if is_engine else open_collection(collection, layout)


def find_split(sources: Sequence[Source], collection: Collection, split: str | None) -> str:
    """The split that is given, the one the sources name, or the only one there is."""
    if split is None:
        named = list(dict.fromkeys(source.settings["split"] for source in sources if "split" in source.settings))
        if len(named) > 1:
            raise InputError(f"the runs are of different splits: {', '.join(named)}; a report is about one")
        known = named or list(collection.splits)
        if len(known) != 1:
            raise InputError(f"the runs do not say what split they are of; give --split: {', '.join(known)}")
        split = known[0]
    collection.split(split)
    return split


def engine_for(
    sources: Sequence[Source], opened: Collection | Engine, *, encoder: str | None, store: str | None
) -> Engine | None:
    """The engine that was opened, or one in memory, whose indexes are made when they are asked for.

    ``encoder`` and ``store`` stand in place of those of the first source that has settings; without either, TF-IDF.
    None for ``encoder="none"``.
    """
    if encoder == "none":
        return None
    if isinstance(opened, Engine) and encoder is None and store is None:
        return opened
    recorded = _recorded(sources)
    settings: dict[str, Any] = {name: recorded[name] for name in _MAKING if name in recorded}
    if isinstance(opened, Engine):
        opened, settings = opened.whole, settings | {"paragraphs": None}  # they are split already
    chosen: Any = encoder
    if encoder is None and store is None:
        chosen, store = _made(recorded.get("encoder", "tfidf")), recorded.get("store")
    if store is None and recorded.get("chunking"):
        settings["chunking"] = Chunking(**recorded["chunking"])
    if encoder is not None and encoder != recorded.get("encoder"):  # prompts are of another model
        settings = {name: value for name, value in settings.items() if not name.endswith("_prompt")}
    return Engine(opened, encoder=chosen or "tfidf", store=store, **settings)


def _made(encoder: Any) -> Any:
    """An encoder by name, or from what one that was given as an object said of itself."""
    if not isinstance(encoder, Mapping):
        return encoder
    kind = FITTED.get(str(encoder.get("class")))
    if kind is not None and "fitted" not in encoder:
        return from_parameters(kind, encoder.get("parameters", {}))
    try:
        return rebuild(dict(encoder))
    except InputError:
        raise InputError(
            f"the comparison was given its encoder, of class {encoder.get('class')!r}, which cannot be made again from "
            "what is recorded; --encoder tfidf makes other vectors, --encoder none leaves heatmap and picture out"
        ) from None


def described(engine: Engine) -> str:
    """What the vectors are, in words."""
    settings = engine.settings
    if settings["store"] is not None:
        made = EmbeddingStore(settings["store"]).manifest["encoder"]
        return f"vectors of a store ({made.get('model') or made.get('class')})"
    encoder = settings["encoder"]
    name = encoder if isinstance(encoder, str) else str(encoder.get("model") or encoder["class"])
    named = {"tfidf": "TF-IDF vectors", "lsa": f"LSA vectors of width {settings['n_components']}"}
    return named.get(name, f"vectors of {name.rstrip('/').rpartition('/')[2]}")


def parm_for(sources: Sequence[Source]) -> PARM:
    """VRRF with the hits that the comparison took; whose share of a score is exact for every pair of paragraphs.

    Settings of earlier versions have the number of hits beside the rankers, now each ranker has its own.
    """
    recorded = _recorded(sources)
    for spec in _specs(recorded.get("rankers")):
        if spec["ranker"] == PARM.name and spec.get("over", "vectors") == "vectors":
            ranker = from_spec(spec)
            assert isinstance(ranker, PARM)
            ranker.aggregation = "vrrf"
            return ranker
    return PARM("vrrf", n_hits=recorded.get("parm_hits", 1000))


def _specs(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every ranker among plain values, also within others."""
    if isinstance(value, Mapping) and isinstance(value.get("ranker"), str):
        yield value
    for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _specs(inner)


def _recorded(sources: Sequence[Source]) -> Mapping[str, Any]:
    return next((source.settings for source in sources if source.settings), {})
