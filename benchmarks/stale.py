"""List the result pages whose code changed since they were measured, and where README and docs claim from them.

    python benchmarks/stale.py [PAGE …]

A page names the commit that it was measured at and, on a line "- measures: …", the paths of the package that its
figures depend on; paths behind "-" do not count. Code is compared without comments, docstrings and the messages of
errors; a file that has moved is compared with what it was at its place before. A page with a line "- reproduced: …"
shows effectiveness only: it counts as measured at the commit where `make reproduce` last found the same measures
(reproduced.json). The exit status is 1 if README or docs claim from a page that is stale.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
NOW = ""  # in place of a commit: the files as they are
SHOWN = 6  # changed paths that are printed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, help="pages; default: all of benchmarks/results")
    pages = parser.parse_args().pages or sorted(RESULTS.glob("*.md"))
    claimed = False
    for page in pages:
        if page.name == "README.md":
            continue
        found, where = since(page.read_text(encoding="utf-8")), claims(page.name)
        if found:
            claimed |= bool(where)
            print(f"{page.name}: {found}")
            print(f"    claimed from: {', '.join(where) or 'nowhere'}")
    return int(claimed)


def since(text: str) -> str:
    """Return what changed since a page was measured; empty if nothing did."""
    measures = re.search(r"^- measures: (.+)$", text, re.M)
    if measures is None:
        return "does not name the paths that it measures"
    commits = measured_at(text)
    if not commits:
        return "names no commit of this repository"
    paths = measures[1].split()
    without = tuple(path[1:] for path in paths if path.startswith("-"))
    changed: set[str] = set()
    for commit in commits:
        then, now = (code(each) for each in (commit, NOW))
        both = (path for path in then.keys() | now.keys() if path.startswith(tuple(p for p in paths if p[0] != "-")))
        changed |= {path for path in both if not path.startswith(without) and then.get(path) != now.get(path)}
    shown = [*sorted(changed)[:SHOWN], *([f"{len(changed) - SHOWN} more"] if len(changed) > SHOWN else [])]
    return f"measured at {', '.join(commits)}; changed since: {', '.join(shown)}" if changed else ""


def measured_at(text: str) -> list[str]:
    """Return the commits that a page was measured at, or the one where its measures were last reproduced."""
    entries = re.search(r"^- reproduced: (.+)$", text, re.M)
    record = RESULTS / "reproduced.json"
    if entries is not None and record.exists():
        reproduced = json.loads(record.read_text(encoding="utf-8"))
        if all(reproduced["entries"].get(name, {}).get("agrees") for name in re.split(r",\s*", entries[1])):
            return [reproduced["made"]["commit"]]
    lines = re.findall(r"^.*\b[Cc]ommits?\b.*$", text, re.M)
    found = {commit for line in lines for commit in re.findall(r"\b[0-9a-f]{7,12}\b", line)}
    return sorted(each for each in found if git("merge-base", each, "HEAD").decode().startswith(each))  # an ancestor


@cache
def code(commit: str) -> dict[str, str]:
    """Return the code of the package's files at a commit, or as it is now, by the path that each file has now."""
    if commit == NOW:
        files = (path for path in (ROOT / "haybale").rglob("*.py"))
        return {str(file.relative_to(ROOT)): bare(file.read_text(encoding="utf-8"), {}) for file in files}
    moves = moved_since(commit)
    then: dict[str, str] = {}
    with tarfile.open(fileobj=io.BytesIO(git("archive", commit, "haybale"))) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.name.endswith(".py") else None
            if content is not None:
                then[moves.get(member.name, member.name)] = bare(content.read().decode("utf-8"), moves)
    return then


@cache
def moved_since(commit: str) -> dict[str, str]:
    """Return the paths that files of the package have now, by those that they had at a commit, if they have moved."""
    renames = git("diff", "--name-status", "--diff-filter=R", "-M", "-l0", commit, "--", "haybale").decode()
    return dict(line.split("\t")[1:] for line in renames.splitlines())


def bare(text: str, moves: Mapping[str, str]) -> str:
    """Return a module's syntax tree without docstrings and what is raised; imports are sorted, by where modules are."""
    tree, imports = ast.parse(text), []
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            node.exc = node.cause = None
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not is_text(each) and not isinstance(each, ast.ImportFrom)]  # type: ignore[attr-defined]
            imports += [each for each in body if isinstance(each, ast.ImportFrom)]
    sources = {(each.module or "", alias.name) for each in imports for alias in each.names}
    moved = sorted((module_now(module, moves), name) for module, name in sources)
    return f"{moved} {ast.dump(tree)}"


def module_now(module: str, moves: Mapping[str, str]) -> str:
    path = f"{module.replace('.', '/')}.py"
    return moves.get(path, path)


def is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def claims(page: str) -> list[str]:
    """Return the lines of README and docs that link to a page."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    lines = ((file, i, line) for file in files for i, line in enumerate(file.read_text("utf-8").splitlines(), 1))
    return [f"{file.relative_to(ROOT)}:{i}" for file, i, line in lines if f"results/{page}" in line]


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True).stdout


if __name__ == "__main__":
    sys.exit(main())
