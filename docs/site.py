"""Hooks of MkDocs: add pages from outside docs/, and turn links between files into links between pages.

The API reference has a page for each package of haybale, with its public names and those that other packages subclass
or call. Pages of ``benchmarks/`` and some files of the repository's root are shown as they are.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import posixpath
import re
from pathlib import Path
from typing import Any

import typer
from mkdocs.structure.files import File

import haybale
from haybale.cli.application import COMMANDS, app

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):<code>~?!?([\w.]+)</code>")


# Files of the root that are pages too.
ROOT_PAGES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md"}

# Names that extensions of haybale need and that no package exports.
EXTENSIONS = (
    "haybale.cli.application.command",
    "haybale.ensemble.pair_features.pair_features",
    "haybale.evaluation.own_measures.register_measure",
    "haybale.evaluation.own_measures.register_ratio",
    "haybale.pyterrier.to_pyterrier",
    "haybale.rankers.reranker.Reranker",
    "haybale.retrieval.backends.Backend",
    "haybale.review.StoppingRule",
)


def packages() -> dict[str, list[str]]:
    """Return the packages of haybale, each with the full names that its page explains."""
    found: dict[str, set[str]] = {}
    for name in [*(f"{module}.{name}" for name, module in haybale._MODULE_OF.items()), *EXTENSIONS]:
        found.setdefault(".".join(name.split(".")[:2]), set()).add(name)
    for package in (*found, "haybale.reports"):
        module = importlib.import_module(package)
        things = [name for name in getattr(module, "__all__", []) if inspect.isroutine(getattr(module, name))]
        things += [name for name in getattr(module, "__all__", []) if inspect.isclass(getattr(module, name))]
        # A module of the same name hides a function: haybale.ensemble.pair_features.
        hidden = {name: importlib.util.find_spec(f"{package}.{name}") for name in things if hasattr(module, "__path__")}
        found.setdefault(package, set()).update(f"{package}.{name}" for name in things if hidden.get(name) is None)
    return {package: sorted(found[package], key=lambda name: name.rpartition(".")[2]) for package in sorted(found)}


def command_page() -> str:
    """Return the reference of the command line, with the arguments and options of each command."""
    list(COMMANDS)  # registers the commands
    group: Any = typer.main.get_command(app)
    lines = ["# Command line", ""]
    for name, command in sorted(group.commands.items()):
        lines += [f"## haybale {name}", "", command.help, "", "| argument or option | meaning |", "| --- | --- |"]
        for each in command.params:
            shown = each.opts[0] if each.opts[0].startswith("--") else each.name.upper()
            lines.append(f"| `{shown}` | {each.help} |")
        lines.append("")
    return "\n".join(lines)


def on_files(files: Any, config: Any) -> Any:
    """Add the reference, the pages of ``benchmarks/`` and those of the root."""
    reference = packages()
    for package, names in reference.items():
        text = [f"# {package}", "", f"::: {package}", "    options: {members: false, show_root_heading: false}", ""]
        # What a ranker defines, and its parameters, are base classes of their own, which the page of Ranker includes.
        options = {"Ranker": "    options: {inherited_members: true}\n"}
        text += [f"::: {name}\n{options.get(name.rpartition('.')[2], '')}" for name in names]
        path = f"reference/{package.removeprefix('haybale.')}.md"
        files.append(File.generated(config, path, content="\n".join(text)))
    files.append(File.generated(config, "reference/commands.md", content=command_page()))
    listed = ["- [Command line](commands.md)"]
    listed += [f"- [{package}]({package.removeprefix('haybale.')}.md)" for package in reference]
    head = (
        "# API reference\n\nThe public names, by package. Names in `haybale.__all__` can be imported from `haybale`; "
        "import the others from the package of their page.\n\n"
    )
    files.append(File.generated(config, "reference/index.md", content=head + "\n".join(listed)))
    benchmarks = ROOT / "benchmarks"
    for path in [*benchmarks.glob("*.md"), *benchmarks.glob("results/*.*")]:
        if path.suffix in (".md", ".svg"):
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    for name, page in ROOT_PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links between files into links between pages; a link to a file that has no page becomes text."""
    source, known = page.file.src_uri, files.src_uris
    in_repository = {page: name for name, page in ROOT_PAGES.items()}.get(source, source)
    if in_repository == source and not source.startswith("benchmarks/"):
        in_repository = f"docs/{source}"

    def link(match: re.Match[str]) -> str:
        target = match[2]
        if "://" in target or source.startswith("reference/"):
            return match[0]
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(in_repository), target))
        wanted = {"README.md": "index.md", **ROOT_PAGES}.get(wanted, wanted.removeprefix("docs/"))
        if wanted not in known and not wanted.endswith((".svg", ".png")) and not wanted.startswith("reference/"):
            return match[1]
        return f"[{match[1]}]({posixpath.relpath(wanted, posixpath.dirname(source) or '.')}{match[3] or ''})"

    return LINK.sub(link, markdown)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Turn Sphinx roles in docstrings into links, where the reference has what they name."""
    return ROLE.sub(r'<autoref optional identifier="\1"><code>\1</code></autoref>', html)
