"""Test that what another installed package adds works like what haybale has: each part that CONTRIBUTING.md shows."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.commands import ONE_AFTER_ANOTHER

from haybale.cli.application import COMMANDS
from haybale.collections import READERS
from haybale.embeddings.encoder import ENCODERS
from haybale.rankers import RANKERS
from haybale.registry import _entries
from haybale.review import STOPPING_RULES

PACKAGE = Path(__file__).parent / "outside"
TRAINED = "learned(bm25,titles,rrf(knn,titles-count),depth=20)"
EXPLAINED = """
import json, sys
import haybale
engine = haybale.Engine.open(sys.argv[1])
ranker = haybale.load(sys.argv[2], engine)
run = ranker.rank({"q": sys.argv[3]})
why = ranker.explain(sys.argv[3], run["q"][0][0])
titles = [share for share in why.shares if share.what.startswith("titles")]
print(json.dumps({"ranker": str(ranker), "encoder": type(engine.encoder).__module__, "score": why.score,
    "shares": [share.share for share in why.shares], "inner": [len(each.of.shares) for each in titles]}))
"""
Python = Callable[..., str]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Python:
    """Return a function that runs Python in a new process, with the package installed from its wheel."""
    folder = tmp_path_factory.mktemp("outside")
    shutil.copytree(PACKAGE, folder / "source")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = ["wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", folder, folder / "source"]
    subprocess.run([*pip, *build], check=True)
    [wheel] = folder.glob("*.whl")
    subprocess.run([*pip, "install", "--no-index", "--no-deps", "--target", folder / "site", wheel], check=True)
    paths = [str(folder / "site"), str(PACKAGE.parents[1]), os.environ.get("PYTHONPATH", "")]

    def run(code: str, *arguments: object) -> str:
        command = [sys.executable, "-c", code, *map(str, arguments)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of forty notes in the layout of the package; only the title of a note names its topic."""
    folder, rng = tmp_path_factory.mktemp("notes"), np.random.default_rng(0)
    lines, queries = [], []
    for number in range(40):
        lines.append(f"# n{number:02d} topic{number % 20}")
        lines += [" ".join(f"word{each}" for each in rng.integers(0, 50, size=8)) for _ in range(2)]
        split = "train" if number < 30 else "dev"
        text = f"topic{number % 20} word{number}"
        queries.append(f"{split}|q{number}|{text}|n{number % 20:02d} n{number % 20 + 20:02d}")
    (folder / "notes.txt").write_text("\n".join(lines), encoding="utf-8")
    (folder / "queries.txt").write_text("\n".join(queries), encoding="utf-8")
    return folder


def test_the_classes_are_used_by_every_command(python: Python, notes: Path, tmp_path: Path) -> None:
    engine, model, results = tmp_path / "engine", tmp_path / "model", tmp_path / "results"
    commands = [
        ["index", notes, "--out", engine, "--encoder", "trigrams(dim=64)"],
        ["train", engine, "--ranker", TRAINED, "--out", model],
        ["compare", engine, "--rankers", "bm25,titles", "--model", f"m={model}", "--out", results],
        ["rank", engine, "topic7", "--model", model, "--explain"],
        ["longest", engine, "--top", "1"],
        ["simulate", engine, "--split", "dev", "--seeds", "1", "--stop", "share-read(share=0.25)"],
    ]
    told = python(ONE_AFTER_ANOTHER, json.dumps(commands, default=str)).split("END\n")
    shown = {0: "40 documents", 2: "titles", 3: "title word topic7", 4: "n00: 2 passages", 5: "share-read(share=0.25)"}
    for number, expected in shown.items():
        assert expected in told[number]
    measures = json.loads((results / "results.json").read_text())["rankers"]
    assert measures["titles"]["measures"]["nDCG@10"] > measures["bm25"]["measures"]["nDCG@10"]
    found = json.loads(python(EXPLAINED, engine, model, "topic7 word3"))
    assert (found["ranker"], found["encoder"]) == (TRAINED, "fieldnotes.trigrams")
    assert math.fsum(found["shares"]) == pytest.approx(found["score"], rel=1e-6)
    assert found["inner"] == [1]


def test_without_the_package_its_names_are_unknown() -> None:
    from haybale import InputError, parse

    with pytest.raises(InputError, match="'titles'"):
        parse("titles")


def test_a_clone_that_is_not_installed_finds_its_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("haybale.registry.entry_points", lambda group: ())
    for known in (COMMANDS, ENCODERS, RANKERS, READERS, STOPPING_RULES):
        entries = _entries(known.group)
        assert entries
        assert all(entry.load() for entry in entries)
