"""Test that the files around the package agree: bounds, pinned versions, Pythons, hooks and notes of changes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from haybale import __version__

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
# Extras that nothing installs with constraints.txt: their packages need a GPU, or are large alternatives to torch.
UNPINNED_EXTRAS = {"gpu", "openvino"}


def pinned_versions() -> dict[str, str]:
    """Return the version that constraints.txt has for each distribution."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pins}


def declared_requirements() -> list[Requirement]:
    """Return the requirements of the base install and the pinned extras, without those on haybale itself."""
    extras = PROJECT["project"]["optional-dependencies"]
    assert extras.keys() >= UNPINNED_EXTRAS
    pinned = [texts for extra, texts in extras.items() if extra not in UNPINNED_EXTRAS]
    requirements = [Requirement(text) for texts in (PROJECT["project"]["dependencies"], *pinned) for text in texts]
    return [requirement for requirement in requirements if requirement.name != "haybale"]


def workflow_jobs() -> dict[str, Any]:
    jobs: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text("utf-8"))["jobs"]
    return jobs


def test_every_requirement_is_pinned_to_a_version_that_it_allows() -> None:
    pins = pinned_versions()
    requirements = declared_requirements()
    assert len(requirements) > 50
    assert [item.name for item in requirements if canonicalize_name(item.name) not in pins] == []
    refused = [str(item) for item in requirements if pins[canonicalize_name(item.name)] not in item.specifier]
    assert refused == []


def test_every_requirement_has_one_lower_bound() -> None:
    """Otherwise ``make lowest`` would install, and test, a version that another line excludes."""
    bounds: dict[str, set[str]] = {}
    for requirement in declared_requirements():
        bounds.setdefault(canonicalize_name(requirement.name), set()).add(str(requirement.specifier))
    assert {name: texts for name, texts in bounds.items() if len(texts) > 1 or ">=" not in min(texts)} == {}


def test_the_same_pythons_are_declared_smoked_and_tested() -> None:
    classifiers = PROJECT["project"]["classifiers"]
    pythons = re.findall(r"Python :: (3\.\d+)$", "\n".join(classifiers), re.M)
    assert PROJECT["project"]["requires-python"] == f">={pythons[0]}"
    smoked = re.findall(r"^PYTHONS \?= (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.M)
    assert smoked == [" ".join(f"python{number}" for number in pythons)]
    jobs = workflow_jobs()
    assert jobs["test"]["strategy"]["matrix"]["python-version"] == pythons
    (setup,) = (step["with"] for step in jobs["lowest"]["steps"] if "with" in step)
    assert setup["python-version"] == pythons[0]


def test_the_workflow_runs_targets_of_the_makefile() -> None:
    commands = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in workflow_jobs().items()}
    assert commands == {"test": ["make test PYTHON=python"], "lowest": ["make lowest PYTHON=python"]}
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert all(re.search(rf"^(\w+ )*{name}( \w+)*:", makefile, re.M) for name in commands)


def test_hooks_run_the_pinned_tools() -> None:
    """The hooks take the tools of the environment that is installed with constraints.txt, not copies of their own."""
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    assert repository["repo"] == "local"
    tools = [Path(hook["entry"].split()[0]) for hook in repository["hooks"]]
    assert {str(tool.parent) for tool in tools} == {".venv/bin"}
    assert {tool.name for tool in tools} == {"ruff", "mypy"} <= set(pinned_versions())
    assert {hook["language"] for hook in repository["hooks"]} == {"system"}


def test_the_citation_has_the_version() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))["version"] == __version__


def test_issue_forms_have_what_github_requires() -> None:
    for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text("utf-8"))
        if path.name == "config.yml":
            assert (ROOT / form["contact_links"][0]["url"].rpartition("/")[2]).is_file()
            continue
        assert {"name", "description", "body"} <= form.keys()
        assert len({field["id"] for field in form["body"]}) == len(form["body"])


def test_a_release_collects_the_notes_of_changes(tmp_path: Path) -> None:
    pytest.importorskip("towncrier")
    types = PROJECT["tool"]["towncrier"]["fragment"]
    notes = [path for path in (ROOT / "changes").glob("*.md") if path.name != "README.md"]
    assert {path.name.split(".")[-2] for path in notes} <= types.keys()
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "changes", tmp_path / "changes")
    (tmp_path / "changes" / "+test.added.md").write_text("A note of a test.\n", encoding="utf-8")
    command = [sys.executable, "-m", "towncrier", "build", "--yes", "--version", "9.9.9"]
    completed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    before, after = ((folder / "CHANGELOG.md").read_text("utf-8") for folder in (ROOT, tmp_path))
    head, _, new_and_old = after.partition("## 9.9.9")
    assert before.startswith(head)
    assert new_and_old.endswith(before[len(head) :].lstrip())
    assert "- A note of a test." in new_and_old
    assert [path.name for path in (tmp_path / "changes").iterdir()] == ["README.md"]
