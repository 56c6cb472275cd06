"""Fixtures: a small collection, the folder of a comparison on it, and reports about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.pages import QUICK_TSNE, Page, small

from haybale.collections import Collection
from haybale.evaluation import compare
from haybale.reports import write_report

RANKERS = ("bm25", "bm25-doc", "knn", "parm-vrrf", "rrf(bm25,knn)")


@pytest.fixture(scope="package", autouse=True)
def _quick_pictures() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sklearn.manifold.TSNE", QUICK_TSNE)
        yield


@pytest.fixture(scope="session")
def collection() -> Collection:
    return small()


@pytest.fixture(scope="session")
def folder(collection: Collection, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of five rankers on dev."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    compare(collection, RANKERS).write(folder)
    return folder


@pytest.fixture
def reported(folder: Path, collection: Collection, tmp_path: Path) -> Callable[..., Page]:
    """Return the page about some runs, by default those of the folder, with all pictures."""

    def report(*runs: Path, **options: object) -> Page:
        options = {"collection": collection, "picture": "tsne"} | options
        write_report(list(runs) or [folder], tmp_path / "report.html", **options)  # type: ignore[arg-type]
        return Page((tmp_path / "report.html").read_text(encoding="utf-8"))

    return report
