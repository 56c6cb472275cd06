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

from haybale.engine import Engine
from haybale.rankers import Batch
from haybale.retrieval import Hits, ParagraphHits, Run, aggregate, rank_documents
from haybale.retrieval.hits import from_flat
from haybale.stages import listening

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
    with listening(lambda stage, seconds: print(stage, seconds, flush=True)) as stages:
        engine = Engine(arguments.collection, encoder=arguments.encoder, store=arguments.store)
        collection, index = engine.collection, engine.passages
        batch = Batch(engine, collection.queries.take(collection.split(arguments.split).queries))
        found = batch.paragraph_hits(index, arguments.hits, "vectors")
        lexical = batch.paragraph_hits(engine.bm25(), arguments.hits, "bm25")
    lines = [
        f"# PARM on {collection.name}, {arguments.split}",
        "",
        f"{len(batch)} query documents of {len(found.hits):,} paragraphs, "
        f"against {len(index):,} "
        f"paragraphs of {collection.n_documents:,} documents, vectors of width {index.width}, "
        f"N = {arguments.hits}: {int((found.hits.passages >= 0).sum()):,} hits.",
        "",
        *split(batch, stages.seconds, found, lexical, arguments.rounds),
        "",
        *aggregations(batch, found, arguments.rounds),
        "",
        *against_ranx(batch, found, arguments.rounds),
        "",
        provenance(shown("bench_parm.py", sys.argv[1:]), more=("scipy", "faiss-cpu", "bm25s")),
        "",
    ]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))


def split(
    batch: Batch, seconds: dict[str, float], found: ParagraphHits, lexical: ParagraphHits, rounds: int
) -> list[str]:
    """Seconds of each part of a ranking from texts."""
    parts = {
        "encode the query paragraphs": seconds["encode query paragraphs"],
        "search, exact, top N of each": seconds["search query paragraphs"],
        "search with BM25": seconds["search query paragraphs (BM25)"],
    }
    for name in ("rrf", "vrrf"):
        parts[f"{name}: aggregate and rank"] = median(lambda name=name: run(batch, name, found), rounds)[0]
    parts["rrf over BM25: aggregate and rank"] = median(lambda: run(batch, "rrf", lexical), rounds)[0]
    return ["| part | seconds |", "| --- | ---: |", *(f"| {part} | {value:.2f} |" for part, value in parts.items())]


def run(batch: Batch, name: str, found: ParagraphHits) -> Any:
    index = batch.engine.passages
    return rank_documents(index, found.hits, batch.ids, name, found.offsets, vectors=found.vectors)


def aggregations(batch: Batch, found: ParagraphHits, rounds: int) -> list[str]:
    """Every aggregation against the dictionaries, results compared."""
    index = batch.engine.passages
    n_hits, doc_of = found.hits.passages.shape[1], index.doc_of
    doc_ids = np.asarray(index.doc_ids.to_pylist(), dtype=object)
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
            ranked = timed(lambda name=name: run(batch, name, found))
            theirs = timed(
                lambda name=name: dictionary_way.aggregate(
                    name, found.hits, documents, found.offsets, found.vectors, n_hits
                )
            )
            sorting = timed(lambda scores=theirs[1]: dictionary_way.rank(scores))
            seconds.append((ours[0], theirs[0], ranked[0], theirs[0] + sorting[0]))
        a, b, c, d = (statistics.median(column) for column in zip(*seconds, strict=True))
        difference = largest_difference(ranked[1], batch.ids, sorting[1])
        lines.append(
            f"| {name} | {a:.3f} | {b:.2f} | {b / a:.0f} | {c:.3f} | {d:.2f} | {d / c:.0f} | {difference:.0e} "
            f"| {memory(doc_of, name, found):.0f} |"
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


def memory(doc_of: Any, name: str, found: ParagraphHits) -> float:
    """MB beyond the hits and the vectors."""
    forget_peak()
    before = peak_memory()
    aggregate(found.hits, name, doc_of, found.offsets, vectors=found.vectors)
    return (peak_memory() - before) / 1e6


def against_ranx(batch: Batch, found: ParagraphHits, rounds: int) -> list[str]:
    """Lists in which every document stands once, fused by ranx and aggregated by ours."""
    try:
        import ranx
    except ImportError:
        return ["ranx is not installed."]
    index = batch.engine.passages
    lists = document_lists(found.hits, index.doc_of)
    everyone = np.arange(len(index.doc_ids))
    doc_ids = np.asarray(index.doc_ids.to_pylist(), dtype=object)
    made = []  # their runs, one query document after the other
    start = time.perf_counter()
    for first, last in zip(found.offsets[:-1], found.offsets[1:], strict=True):
        rows = range(first, last)
        made.append(
            [
                ranx.Run(
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
        ranx.fuse(made[0][:2], norm=None, method=method)  # compiles

        def theirs(method: str = method) -> list[Any]:
            return [ranx.fuse(runs, norm=None, method=method) if len(runs) > 1 else runs[0] for runs in made if runs]

        def ours(name: str = name) -> Any:
            query, document, score = aggregate(lists, name, everyone, found.offsets)
            return score, Run.from_numbers(batch.ids, index.doc_ids, query, document, score, len(index.doc_ids))

        a, b = [], []
        for _ in range(rounds):
            a.append(timed(ours)[0])
            b.append(timed(theirs)[0])
        x, y = statistics.median(a), statistics.median(b)
        lines.append(f"| {name} | {x:.3f} | {y:.2f} | {y / x:.0f} |")
        print(lines[-1], flush=True)
    return lines


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
