"""Measure how much of a query the passage has that a search shows of a relevant document.

    python benchmarks/bench_snippets.py FOLDER … [--queries 100] [--judged FOLDER]

Beside it: the beginning of the document, and its best passage by BM25. ``--judged`` names a collection whose documents
are passages in the order of their sources: every 50 become a document, and the judged ones are its evidence.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from provenance import options, provenance, shown, table, write_page

from haybale import CollectionBuilder, Engine, open_collection, parse
from haybale.collections import Collection
from haybale.ranking.ranker import batches_of
from haybale.search.best_passages import best_snippets
from haybale.search.snippets import snippet_of

RANKERS, WIDTH, GROUP = ("rrf(bm25-doc,parm-vrrf)", "bm25-doc", "knn-doc"), 300, 50
HEAD = "shown | pairs | as BM25, % | terms, % | terms in 300 characters, % | judged, %"
TEXT = """
A passage of each relevant document of the first dev queries is shown for the query's first paragraph. *as BM25*: how
often it is BM25's best passage of the document. *terms*: the idf of its distinct query terms, in % of the passage with
the most; then of those in the 300 characters that are printed. *judged*: how often people judged it relevant. All but
the last count words, as BM25 does, and favour BM25 and long passages. Which passage a neural encoder would choose was
not measured.""".splitlines()


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--judged", type=Path)
    a = parser.parse_args()
    lines = ["# The passages that a search shows", *TEXT]
    for folder in [*a.folders, *([a.judged] if a.judged else [])]:
        lines += [
            "",
            f"## {folder.name}",
            *table(HEAD, measured(open_collection(folder), a.queries, folder == a.judged)),
        ]
    write_page(a.results / "snippets.md", [*lines, "", provenance(shown("bench_snippets.py", sys.argv[1:]))])


def measured(collection: Collection, n: int, judged: bool) -> list[tuple[Any, ...]]:
    relevant, engine = collection.relevant_ids("dev")[:n], Engine(grouped(collection) if judged else collection)
    asked, index = collection.queries.take(collection.split("dev").queries[:n]), engine.bm25("passage")
    whole, passages = engine.collection, engine.collection.passages
    rankers = [parse(name).fit(engine) for name in RANKERS]
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in ("beginning", "bm25", *RANKERS)}
    for row, ids in enumerate(relevant):
        text = asked.paragraphs_of(row)[0]
        of = passages.doc_of[whole.passage_numbers(ids)] if judged else whole.document_numbers(ids)
        batches = [next(batches_of(ranker, {"q": text})) for ranker in rankers]
        for document in sorted({*of.tolist()} - {int(asked.own[row])}):
            start, end = passages.doc_offsets[document : document + 2].tolist()
            best = start + int(np.argmax(index.similarities([text], document)[0]))
            chosen = [snippet_of(whole, start, []), snippet_of(whole, best, [])]
            for ranker, batch in zip(rankers, batches, strict=True):
                chosen.append(best_snippets(batch, [document], [ranker.explained(batch, document)])[0][0])
            most = max(weight(engine, text, each) for each in passages.texts[start:end].to_pylist())
            for name, each in zip(found, chosen, strict=True):
                brief = "".join(piece for piece, _ in each.excerpt(WIDTH))
                parts = weight(engine, text, each.text) / most, weight(engine, text, brief) / most
                is_judged = each.passage_id in ids if judged else np.nan
                found[name].append((each.passage_id == chosen[1].passage_id, *parts, is_judged))
    means = {name: 100 * np.mean(values, axis=0) for name, values in found.items()}
    return [(name, len(found[name]), *("–" if v != v else f"{v:.0f}" for v in means[name])) for name in found]


def weight(engine: Engine, query: str, text: str) -> float:
    """Return the sum of the idf of the distinct query terms in a text; never 0, so that it divides."""
    idf, numbers = engine.encoder.idf_, engine.encoder.vocabulary_
    both = set(engine.analyzer.terms(query)) & set(engine.analyzer.terms(text)) & numbers.keys()
    return 1e-9 + sum(float(idf[numbers[term]]) for term in both)


def grouped(collection: Collection) -> Collection:
    builder = CollectionBuilder(collection.name, language="english")
    for number, (name, text) in enumerate(
        zip(collection.doc_ids.to_pylist(), collection.document_texts(), strict=True)
    ):
        if number % GROUP == 0:
            document = builder.add_document(f"part{number // GROUP}")
        builder.add_passage(document, text, name)
    return builder.build()


if __name__ == "__main__":
    main()
