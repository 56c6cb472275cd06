"""Check how many records haybale reads in files with which other programs test their readers, and what ASReview
reads of exports.

    python benchmarks/bench_references.py FOLDER --asreview PYTHON

The source packages are downloaded into FOLDER with `pip download`, unless they are there. PYTHON is an interpreter
that can import ASReview 3.0.8; without it, its counts are those of its own tests, and the exports are not opened. The
expected number of records of other files is that of the lines with which a record begins in their format.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from provenance import options, provenance, shown, table, write_page

from haybale import Engine, Review
from haybale.collections.readers.files import read_some_files
from haybale.collections.unread import UnreadPart
from haybale.errors import HaybaleError
from haybale.review import exported_workbook, import_decisions, read_records
from haybale.review.decision_files import read_decisions

PACKAGES = ("asreview==3.0.8", "asreview-datatools==1.4", "colrev==0.16.2", "pybtex==0.26.1", "bibtexparser==2.1.0")
ASREVIEW_COUNTS = {  # in tests/test_readers.py of ASReview
    "_baseline.ris": 100, "embase.csv": 6, "embase_newpage.csv": 6, "embase.ris": 6, "generic.csv": 2,
    "generic_semicolon.csv": 2, "generic_tab.csv": 2, "generic_tab.tab": 2, "generic_tab.tsv": 2,
    "generic_labels.csv": 6, "pubmed_zotero.ris": 6, "pubmed_endnote.txt": 6, "scopus.ris": 6, "ovid_zotero.ris": 6,
    "proquest.ris": 6, "web_of_science.txt": 10,
}  # fmt: skip
BEGIN_OF_RECORD = {  # by the end of the name
    ".bib": re.compile(r"^[ \t]*@(?!comment\b|string\b|preamble\b)\w+[ \t]*[{(]", re.M | re.I),
    ".ris": re.compile(r"^TY  -", re.M),
    ".nbib": re.compile(r"^OWN - ", re.M),
    ".enl": re.compile(r"^%T ", re.M),
    ".txt": re.compile(r"^%T ", re.M),
}
EXPORTED = ("scopus.ris", "embase.csv", "pubmed_zotero.ris", "web_of_science.txt", "ovid_psycinfo.ris")
# What ASReview reads of a file, as its tests do; and the labels of a project that is made of it.
COUNT = """
import json, sys, tempfile, pathlib
import asreview
from asreview.data.loader import _from_file
counts = {}
for name in sys.argv[1:]:
    try:
        records = _from_file(pathlib.Path(name))
        project = asreview.Project.create(pathlib.Path(tempfile.mkdtemp()) / "p")
        project.add_dataset(name)
        project.label_priors()
        with project.db as db:
            labels = db.get_results_table()["label"].tolist()
        counts[name] = [len(records), [record.included for record in records], labels]
    except Exception as error:
        counts[name] = [type(error).__name__, [], []]
print(json.dumps(counts, default=float))
"""


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("folder", type=Path, help="a folder for the packages")
    parser.add_argument("--asreview", type=Path, help="an interpreter with ASReview")
    a = parser.parse_args()
    warnings.simplefilter("ignore")
    roots = {package: unpacked(a.folder, package) for package in PACKAGES}
    demo = roots[PACKAGES[0]] / "tests" / "demo_data"
    files = sorted(path for path in demo.iterdir() if path.suffix != ".vec")
    theirs = counted_by_asreview(a.asreview, files)
    expected = {path: theirs.get(path.name, ASREVIEW_COUNTS.get(path.name)) for path in files}
    of_asreview = [row for path in files for row in rows_of(path, expected[path])]
    n_as_stated = sum(row[2] == ASREVIEW_COUNTS[str(row[0])] for row in of_asreview if row[0] in ASREVIEW_COUNTS)
    projects = [(path.name, *labels(path)) for path in sorted((demo.parent / "asreview_files").glob("*.asreview"))]
    others = [
        row
        for package in PACKAGES[1:]
        for path in sorted(roots[package].rglob("*"))
        if path.suffix in BEGIN_OF_RECORD and "test" in str(path.relative_to(roots[package]))
        for row in rows_of(path, begins(path))
    ]
    others = [row for row in others if row[1]]
    lines = [
        "# Files with which other programs test their readers",
        "",
        "`read` counts the records that an engine would index, `listed` those without title and abstract or that could",
        "not be parsed, each of which is listed with its reason. `simulate` is the number of labelled records, or why",
        "there is none. For files of ASReview, `expected` is what ASReview 3.0.8 reads of them, or its error.",
        *table("file of ASReview|expected|read|listed|simulate", of_asreview, 2),
        "",
        f"{agreeing(of_asreview)} Of the {len(ASREVIEW_COUNTS)} files whose number of records ASReview's tests state, "
        f"{n_as_stated} give this number.",
        "",
        "For other files, `expected` is the number of lines with which a record begins in the format.",
        *table("file of another program|expected|read|listed|simulate", others, 2),
        "",
        agreeing(others),
        "",
        "Labels in the projects with which ASReview tests that it opens projects of versions 2 and 3:",
        *table("project of ASReview|relevant|irrelevant|undecided", projects, 1),
        "",
        *exports(a.asreview, demo),
        "",
        provenance(shown("bench_references.py", sys.argv[1:]), more=("bibtexparser", "openpyxl")),
    ]
    write_page(a.results / "references.md", lines)


def unpacked(folder: Path, package: str) -> Path:
    """Download a source package and unpack it, unless it is there; return its folder."""
    name, _, version = package.partition("==")
    folder.mkdir(parents=True, exist_ok=True)
    pattern = f"{name.replace('-', '_')}-{version}"
    if not (folder / f"{pattern}.tar.gz").exists():
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-binary", ":all:", "--no-deps", package]
        subprocess.run(command, cwd=folder, check=True)
    if not (folder / pattern).exists():
        with tarfile.open(folder / f"{pattern}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return folder / pattern


def counted_by_asreview(python: Path | None, files: Iterable[Path]) -> dict[str, int | str]:
    """Return the number of records that ASReview reads in each file, or its error; nothing without an interpreter."""
    if python is None:
        return {}
    opened = opened_by_asreview(python, files)
    return {Path(name).name: n if isinstance(n, int) else f"error: {n}" for name, (n, *_) in opened.items()}


def labels(path: Path) -> tuple[int, int, int]:
    """Return how many records of a project are relevant, irrelevant and undecided."""
    decisions = read_decisions(path)
    grades = [decision.grade for record in decisions.records for decision in record.decisions]
    return sum(grade > 0 for grade in grades), grades.count(0), decisions.n_undecided


def opened_by_asreview(python: Path, files: Iterable[Path]) -> dict[str, list]:  # type: ignore[type-arg]
    """Return for each file the number of records or an error, their labels, and the labels of a project."""
    done = subprocess.run([python, "-c", COUNT, *map(str, files)], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def begins(path: Path) -> int:
    return len(BEGIN_OF_RECORD[path.suffix].findall(path.read_bytes().decode("latin-1")))


def rows_of(path: Path, expected: object) -> Iterator[list[object]]:
    """Yield the row of a file."""
    collection, unread = read_some_files(path)
    n_read = 0 if collection is None else collection.n_documents
    # Notes about the whole file, such as its encoding, are no records.
    listed = [part for part in unread if re.match(r"(record|entry|line) \d", part.part)]
    why = "" if n_read or not unread else f"; {unread[0].reason[:80]}"
    yield [path.name, expected, n_read, f"{len(listed)}{why}" if n_read else refused(unread), simulated(path)]


def refused(unread: list[UnreadPart]) -> str:
    return f"refused: {unread[0].reason[:100]}" if unread else "refused"


def simulated(path: Path) -> str:
    """Return the number of labelled records, or why there is none."""
    try:
        return str(read_records(path).collection.n_documents)
    except HaybaleError as error:
        return "no labels" if "label" in str(error) else str(error).partition(": ")[2][:60]


def agreeing(rows: list[list[object]]) -> str:
    """Return how many files agree: all expected records were read or listed."""
    agree = [row for row in rows if isinstance(row[1], int) and row[1] in (row[2], _sum(row[2], row[3]))]
    return f"In {len(agree)} of these {len(rows)} files all expected records are read, or listed with a reason."


def _sum(n_read: object, listed: object) -> int:
    return int(str(n_read)) + int(str(listed)) if str(listed).isdigit() else -1


def exports(python: Path | None, demo: Path) -> Iterator[str]:
    """Yield what became of exports: read by haybale again, and opened by ASReview."""
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in EXPORTED:
            collection, _ = read_some_files(demo / name)
            assert collection is not None
            engine = Engine(collection, language="english", encoder="tfidf(min_df=1)")
            review = Review(engine, "disease")
            for number in range(4):
                review.judge(review.next()[0].doc_id, number % 2, "Ada", note="a note\nof two lines")
            for suffix in ("ris", "csv", "xlsx"):
                path = Path(folder) / f"{name.partition('.')[0]}.{suffix}"
                if suffix == "xlsx":
                    path.write_bytes(exported_workbook(review, "all"))
                else:
                    review.export(suffix, path, "all")
                n_back = import_decisions(Review(engine, "disease"), path).n_added
                rows.append([path.name, engine.collection.n_documents, 4, n_back])
        paths = [Path(folder) / str(row[0]) for row in rows]
        opened = {} if python is None else opened_by_asreview(python, paths)
        for row, path in zip(rows, paths, strict=True):
            n_read, _, labels = opened.get(str(path), ["", [], []])
            row += [n_read, str(sorted(labels))]
    yield "Four records of a file were judged, two of them as relevant, and all were exported. `imported` is the number"
    yield "of judgements that haybale reads again; the last columns are the records that ASReview reads, and the labels"
    yield "of a project that it makes of the file."
    yield from table("export|records|judged|imported|read by ASReview|labels in ASReview", rows, 1)


if __name__ == "__main__":
    main()
