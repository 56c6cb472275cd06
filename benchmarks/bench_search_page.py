"""Measure what the search page adds to a search: counts of what matches, and copies as one hit; and a list's order.

    python benchmarks/bench_search_page.py GESETZE [--queries 100]

The collection is in GerDaLIR's layout with ``refmap.tsv.gz``, whose laws are a column; ``kind`` and ``decided`` are
made up.
"""

from __future__ import annotations

import csv
import gzip
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from provenance import options, provenance, shown, table, write_page

from haybale import Engine, open_collection, parse
from haybale.engine.copies import groups_of_copies
from haybale.service.document_counts import DocumentCounts

RANKER, WORDS = "rrf(bm25-doc,parm-vrrf)", 5
HEAD = "step | CPU, median, ms | CPU, 95 %, ms"
CHOSEN = {"kind": ["act"], "decided": ["1960-01-01", "1999-12-31"]}
TEXT = f"""
The first {WORDS} words of each of the first dev queries are searched with `{RANKER}`: ten hits with their passages and
reasons. The columns are the law of a document, a kind with two values and a date. *copies*: what it takes to group the
1,000 documents of the ranking. *counts*: the number of documents that match, and the counts of each value of the
columns; *with filters*: while a kind and a range of dates are chosen. *order*: the first list by title after a change
of the documents, which is kept. CPU time of the process, since the machine had other work.""".splitlines()


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--queries", type=int, default=100)
    a = parser.parse_args()
    engine = engine_of(a.folder)
    collection = engine.collection
    numbers = collection.split("dev").queries[: a.queries]
    queries = [" ".join(" ".join(collection.queries.paragraphs_of(n)).split()[:WORDS]) for n in numbers.tolist()]
    lines = [
        "# What the search page adds to a search",
        *TEXT,
        "",
        f"## {a.folder.name}: {collection.n_documents:,} documents, {collection.n_passages:,} passages",
        *table(HEAD, rows_of(engine, queries)),
    ]
    write_page(a.results / "search-page.md", [*lines, "", provenance(shown("bench_search_page.py", sys.argv[1:]))])


def engine_of(folder: Path) -> Engine:
    """Return an engine in memory whose documents have a law, a kind and a date."""
    engine = Engine(open_collection(folder)).prepare()
    with gzip.open(folder / "refmap.tsv.gz", "rt", encoding="utf-8") as file:
        laws = {row[0]: row[1] for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)}
    ids = engine.collection.doc_ids.to_pylist()
    engine.set_metadata(
        {
            doc_id: {
                "law": laws.get(doc_id),
                "kind": "act" if number % 3 else "order",
                "decided": f"{1950 + number * 7919 % 70}-{1 + number % 12:02}-{1 + number % 28:02}",
            }
            for number, doc_id in enumerate(ids)
        }
    )
    return engine


def rows_of(engine: Engine, queries: list[str]) -> list[tuple[Any, ...]]:
    """Return the rows of the table."""
    ranker, counts, snapshot = parse(RANKER).fit(engine), DocumentCounts(engine), engine.snapshot()

    def ranked(query: str) -> np.ndarray:
        ids = [doc_id for doc_id, _ in ranker.rank({"q": query}, depth=1000)["q"]]
        return np.asarray(snapshot.collection.document_numbers(ids))

    rankings = {query: ranked(query) for query in queries}
    steps: dict[str, Callable[[str], Any]] = {
        "search": ranker.search,
        "copies": lambda query: groups_of_copies(snapshot, rankings[query]),
        "counts": counts.count,
        "counts, with filters": lambda query: counts.count(query, None, CHOSEN),
    }
    for step in steps.values():
        step(queries[0])  # opens and compiles what is needed once
    rows = []
    for name, step in steps.items():
        milliseconds = [1000 * seconds(step, query) for query in queries]
        rows.append((name, *(f"{np.quantile(milliseconds, share):.1f}" for share in (0.5, 0.95))))
    order = 1000 * seconds(lambda _: snapshot.documents_where(sort="title"), "")
    return [*rows, ("order", f"{order:.1f}", "–")]


def seconds(step: Callable[[str], Any], query: str) -> float:
    """Return the CPU seconds of a step."""
    start = time.process_time()
    step(query)
    return time.process_time() - start


if __name__ == "__main__":
    main()
