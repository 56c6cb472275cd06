"""Measure which duplicates are found, beside the rules of ASReview and BibDedupe, and how long it takes.

    python benchmarks/bench_duplicates.py DATASETS SCREENING [--bib-dedupe PYTHON] [--records 300000]

DATASETS is the folder `datasets` in the source package py_entitymatching 0.4.2 of PyPI. It has records of DBLP and of
the ACM, and pairs that people have labelled. SCREENING is a folder of collections with `records.csv.gz` each, with the
columns title and abstract. Their records are written as three databases would export them, by the rules in this file,
beside records that look like duplicates and are none. PYTHON is an interpreter that has the package bib-dedupe.
Without it, and with --records 0, duplicates.json has what was measured before.
"""

from __future__ import annotations

import csv
import gzip
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

from provenance import made, options, provenance, shown, table, write_json, write_page

from haybale import Collection, CollectionBuilder, Engine
from haybale.collections.text_sketches import TextSketches
from haybale.engine.duplicates import groups_of

Record = dict[str, Any]
Pair = tuple[str, str]

WORKS_STEP = 4  # every fourth text becomes a work, since BibDedupe takes long

# What runs in the interpreter with BibDedupe: records as CSV in, groups as JSON out.
BIB_DEDUPE = """
import json, sys
import pandas as pd
from bib_dedupe.bib_dedupe import block, cluster, match, prep
records = pd.read_csv(sys.argv[1], dtype=str, keep_default_na=False)
matched = match(block(prep(records, verbosity_level=0, cpu=1), verbosity_level=0, cpu=1), verbosity_level=0, cpu=1)
json.dump([list(group) for group in cluster(matched, verbosity_level=0)], open(sys.argv[2], "w"))
"""


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("datasets", type=Path)
    parser.add_argument("screening", type=Path)
    parser.add_argument("--bib-dedupe", help="an interpreter with the package bib-dedupe")
    parser.add_argument(
        "--records", type=int, default=300_000, help="of the engine whose time is measured; 0 for the time of before"
    )
    a = parser.parse_args()
    demo = [*records_of(a.datasets / "dblp_demo.csv"), *records_of(a.datasets / "acm_demo.csv")]
    whole = [*records_of(a.datasets / "DBLP.csv"), *records_of(a.datasets / "ACM.csv")]
    exported, works = exports(texts_of(a.screening)[::WORKS_STEP])
    sets = {
        "DBLP and ACM, 415 labelled pairs": (whole, labels(a.datasets / "dblp_acm_demo_labels.csv", "gold")),
        "DBLP and ACM (demo), 450 labelled pairs": (demo, labels(a.datasets / "labeled_data_demo.csv", "label")),
        "screening records, three exports": (exported, pairs_of(works)),
    }
    path = a.results / "duplicates.json"
    kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    about = made("bench_duplicates.py", sys.argv[1:])
    if a.records:
        kept["times"] = {"made": about, "rows": timed(a.screening, a.records)}
    if a.bib_dedupe:
        kept["BibDedupe"] = {"made": about, "rows": {}}
    rows = []
    for name, (records, truth) in sets.items():
        for tool, pairs, seconds in tools(records, a.bib_dedupe):
            row = [*figures(pairs, truth), f"{seconds:.1f}"]
            if tool == "BibDedupe":
                kept[tool]["rows"][name] = row
            else:
                rows.append([name, f"{len(records):,}", tool, *row])
            print(name, tool, row, flush=True)
        if name in kept.get("BibDedupe", {}).get("rows", {}):
            rows.append([name, f"{len(records):,}", "BibDedupe", *kept["BibDedupe"]["rows"][name]])
    write_json(path, kept)
    lines = ["# Duplicates", "", *__doc__.split("\n\n")[0].splitlines(), ""]
    lines += [
        "Pairs of records that are found to be one work. Of labelled pairs, only these count. The exports of three",
        "databases are made by the script, from records of the screening collections: what is found there says only",
        "that the rules do what they should. The seconds are CPU time, those of BibDedupe by the clock.",
    ]
    lines += table("records|number|by|pairs found|precision|recall|s", rows, 3)
    lines += ["", *natural(a.screening)]
    if "times" in kept:
        lines += [
            "",
            "Time of `Engine.duplicates()`; unlike that by the clock, CPU time does not depend on other work:",
        ]
        lines += table("|documents|duplicates|s|CPU s", kept["times"]["rows"], 1)
    earlier = [
        f"{name}: commit {part['made']['commit']}, {part['made']['date']}"
        for name, part in sorted(kept.items())
        if part["made"]["commit"] != about["commit"]
    ]
    lines += ["", *(["Measured before: " + "; ".join(earlier) + ".", ""] if earlier else [])]
    lines += [provenance(shown("bench_duplicates.py", sys.argv[1:]))]
    write_page(a.results / "duplicates.md", lines)


def records_of(path: Path) -> list[Record]:
    """Return the records of a table of DBLP or the ACM."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    prefix = "l:" if "dblp" in path.name.lower() else "r:"
    return [
        {
            "id": prefix + row["id"],
            "title": row["title"],
            "authors": row["authors"].replace(", ", "; "),
            "venue": row["venue"],
            "year": row["year"].removesuffix(".0"),
            "abstract": "",
            "file": path.name,
        }
        for row in rows
    ]


def labels(path: Path, column: str) -> dict[Pair, bool]:
    """Return whether each labelled pair is one work."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    left, right = ("ltable.id", "rtable.id") if "ltable.id" in rows[0] else ("ltable_id", "rtable_id")
    return {(f"l:{row[left]}", f"r:{row[right]}"): row[column] == "1" for row in rows}


def texts_of(folder: Path) -> list[Record]:
    """Return title and abstract of the records of all collections that have an abstract, each title once."""
    texts: dict[str, Record] = {}
    for path in sorted(folder.glob("*/records.csv.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if len(row["title"].split()) >= 4 and len(row["abstract"].split()) >= 40:
                    texts.setdefault(re.sub(r"\W+", "", row["title"].lower()), row)
    return list(texts.values())


def exports(texts: list[Record]) -> tuple[list[Record], dict[str, int]]:
    """Return records of works in the ways of three databases, and the number of the work of each record."""
    rng = random.Random(0)
    names = sorted({word for text in texts for word in re.findall(r"\b[A-Z][a-z]{3,9}\b", text["abstract"])})
    journals = {"J Clin Oncol": "Journal of Clinical Oncology", "Br Med J": "British Medical Journal"}
    journals |= {"Inf Softw Technol": "Information and Software Technology", "Diabetes Care": "Diabetes Care"}
    records: list[Record] = []
    works: dict[str, int] = {}

    def add(work: int, database: str, record: Record) -> None:
        record = {**record, "id": f"{database}:{len(records)}", "file": f"{database}.ris"}
        works[record["id"]] = work
        records.append(record)

    n_works = 0
    for text in texts:
        people = [(rng.choice(names), rng.choice(names)) for _ in range(rng.randint(1, 5))]
        short = rng.choice(list(journals))
        first = rng.randint(1, 2000)
        base = {"year": rng.randint(1995, 2019), "volume": str(rng.randint(1, 80)), "title": text["title"]}
        doi = f"10.{rng.randint(1000, 1100)}/{short.split()[-1].lower()}.{first}.{n_works}"
        for database in ("embase", "pubmed", "scopus"):
            if rng.random() < 0.6:
                add(
                    n_works,
                    database,
                    as_exported(rng, database, text, base, people, (short, journals[short]), first, doi),
                )
        n_works += 1
        chance = rng.random()
        authors = "; ".join(f"{family} {given[0]}" for family, given in people)
        if chance < 0.05:  # a conference paper of two years before
            kept = " ".join(text["abstract"].split()[: int(0.8 * len(text["abstract"].split()))])
            venue = "Proceedings of the Annual Conference"
            more = {"year": base["year"] - 2, "abstract": kept, "authors": authors, "venue": venue, "pages": "12-15"}
            add(n_works, "scopus", {**base, **more, "volume": ""})
            n_works += 1
        elif chance < 0.1:  # the second part, on the next pages, with another abstract
            other = rng.choice(texts)["abstract"]
            title = f"{text['title'].rstrip('.')}. Part 2"
            more = {"title": title, "abstract": other, "authors": authors, "venue": journals[short]}
            add(n_works, "embase", {**base, **more, "pages": f"{first + 11}-{first + 20}"})
            n_works += 1
        elif chance < 0.13:  # a letter with the same title
            more = {"abstract": "", "authors": f"{rng.choice(names)} A", "venue": journals[short]}
            add(n_works, "pubmed", {**base, **more, "pages": str(first + 300)})
            n_works += 1
    order = list(range(len(records)))
    rng.shuffle(order)
    return [records[number] for number in order], works


def as_exported(
    rng: random.Random,
    database: str,
    text: Record,
    base: Record,
    people: list[Pair],
    journal: Pair,
    first: int,
    doi: str,
) -> Record:
    """Return a record in the way of a database."""
    title, abstract, year = text["title"], text["abstract"], base["year"]
    pages = f"{first}-{first + 9}"
    if database == "embase":
        title = title.rstrip(".") if rng.random() < 0.9 else title.upper()
        abstract += f" Copyright {year} The Authors. All rights reserved."
        authors, venue = "; ".join(f"{family} {given[0]}." for family, given in people), journal[1]
    elif database == "pubmed":
        title = title.rstrip(".") + "."
        year -= rng.random() < 0.1  # that of the electronic version
        authors, venue = "; ".join(f"{family}, {given}" for family, given in people), journal[0]
        pages = f"{first}-{str(first + 9)[-1]}"
    else:
        if rng.random() < 0.05:
            position = rng.randrange(len(title) - 1)
            title = title[:position] + title[position + 1] + title[position] + title[position + 2 :]
        if rng.random() < 0.2:
            abstract = abstract[: int(0.6 * len(abstract))]
        authors, venue = "; ".join(f"{family}, {given[0]}." for family, given in people), journal[1]
        pages = pages if rng.random() < 0.8 else ""
    abstract = abstract if rng.random() < 0.9 else ""
    has_doi = rng.random() < {"embase": 0.7, "pubmed": 0.8, "scopus": 0.9}[database]
    shown_doi = (doi.upper() if rng.random() < 0.2 else f"https://doi.org/{doi}") if has_doi else ""
    about = {"title": title, "abstract": abstract, "year": year, "authors": authors, "venue": venue, "pages": pages}
    return {**base, **about, "doi": shown_doi}


def pairs_of(works: Mapping[str, int]) -> dict[Pair, bool] | set[Pair]:
    """Return all pairs of records that are one work."""
    members: defaultdict[int, list[str]] = defaultdict(list)
    for record_id, work in works.items():
        members[work].append(record_id)
    return {pair for ids in members.values() for pair in combinations(sorted(ids), 2)}


def tools(records: list[Record], bib_dedupe: str | None) -> Iterable[tuple[str, set[Pair], float]]:
    """Yield the pairs that each tool finds, and the seconds that it takes."""
    collection = collection_of(records)
    start = time.process_time()
    groups = [group.doc_ids for group in groups_of(collection)]
    yield "haybale", in_pairs(groups), time.process_time() - start
    start = time.process_time()
    yield "ASReview's rule", in_pairs(asreview_groups(records)), time.process_time() - start
    if bib_dedupe:
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "records.csv", Path(folder) / "groups.json"
            columns = {"abstract": "abstract", "doi": "doi", "pages": "pages", "title": "title", "volume": "volume"}
            columns |= {"year": "year", "venue": "journal"}
            with source.open("w", encoding="utf-8", newline="") as file:
                names = ["ID", "ENTRYTYPE", "author", *columns.values(), "number"]
                writer = csv.DictWriter(file, names, restval="")
                writer.writeheader()
                for record in records:
                    authors = re.sub(r"; ", " and ", str(record["authors"]))
                    values = {target_name: record.get(name, "") for name, target_name in columns.items()}
                    writer.writerow({"ID": record["id"], "ENTRYTYPE": "article", "author": authors, **values})
            start = time.perf_counter()
            subprocess.run([bib_dedupe, "-c", BIB_DEDUPE, source, target], check=True, stdout=subprocess.DEVNULL)
            yield "BibDedupe", in_pairs(json.loads(target.read_text())), time.perf_counter() - start


def collection_of(records: Iterable[Record]) -> Collection:
    builder = CollectionBuilder("records")
    for record in records:
        metadata = {name: value for name, value in record.items() if name not in ("id", "title", "abstract") and value}
        title = record["title"] or record["id"]
        builder.add_document(record["id"], [record["abstract"] or title], title=title, metadata=metadata)
    return builder.build(warn=False)


def asreview_groups(records: list[Record]) -> list[list[str]]:
    """Return the groups of records with the same DOI, or the same letters in title and abstract.

    This is what asreview-datatools 1.4 drops by default; ASReview compares the same.
    """
    blocks: defaultdict[str, list[str]] = defaultdict(list)
    for record in records:
        doi = re.sub(r"^https?://(www\.)?doi\.org/", "", str(record.get("doi") or "").strip().lower())
        letters = re.sub("[^A-Za-z0-9]", "", f"{record['title']} {record['abstract']}").lower()
        for key in filter(None, (doi and f"doi {doi}", letters)):
            blocks[key].append(record["id"])
    group_of: dict[str, set[str]] = {}
    for ids in blocks.values():
        merged = set().union(*(group_of.get(record_id, {record_id}) for record_id in ids))
        group_of.update(dict.fromkeys(merged, merged))
    return [sorted(group) for group in {id(group): group for group in group_of.values()}.values() if len(group) > 1]


def in_pairs(groups: Iterable[Iterable[str]]) -> set[Pair]:
    return {pair for group in groups for pair in combinations(sorted(group), 2)}


def figures(pairs: set[Pair], truth: Mapping[Pair, bool] | set[Pair]) -> list[str]:
    """Return how many pairs were found, precision and recall; of labelled pairs, only these count."""
    right = truth if isinstance(truth, set) else {tuple(sorted(pair)) for pair, is_one in truth.items() if is_one}
    judged = pairs if isinstance(truth, set) else pairs & {tuple(sorted(pair)) for pair in truth}
    hits = len(judged & right)
    return [f"{len(judged):,}", f"{hits / max(len(judged), 1):.4f}", f"{hits / len(right):.4f}"]


def natural(folder: Path) -> list[str]:
    """Return what is found in the collections as they are, with titles, to be read by people."""
    lines = ["Duplicates in the screening collections as they are, with titles and abstracts only:"]
    rows = []
    for path in sorted(folder.glob("*/records.csv.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            rows_of_file = list(csv.DictReader(file))
        records = [
            {"id": f"{number:05}", "title": row["title"], "abstract": row["abstract"], "authors": ""}
            for number, row in enumerate(rows_of_file)
        ]
        groups = groups_of(collection_of(records))
        rows.append([path.parent.name, f"{len(records):,}", str(len(groups)), str(len(asreview_groups(records)))])
    return [*lines, *table("collection|records|groups|groups by ASReview's rule", rows, 1)]


def timed(folder: Path, n_records: int) -> list[list[str]]:
    """Return rows with the seconds for an engine of many records, made of the words of the collections."""
    rng = random.Random(1)
    words = [word for text in texts_of(folder) for word in text["abstract"].split()]
    records: list[Record] = []
    while len(records) < n_records:
        start = rng.randrange(len(words) - 250)
        record = {
            "title": " ".join(rng.sample(words, 9)),
            "abstract": " ".join(words[start : start + rng.randint(120, 240)]),
            "authors": f"{rng.choice(words)}, A.; {rng.choice(words)}, B.",
            "year": rng.randint(1990, 2019),
            "venue": "Journal of Clinical Oncology",
            "volume": str(rng.randint(1, 80)),
            "pages": str(rng.randint(1, 3000)),
        }
        for database in ("embase", "pubmed")[: 1 + (rng.random() < 0.25)]:
            doi = f"10.1000/{len(records)}" if rng.random() < 0.5 and database == "embase" else ""
            records.append({**record, "id": f"{database}:{len(records)}", "file": f"{database}.ris", "doi": doi})
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        engine = Engine.build(collection_of(records), Path(temporary) / "engine", language="english")

        def measured(what: str, engine: Engine) -> None:
            wall, cpu = time.perf_counter(), time.process_time()
            duplicates = engine.duplicates()
            taken = time.perf_counter() - wall, time.process_time() - cpu
            rows.append(
                [what, f"{duplicates.n_documents:,}", f"{duplicates.n_duplicates:,}", *(f"{s:.1f}" for s in taken)]
            )
            print(rows[-1], flush=True)

        TextSketches.of(collection_of(records[:10]))  # compiles
        measured("first time", engine)
        measured("opened again", Engine.open(Path(temporary) / "engine"))
        more = [{**record, "id": f"new:{number}"} for number, record in enumerate(records[:1000])]
        engine.add(collection_of(more))
        measured("after 1,000 were added", engine)
    return rows


if __name__ == "__main__":
    main()
