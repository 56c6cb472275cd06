"""PARM's tables and figures on a collection of query documents: every aggregation beside BM25 and document retrieval.

    python benchmarks/bench_parm_rankers.py FOLDER [--split dev] [--encoder lsa | --store STORE --name minilm]

Writes results/parm-COLLECTION-SPLIT-NAME.md and, beside it, recall against cut-off and the heatmap of paragraph
positions as SVG. The paper's tables 2 and 3, its figures 2, 3 and 4.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from provenance import options, provenance, shown, write_page

from haybale import Run
from haybale.engine import Engine
from haybale.evaluation import (
    evaluate,
    found_sets,
    found_table,
    markdown,
    paragraph_relations,
    plot_recall,
    recall_curves,
    results,
)
from haybale.rankers import PARM, Batch, parse
from haybale.stages import listening

DEPTH = 1000
MEASURES = ("nDCG@10", "MRR@10", "Recall@50", "Recall@100", "Recall@500")
DETAILED = ("nDCG@10", "Recall@100", "Recall@500")
AGGREGATED = ("combsum", "rrf", "vavg", "vmax", "vmin", "vsum", "vscores", "vranks", "vrrf")
DOCUMENTS = ("bm25-doc", "bm25", "knn-firstp", "knn", "knn-doc")
RANKERS = (*DOCUMENTS, "bm25-parm-combsum", "bm25-parm-rrf", *(f"parm-{name}" for name in AGGREGATED))
CURVES = ("bm25-doc", "bm25", "bm25-parm-rrf", "knn-firstp", "knn", "knn-doc", "parm-rrf", "parm-vrrf")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collection", help="pydocs, or a folder")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--encoder", default="lsa")
    parser.add_argument("--store", help="a store of embeddings in place of an encoder")
    parser.add_argument("--name", help="what the encoder is called in the files' names (default: its own)")
    a = parser.parse_args()
    called = a.name or Path(a.encoder).name
    with listening(lambda stage, seconds: print(stage, seconds, flush=True)) as stages:
        engine = Engine(a.collection, encoder=a.encoder, store=a.store)
        collection = engine.collection
        batch = Batch(engine, collection.queries.take(collection.split(a.split).queries))
        runs = {name: batch.run(parse(name), DEPTH) for name in RANKERS}
    qrels = collection.qrels_frame(a.split)
    values = {name: evaluate(run, qrels, MEASURES) for name, run in runs.items()}
    stem = f"parm-{collection.name}-{a.split}-{called}"
    a.results.mkdir(parents=True, exist_ok=True)
    plot_recall(recall_curves({name: runs[name] for name in CURVES}, qrels), a.results / f"{stem}-recall.svg")
    plot_positions(batch, a.split, a.results / f"{stem}-positions.svg")
    within = {name: table for name, table in values.items() if name.startswith("parm-")}
    sets = {
        "BM25": found_sets(runs["bm25-parm-rrf"], runs["bm25-doc"], qrels, 100),
        called: found_sets(runs["parm-vrrf"], runs["knn"], qrels, 100),
    }
    lines = [
        f"# PARM on {collection.name}, {a.split}, {called}",
        "",
        f"{collection!r}; {sum(map(len, batch.paragraphs)):,} query paragraphs, vectors of width "
        f"{engine.passages.vectors.shape[1]}, N = {PARM().n_hits}.",
        "",
        "Against BM25 over whole documents (the paper's table 3):",
        "",
        markdown(results(values, "bm25-doc"), DETAILED),
        "",
        "Against RRF, the aggregations of the same hits (table 2):",
        "",
        markdown(results(within, "parm-rrf"), DETAILED),
        "",
        "Relevant documents among the first 100, with PARM (BM25: RRF, vectors: VRRF) and with document retrieval "
        "(BM25 over whole documents, vectors: best passage; figure 3):",
        "",
        found_table(sets, ("PARM", "Doc")),
        "",
        "How long the documents are that come first (paragraphs; the median of the first ten of all queries), beside "
        "those that are relevant and all there are: "
        + ", ".join(f"{name} {value:.0f}" for name, value in lengths(batch, a.split, runs).items())
        + ".",
        "",
        f"[Recall against cut-off]({stem}-recall.svg) (figure 2), [which paragraph finds which]({stem}-positions.svg) "
        "(figure 4, as a share of the pairs that exist).",
        "",
        "Seconds: " + ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in stages.seconds.items()) + ".",
        "",
        provenance(shown("bench_parm_rankers.py", sys.argv[1:]), more=("scipy", "faiss-cpu", "bm25s", "ir_measures")),
    ]
    write_page(a.results / f"{stem}.md", lines)


def lengths(batch: Batch, split: str, runs: dict[str, Run]) -> dict[str, float]:
    """Median number of paragraphs of the documents that each ranker puts first."""
    collection = batch.engine.collection
    paragraphs = np.diff(collection.passages.doc_offsets)
    found: dict[str, Any] = {"relevant": collection.split(split).relevant()[1], "all": slice(None)}
    for name, run in runs.items():
        found[name] = collection.document_numbers(run.top(10).to_frame()["doc_id"].tolist())
    return {name: float(np.median(paragraphs[documents])) for name, documents in found.items()}


def plot_positions(batch: Batch, split: str, path: Path) -> None:
    """Which query paragraph finds which paragraph of a relevant document, among its first 100 hits."""
    index, collection = batch.engine.passages, batch.engine.collection
    found = batch.paragraph_hits(index, PARM().n_hits, PARM().over)
    pairs = collection.split(split).relevant_rows()
    relations = paragraph_relations(found.hits.top(100), found.offsets, index.doc_offsets, pairs)
    relations.plot(path, normalize=True, title=f"{collection.name}: who finds whom among 100 hits")


if __name__ == "__main__":
    main()
