"""Damage files of every layout: they must be rejected, or read as a collection that can be ranked."""

from __future__ import annotations

import random
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd
from hostile.target import CORRECT, Cases, Target, command, finite
from support.damage import damaged
from support.layouts import beir, folder_of, gerdalir, structured

import haybale
from haybale import Run, open_collection
from haybale.collections.saved import load_collection, save_collection

MAKERS = {"beir": beir, "gerdalir": gerdalir, "structured": structured}
COLIEE = {
    "files/001.txt": "[1] One.\n[2] Two.\n",
    "files/002.txt": "[1] Three.\n",
    "labels.json": '{"001.txt": ["002.txt"]}',
}
FRAMES = {
    "passages": {"doc_id": ["a", "a", "b"], "text": ["one text", "two", "three"]},
    "queries": {"query_id": ["q"], "text": ["one"], "own": ["b"]},
    "qrels": {"query_id": ["q"], "doc_id": ["b"], "relevance": [1]},
}
SINGLE = {
    "a.tsv": "q1\td1\t1\nq2\td2\t2\n",
    "a.trec": "q1 Q0 d1 1 2.0 x\nq1 Q0 d2 2 1.0 x\n",
    "q.jsonl": '{"_id": "q1", "text": "ba ko", "own": "d1"}\n{"_id": "q2", "text": "one"}\n',
    "q.tsv": "q1\tba ko\nq2\tone\n",
    "q.txt": "ba ko\n\none\n",
}
NAMES = (*MAKERS, "trec", "qrels", "coliee", "parquet", "collection", "queries", "texts")


def readers(target: Target, rng: random.Random) -> Cases:
    for number in count():
        name = rng.choice(NAMES)
        yield f"{name} {number}", partial(read, target, name, rng.randrange(2**32))


def read(target: Target, name: str, seed: int) -> str:
    """Write a layout, damage one of its files, and use what can still be read."""
    rng, folder = random.Random(seed), target.new()
    if name in MAKERS:
        MAKERS[name](folder, zipped=rng.random() < 0.2)
    elif name == "parquet":
        folder.mkdir()
        for part, columns in FRAMES.items():
            pd.DataFrame(columns).to_parquet(folder / f"{part}.parquet")
    elif name == "collection":
        save_collection(target.collection, folder)
    else:
        folder_of(folder, COLIEE if name == "coliee" else SINGLE)
    damage_file(rng.choice(sorted(path for path in folder.rglob("*") if path.is_file())), rng)
    if name == "collection":
        return load_collection(folder).digest() and CORRECT  # the digest reads all data
    if name == "texts":
        path = rng.choice((folder / "q.jsonl", folder / "q.tsv", folder / "q.txt", Path("x" * 300)))
        return finite(target.rankers["bm25-doc"].rank(path, depth=3).to_frame()["score"])
    if name == "trec":
        return finite(Run.from_trec(folder / "a.trec").to_frame()["score"])
    if name in ("qrels", "queries"):
        path, out = str(folder / "a.tsv"), str(target.new())
        given = ("--ranker", "knn-queries", "--out", out, "--queries", path, "--qrels", path)
        return command("train", str(target.folder / "engine"), *given)
    scores = haybale.BM25Index.from_collection(open_collection(folder)).search(["one text"], 1).scores
    return finite(scores[np.isfinite(scores)])


def damage_file(path: Path, rng: random.Random) -> None:
    """Damage a file, or replace it by a folder or a link."""
    kind = rng.random()
    if kind < 0.06:
        path.unlink()
        path.mkdir()
    elif kind < 0.1:
        path.unlink()
        places = (path, path.parent, "/nowhere", "/dev/null", "/proc/self/mem", "/dev", "x" * 300)
        path.symlink_to(rng.choice(places))
    else:
        path.write_bytes(damaged(path.read_bytes(), rng))
