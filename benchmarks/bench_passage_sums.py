"""Measure rankers that sum the scores of a document's best passages, and fusions with them.

    python benchmarks/bench_passage_sums.py COLLECTION …

Nothing is learned. All settings are ranked on dev. On test, each ranker is ranked with one passage and with the number
of passages that was best on dev, and compared by paired tests.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from best_pages import RRF
from effectiveness import Space
from provenance import options, provenance, shown, table, write_page

from haybale import evaluate, open_collection, parse
from haybale.evaluation import paired_tests

TOPS = (1, 2, 3, 5)
DOCUMENTS = ("bm25-doc", "knn-doc", RRF)
SUMS = (
    "bm25(top={})",
    "knn(top={})",
    "rrf(bm25-doc,knn(top={}),parm-vrrf)",
    "rrf(bm25(top={0}),knn(top={0}),parm-vrrf)",
)
MEASURES = ("nDCG@10", "Recall@100")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collections", nargs="+", help="pydocs, or folders")
    a = parser.parse_args()
    found = [measured(name) for name in a.collections]
    lines = [
        "# Several passages of a document",
        "",
        "nDCG@10 / Recall@100 over TF-IDF, without training or tuning. A document scores by its best passage, or by",
        "the sum of its best 2, 3 or 5. First dev:",
        *table(
            "collection|ranker|" + "|".join(f"{top}" for top in TOPS),
            [row for each in found for row in dev_rows(each)],
            2,
        ),
        "",
        "Rankers over whole documents, for comparison, and the fusion of three searches that README names:",
        *table(
            "collection|" + "|".join(f"`{name}`" for name in DOCUMENTS),
            [[each["name"], *(both(each["dev"][name, 1]) for name in DOCUMENTS)] for each in found],
        ),
        "",
        "Test, nDCG@10: one passage, and the number that was best on dev. p is the larger one of a paired t-test and a",
        "randomisation test, not corrected.",
        *table(
            "collection|ranker|one passage|best on dev|passages|p", [row for each in found for row in each["test"]], 2
        ),
        "",
        provenance(shown("bench_passage_sums.py", sys.argv[1:])),
    ]
    write_page(a.results / "passage-sums.md", lines)


def both(values: Any) -> str:
    return " / ".join(f"{value.mean():.3f}" for value in values)


def dev_rows(found: dict[str, Any]) -> list[list[str]]:
    return [[found["name"], f"`{name.format('n')}`", *(both(found["dev"][name, top]) for top in TOPS)] for name in SUMS]


def measured(name: str) -> dict[str, Any]:
    """Return the measures of every setting on dev, (2, n_queries) each, and the rows of the table of test."""
    collection = open_collection(name, missing_judgements="skip")
    space = Space(collection, "tfidf")

    def values(split: str, ranker: str) -> np.ndarray:
        run = parse(ranker)._fitted_copy(space.training).run(space.batches[split], 1000)
        return evaluate(run, collection.qrels_frame(split), list(MEASURES)).to_numpy().T

    dev = {(ranker, 1): values("dev", ranker) for ranker in DOCUMENTS}
    dev |= {(ranker, top): values("dev", ranker.format(top)) for ranker in SUMS for top in TOPS}
    rows = []
    for ranker in SUMS:
        best = max(TOPS, key=lambda top, ranker=ranker: (dev[ranker, top][0].mean(), -top))
        one, chosen = values("test", ranker.format(1))[0], values("test", ranker.format(best))[0]
        p = "" if best == 1 else f"{paired_tests(chosen, one).p:.2g}"
        rows.append([collection.name, f"`{ranker.format('n')}`", f"{one.mean():.4f}", f"{chosen.mean():.4f}", best, p])
    print(collection.name, *rows, sep="\n  ", flush=True)
    return {"name": collection.name, "dev": dev, "test": rows}


if __name__ == "__main__":
    main()
