"""The target of the attacks: a small collection with its engine, rankers, store and index; and the command line."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from support.layouts import beir
from support.topics import topic_collection

import haybale
from haybale import Engine
from haybale.cli import main

REJECTED, CORRECT = "rejected", "correct"
NOT_NUMBERS = ("nan", "inf", "-inf", "1e999", "x", "", "0x10", "1e3", "1.0")
SAVED = ("engine", "bm25", "svr", "store", "index")
# Cases of an attack: a name, and a function that returns REJECTED or CORRECT, or raises an error.
Cases = Iterator[tuple[str, Callable[[], str]]]


def finite(*numbers: Any) -> str:
    """Return CORRECT if all numbers are finite."""
    for array in numbers:
        assert np.isfinite(np.asarray(array, dtype=np.float64)).all(), "NaN or infinity in a result"
    return CORRECT


def finite_scores(scores: Any) -> str:
    """Return CORRECT if all scores are finite, except the padding -inf."""
    return finite(np.asarray(scores)[np.asarray(scores) > -np.inf])


class Target:
    """A small collection and everything built from it, in a folder that becomes the working directory."""

    def __init__(self, folder: Path) -> None:
        os.chdir(folder)
        self.folder, self.collection = folder, topic_collection()
        self.engine = Engine.build(self.collection, folder / "engine").prepare()
        self.dense = Engine.build(self.collection, folder / "dense", encoder="lsa(n_components=8)").prepare()
        self.data = beir(folder / "data")
        self.rankers = {name: haybale.parse(name).fit(self.engine) for name in ("bm25-doc", "svr(n_bags=4)")}
        for name, ranker in zip(("bm25", "svr"), self.rankers.values(), strict=True):
            ranker.save(folder / name)
        texts = self.collection.passages.texts.to_pylist()
        self.encoder = haybale.LSAEncoder(8).fit(texts)
        self.vectors = self.encoder.encode(texts)
        haybale.embed(self.collection, self.encoder, folder / "store", rows_per_chunk=16)
        haybale.PassageIndex.from_collection(self.collection, self.vectors).save(folder / "index")
        self.run = self.rankers["bm25-doc"].rank("dev", depth=5)
        self._numbers = itertools.count()

    def new(self) -> Path:
        """Return a path that does not exist."""
        path = self.folder / "tried" / str(os.getpid()) / str(next(self._numbers))
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def clean(self) -> None:
        """Remove what this process made."""
        os.chdir(self.folder)
        shutil.rmtree(self.folder / "tried" / str(os.getpid()), ignore_errors=True)

    def copy(self, name: str) -> Path:
        return Path(shutil.copytree(self.folder / name, self.new()))

    def results(self, name: str, folder: Path) -> pd.DataFrame:
        """Return the search results or the content of one of :data:`SAVED`, loaded from a folder."""
        if name == "engine":
            return haybale.parse("rrf(bm25,knn,parm-rrf)").fit(Engine.open(folder)).rank("dev", depth=5).to_frame()
        if name in ("bm25", "svr"):
            return haybale.load(folder, self.engine).rank("dev", depth=5).to_frame()
        if name == "store":
            store = haybale.EmbeddingStore(folder)
            return pd.DataFrame(store.vectors()).assign(passage=list(store.passage_ids), doc=list(store.doc_ids))
        return pd.DataFrame(haybale.PassageIndex.open(folder).search(self.vectors[:3], 5).scores)


def shell(*arguments: str) -> tuple[int, str]:
    """Run a command in this process; return its status and output, which must not have control characters."""
    printed = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="surrogateescape")
    before, status = (sys.argv, warnings.showwarning), 0
    try:
        sys.argv = ["haybale", *arguments]
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            main()
    except SystemExit as left:
        status = int(left.code or 0)
    finally:
        sys.argv, warnings.showwarning = before
    printed.flush()
    text = printed.buffer.getvalue().decode("utf-8", "backslashreplace")  # type: ignore[attr-defined]
    for character in "\x1b\x9b\x00\x07\u202e\u2066":
        assert character not in text, f"{character!r} reaches the terminal"
    assert "Traceback" not in text
    return status, text


def command(*arguments: str) -> str:
    """Run a command; return whether it accepted its input."""
    status, output = shell(*arguments)
    assert status in (0, 2), f"status {status}: {output[-200:]}"
    return REJECTED if status else CORRECT
