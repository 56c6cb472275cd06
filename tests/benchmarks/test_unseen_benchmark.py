"""The benchmark of rankers for unseen documents, on a small collection."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from haybale import BM25, KNN, SVR, Learned, SimilarQueries


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*training queries for")
def test_small_unseen(ran: Any, words: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = (BM25(), SimilarQueries(), SVR([BM25("document"), KNN()], n_bags=4, n_jobs=1))
    monkeypatch.setattr(Learned, "nested", lambda self: list(self.rankers or small))
    page = ran("bench_unseen", "unseen.md", str(words), "--shares", "0.5")
    assert len(re.findall(r"^\| (?:`learned`|with [^|]+) \| 0.5 \|( \S+ \|){6}$", page, re.M)) == 3
