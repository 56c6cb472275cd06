"""Time PARM: search and aggregation apart, every aggregation against the dictionary way, RRF and CombSum against ranx.

    python benchmarks/bench_parm.py FOLDER [--split dev] [--encoder lsa | --store STORE] [--hits 1000] [--rounds 3]

Peer and ours alternate in one process; medians and ratios are written to results/parm.md. ranx fuses runs in which a
document stands once, and wants the same queries in every run: so it and ours get the lists of documents with their
best passages, and ranx is called once a query document, its runs made beforehand. (pip install ranx; left out where
it is missing.)
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dictionary_way
import numpy as np
from provenance import forget_peak, peak_memory, provenance, shown

from haybale import open_collection
from haybale.experiments import Settings
from haybale.experiments.workbench import Workbench
from haybale.retrieval import Hits, ParagraphHits, aggregate, rank_documents
from haybale.retrieval.hits import from_flat

NAMES = ("combsum", "rrf", "vsum", "vavg", "vmin", "vmax", "vscores", "vranks", "vrrf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", help="pydocs, or a folder")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--encoder", default="lsa")
    parser.add_argument("--store", help="a store of embeddings in place of an encoder")
    parser.add_argument("--hits", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "parm.md")
    arguments = parser.parse_args()
    settings = Settings(
        split=arguments.split, encoder=arguments.encoder, store=arguments.store, parm_hits=arguments.hits
    )
    bench = Workbench(open_collection(arguments.collection), settings, lambda *stage: print(*stage, flush=True))
    found = bench.paragraph_hits(arguments.split)
    lexical = bench.lexical_paragraph_hits(arguments.split)
    lines = [
        f"# PARM on {bench.collection.name}, {arguments.split}",
        "",
        f"{len(bench.query_ids(arguments.split))} query documents of {len(found.hits):,} paragraphs, "
        f"against {len(bench.index):,} "
        f"paragraphs of {bench.collection.n_documents:,} documents, vectors of width {bench.index.width}, "
        f"N = {arguments.hits}: {int((found.hits.passages >= 0).sum()):,} hits.",
        "",
        *split(bench, found, lexical, arguments.rounds),
        "",
        *aggregations(bench, found, arguments.rounds),
        "",
        *against_ranx(bench, found, arguments.rounds),
        "",
        provenance(shown("bench_parm.py", sys.argv[1:]), more=("scipy", "faiss-cpu", "bm25s")),
        "",
    ]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))


def split(bench: Workbench, found: ParagraphHits, lexical: ParagraphHits, rounds: int) -> list[str]:
    """Seconds of each part of a ranking from texts."""
    parts = {
        "encode the query paragraphs": bench.seconds["encode query paragraphs"],
        "search, exact, top N of each": bench.seconds["search query paragraphs"],
        "search with BM25": bench.seconds["search query paragraphs (BM25)"],
    }
    for name in ("rrf", "vrrf"):
        parts[f"{name}: aggregate and rank"] = median(lambda name=name: run(bench, name, found), rounds)[0]
    parts["rrf over BM25: aggregate and rank"] = median(lambda: run(bench, "rrf", lexical), rounds)[0]
    return ["| part | seconds |", "| --- | ---: |", *(f"| {part} | {value:.2f} |" for part, value in parts.items())]


def run(bench: Workbench, name: str, found: ParagraphHits) -> Any:
    return rank_documents(
        bench.index, found.hits, bench.query_ids(bench.settings.split), name, found.offsets, vectors=found.vectors
    )


def aggregations(bench: Workbench, found: ParagraphHits, rounds: int) -> list[str]:
    """Every aggregation against the dictionaries, results compared."""
    n_hits, doc_of = found.hits.passages.shape[1], bench.index.doc_of
    doc_ids = np.asarray(bench.index.doc_ids.to_pylist(), dtype=object)
    documents = doc_ids[doc_of].tolist()
    lines = [
        "Both aggregate the same hits; then both sort, by score and id, into rankings with ids. Memory is what the "
        "process held at its peak beyond what it held before.",
        "",
        "| aggregation | haybale, s | dictionaries, s | × | with ranking, s | dictionaries, s | × | "
        "scores differ by at most (relative) | memory, MB |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in NAMES:
        aggregate(found.hits.top(1), name, doc_of, found.offsets, vectors=found.vectors)  # compiled loops are loaded
        seconds: list[tuple[float, ...]] = []
        for _ in range(rounds):
            ours = timed(lambda name=name: aggregate(found.hits, name, doc_of, found.offsets, vectors=found.vectors))
            ranked = timed(lambda name=name: run(bench, name, found))
            theirs = timed(
                lambda name=name: dictionary_way.aggregate(
                    name, found.hits, documents, found.offsets, found.vectors, n_hits
                )
            )
            sorting = timed(lambda scores=theirs[1]: dictionary_way.rank(scores))
            seconds.append((ours[0], theirs[0], ranked[0], theirs[0] + sorting[0]))
        a, b, c, d = (statistics.median(column) for column in zip(*seconds, strict=True))
        difference = largest_difference(ranked[1], bench.query_ids(bench.settings.split), sorting[1])
        lines.append(
            f"| {name} | {a:.3f} | {b:.2f} | {b / a:.0f} | {c:.3f} | {d:.2f} | {d / c:.0f} | {difference:.0e} "
            f"| {memory(bench, name, found):.0f} |"
        )
        print(lines[-1], flush=True)
    return lines


def largest_difference(ours: Any, query_ids: list[str], theirs: list[list[tuple[str, float]]]) -> float:
    """Relative to the query's best score; every document of the dictionaries' first 1,000 must be there."""
    worst = 0.0
    for query, slow in zip(query_ids, theirs, strict=True):
        scores = dict(ours[query])
        scale = max(abs(score) for _, score in slow)
        worst = max(worst, *(abs(scores[doc] - score) / scale for doc, score in slow[:500]))
    return worst


def memory(bench: Workbench, name: str, found: ParagraphHits) -> float:
    """MB beyond the hits and the vectors."""
    forget_peak()
    before = peak_memory()
    aggregate(found.hits, name, bench.index.doc_of, found.offsets, vectors=found.vectors)
    return (peak_memory() - before) / 1e6


def against_ranx(bench: Workbench, found: ParagraphHits, rounds: int) -> list[str]:
    """Lists in which every document stands once, fused by ranx and aggregated by ours."""
    try:
        from ranx import Run, fuse
    except ImportError:
        return ["ranx is not installed."]
    lists = document_lists(found.hits, bench.index.doc_of)
    everyone = np.arange(bench.collection.n_documents)
    doc_ids = np.asarray(bench.index.doc_ids.to_pylist(), dtype=object)
    made = []  # their runs, one query document after the other
    start = time.perf_counter()
    for first, last in zip(found.offsets[:-1], found.offsets[1:], strict=True):
        rows = range(first, last)
        made.append(
            [
                Run(
                    {
                        "q": dict(
                            zip(doc_ids[lists.passages[r, : width(lists, r)]], lists.scores[r].tolist(), strict=False)
                        )
                    }
                )
                for r in rows
                if width(lists, r)
            ]
        )
    making = time.perf_counter() - start
    lines = [
        f"Against ranx, on {int((lists.passages >= 0).sum()):,} entries of lists of documents (making its runs from "
        f"dictionaries took {making:.1f} s, not counted):",
        "",
        "| aggregation | haybale, s | ranx, s | × |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, method in (("rrf", "rrf"), ("combsum", "sum")):
        fuse(made[0][:2], norm=None, method=method)  # compiles

        def theirs(method: str = method) -> list[Any]:
            return [fuse(runs, norm=None, method=method) if len(runs) > 1 else runs[0] for runs in made if runs]

        def ours(name: str = name) -> Any:
            query, document, score = aggregate(lists, name, everyone, found.offsets)
            return score, rank_of(bench, query, document, score)

        a, b = [], []
        for _ in range(rounds):
            a.append(timed(ours)[0])
            b.append(timed(theirs)[0])
        x, y = statistics.median(a), statistics.median(b)
        lines.append(f"| {name} | {x:.3f} | {y:.2f} | {y / x:.0f} |")
        print(lines[-1], flush=True)
    return lines


def rank_of(bench: Workbench, query: Any, document: Any, score: Any) -> Any:
    from haybale import Run

    return Run.from_numbers(
        bench.query_ids(bench.settings.split), bench.index.doc_ids, query, document, score, len(bench.index.doc_ids)
    )


def document_lists(hits: Hits, doc_of: np.ndarray) -> Hits:
    """Each list with its documents once, at their best passage, best first."""
    rows, _, passages, scores = hits.flat()
    documents = doc_of[passages]
    _, first = np.unique(rows * (doc_of[-1] + 1) + documents, return_index=True)
    first.sort()
    return from_flat(len(hits), rows[first], documents[first], scores[first])


def width(lists: Hits, row: int) -> int:
    return int((lists.passages[row] >= 0).sum())


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def median(function: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    runs = [timed(function) for _ in range(rounds)]
    return statistics.median(seconds for seconds, _ in runs), runs[-1][1]


if __name__ == "__main__":
    main()
