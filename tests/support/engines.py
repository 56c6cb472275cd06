"""For tests of engines and rankers: exact comparisons of runs and folders, and an encoder that records its texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haybale import Engine
from haybale.manifest import with_checksum
from haybale.rankers import QueryBatch, parse
from haybale.retrieval import Run
from support.encoders import HashEncoder

UNTRAINED = ("bm25", "bm25-doc", "knn", "knn-doc", "knn-firstp", "parm-rrf", "parm-vrrf", "bm25-parm-rrf")


def assert_same(found: Run, expected: Run) -> None:
    """Assert that runs have the same documents with exactly the same scores."""
    rows, ranks, documents, scores = expected.flat()
    assert found.query_ids == expected.query_ids
    np.testing.assert_array_equal(found.flat()[0], rows)
    np.testing.assert_array_equal(found.flat()[1], ranks)
    assert found.flat()[2].to_pylist() == documents.to_pylist()
    np.testing.assert_array_equal(found.flat()[3], scores)


def runs_of(engine: Engine, split: str = "dev", names: Sequence[str] = UNTRAINED, depth: int = 1000) -> dict[str, Run]:
    """Return the runs of rankers without training, by name."""
    batch = QueryBatch(engine, engine.collection.queries.take(engine.collection.split(split).queries))
    return {name: parse(name).fit(engine).run(batch, depth) for name in names}


def assert_same_runs(found: Engine, expected: Engine, names: Sequence[str] = UNTRAINED) -> None:
    mine = runs_of(found, names=names)
    for name, run in runs_of(expected, names=names).items():
        assert_same(mine[name], run)


def assert_filtered(found: Run, whole: Run, keep: Callable[[str], bool], exactly: bool = True) -> None:
    """Assert that a run has the documents of another one that ``keep`` accepts, with the same scores."""
    for query in whole.query_ids:
        expected = [(doc, score) for doc, score in whole[query] if keep(doc)]
        if exactly:
            assert found[query] == expected
        else:
            assert [doc for doc, _ in found[query]] == [doc for doc, _ in expected]
            assert dict(found[query]) == pytest.approx(dict(expected), abs=1e-6)


def tree(folder: Path) -> dict[str, bytes]:
    """Return the content of every file of a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def without_identity(manifest: bytes) -> dict[str, Any]:
    """Return what ``engine.json`` holds except the identity, in which two builds differ, and the checksum."""
    return {name: value for name, value in json.loads(manifest).items() if name not in ("identity", "sha256")}


def tree_of_build(folder: Path) -> dict[str, Any]:
    """Return the content of every file of an engine, which is equal for two builds of one collection."""
    files: dict[str, Any] = tree(folder)
    return files | {"engine.json": without_identity(files["engine.json"])}


def change_manifest(folder: Path, **changes: Any) -> None:
    """Change entries of ``manifest.json`` so that its checksum agrees with the change."""
    path = folder / "manifest.json"
    path.write_text(json.dumps(with_checksum(json.loads(path.read_text()) | changes)))


class CountingEncoder(HashEncoder):
    """Record the encoded texts."""

    def __init__(self, salt: str = "") -> None:
        super().__init__(salt)
        self.texts: list[str] = []

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.texts += texts
        return super().encode(texts) - 0.5

    def describe(self) -> dict[str, object]:
        return {"class": "CountingEncoder", "salt": self.salt, "width": self.dim}
