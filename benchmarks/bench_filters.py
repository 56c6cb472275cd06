"""Measure conditions on the metadata of documents, drawn at random, as `where` runs them.

python benchmarks/bench_filters.py [--documents 1000000] [--rounds 9]
"""

from __future__ import annotations

import sys
from statistics import median

import numpy as np
import pyarrow as pa
from provenance import clocked, options, provenance, shown, table, timed, write_page

from haybale.engine.document_filter import DocumentFilter

COURTS, TOPICS = ["BGH", "BVerfG", "BSG", "BAG", "BFH", "OLG"], ["tax", "labour", "patent", "family", "trade"]
WHERE = ["id = 'd777'", "court = 'BGH'", "date between '2015-01-01' and '2015-12-31'", "'tax' in topics"]
WHERE += ["court = 'BGH' and date >= '2015-01-01' and 'tax' in topics"]


def main() -> None:
    parser = options(__doc__)
    for name, default in (("--documents", 1_000_000), ("--rounds", 9)):
        parser.add_argument(name, type=int, default=default)
    a = parser.parse_args()
    documents = DocumentFilter(random_documents(a.documents))
    first = timed(lambda: documents.numbers("true"))[0]
    rows = []
    for where in WHERE:
        spent = [cost_of(documents, where) for _ in range(a.rounds)]
        wall, cpu = (1e3 * median(each[name] for each in spent) for name in ("wall", "cpu"))
        rows.append((f"`{where}`", len(documents.numbers(where)), wall, cpu))
    lines = ["# Conditions on metadata", "", f"{a.documents:,} documents; medians of {a.rounds} rounds."]
    lines += table("condition | documents found | ms by the clock | ms of all cores", rows)
    lines += ["", f"The first condition also fills the table in memory, once, in {first:.1f} s.", ""]
    where_from = provenance(shown("bench_filters.py", sys.argv[1:]), more=("pyarrow", "duckdb"))
    write_page(a.results / "filters.md", [*lines, where_from])


def cost_of(documents: DocumentFilter, where: str) -> dict[str, float]:
    with clocked() as cost:
        documents.numbers(where)
    return cost


def random_documents(n: int) -> pa.Table:
    rng = np.random.default_rng(0)
    days = (np.datetime64("1990-01-01") + rng.integers(0, 13_000, n)).astype("datetime64[D]")
    offsets = np.concatenate([[0], rng.integers(0, 4, n).cumsum()])
    topics = pa.array(np.array(TOPICS)[rng.integers(0, len(TOPICS), offsets[-1])], pa.large_string())
    columns = {"id": pa.array([f"d{number}" for number in range(n)], pa.large_string()), "date": pa.array(days)}
    columns["court"] = pa.array(np.array(COURTS)[rng.integers(0, len(COURTS), n)], pa.large_string())
    return pa.table(columns | {"topics": pa.LargeListArray.from_arrays(pa.array(offsets), topics)})


if __name__ == "__main__":
    main()
