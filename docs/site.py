"""MkDocs' hooks: what the site has besides the pages of this folder, and how links of the repository lead through it.

The API reference has a page a room, with every public name. Pages of benchmarks are shown as they lie in
``benchmarks/``.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

import haybale

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):<code>~?!?([\w.]+)</code>")


def on_files(files: Any, config: Any) -> Any:
    """Add the reference, and what lies in ``benchmarks/``."""
    rooms = sorted(set(haybale._MODULE_OF.values()))
    for room in rooms:
        names = sorted(name for name, module in haybale._MODULE_OF.items() if module == room)
        text = [f"# {room}", "", f"::: {room}", "    options: {members: false}", ""]
        text += [f"::: {room}.{name}\n" for name in names]
        files.append(File.generated(config, f"reference/{room.removeprefix('haybale.')}.md", content="\n".join(text)))
    listed = [f"- [{room}]({room.removeprefix('haybale.')}.md)" for room in rooms]
    head = "# API reference\n\nEvery public name, by room; all of them can be imported from `haybale`.\n\n"
    files.append(File.generated(config, "reference/index.md", content=head + "\n".join(listed)))
    for path in [*(ROOT / "benchmarks").glob("*.md"), *(ROOT / "benchmarks" / "results").glob("*.*")]:
        if path.suffix in (".md", ".svg"):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links that lead from file to file in the repository, as they lead from page to page here; others are text."""
    source, known = page.file.src_uri, files.src_uris
    lies_in = posixpath.dirname(source if source.startswith("benchmarks/") else f"docs/{source}")

    def there(match: re.Match[str]) -> str:
        target = match[2]
        if "://" in target or source.startswith("reference/"):
            return match[0]
        wanted = posixpath.normpath(posixpath.join(lies_in, target))
        if wanted == "README.md":
            wanted = "index.md"
        elif not wanted.startswith("benchmarks/"):
            wanted = wanted.removeprefix("docs/")
        if wanted not in known and not wanted.endswith((".svg", ".png")):
            return match[1]
        return f"[{match[1]}]({posixpath.relpath(wanted, posixpath.dirname(source) or '.')}{match[3] or ''})"

    return LINK.sub(there, markdown)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Sphinx' roles in docstrings, as links where the reference has what they name."""
    return ROLE.sub(r'<autoref optional identifier="\1"><code>\1</code></autoref>', html)
