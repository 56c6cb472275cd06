"""MkDocs' hooks: the pages that are generated, and links between files of the repository as links between pages.

The API reference has a page for each room, which lists the public names of the room and what a package outside haybale
subclasses or calls. Pages of ``benchmarks/`` are shown as they are.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

import haybale

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):<code>~?!?([\w.]+)</code>")


# What only those need who extend haybale, in modules of a room that its package does not export.
EXTENSIONS = (
    "haybale.cli.application.command",
    "haybale.ensemble.pair_features.pair_features",
    "haybale.evaluation.own_measures.register_measure",
    "haybale.pyterrier.to_pyterrier",
    "haybale.rankers.reranker.Reranker",
    "haybale.retrieval.backends.Backend",
)


def rooms() -> dict[str, list[str]]:
    """Return the rooms, each with the full names that its page explains."""
    found: dict[str, set[str]] = {}
    for name in [*(f"{module}.{name}" for name, module in haybale._MODULE_OF.items()), *EXTENSIONS]:
        found.setdefault(".".join(name.split(".")[:2]), set()).add(name)
    for room in (*found, "haybale.reports"):
        module = importlib.import_module(room)
        things = [name for name in getattr(module, "__all__", []) if inspect.isroutine(getattr(module, name))]
        things += [name for name in getattr(module, "__all__", []) if inspect.isclass(getattr(module, name))]
        # A module of the same name hides a function: haybale.ensemble.pair_features.
        hidden = {name: importlib.util.find_spec(f"{room}.{name}") for name in things if hasattr(module, "__path__")}
        found.setdefault(room, set()).update(f"{room}.{name}" for name in things if hidden.get(name) is None)
    return {room: sorted(found[room], key=lambda name: name.rpartition(".")[2]) for room in sorted(found)}


def on_files(files: Any, config: Any) -> Any:
    """Add the reference and the pages of ``benchmarks/``."""
    pages = rooms()
    for room, names in pages.items():
        text = [f"# {room}", "", f"::: {room}", "    options: {members: false}", ""]
        text += [f"::: {name}\n" for name in names]
        files.append(File.generated(config, f"reference/{room.removeprefix('haybale.')}.md", content="\n".join(text)))
    listed = [f"- [{room}]({room.removeprefix('haybale.')}.md)" for room in pages]
    head = (
        "# API reference\n\nThe public names, by room. Those of `haybale.__all__` can be imported from `haybale`; "
        "the others from where they stand.\n\n"
    )
    files.append(File.generated(config, "reference/index.md", content=head + "\n".join(listed)))
    for path in [*(ROOT / "benchmarks").glob("*.md"), *(ROOT / "benchmarks" / "results").glob("*.*")]:
        if path.suffix in (".md", ".svg"):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links between files of the repository into links between pages; what has no page becomes text."""
    source, known = page.file.src_uri, files.src_uris
    lies_in = posixpath.dirname(source if source.startswith("benchmarks/") else f"docs/{source}")

    def link(match: re.Match[str]) -> str:
        target = match[2]
        if "://" in target or source.startswith("reference/"):
            return match[0]
        wanted = posixpath.normpath(posixpath.join(lies_in, target))
        if wanted == "README.md":
            wanted = "index.md"
        elif not wanted.startswith("benchmarks/"):
            wanted = wanted.removeprefix("docs/")
        if wanted not in known and not wanted.endswith((".svg", ".png")) and not wanted.startswith("reference/"):
            return match[1]
        return f"[{match[1]}]({posixpath.relpath(wanted, posixpath.dirname(source) or '.')}{match[3] or ''})"

    return LINK.sub(link, markdown)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Turn Sphinx' roles in docstrings into links where the reference has what they name."""
    return ROLE.sub(r'<autoref optional identifier="\1"><code>\1</code></autoref>', html)
