"""Time BM25 against bm25s on its numba backend, from the same terms; and building, opening, single queries.

    python benchmarks/bench_bm25.py FOLDER [--split dev] [--k 1000] [--rounds 5]

Peer and ours alternate in one process, both on two threads; medians and ratios are written to results/bm25.md. The
peer's scores are compared with ours, bit for bit.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from typing import Any

import bm25s
import numpy as np
from provenance import alternating, median, options, provenance, shown, timed, write_page

from haybale import BM25Index, open_collection


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collection", help="pydocs, or a folder")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--k", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    a = parser.parse_args()
    collection = open_collection(a.collection)
    building, index = timed(lambda: BM25Index.from_collection(collection))
    k = min(a.k, len(index))
    texts = collection.queries.texts(collection.split(a.split).queries)
    texts = [text for text, ids in zip(texts, index.analysed(texts).ids, strict=True) if ids]  # the peer has no others
    terms = index.analysed(texts)
    theirs_building, peer = timed(lambda: peer_of(collection.passages.texts.to_pylist(), index))
    works = {
        "bm25s": lambda: peer.retrieve(terms.ids, k=k, n_threads=2, show_progress=False),
        "haybale": lambda: index.search(terms, k),
    }
    check(works["haybale"](), works["bm25s"]())  # compiles both
    searches = {name: seconds for name, (seconds, _) in alternating(works, a.rounds).items()}
    index.documents(terms, 1000)  # compiles
    single = statistics.median(timed(lambda text=text: index.search([text], k))[0] for text in texts[:300])
    rows = [
        line(f"search, {len(texts):,} queries, k = {k:,}", *map(statistics.median, searches.values())),
        line("… from texts", None, median(lambda: index.search(texts, k), a.rounds)),
        line("documents by best passage, depth 1,000", None, median(lambda: index.documents(terms, 1000), a.rounds)),
        line(f"one query from its text, k = {k:,} (median)", None, single),
        line("build, with analysis", theirs_building, building),
        line("another k1 and b", None, median(lambda: index.with_parameters(0.9, 0.4), a.rounds)),
        line("open what was saved", None, opening(index, a.rounds)),
    ]
    ratios = ", ".join(f"{theirs / ours:.1f}" for theirs, ours in zip(*searches.values(), strict=True))
    lines = [
        f"# BM25: {collection.name}, {a.split}",
        "",
        f"{len(index):,} passages, {len(index.vocabulary):,} terms; a query has "
        f"{statistics.mean(map(len, terms.ids)):.0f} of them. Searches are of terms that were analysed before, on two "
        "threads, unless a row says otherwise; bm25s with its numba backend. Scores are equal bit for bit.",
        "",
        "| seconds | bm25s | haybale | × |",
        "| --- | ---: | ---: | ---: |",
        *rows,
        "",
        f"- search, round by round, bm25s / haybale: {ratios}",
        provenance(shown("bench_bm25.py", sys.argv[1:]), more=("scipy", "bm25s")),
    ]
    write_page(a.results / "bm25.md", lines)


def peer_of(texts: list[str], index: BM25Index) -> bm25s.BM25:
    peer = bm25s.BM25(k1=index.k1, b=index.b, backend="numba")
    analysed = index.analyzer(texts)
    peer.index((analysed.ids, analysed.vocabulary), create_empty_token=False, show_progress=False)
    return peer


def check(ours: Any, theirs: Any) -> None:
    """The same scores place by place; equal scores may be of other passages, as the peer has no order of them."""
    found = np.where(np.isneginf(ours.scores), 0, ours.scores)
    if not np.array_equal(found, np.sort(theirs.scores, axis=1)[:, ::-1]):
        raise SystemExit("the scores differ")


def opening(index: BM25Index, rounds: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        index.save(f"{folder}/index")
        return median(lambda: BM25Index.open(f"{folder}/index"), rounds)


def line(name: str, theirs: float | None, ours: float) -> str:
    digits = 3 if ours >= 0.1 else 5
    peer, ratio = ("", "") if theirs is None else (f"{theirs:.{digits}f}", f"{theirs / ours:.1f}")
    return f"| {name} | {peer} | {ours:.{digits}f} | {ratio} |"


if __name__ == "__main__":
    main()
