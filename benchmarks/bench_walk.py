"""Do what README and docs say, as a newcomer would: clone, install, and run every example of every page, with times.

    python benchmarks/bench_walk.py [--python python3.11] [--skip-demo]

The last commit of this repository is cloned into a temporary folder. README's installation and ``make demo`` run in it.
Then all extras of the tests are installed, and the examples of each page run in their order in an empty folder:
every command in a process of its own, the blocks of Python of a page in one. The page of the cluster is left out.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

from provenance import options, provenance, shown, table, timed, write_page

ROOT = Path(__file__).parents[1]
README_EXTRAS, ALL_EXTRAS = "documents,filters,reports,serve", "test,neural,train"
LONGEST = 100  # characters of a command on the page


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--python", default=sys.executable, help="the Python that makes the environment")
    parser.add_argument("--skip-demo", action="store_true", help="do not run `make demo`")
    parser.add_argument("--page", help="run the examples of this page only, in this process (used by the script)")
    a = parser.parse_args()
    if a.page:
        for step in examples(Path(a.page)):
            print(json.dumps(step), flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder, "haybale")
        steps = [("shell", *run("git", "clone", "-q", str(ROOT), str(clone)))]
        steps += setting_up(clone, a.python, a.skip_demo)
        python = str(clone / ".venv" / "bin" / "python")
        environment = os.environ | {"PATH": f"{Path(python).parent}:{os.environ['PATH']}", "HF_HUB_OFFLINE": "1"}
        environment.pop("PYTHONPATH", None)
        command = [python, str(clone / "benchmarks" / "bench_walk.py"), "--page"]
        by_page = {}
        for page in [Path(line) for line in pages(python, clone)]:
            done = subprocess.run([*command, str(page)], stdout=subprocess.PIPE, text=True, env=environment, check=True)
            by_page[str(page.relative_to(clone))] = [json.loads(line) for line in done.stdout.splitlines()]
            print(f"{page.relative_to(clone)}: {sum(step[2] for step in by_page[str(page.relative_to(clone))]):.0f} s")
    write_page(a.results / "walk.md", lines(steps, by_page))


def setting_up(clone: Path, python: str, skip_demo: bool) -> Iterator[tuple[str, str, float]]:
    """Install as the README says, run the demo, and install what the other pages need."""
    with chdir(clone):
        own = clone / ".venv" / "bin" / "python"
        yield "shell", *run(python, "-m", "venv", ".venv")
        install = [str(own), "-m", "pip", "install", "-q", "-c", "constraints.txt"]
        yield "shell", *run(*install, f".[{README_EXTRAS}]")
        if not skip_demo:
            yield "shell", *run("make", "demo")
        yield "shell", *run(*install, "-e", f".[{ALL_EXTRAS}]")


def run(*command: str, **options: Any) -> tuple[str, float]:
    """Run a command, and return it as a reader would write it, with its seconds."""
    seconds, _ = timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **options))
    return shlex.join(
        [Path(command[0]).name, *(Path(part).name if part.startswith("/") else part for part in command[1:])]
    ), seconds


def pages(python: str, clone: Path) -> list[str]:
    code = "import examples; print(*examples.pages(), sep='\\n')"
    return subprocess.run(
        [python, "-c", code], cwd=clone / "docs", check=True, stdout=subprocess.PIPE, text=True
    ).stdout.splitlines()


def examples(path: Path) -> Iterator[tuple[str, str, float]]:
    """Run the examples of a page in an empty folder, and yield their kind, their first line and their seconds."""
    sys.path.insert(0, str(ROOT / "docs"))
    import examples as docs

    names: dict[str, Any] = {"__name__": path.stem}
    with tempfile.TemporaryDirectory() as scratch, chdir(scratch):
        if path.name == "README.md":
            docs.write_documents(Path("documents"))
        for match in docs.BLOCK.finditer(path.read_text(encoding="utf-8")):
            if match["kind"] == "sh":
                for line in match["code"].replace("\\\n", " ").splitlines():
                    if command := shlex.split(line, comments=True):
                        yield "shell", *run(*command)
                continue
            start = time.perf_counter()
            with open(os.devnull, "w", encoding="utf-8") as nothing, redirect_stdout(nothing):
                exec(compile(match["code"], f"<example in {path.name}>", "exec"), names)
            first = next(
                line for line in match["code"].splitlines() if not line.startswith(("import", "from", "#")) and line
            )
            yield "python", f"{first} …", time.perf_counter() - start


def lines(steps: list[tuple[str, str, float]], by_page: dict[str, list[tuple[str, str, float]]]) -> list[str]:
    """Return the lines of the page."""
    found = [
        "# A walk through README and docs",
        "",
        "A fresh clone, a new environment, and every example of every page, in the order of the page. A command is a",
        "process of its own. A row of Python is one block, named by its first statement that imports",
        "nothing; the first block of a page also imports haybale.",
    ]
    totals = [(f"`{page}`", len(rows), sum(row[2] for row in rows)) for page, rows in by_page.items()]
    found += table("page | examples | seconds", totals)
    found += ["", "## Install", *table("command | seconds", [(code(row[1]), row[2]) for row in steps])]
    for page, rows in by_page.items():
        found += ["", f"## {page}", *table("command or block | seconds", [(code(row[1]), row[2]) for row in rows])]
    return [*found, "", provenance(shown("bench_walk.py", sys.argv[1:]))]


def code(text: str) -> str:
    """Return a command as code in a cell of a table."""
    text = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    return "`` " + text.replace("|", "\\|") + " ``"


if __name__ == "__main__":
    main()
