"""A clone of the repository works without being installed, and a folder that is no clone is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

import pytest
from support.commands import ONE_AFTER_ANOTHER

from haybale import __version__
from haybale.versions import version_of

ROOT = Path(__file__).parents[1]
NOT_INSTALLED = """
import importlib.metadata
assert not any(item.name == "haybale" for item in importlib.metadata.distributions())
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the packages of this environment, without haybale and its metadata."""
    folder = tmp_path_factory.mktemp("packages")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(("haybale", "__editable__")):
            (folder / path.name).symlink_to(path)
    return folder


def run(clone: Path, packages: Path, commands: list[list[str]]) -> subprocess.CompletedProcess[str]:
    """Run commands one after another in a process that sees the clone and the packages only."""
    environment = os.environ | {"PYTHONPATH": f"{clone}{os.pathsep}{packages}"}
    command = [sys.executable, "-S", "-c", NOT_INSTALLED + ONE_AFTER_ANOTHER, json.dumps(commands)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=clone)


def write_collection(folder: Path) -> Path:
    """Write twelve documents about four topics in BEIR's layout, with a query of train and of dev for each."""
    topics = ("dogs", "taxes", "leases", "roads")
    (folder / "qrels").mkdir(parents=True)
    documents = [{"_id": f"d{n}", "text": f"law {n} about {topics[n % 4]}, section {n // 4}"} for n in range(12)]
    queries = [
        {"_id": f"{split}{n}", "text": f"{topics[n % 4]} in section {n // 4}"}
        for split in ("train", "dev")
        for n in range(12)
    ]
    for name, records in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    for split in ("train", "dev"):
        (folder / "qrels" / f"{split}.tsv").write_text("".join(f"{split}{n}\td{n}\t1\n" for n in range(12)))
    return folder


def test_a_clone_runs_without_being_installed(packages: Path, tmp_path: Path) -> None:
    clone, engine, results = tmp_path / "clone", str(tmp_path / "engine"), tmp_path / "results"
    clone.mkdir()
    for name in ("haybale", "pyproject.toml"):
        (clone / name).symlink_to(ROOT / name)
    done = run(
        clone,
        packages,
        [
            ["index", str(write_collection(tmp_path / "data")), "--out", engine],
            ["train", engine, "--ranker", "svr(n_bags=2)", "--out", str(tmp_path / "model")],
            ["rank", engine, "taxes in section 0", "--model", str(tmp_path / "model")],
            ["compare", engine, "--rankers", "bm25,knn,svr(n_bags=2)", "--out", str(results)],
            ["doctor"],
        ],
    )
    assert done.returncode == 0, done.stderr
    manifests = [json.loads(path.read_text()) for path in (tmp_path / "model").rglob("manifest.json")]
    assert {manifest["haybale"] for manifest in manifests} == {__version__}
    assert json.loads((results / "results.json").read_text())["environment"]["haybale"] == __version__


def test_a_package_that_is_neither_installed_nor_a_clone_is_refused(packages: Path, tmp_path: Path) -> None:
    (tmp_path / "haybale").symlink_to(ROOT / "haybale")
    done = run(tmp_path, packages, [["compare", "pydocs", "--rankers", "bm25"]])
    assert done.returncode
    assert f"{tmp_path / 'haybale'}: " in done.stderr
    assert "pyproject.toml" in done.stderr.splitlines()[-1]


def test_the_version_of_haybale_needs_no_metadata() -> None:
    assert version_of("haybale") == __version__
    assert version_of("numpy") == version("numpy")
