"""Examples of pages run and print what the page says; the site builds; every public name is documented."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import re
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from support.pydocs_part import part_of_pydocs

import haybale
from haybale.cli.application import COMMANDS, app
from haybale.collections import Collection

DOCS = Path(__file__).parent.parent / "docs"
PYDOCS_SOURCES = ("numpy", "scipy", "scikit-learn", "pandas")


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


examples = script("examples")


def pydocs_is_unchanged() -> bool:
    """Return whether pydocs is what it was when the pages were written: the same Python and the same packages."""
    pins = dict(line.split("==") for line in (DOCS.parent / "constraints.txt").read_text().splitlines() if "==" in line)
    return sys.version_info[:2] == (3, 11) and all(version(name) == pins[name] for name in PYDOCS_SOURCES)


def page(path: Path) -> Any:
    long = path.stem in ("keep-and-serve", "embeddings", "graph", "rankers", "sets", "pdfs", "rerank", "review")
    return pytest.param(path, id=path.stem, marks=pytest.mark.thorough if long else ())


@pytest.mark.parametrize("path", [page(path) for path in examples.pages()])
def test_examples_run_and_print_what_the_page_says(
    path: Path, pydocs: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = path.read_text(encoding="utf-8")
    if not any(block["output"] for block in examples.BLOCK.finditer(text)):  # the output does not matter
        pydocs = part_of_pydocs(pydocs, 20)
    monkeypatch.setattr("haybale.collections.readers.pydocs.read_pydocs", lambda: pydocs)
    needed = [package for package in ("pyterrier", "torch", "reportlab", "pypdfium2", "duckdb") if package in text]
    for package in [*needed, *(["reportlab", "pypdfium2", "duckdb"] if path.name == "README.md" else [])]:
        pytest.importorskip(package)
    made, _ = examples.page(path)
    assert "```text\n```" not in made  # no example prints nothing
    if pydocs_is_unchanged():
        assert made == text


def test_links_to_lines_have_their_numbers() -> None:
    """If this fails: python docs/examples.py docs/how-a-ranking-is-made.md."""
    text = (DOCS / "how-a-ranking-is-made.md").read_text(encoding="utf-8")
    files = {match["file"] for match in examples.LINE.finditer(text)}
    assert len(files) == 6
    assert len(re.findall(r"\.py:\d+`", text)) == len(examples.LINE.findall(text)) > 15
    assert examples.with_line_numbers(text) == text


def test_blocks_are_of_known_kinds() -> None:
    for path in examples.pages():
        kinds = re.findall(r"^```(\w*)\n.*?^```$", path.read_text(encoding="utf-8"), re.S | re.M)
        assert set(kinds) <= {"python", "sh", "text", "toml"}, path


def test_the_notebook_is_the_first_tutorial() -> None:
    page = (DOCS / "tutorials" / "texts.md").read_text(encoding="utf-8")
    cells = json.loads((DOCS / "tutorials" / "texts.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert code == [block["code"].rstrip("\n") for block in examples.BLOCK.finditer(page)]


def test_figures_of_pages_are_those_of_the_measurements(tmp_path: Path) -> None:
    script("scaling").make(tmp_path)
    assert (tmp_path / "scaling.md").read_text(encoding="utf-8") == (DOCS / "scaling.md").read_text(encoding="utf-8")


@pytest.mark.thorough
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    build = importlib.import_module("mkdocs.commands.build")
    config = importlib.import_module("mkdocs.config").load_config(str(DOCS.parent / "mkdocs.yml"), strict=True)
    config["site_dir"] = str(tmp_path)
    build.build(config)
    found = json.loads((tmp_path / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    assert found
    reference = "".join(path.read_text(encoding="utf-8") for path in tmp_path.glob("reference/**/*.html"))
    missing = [name for name in haybale.__all__ if f'id="{haybale._MODULE_OF[name]}.{name}"' not in reference]
    assert not missing
    # Every option of every command is in the section of the command.
    _, *sections = re.split(r'<h2 id="haybale-', (tmp_path / "reference" / "commands" / "index.html").read_text())
    documented = {text.partition('"')[0]: set(re.findall(r"<code>(--[\w-]+)</code>", text)) for text in sections}
    list(COMMANDS)  # registers the commands
    commands: Any = typer.main.get_command(app)
    options = {
        name: {each.opts[0] for each in command.params if each.opts[0].startswith("--")}
        for name, command in commands.commands.items()
    }
    assert documented == options


def test_every_command_occurs_in_a_guide() -> None:
    pages = [DOCS.parent / "README.md", *DOCS.glob("**/*.md")]
    guide = "\n".join(path.read_text(encoding="utf-8") for path in pages)
    assert not [name for name in COMMANDS if f"haybale {name}" not in guide]


def test_links_lead_to_files_and_to_headings() -> None:
    """MkDocs checks the site; this checks links between all pages as files, as code hosts show them."""
    root = DOCS.parent
    pages = [
        *root.glob("*.md"),
        *DOCS.glob("**/*.md"),
        *root.glob("benchmarks/*.md"),
        *root.glob("benchmarks/results/*.md"),
    ]
    broken = []
    for page in pages:
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
        for path, fragment in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text):
            target = (page.parent / path).resolve() if path else page
            if "://" in path or path.startswith(("mailto:", "../reference/")):  # the site makes the reference
                continue
            if not target.exists() or (fragment and target.suffix == ".md" and fragment not in headings(target)):
                broken.append(f"{page.relative_to(root)}: {path}#{fragment}")
    assert not broken


def test_tests_that_pages_name_are_there() -> None:
    root = DOCS.parent
    names = {path.name for path in root.glob("tests/**/*.py")}
    for page in (*root.glob("*.md"), *DOCS.glob("**/*.md"), *root.glob("benchmarks/**/*.md")):
        for path in re.findall(r"`(tests/[\w/]+\.py|test_\w+\.py)`", page.read_text(encoding="utf-8")):
            assert (root / path).exists() if "/" in path else path in names, f"{page.name}: {path}"


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings: lower case, hyphens for spaces, without punctuation."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.M):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        anchor = re.sub(r"[^\w\- ]", "", shown.lower()).strip().replace(" ", "-")
        found.add(next(each for n in range(99) if (each := anchor + (f"-{n}" if n else "")) not in found))
    return found


@pytest.mark.parametrize("name", haybale.__all__)
def test_parameters_of_public_names_are_documented(name: str) -> None:
    thing: Any = getattr(haybale, name)
    text = inspect.getdoc(thing) or ""
    assert text
    if inspect.isclass(thing) and (issubclass(thing, BaseException) or getattr(thing, "_is_protocol", False)):
        return  # users do not construct these
    parameters = [p.lstrip("*") for p in map(str, inspect.signature(thing).parameters)]
    section = text.partition("Parameters\n----------")[2]
    lines = re.findall(r"^(\*{0,2}\w[\w*, ]*?)(?: ?:.*)?$", section, re.M)
    documented = {each.strip().lstrip("*") for line in lines for each in line.split(",")}
    assert not set(parameters) - documented
