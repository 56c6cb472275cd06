"""Time BM25 against bm25s on its numba backend, from the same terms; and building, opening, single queries.

    python benchmarks/bench_bm25.py FOLDER [--split dev] [--k 1000] [--rounds 5]

Peer and ours alternate in one process, both on two threads; medians and ratios are written to results/bm25.md. The
peer's scores are compared with ours, bit for bit.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
from provenance import provenance, shown

from haybale import BM25Index, open_collection
from haybale.analysis import Terms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", help="pydocs, or a folder")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--k", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--note", help="what a reader should know of the circumstances")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "bm25.md")
    arguments = parser.parse_args()
    collection = open_collection(arguments.collection)
    print(repr(collection), flush=True)
    building, index = timed(lambda: BM25Index.from_collection(collection))
    k = min(arguments.k, len(index))
    texts = collection.queries.texts(collection.split(arguments.split).queries)
    texts = [text for text, ids in zip(texts, index.analysed(texts).ids, strict=True) if ids]  # the peer has no others
    terms = index.analysed(texts)
    theirs_building, peer = timed(lambda: peer_of(collection.passages.texts.to_pylist(), index))

    def theirs() -> Any:
        return peer.retrieve(terms.ids, k=k, n_threads=2, show_progress=False)

    def ours() -> Any:
        return index.search(terms, k)

    check(ours(), theirs())  # compiles both
    searches = [(timed(theirs)[0], timed(ours)[0]) for _ in range(arguments.rounds)]
    rows = [
        line(f"search, {len(texts):,} queries, k = {k:,}", *map(statistics.median, zip(*searches, strict=True))),
        line("… from texts", None, median(lambda: index.search(texts, k), arguments.rounds)),
        line("documents by best passage, depth 1,000", None, documents(index, terms, arguments.rounds)),
        line(f"one query from its text, k = {k:,} (median)", None, single(index, texts[:300], k)),
        line("build, with analysis", theirs_building, building),
        line("another k1 and b", None, median(lambda: index.with_parameters(0.9, 0.4), arguments.rounds)),
        line("open what was saved", None, opening(index, arguments.rounds)),
    ]
    ratios = ", ".join(f"{a / b:.1f}" for a, b in searches)
    lines = [
        f"# BM25: {collection.name}, {arguments.split}",
        "",
        f"{len(index):,} passages, {len(index.vocabulary):,} terms; a query has {lengths(terms):.0f} of them. "
        "Searches are of terms that were analysed before, on two threads, unless a row says otherwise; bm25s with its "
        "numba backend. Scores are equal bit for bit.",
        "",
        "| seconds | bm25s | haybale | × |",
        "| --- | ---: | ---: | ---: |",
        *rows,
        "",
        f"- search, round by round, bm25s / haybale: {ratios}",
        *([f"- {arguments.note}"] if arguments.note else []),
        provenance(shown("bench_bm25.py", sys.argv[1:]), more=("scipy", "bm25s")),
        "",
    ]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))


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


def documents(index: BM25Index, terms: Terms, rounds: int) -> float:
    index.documents(terms, 1000)  # compiles
    return median(lambda: index.documents(terms, 1000), rounds)


def single(index: BM25Index, texts: list[str], k: int) -> float:
    return statistics.median(timed(lambda text=text: index.search([text], k))[0] for text in texts)


def opening(index: BM25Index, rounds: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        index.save(f"{folder}/index")
        return median(lambda: BM25Index.open(f"{folder}/index"), rounds)


def lengths(terms: Terms) -> float:
    return statistics.mean(map(len, terms.ids))


def line(name: str, theirs: float | None, ours: float) -> str:
    digits = 3 if ours >= 0.1 else 5
    peer, ratio = ("", "") if theirs is None else (f"{theirs:.{digits}f}", f"{theirs / ours:.1f}")
    return f"| {name} | {peer} | {ours:.{digits}f} | {ratio} |"


def median(work: Callable[[], Any], rounds: int) -> float:
    return statistics.median(timed(work)[0] for _ in range(rounds))


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


if __name__ == "__main__":
    main()
