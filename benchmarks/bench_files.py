"""Measure what a folder of PDF files costs: reading and indexing it, and an update after some files have changed.

    python benchmarks/bench_files.py FOLDER [--files 10000] [--pages 20] [--changed 10]

The files are made in FOLDER/pdfs with reportlab, from some hundred different ones that are copied under further names;
files that are there already, from an earlier run, are kept. The engine is made anew. `haybale index` runs twice: for
all files, and after some of them have changed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from provenance import folder_sizes, mb, options, peak_memory, provenance, shown, table, write_page

DIFFERENT = 300  # files with a text of their own
WORDS, VOCABULARY = 400, 20_000  # words of a page, distinct words
COLUMNS = "work|seconds|seconds of all cores|pages|pages a second|of the seconds, reading|MB, command|MB, reader|load"


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("folder", type=Path, help="a folder for the files and the engine")
    for name, default, what in (("files", 10_000, "files"), ("pages", 20, "of a file"), ("changed", 10, "to update")):
        parser.add_argument(f"--{name}", type=int, default=default, help=what)
    parser.add_argument("--note", default="", help="a sentence for the page")
    parser.add_argument("--index", action="store_true", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.index:
        index_here(a.folder)
        return
    write_files(a.folder / "pdfs", a.files, a.pages, a.changed)
    shutil.rmtree(a.folder / "engine", ignore_errors=True)
    rows = [row(f"index, {a.files:,} files", a.files * a.pages, index(a.folder))]
    for number in range(a.changed):
        write_pdf(a.folder / "pdfs" / f"{number:05}.pdf", a.pages, a.files + number)
    rows.append(row(f"update, {a.changed} files changed", a.changed * a.pages, index(a.folder)))
    size, kept = (sum(folder_sizes(a.folder / name).values()) for name in ("pdfs", "engine"))
    different = min(a.files, DIFFERENT)
    lines = [
        "# A folder of PDF files",
        "",
        f"{a.files:,} files of {a.pages} pages with {WORDS} words each, made by reportlab; "
        f"{different} of them are different,",
        "the others are copies under other names. `haybale index` reads them in one process per core, and makes all",
        "indexes. The memory is the most that the command held, and the largest of the processes that read. "
        "The load is the",
        f"mean number of processes that ran or waited in the last minute, ours included. {a.note}".strip(),
        *table(COLUMNS, rows),
        "",
        f"The files have {mb(size)} MB, the engine has {mb(kept)} MB.",
        "",
        provenance(shown("bench_files.py", sys.argv[1:]), more=("pypdfium2", "reportlab")),
    ]
    write_page(a.results / "files.md", lines)


def write_files(folder: Path, n: int, pages: int, changed: int) -> None:
    """Write n files, unless they are there; all but the first few hundred are copies. The first ones were changed."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(n):
        path = folder / f"{number:05}.pdf"
        if number < changed or (number < DIFFERENT and not path.exists()):
            write_pdf(path, pages, number)
        elif not path.exists():
            os.link(folder / f"{number % DIFFERENT:05}.pdf", path)


def write_pdf(path: Path, pages: int, seed: int) -> None:
    """Write a file with words drawn at random, by Zipf's law, in paragraphs of some lines."""
    from reportlab.pdfgen.canvas import Canvas

    rng = np.random.default_rng(seed)
    path.unlink(missing_ok=True)
    canvas = Canvas(str(path), invariant=1, pageCompression=1)
    canvas.setTitle(f"Document {seed}")
    for _ in range(pages):
        words = [f"word{number}" for number in np.minimum(rng.zipf(1.3, WORDS), VOCABULARY)]
        lines = [" ".join(words[at : at + 10]) for at in range(0, WORDS, 10)]
        for at, line in enumerate(lines):
            canvas.drawString(60, 790 - 16 * at - 10 * (at // 8), line + ("." if at % 8 == 7 else ""))
        canvas.showPage()
    canvas.save()


def index(folder: Path) -> dict[str, Any]:
    """Run `haybale index` in a process of its own, and return what it took."""
    command = [sys.executable, __file__, str(folder), "--index"]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    read = re.search(r"read collection ([\d.]+) s", done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return found | {"wall": wall, "cpu": cpu, "read": float(read[1]) if read else "–", "load": os.getloadavg()[0]}


def index_here(folder: Path) -> None:
    """Run `haybale index` in this process, and print the memory that it and the largest process that read had."""
    from joblib.externals.loky import get_reusable_executor

    from haybale.cli import main as haybale

    sys.argv = ["haybale", "index", str(folder / "pdfs"), "--out", str(folder / "engine"), "--language", "english"]
    with suppress(SystemExit):
        haybale()
    get_reusable_executor().shutdown(wait=True)  # its processes are counted when they have ended
    workers = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(json.dumps({"peak": peak_memory(), "worker": workers}))


def row(work: str, pages: int, found: dict[str, Any]) -> list[Any]:
    memory = mb(found["peak"]), mb(found["worker"]) if found["worker"] else "–"
    return [work, found["wall"], found["cpu"], pages, pages / found["wall"], found["read"], *memory, found["load"]]


if __name__ == "__main__":
    main()
