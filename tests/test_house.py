"""The map of the package in CONTRIBUTING.md and its docstring is true; files form no circle, and names occur once."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import haybale

PACKAGE = Path(haybale.__file__).parent
CONTRIBUTING = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
ROOMS = re.findall(r"^(\w+)/  ", CONTRIBUTING, re.M)  # in the order of the map
SLICES = ("context", "pairs", "finetune", "review", "service")
FILES = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def trees() -> dict[str, ast.Module]:
    """Return the syntax tree of each file."""
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in FILES.items()}


def imports_of(name: str) -> Iterator[tuple[str, str]]:
    """Yield the modules of haybale that a file imports, also for types alone, each with an imported name or ""."""
    for node in ast.walk(trees()[name]):
        if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").partition(".")[0] == "haybale":
            yield from ((str(node.module), alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.startswith("haybale."))


def names_of_package(folder: Path) -> dict[str, str]:
    """Return the module that defines each name which a package hands on, from its stub or its ``__init__.py``."""
    stub = folder / "__init__.pyi"
    tree = ast.parse((stub if stub.exists() else folder / "__init__.py").read_text(encoding="utf-8"))
    package = ".".join(("haybale", *folder.relative_to(PACKAGE).parts))
    return {
        alias.name: f"{package}.{node.module}" if node.level else str(node.module)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def file_of(module: str, name: str) -> str | None:
    """Return the file that an import takes a name from, as a key of :data:`FILES`; None for a package's own names."""
    path = PACKAGE.joinpath(*module.split(".")[1:])
    if path.is_dir():
        handed_on = names_of_package(path).get(name)
        if handed_on is not None:
            return file_of(handed_on, name)
        path = path / name
    file = path.with_suffix(".py")
    return file.relative_to(PACKAGE).as_posix() if file.exists() else None


def rooms_used(name: str) -> set[str]:
    files = {file_of(module, imported) for module, imported in imports_of(name)}
    modules = {module.split(".")[1] for module, _ in imports_of(name) if "." in module}
    return {room for room in (*modules, *(str(file).partition("/")[0] for file in files)) if room in ROOMS}


def test_the_map_lists_every_room_in_the_order_of_imports() -> None:
    folders = {name.partition("/")[0] for name in FILES if "/" in name}
    assert sorted(ROOMS) == sorted(folders)
    assert re.findall(r":mod:`~haybale\.(\w+)`", haybale.__doc__ or "") == ROOMS
    for name in FILES:
        room = name.partition("/")[0]
        if room in ROOMS:
            later = rooms_used(name) & set(ROOMS[ROOMS.index(room) + 1 :])
            assert not later, f"{name} imports from {later}, below {room} in the map"


def test_slices_are_apart() -> None:
    for name in FILES:
        room = name.partition("/")[0]
        if room not in ("service", "commands"):
            assert rooms_used(name) & set(SLICES) <= {room}, f"{name} imports from another slice"


def test_the_map_lists_the_files_beside_the_rooms_which_know_no_room() -> None:
    beside = {name for name in FILES if "/" not in name} - {"__init__.py", "__main__.py"}
    paragraph = CONTRIBUTING[CONTRIBUTING.index("The files beside these packages") :].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+\.py)`", paragraph)) == beside
    for name in beside - {"pyterrier.py"}:
        assert not rooms_used(name), name


def test_no_circle_of_files() -> None:
    """CycleError, a ValueError, names the files of a circle."""
    graph = {name: {file_of(*imported) for imported in imports_of(name)} - {None, name} for name in FILES}
    TopologicalSorter(graph).prepare()
    assert sum(map(len, graph.values())) > 1000, "imports were not found"


def test_names_of_files_and_classes_occur_once() -> None:
    files, classes = defaultdict(list), defaultdict(list)
    for name, tree in trees().items():
        path = Path(name)
        if path.name not in ("__init__.py", "__main__.py") and path.parent.name != "commands":
            files[path.name].append(name)
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(name)
    twice = [owners for owners in (*files.values(), *classes.values()) if len(owners) > 1]
    assert twice == []


def test_files_have_at_most_600_lines() -> None:
    assert [name for name, path in FILES.items() if len(path.read_text(encoding="utf-8").splitlines()) > 600] == []
