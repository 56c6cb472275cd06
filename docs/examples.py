"""Run the examples of pages, and write what each one prints below it.

    python docs/examples.py [PAGE …]         default: all pages that have examples

The blocks of ``python`` and ``sh`` of a page run in their order, in a temporary folder. In that of the README are a
folder ``documents`` of PDF files, and judgements. A block knows the names of those before it. The block of ``text``
below a block is replaced by what it printed. Commands run in this process. Links to lines of the package, such as
[`NAME.py:12`](../haybale/NAME.py#L12) `code`, get the number of the line that has the code.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
import tempfile
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
BLOCK = re.compile(r"```(?P<kind>python|sh)\n(?P<code>.*?)```\n(?:\n```text\n(?P<output>.*?)```\n)?", re.S)
# What the leases of write_documents are about.
THINGS = [
    "flat", "house", "garage", "garden", "cellar", "barn", "boat", "bicycle", "car", "truck", "tractor", "piano",
    "printer", "crane", "bakery", "bar", "cinema", "farm", "field", "kiosk", "library", "mill", "office", "workshop",
]  # fmt: skip
LINE = re.compile(r"\[`(?P<file>[\w/]+\.py):\d+`\]\(\.\./haybale/(?P=file)#L\d+\)(?P<space>\s)`(?P<code>[^`]+)`")
NOTEBOOK = "texts.md"  # this page is also written as a notebook
PICTURE = re.compile(r"!\[[^\]]*\]\(([\w-]+\.svg)\)")


def pages() -> list[Path]:
    """Return the pages with examples, except the one that needs a cluster (tests/test_cluster.py runs its blocks)."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(HERE.glob("**/*.md"))]
    found.remove(HERE / "tutorials" / "laptop-to-cluster.md")
    return [path for path in found if BLOCK.search(path.read_text(encoding="utf-8"))]


def page(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return a page with what its examples print now, and the pictures that they made."""
    names: dict[str, Any] = {"__name__": path.stem}
    text = path.read_text(encoding="utf-8")

    def run(match: re.Match[str]) -> str:
        printed = io.StringIO()
        with redirect_stdout(printed):
            if match["kind"] == "python":
                exec(compile(match["code"], f"<example in {path.name}>", "exec", dont_inherit=True), names)
            else:
                for line in match["code"].replace("\\\n", " ").splitlines():
                    command(shlex.split(line, comments=True))
        example = f"```{match['kind']}\n{match['code']}```\n"
        return example if match["output"] is None else f"{example}\n```text\n{printed.getvalue()}```\n"

    with tempfile.TemporaryDirectory() as scratch, chdir(scratch):
        if path.name == "README.md":
            write_documents(Path("documents"))
        made = with_line_numbers(BLOCK.sub(run, text))
        pictures = {name: Path(name).read_bytes() for name in PICTURE.findall(text) if Path(name).exists()}
    return made, pictures


def with_line_numbers(text: str) -> str:
    """Return a page whose links to lines of the package have the number of the only line with the code beside them."""

    def link(match: re.Match[str]) -> str:
        lines = (ROOT / "haybale" / match["file"]).read_text(encoding="utf-8").splitlines()
        numbers = [number for number, line in enumerate(lines, 1) if match["code"] in line]
        if len(numbers) != 1:
            raise ValueError(f"{match['file']}: expected one line with {match['code']!r}, found {len(numbers)}")
        name = f"{match['file']}:{numbers[0]}"
        return f"[`{name}`](../haybale/{match['file']}#L{numbers[0]}){match['space']}`{match['code']}`"

    return LINE.sub(link, text)


def write_documents(folder: Path) -> None:
    """Write leases as PDF files of two pages to a folder, and judged queries beside it."""
    from reportlab.pdfgen.canvas import Canvas

    folder.mkdir()
    queries, judgements = ["query_id,text"], ["query_id,doc_id,relevance"]
    for number, thing in enumerate(THINGS):
        lease = Canvas(str(folder / f"{thing}.pdf"), invariant=1)
        lease.setTitle(f"Lease of a {thing}")
        for page in (
            [f"This is the lease of a {thing}.", f"The tenant pays {100 + number} euros for the {thing} each month."],
            [f"The lease of the {thing} ends after {number + 1} years.", "Keys are returned on the last day."],
        ):
            for row, line in enumerate(page):
                lease.drawString(72, 770 - 40 * row, line)
            lease.showPage()
        lease.save()
        queries.append(f"q{number},what does a {thing} cost")
        judgements.append(f"q{number},{thing}.pdf,1")
    Path("queries.csv").write_text("\n".join(queries) + "\n", encoding="utf-8")
    Path("judgements.csv").write_text("\n".join(judgements) + "\n", encoding="utf-8")


def command(words: list[str]) -> None:
    """Run one command line, which must begin with ``haybale`` and succeed."""
    from haybale.cli import main

    if not words:
        return
    if words[0] != "haybale":
        raise ValueError(f"examples in blocks of sh run haybale, found {words[0]!r}; use a block of text for others")
    before, sys.argv = sys.argv, words
    try:
        main()
    except SystemExit as error:
        if error.code:
            raise RuntimeError(f"{' '.join(words)} ended with exit code {error.code}") from error
    finally:
        sys.argv = before


def notebook(text: str) -> str:
    """Return a page as a notebook: blocks of Python become code cells, and the text between them markdown cells."""
    cells: list[dict[str, Any]] = []
    place = 0
    for match in BLOCK.finditer(text):
        cells += _markdown_cells(text[place : match.start()])
        code = match["code"].rstrip("\n").splitlines(keepends=True)
        cells.append({"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": code})
        place = match.end()
    cells += _markdown_cells(text[place:])
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    found = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def _markdown_cells(text: str) -> list[dict[str, Any]]:
    lines = text.strip().splitlines(keepends=True)
    return [{"cell_type": "markdown", "metadata": {}, "source": lines}] if lines else []


if __name__ == "__main__":
    for path in [Path(name) for name in sys.argv[1:]] or pages():
        made, pictures = page(path)
        path.write_text(made, encoding="utf-8")
        for name, picture in pictures.items():
            (path.parent / name).write_bytes(picture)
        if path.name == NOTEBOOK:
            path.with_suffix(".ipynb").write_text(notebook(made), encoding="utf-8")
