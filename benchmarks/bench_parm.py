"""Time PARM: search and aggregation apart, every aggregation against the dictionary way, RRF and CombSum against ranx.

    python benchmarks/bench_parm.py FOLDER [--split dev] [--encoder lsa | --store STORE] [--hits 1000] [--rounds 3]

Peer and ours alternate in one process; medians and ratios are written to results/parm.md. ranx fuses runs in which a
document stands once, and wants the same queries in every run: so it and ours get the lists of documents with their
best passages, and ranx is called once a query document, its runs made beforehand. (pip install ranx; left out where
it is missing.)
"""

from __future__ import annotations

import itertools
import statistics
import sys
from typing import Any

import numpy as np
from provenance import alternating, median, options, provenance, shown, split_batch, timed, write_page

from haybale import Hits, Run, rank_documents
from haybale.engine import Engine
from haybale.rankers import QueryBatch
from haybale.retrieval import ParagraphHits, Vectors, aggregate
from haybale.timing import record_timings

NAMES = ("combsum", "rrf", "vsum", "vavg", "vmin", "vmax", "vscores", "vranks", "vrrf")
Scores = list[dict[str, float]]  # of each query document, its documents


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collection", help="pydocs, or a folder")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--encoder", default="lsa")
    parser.add_argument("--store", help="a store of embeddings in place of an encoder")
    parser.add_argument("--hits", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    a = parser.parse_args()
    with record_timings(lambda stage, seconds: print(stage, seconds, flush=True)) as stages:
        engine = Engine(a.collection, encoder=a.encoder, store=a.store)
        collection, index = engine.collection, engine.passages
        batch = split_batch(engine, a.split)
        found = batch.paragraph_hits(index, a.hits)
        lexical = batch.paragraph_hits(engine.bm25(), a.hits)
    parts = {
        "encode the query paragraphs": stages.seconds["encode query paragraphs"],
        "search, exact, top N of each": stages.seconds["search query paragraphs"],
        "search with BM25": stages.seconds["search query paragraphs (BM25)"],
        "rrf: aggregate and rank": median(lambda: ranked(batch, "rrf", found), a.rounds),
        "vrrf: aggregate and rank": median(lambda: ranked(batch, "vrrf", found), a.rounds),
        "rrf over BM25: aggregate and rank": median(lambda: ranked(batch, "rrf", lexical), a.rounds),
    }
    lines = [
        f"# PARM on {collection.name}, {a.split}",
        "",
        f"{len(batch)} query documents of {len(found.hits):,} paragraphs, against {len(index):,} paragraphs of "
        f"{collection.n_documents:,} documents, vectors of width {index.vectors.shape[1]}, N = {a.hits}: "
        f"{int((found.hits.passages >= 0).sum()):,} hits.",
        "",
        "| part | seconds |",
        "| --- | ---: |",
        *(f"| {part} | {value:.2f} |" for part, value in parts.items()),
        "",
        "Both aggregate the same hits; then both sort, by score and id, into rankings with ids.",
        "",
        "| aggregation | haybale, s | dictionaries, s | × | with ranking, s | dictionaries, s | × | "
        "scores differ by at most (relative) |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        *(against_dictionaries(name, batch, found, a.rounds) for name in NAMES),
        "",
        *against_ranx(batch, found, a.rounds),
        "",
        provenance(shown("bench_parm.py", sys.argv[1:]), more=("scipy", "faiss-cpu", "bm25s")),
    ]
    write_page(a.results / "parm.md", lines)


def ranked(batch: QueryBatch, name: str, found: ParagraphHits) -> Run:
    index = batch.engine.passages
    return rank_documents(index, found.hits, batch.ids, name, found.offsets, vectors=found.vectors)


def ids_of(batch: QueryBatch) -> np.ndarray:
    """(n_documents,) the ids, as objects."""
    return np.asarray(batch.engine.passages.doc_ids.to_pylist(), dtype=object)


def against_dictionaries(name: str, batch: QueryBatch, found: ParagraphHits, rounds: int) -> str:
    """One aggregation's line, results compared."""
    doc_of, offsets, vectors = batch.engine.passages.doc_of, found.offsets, found.vectors
    documents = ids_of(batch)[doc_of].tolist()
    aggregate(found.hits.top(1), name, doc_of, offsets, vectors=vectors)  # compiled loops are loaded
    works = {
        "haybale": lambda: aggregate(found.hits, name, doc_of, offsets, vectors=vectors),
        "haybale, ranked": lambda: ranked(batch, name, found),
        "dictionaries": lambda: by_dictionaries(name, found.hits, documents, offsets, vectors),
    }
    done = alternating(works, rounds)
    ours, whole, theirs = (statistics.median(seconds) for seconds, _ in done.values())
    run, slow = done["haybale, ranked"][1], done["dictionaries"][1]
    sorting, expected = timed(lambda: [sorted(of.items(), key=lambda pair: (-pair[1], pair[0])) for of in slow])
    worst = max(largest_difference(dict(run[query]), of) for query, of in zip(batch.ids, expected, strict=True))
    return (
        f"| {name} | {ours:.3f} | {theirs:.2f} | {theirs / ours:.0f} | {whole:.3f} | {theirs + sorting:.2f} | "
        f"{(theirs + sorting) / whole:.0f} | {worst:.0e} |"
    )


def largest_difference(scores: dict[str, float], expected: list[tuple[str, float]]) -> float:
    """Relative to the query's best score; every document of the dictionaries' first 500 must be there."""
    scale = max((abs(score) for _, score in expected), default=1.0)
    return max((abs(scores[doc] - score) / scale for doc, score in expected[:500]), default=0.0)


def by_dictionaries(name: str, hits: Hits, documents: list[str], offsets: Any, vectors: Vectors | None) -> Scores:
    """The aggregations as notebooks have them: dictionaries, one hit at a time; the formulas are those of haybale's.

    ``documents`` (n_passages,) is the id of each passage's document.
    """
    lists = [row[row >= 0].tolist() for row in hits.passages]  # without padding: a list may be short
    pairs = [list(zip(row, scores.tolist(), strict=False)) for row, scores in zip(lists, hits.scores, strict=True)]
    return [
        _query(name, pairs[first:last], documents, vectors, first, hits.passages.shape[1])
        for first, last in itertools.pairwise(offsets.tolist())
    ]


def _query(name: str, lists: list[Any], documents: list[str], vectors: Any, first: int, n_hits: int) -> dict[str, Any]:
    """A loop for each kind, so that a hit pays for nothing but its own."""
    found: dict[str, Any] = {}
    if name in ("rrf", "combsum"):
        for pairs in lists:
            for rank, (passage, score) in enumerate(pairs, start=1):
                document = documents[passage]
                found[document] = found.get(document, 0.0) + (1 / (60 + rank) if name == "rrf" else score)
        return found
    paragraphs = vectors.paragraphs[first : first + len(lists)]
    if name in ("vmin", "vmax"):
        extreme = np.minimum if name == "vmin" else np.maximum
        for passage, _ in itertools.chain.from_iterable(lists):
            document, vector = documents[passage], vectors.passages[passage]
            found[document] = extreme(found[document], vector) if document in found else vector
        query = extreme.reduce(paragraphs, axis=0)
        return {document: float(query @ vector) for document, vector in found.items()}
    counts: dict[str, int] = {}
    for pairs in lists:
        for rank, (passage, score) in enumerate(pairs, start=1):
            document, vector = documents[passage], vectors.passages[passage]
            if name == "vrrf":
                vector = vector / (60 + rank)
            elif name == "vscores":
                vector = vector * score
            elif name == "vranks":
                vector = vector * (n_hits + 1 - rank)
            found[document] = found[document] + vector if document in found else vector
            counts[document] = counts.get(document, 0) + 1
    query = paragraphs.sum(axis=0)
    if name == "vavg":
        return {doc: float(query @ vector) / len(paragraphs) / counts[doc] for doc, vector in found.items()}
    return {doc: float(query @ vector) for doc, vector in found.items()}


def against_ranx(batch: QueryBatch, found: ParagraphHits, rounds: int) -> list[str]:
    """Lists in which every document stands once, fused by ranx and aggregated by ours."""
    try:
        import ranx
    except ImportError:
        return ["ranx is not installed."]
    index, doc_ids = batch.engine.passages, ids_of(batch)
    lists = document_lists(found.hits, index.doc_of)
    everyone = np.arange(len(doc_ids))

    def theirs_of(row: int) -> Any:
        there = lists.passages[row] >= 0
        return ranx.Run({"q": dict(zip(doc_ids[lists.passages[row][there]], lists.scores[row].tolist(), strict=False))})

    full = (lists.passages >= 0).any(axis=1)
    making, made = timed(
        lambda: [
            [theirs_of(r) for r in range(first, last) if full[r]] for first, last in itertools.pairwise(found.offsets)
        ]
    )
    lines = [
        f"Against ranx, on {int((lists.passages >= 0).sum()):,} entries of lists of documents (making its runs from "
        f"dictionaries took {making:.1f} s, not counted):",
        "",
        "| aggregation | haybale, s | ranx, s | × |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, method in (("rrf", "rrf"), ("combsum", "sum")):
        ranx.fuse(made[0][:2], norm=None, method=method)  # compiles

        def ours(name: str = name) -> Any:
            query, document, score = aggregate(lists, name, everyone, found.offsets)
            return score, Run.from_numbers(batch.ids, index.doc_ids, query, document, score, len(index.doc_ids))

        def theirs(method: str = method) -> list[Any]:
            return [ranx.fuse(runs, norm=None, method=method) if len(runs) > 1 else runs[0] for runs in made if runs]

        done = alternating({"haybale": ours, "ranx": theirs}, rounds)
        x, y = (statistics.median(seconds) for seconds, _ in done.values())
        lines.append(f"| {name} | {x:.3f} | {y:.2f} | {y / x:.0f} |")
    return lines


def document_lists(hits: Hits, doc_of: np.ndarray) -> Hits:
    """Each list with its documents once, at their best passage, best first."""
    passages, scores = np.full_like(hits.passages, -1), np.full_like(hits.scores, -np.inf)
    for row, found in enumerate(hits.passages):
        _, first = np.unique(doc_of[found[found >= 0]], return_index=True)
        first.sort()
        passages[row, : len(first)], scores[row, : len(first)] = doc_of[found[first]], hits.scores[row][first]
    return Hits(passages, scores)


if __name__ == "__main__":
    main()
