"""The ensemble paper's protocol beside end-to-end retrieval, with the same models, on the same queries.

    python benchmarks/bench_protocols.py FOLDER … [--split dev] [--width 256] [--rows-per-bag 8000]

Writes results/protocols-<collection>-<split>.md and .json. FOLDER may be pydocs. Every model has the paper's settings
(35 bags of rows, 50 candidates, z-scores, one γ) on LSA vectors; bags are cut to --rows-per-bag.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from protocol_figures import (
    CHOICES,
    VOTES,
    Pairs,
    Votes,
    absent,
    candidates,
    curve,
    decisions,
    held_back,
    keys,
    neighbour_keys,
    relevant_rows,
    representatives,
    rules,
)
from protocol_tables import page
from provenance import provenance, shown

from haybale.engine import Engine
from haybale.ensemble import CandidateRows, SVREnsemble, candidate_rows
from haybale.evaluation import averages, classify, evaluate
from haybale.rankers import BM25, KNN, Batch, Training
from haybale.retrieval import Hits, PassageIndex, rank_documents
from haybale.retrieval.run import DEPTH
from haybale.stages import listening, stage

MEASURES = ("MRR@10", "nDCG@10", "Recall@100")
BAGS, K = 35, 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", help="pydocs, or folders")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--width", type=int, default=256, help="of the LSA vectors")
    parser.add_argument("--rows-per-bag", type=int, default=8000)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    for name in arguments.collections:
        engine = Engine(name, encoder="lsa", width=arguments.width)
        found = compared(engine, arguments.split, arguments.rows_per_bag)
        found["provenance"] = provenance(shown("bench_protocols.py", sys.argv[1:]))
        path = arguments.results / f"protocols-{engine.collection.name}-{arguments.split}"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = page(found)
        path.with_suffix(".json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        path.with_suffix(".md").write_text(text, encoding="utf-8")
        print(text)


def compared(engine: Engine, split: str, rows_per_bag: int, n_bags: int = BAGS, k: int = K) -> dict[str, Any]:
    """All figures of one collection, as JSON."""
    with listening(lambda name, seconds: print(f"  {name} {seconds:.1f} s", flush=True)) as stages:
        found = figures(engine, split, rows_per_bag, n_bags, k)
    return found | {"seconds": stages.seconds}


def figures(engine: Engine, split: str, rows_per_bag: int, n_bags: int, k: int) -> dict[str, Any]:
    """The same without the seconds."""
    collection, index = engine.collection, engine.passages
    asked, learned = Batch(engine, collection.queries.take(collection.split(split).queries)), Training.of(engine).batch
    vectors, train_vectors = asked.vectors, learned.vectors
    with stage("search kNN"):
        near = asked.neighbours("passage", k).to_numpy()
    with stage("search kNN (train)"):
        train_near = learned.neighbours("passage", k).to_numpy()
    pairs, train_pairs = judged(engine, asked, split), judged(engine, learned, "train")
    truth = candidate_rows(
        "end-to-end", train_near, collection.relevant_ids("train"), index, train_vectors, learned.own
    )

    def injected(choice: str, which: str = "train", true_labels: bool = False) -> CandidateRows:
        hits, given, asked = (train_near, train_pairs, train_vectors) if which == "train" else (near, pairs, vectors)
        return candidates(hits, given, representatives(choice, index, asked, given), index, true_labels)

    def fitted(name: str, rows: CandidateRows) -> SVREnsemble:
        ensemble = SVREnsemble.as_published(n_bags=n_bags, k=k, rows_per_bag=rows_per_bag, random_state=0, n_jobs=-1)
        with stage(f"train {name}"):
            return ensemble.fit_rows(index, train_vectors, rows)

    tests = {choice: injected(choice, "test") for choice in CHOICES}
    wanted = np.concatenate([keys(rows.query, rows.passage, index) for rows in tests.values()])
    models = {"injected": fitted("injected", injected("last")), "end-to-end": fitted("end-to-end", truth)}
    votes = {}
    for name, model in models.items():
        with stage(f"votes of {name}"):
            votes[name] = Votes(model, vectors, wanted)

    def of(name: str, rows: CandidateRows, true_labels: bool = False) -> list[dict[str, Any]]:
        label = relevant_rows(rows.query, rows.passage, pairs, index) if true_labels else rows.label > 0
        return curve(votes[name][keys(rows.query, rows.passage, index)], label)

    last = tests["last"]
    found: dict[str, Any] = {
        "collection": collection.name,
        "split": split,
        "facts": facts(index, len(learned), near, pairs, last, models["injected"])
        | {"width": index.width, "rows per bag": rows_per_bag, "k": k, "bags": n_bags},
        "paper": {name: of(name, last) for name in models},
        "decisions": [
            {"model": name, "votes": least}
            | decisions(votes[name][neighbour_keys(near, index)] >= least, near, pairs, index)
            for name in models
            for least in VOTES
        ],
        "everything": decisions(np.ones(int((near.passages >= 0).sum()), dtype=bool), near, pairs, index),
        "rankings": rankings(asked, split, models, near),
        "rules": {
            name: vars(classify(said, last.label > 0))
            for name, said in rules(last, near, index, injected("last")).items()
        },
        "relevant neighbours count": {name: of(name, last, true_labels=True)[0] for name in models},
    }
    found["choices"] = {}
    for choice, rows in tests.items():
        if choice != "last":
            model = fitted(f"injected, {choice}", injected(choice))
            with stage(f"votes of injected, {choice}"):
                votes[choice] = Votes(model, vectors, keys(rows.query, rows.passage, index))
        found["choices"][choice] = {
            "absent": vars(classify(absent(rows, near, index), rows.label > 0)),
            "test only": of("injected", rows)[0],
            "train and test": of("injected" if choice == "last" else choice, rows)[0],
        }
    found["same queries"] = same_queries(index, injected("last"), fitted, len(vectors), train_vectors)
    return found


def judged(engine: Engine, batch: Batch, split: str) -> Pairs:
    """The relevant pairs of a split, but a query's own document and documents without a passage."""
    rows, documents = engine.collection.split(split).relevant_rows()
    kept = (documents != batch.own[rows]) & (np.diff(engine.passages.doc_offsets)[documents] > 0)
    return rows[kept], documents[kept]


def facts(
    index: PassageIndex, n_training: int, near: Hits, pairs: Pairs, last: CandidateRows, model: SVREnsemble
) -> dict[str, float]:
    """What the figures rest on."""
    query, _, passage, _ = near.flat()
    right = relevant_rows(query, passage, pairs, index)
    both = np.isin(keys(last.query, last.passage, index), neighbour_keys(near, index)) & (last.label > 0)
    return {
        "passages": len(index),
        "documents": len(index.doc_ids),
        "queries": len(near),
        "training queries": n_training,
        "relevant documents": len(pairs[0]),
        "candidate rows": len(last),
        "relevant neighbours called negative": int(right.sum()),
        "injected that are neighbours": int(both.sum()),
        "training rows": model.n_rows_,
        "rows of a bag": float(np.mean(model.bag_sizes_)),
    }


def rankings(batch: Batch, split: str, models: dict[str, SVREnsemble], near: Hits) -> dict[str, dict[str, float]]:
    """End to end: nothing but the query decides what is ranked."""
    engine, ids = batch.engine, batch.ids
    runs = {str(ranker): batch.run(ranker, DEPTH) for ranker in (BM25(), KNN())}
    runs["knn, the same neighbours"] = rank_documents(engine.passages, near, ids)
    for name, model in models.items():
        with stage(f"score {name}"):
            scores = model.score_candidates(batch.vectors, near.passages)
        runs[name] = rank_documents(engine.passages, Hits(near.passages, scores), ids)
    qrels = engine.collection.qrels_frame(split)
    return {name: averages(evaluate(run, qrels, MEASURES)) for name, run in runs.items()}


def same_queries(index: PassageIndex, rows: CandidateRows, fitted: Any, n: int, vectors: Any) -> dict[str, Any]:
    """A tenth of the training rows held back at random, as the paper splits; figures over n training queries."""
    kept, apart = held_back(rows, 0.1)
    drawn = np.random.default_rng(0).choice(len(vectors), size=min(n * 10, len(vectors)), replace=False)
    apart = apart.take(np.flatnonzero(np.isin(apart.query, drawn)))
    model = fitted("injected, nine tenths of the rows", kept)
    wanted = keys(apart.query, apart.passage, index)
    with stage("votes of held-back rows"):
        return curve(Votes(model, vectors, wanted)[wanted], apart.label > 0)[0]


if __name__ == "__main__":
    main()
