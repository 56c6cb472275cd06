"""List the result pages whose code changed since they were measured, and where README and docs claim from them.

    python benchmarks/stale.py [PAGE …]

A page names the commit that it was measured at and, on a line "- measures: …", the paths of the package that its
figures depend on; paths behind "-" do not count. Code is compared without comments, docstrings and the messages of
errors. A page with a line "- reproduced: …" shows effectiveness only: it counts as measured at the commit where
`make reproduce` last found the same measures (reproduced.json). The exit status is 1 if README or docs claim from a
page that is stale.
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
        before, after = (code(each, tuple(p for p in paths if not p.startswith("-"))) for each in (commit, NOW))
        changed |= {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    changed = {path for path in changed if not path.startswith(without)} if without else changed
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
    found = {commit for line in lines for commit in re.findall(r"\b[0-9a-f]{7}\b", line)}
    return sorted(each for each in found if git("merge-base", each, "HEAD").decode().startswith(each))  # an ancestor


@cache
def code(commit: str, paths: tuple[str, ...]) -> dict[str, str]:
    """Return the code of the package's files at a commit, or as it is now: what a computer runs, without messages."""
    if commit == NOW:
        found = [ROOT / path for path in paths]
        files = [f for path in found for f in ([path] if path.is_file() else path.rglob("*.py"))]
        return {str(file.relative_to(ROOT)): bare(file.read_text(encoding="utf-8")) for file in files}
    known = [path for path in paths if git("cat-file", "-t", f"{commit}:{path}")]
    if not known:
        return {}
    then: dict[str, str] = {}
    with tarfile.open(fileobj=io.BytesIO(git("archive", commit, *known))) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.name.endswith(".py") else None
            if content is not None:
                then[member.name] = bare(content.read().decode("utf-8"))
    return then


def bare(text: str) -> str:
    """Return a module's syntax tree without docstrings and without what is raised."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            node.exc = node.cause = None
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not is_text(each)]  # type: ignore[attr-defined]
    return ast.dump(tree)


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
