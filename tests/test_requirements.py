"""The packages that pyproject.toml, the page about GPU hosts and the code name belong together."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from haybale.commands.doctor import CHECKS
from haybale.ensemble import cuml

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "benchmarks" / "gpu.md").read_text("utf-8")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
GPU = {requirement.name: requirement for requirement in map(Requirement, PROJECT["optional-dependencies"]["gpu"])}


def with_dependencies(names: set[str]) -> set[str]:
    """Return the canonical names of installed packages and of all that they depend on."""
    seen: set[str] = set()
    left = set(names)
    while left:
        name = left.pop()
        if canonicalize_name(name) in seen:
            continue
        seen.add(canonicalize_name(name))
        parts = [Requirement(line) for line in requires(name) or []]
        left |= {part.name for part in parts if part.marker is None or part.marker.evaluate({"extra": ""})}
    return seen


def test_the_page_names_the_versions_of_the_extra() -> None:
    """Each requirement of the extra stands on the page as pip reads it, and no other version of these packages."""
    named = {f"{name}{rest}" for name, rest in re.findall(r"`([\w-]+)((?:==|>=)[\d.*]+)`", PAGE)}
    assert named == {f"{name}{requirement.specifier}" for name, requirement in GPU.items()}


def test_the_extra_has_one_release_of_rapids_that_the_adapters_accept() -> None:
    rapids = {str(GPU[f"{package}-cu13"].specifier) for package in ("cudf", "cuml", "cuvs")}
    assert len(rapids) == 1
    release = Version(rapids.pop().removeprefix("==").removesuffix(".*"))
    assert release.release >= cuml._OLDEST_RELEASE
    assert release.major == 26  # of cuVS, see haybale.retrieval.backends.cuvs
    assert str(GPU["faiss-gpu-cuvs"].specifier).startswith("==")
    assert {check.distribution for check in CHECKS if check.extra == "gpu"} <= set(GPU)


def test_the_page_names_all_packages_that_a_clone_needs() -> None:
    """A host is said to have the core's packages; all others that haybale's dependencies need are in the table."""
    core = re.search(r"The core needs CuPy, ([^;]*);", PAGE)
    assert core
    on_host = {name for name in re.split(r",\s+| and\s+", core[1]) if name}
    table = {
        canonicalize_name(name) for row in re.findall(r"^\| .* \| (.*) \|$", PAGE, re.M) for name in row.split(", ")
    }
    needed = with_dependencies({Requirement(line).name for line in PROJECT["dependencies"]})
    assert needed - with_dependencies(on_host) - table == set()
