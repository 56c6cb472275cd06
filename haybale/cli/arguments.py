"""What is given on the command line as the objects that it means: rankers, their parameters, engines, pieces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from haybale.cli.output import given
from haybale.collections import open_collection
from haybale.embeddings import Chunking
from haybale.embeddings.encoder import LEXICAL, model_name
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.rankers import Ranker, parse, parse_value, read_yaml, set_values
from haybale.stages import stage


def ranker_of(text: str, values: Sequence[str]) -> Ranker:
    """A ranker by its name or by the file that describes it, with the values of ``--set``.

    >>> ranker_of("rrf(bm25,bm25-doc)", ["k1=0.9"])
    RRF(BM25(k1=0.9), BM25('document', k1=0.9))
    """
    is_file = Path(text).suffix in (".yaml", ".yml", ".json")
    return set_values(read_yaml(Path(text)) if is_file else parse(text), values_of(values))


def values_of(texts: Sequence[str] | None) -> dict[str, Any]:
    """``name=value`` of ``--set``; a name that comes twice has its last value.

    >>> values_of(["k1=0.9", "strategy=rows", "gamma=[8,2.5]"])
    {'k1': 0.9, 'strategy': 'rows', 'gamma': (8, 2.5)}
    """
    values = {}
    for text in texts or ():
        name, _, value = text.partition("=")
        if not name.strip() or not value.strip():
            raise InputError(f"--set takes name=value, found {text!r}")
        values[name.strip()] = parse_value(value)
    return values


def opened(folder: Path, device: str | None) -> Engine:
    """The engine, on a device."""
    return Engine.open(folder, **given(device=device))


def engine_of(place: str, layout: str | None, device: str | None, settings: dict[str, Any]) -> Engine:
    """The engine of that folder, or one in memory of that collection."""
    if (Path(place) / "engine.json").is_file():
        for name in settings | given(layout=layout):
            raise InputError(f"{place} is an engine, which was built with its settings: leave out --{name}")
        return opened(Path(place), device)
    settings = checked(settings | given(device=device))
    with stage("read collection"):
        collection = open_collection(place, layout)
    return Engine(collection, **settings)


def checked(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of an engine; folders of store and encoder as they are found from anywhere."""
    return {name: _absolute(value) if name in ("store", "encoder") else value for name, value in settings.items()}


def _absolute(name: str) -> str:
    folder = model_name(name)
    if name in LEXICAL or not Path(folder).is_dir():
        return name
    return name.removesuffix(folder) + str(Path(folder).absolute())


def chunking_of(length: int | None, stride: int | None, **how: Any) -> Chunking | None:
    """Pieces of passages, if passages are to be cut."""
    if length is None:
        if stride is not None or how:
            raise InputError(f"--{'stride' if stride else next(iter(how))} is of pieces: say how long with --pieces")
        return None
    return Chunking(length, stride, **how)
