"""Runs from folders of ``haybale compare`` and from TREC run files, with what is recorded about them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from haybale.errors import FileFormatError, InputError
from haybale.evaluation.comparison import file_name
from haybale.retrieval import Run

SUFFIXES = (".trec", ".run", ".txt")


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

    Errors: :class:`InputError` where there is no run; :class:`FileFormatError` for a file that is none.
    """
    path = Path(path)
    if path.is_dir():
        return _folder(path)
    if not path.is_file():
        raise InputError(f"{path}: no such folder or file; expected the folder of a comparison or a TREC run file")
    if stem_of(path) is None:
        raise InputError(f"{path}: expected a TREC run file, {', '.join(SUFFIXES)}, plain or .gz")
    return Source(path, path.absolute().parent.name, {str(stem_of(path)): _run(path)})


def named_runs(sources: Sequence[Source]) -> dict[str, Run]:
    """All runs by name. A name that several sources have gets theirs before it, unless the runs are equal.

    Errors: :class:`InputError` where that does not tell them apart.
    """
    having: dict[str, list[tuple[str, Run]]] = {}
    for source in sources:
        for name, run in source.runs.items():
            if all(run != other for _, other in having.setdefault(name, [])):
                having[name].append((source.name, run))
    runs: dict[str, Run] = {}
    for source in sources:
        for name in source.runs:
            for place, run in having.pop(name, []):
                own = name if not _several(name, sources, run) else f"{place}/{name}"
                if own in runs:
                    raise InputError(f"two runs that differ are called {own!r}; rename a folder or a file")
                runs[own] = run
    return runs


def stem_of(path: Path) -> str | None:
    """The name of a run file without its suffixes; None where it has none of a run file.

    >>> stem_of(Path("a/bm25.trec.gz")), stem_of(Path("table.md"))
    ('bm25', None)
    """
    name = path.name.removesuffix(".gz")
    return next((name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix) and name != suffix), None)


def _several(name: str, sources: Sequence[Source], run: Run) -> bool:
    return any(name in source.runs and source.runs[name] != run for source in sources)


def _folder(folder: Path) -> Source:
    inner = folder / "runs" if (folder / "runs").is_dir() else folder
    files = sorted(path for path in inner.iterdir() if path.is_file() and stem_of(path) is not None)
    if not files:
        raise InputError(
            f"{folder}: no runs found; expected a folder written by haybale compare --out (runs/*.trec) "
            "or one with TREC run files"
        )
    settings, results = _json(folder / "settings.json"), _json(folder / "results.json")
    names = {file_name(name): name for name in results.get("rankers", {})}  # in the order of the table
    files.sort(key=lambda path: list(names).index(str(stem_of(path))) if stem_of(path) in names else len(names))
    runs = {names.get(str(stem_of(path)), str(stem_of(path))): _run(path) for path in files}
    return Source(folder, folder.absolute().name, runs, settings or results.get("settings", {}), results)


def _run(path: Path) -> Run:
    run = Run.from_trec(path)
    if not len(run):
        raise FileFormatError(path, None, "expected a TREC run, found no line")
    return run


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FileFormatError(path, None, f"expected JSON: {error}") from None
    if not isinstance(found, dict):
        raise FileFormatError(path, None, "expected a JSON object")
    return found
