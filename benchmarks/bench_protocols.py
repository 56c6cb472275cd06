"""The ensemble paper's protocol beside end-to-end retrieval, with the same models, on the same queries.

    python benchmarks/bench_protocols.py FOLDER … [--split dev] [--width 256] [--rows-per-bag 8000]

Writes results/protocols-<collection>-<split>.md and .json. FOLDER may be pydocs. Every model has the paper's settings
(35 bags of rows, 50 candidates, z-scores, one γ) on LSA vectors; bags are cut to --rows-per-bag.

Bönisch & Mehler (LIRAI 2024) judge a candidate, a (query, passage) row, right or wrong. Rows are
:class:`haybale.ensemble.CandidateRows` here as well, so that training and test are made by the same function.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from papers.injected import classify
from protocol_tables import page
from provenance import options, printed_stages, provenance, shown, split_batch, write_json

from haybale import BM25, KNN, Engine, Hits, PassageIndex, SVREnsemble, rank_documents
from haybale.ensemble import CandidateRows, candidate_rows
from haybale.evaluation import averages, evaluate
from haybale.rankers import QueryBatch, Training
from haybale.timing import timed

MEASURES = ("MRR@10", "nDCG@10", "Recall@100")
CHOICES = ("last", "random", "nearest")  # of the passage that is injected
VOTES = (1, 2, 5, 10, 18)
BAGS, K, DEPTH = 35, 50, 1000
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Pairs = tuple[Ints, Ints]  # (query rows, document numbers) of the relevant documents


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collections", nargs="+", help="pydocs, or folders")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--width", type=int, default=256, help="of the LSA vectors")
    parser.add_argument("--rows-per-bag", type=int, default=8000)
    a = parser.parse_args()
    for name in a.collections:
        engine = Engine(name, encoder=f"lsa(n_components={a.width})")
        with printed_stages() as stages:
            found = compared(engine, a.split, a.rows_per_bag)
        found |= {"seconds": stages.seconds, "provenance": provenance(shown("bench_protocols.py", sys.argv[1:]))}
        path = a.results / f"protocols-{engine.collection.name}-{a.split}"
        write_json(path.with_suffix(".json"), found)
        path.with_suffix(".md").write_text(page(found), encoding="utf-8")


def compared(engine: Engine, split: str, rows_per_bag: int, n_bags: int = BAGS, k: int = K) -> dict[str, Any]:
    """All figures of one collection, as JSON."""
    collection, index = engine.collection, engine.passages
    asked, learned = split_batch(engine, split), Training.of(engine).batch
    vectors, train_vectors = asked.vectors, learned.vectors
    with timed("search kNN"):
        near = index.search(vectors, k, exclude=asked.own).to_numpy()
    with timed("search kNN (train)"):
        train_near = index.search(train_vectors, k, exclude=learned.own).to_numpy()
    pairs, train_pairs = judged(engine, asked, split), judged(engine, learned, "train")

    def injected(choice: str, test: bool = False) -> CandidateRows:
        hits, given, asked = (near, pairs, vectors) if test else (train_near, train_pairs, train_vectors)
        return candidates(hits, given, representatives(choice, index, asked, given), index)

    def fitted(name: str, rows: CandidateRows) -> SVREnsemble:
        ensemble = SVREnsemble.as_published(n_bags=n_bags, k=k, rows_per_bag=rows_per_bag, random_state=0, n_jobs=-1)
        with timed(f"train {name}"):
            return ensemble.fit_rows(index, train_vectors, rows)

    tests = {choice: injected(choice, test=True) for choice in CHOICES}
    last, learned_last = tests["last"], injected("last")
    wanted = np.concatenate([keys(rows.query, rows.passage, index) for rows in tests.values()])
    truth = candidate_rows(
        "end-to-end", train_near, collection.relevant_ids("train"), index, train_vectors, learned.own
    )
    models = {"injected": fitted("injected", learned_last), "end-to-end": fitted("end-to-end", truth)}
    votes = {name: Votes(name, model, vectors, wanted) for name, model in models.items()}

    def of(name: str, rows: CandidateRows, label: Flags | None = None) -> list[dict[str, Any]]:
        return curve(votes[name][keys(rows.query, rows.passage, index)], rows.label > 0 if label is None else label)

    right = relevant_rows(last.query, last.passage, pairs, index)
    neighbour = ~absent(last, near, index)
    found: dict[str, Any] = {
        "collection": collection.name,
        "split": split,
        "facts": {
            "passages": len(index),
            "documents": len(index.doc_ids),
            "queries": len(near),
            "training queries": len(learned),
            "relevant documents": len(pairs[0]),
            "candidate rows": len(last),
            "relevant neighbours called negative": int((right & (last.label == 0)).sum()),
            "injected that are neighbours": int((neighbour & (last.label > 0)).sum()),
            "rows of a bag": float(np.mean(models["injected"].bag_sizes_)),
            "width": int(index.vectors.shape[1]),
            "rows per bag": rows_per_bag,
            "k": k,
            "bags": n_bags,
        },
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
            name: asdict(classify(said, last.label > 0))
            for name, said in rules(last, near, index, learned_last).items()
        },
        "relevant neighbours count": {name: of(name, last, right)[0] for name in models},
        "choices": {},
    }
    for choice, rows in tests.items():
        if choice != "last":
            model = fitted(f"injected, {choice}", injected(choice))
            votes[choice] = Votes(f"injected, {choice}", model, vectors, keys(rows.query, rows.passage, index))
        found["choices"][choice] = {
            "absent": asdict(classify(absent(rows, near, index), rows.label > 0)),
            "test only": of("injected", rows)[0],
            "train and test": of("injected" if choice == "last" else choice, rows)[0],
        }
    # A tenth of the training rows held back at random, as the paper splits; figures over some of its queries.
    kept, apart = held_back(learned_last, 0.1)
    drawn = np.random.default_rng(0).choice(len(learned), size=min(len(vectors) * 10, len(learned)), replace=False)
    apart = apart.take(np.flatnonzero(np.isin(apart.query, drawn)))
    wanted = keys(apart.query, apart.passage, index)
    model = fitted("injected, nine tenths of the rows", kept)
    said = Votes("held-back rows", model, train_vectors, wanted)[wanted]
    return found | {"same queries": curve(said, apart.label > 0)[0]}


def judged(engine: Engine, batch: QueryBatch, split: str) -> Pairs:
    """The relevant pairs of a split, but a query's own document and documents without a passage."""
    rows, documents = engine.collection.split(split).relevant_rows()
    usable = (documents != batch.own[rows]) & (np.diff(engine.passages.doc_offsets)[documents] > 0)
    return rows[usable], documents[usable]


def rankings(batch: QueryBatch, split: str, models: dict[str, SVREnsemble], near: Hits) -> dict[str, dict[str, float]]:
    """End to end: nothing but the query decides what is ranked."""
    engine, ids = batch.engine, batch.ids
    runs = {str(ranker): ranker.run(batch, DEPTH) for ranker in (BM25(), KNN())}
    runs["knn, the same neighbours"] = rank_documents(engine.passages, near, ids)
    for name, model in models.items():
        with timed(f"score {name}"):
            scores = model.score_candidates(batch.vectors, near.passages)
        runs[name] = rank_documents(engine.passages, Hits(near.passages, scores), ids)
    qrels = engine.collection.qrels_frame(split)
    return {name: averages(evaluate(run, qrels, MEASURES)) for name, run in runs.items()}


def representatives(choice: str, index: PassageIndex, vectors: Any, pairs: Pairs, seed: int = 0) -> Ints:
    """(n_pairs,) one passage of each relevant document: its last, a random one, or the nearest to the query."""
    starts, ends = index.doc_offsets[pairs[1]], index.doc_offsets[pairs[1] + 1]
    if choice == "last":
        return ends - 1
    if choice == "random":
        return starts + np.random.default_rng(seed).integers(ends - starts)
    spans = zip(pairs[0], starts, ends, strict=True)
    return np.array([start + np.argmax(index.vectors[start:end] @ vectors[row]) for row, start, end in spans])


def candidates(near: Hits, pairs: Pairs, injected: Ints, index: PassageIndex) -> CandidateRows:
    """The neighbours of each query, labelled 0, and the injected passages, labelled 1, whether neighbours or not."""
    query, _, passage, _ = near.flat()
    label = np.repeat([0, 1], [len(query), len(injected)]).astype(np.int8)
    query, passage = np.concatenate((query, pairs[0])), np.concatenate((passage, injected))
    order = np.argsort(query, kind="stable")
    return CandidateRows(query[order].astype(np.int32), passage[order].astype(np.int32), label[order])


def relevant_rows(query: Ints, passage: Ints, pairs: Pairs, index: PassageIndex) -> Flags:
    """(n,) whether a passage belongs to a document that is relevant to the query."""
    n = len(index.doc_ids)
    return np.isin(query.astype(np.int64) * n + index.doc_of[passage], pairs[0] * n + pairs[1])


def keys(query: NDArray[Any], passage: NDArray[Any], index: PassageIndex) -> Ints:
    """(n,) one number for each (query, passage)."""
    return query.astype(np.int64) * len(index) + passage


def neighbour_keys(near: Hits, index: PassageIndex) -> Ints:
    query, _, passage, _ = near.flat()
    return keys(query, passage, index)


class Votes:
    """How many bags of an ensemble vote for each of some (query, passage) pairs, each asked for once."""

    def __init__(self, name: str, ensemble: SVREnsemble, vectors: Any, wanted: Ints) -> None:
        index = ensemble.index_
        self._keys = np.unique(wanted)
        query, passage = np.divmod(self._keys, len(index))
        at = np.arange(len(query)) - np.searchsorted(query, query)
        asked = np.full((len(vectors), at.max(initial=0) + 1), -1)
        asked[query, at] = passage
        with timed(f"votes of {name}"):
            self._votes = ensemble.votes(vectors, asked)[asked >= 0]

    def __getitem__(self, wanted: Ints) -> Ints:
        return np.asarray(self._votes[np.searchsorted(self._keys, wanted)])


def curve(votes: Ints, label: Flags) -> list[dict[str, Any]]:
    """Figures of the positive class at each number of votes."""
    return [{"votes": least} | asdict(classify(votes >= least, label)) for least in VOTES]


def absent(rows: CandidateRows, near: Hits, index: PassageIndex) -> Flags:
    """(n,) whether a candidate is none of the query's neighbours: its cosine is below that of the last of them."""
    return ~np.isin(keys(rows.query, rows.passage, index), neighbour_keys(near, index))


def rules(rows: CandidateRows, near: Hits, index: PassageIndex, seen: CandidateRows) -> dict[str, Flags]:
    """What rules say of candidates that do not ask whether the passage answers the query.

    ``seen``: the candidates of training queries, for the one rule that learns: it knows passages, but no query.
    """
    _, which, count = np.unique(keys(rows.query, rows.passage, index), return_inverse=True, return_counts=True)
    injected = np.bincount(seen.passage[seen.label > 0], minlength=len(index))
    neighbour = np.bincount(seen.passage[seen.label == 0], minlength=len(index))
    put = absent(rows, near, index)
    return {
        "everything": np.ones(len(rows), dtype=bool),
        "last": index.doc_offsets[index.doc_of[rows.passage] + 1] - 1 == rows.passage,
        "seen": (injected > neighbour)[rows.passage],
        "absent": put,
        "absent or twice": put | (count[which] > 1),
    }


def decisions(said: Flags, near: Hits, pairs: Pairs, index: PassageIndex) -> dict[str, float]:
    """Real neighbours that are said to be relevant, (n_neighbours,), against the judgements of all documents.

    ``precision`` is the share of said passages whose document is relevant; ``recall`` the share of all relevant
    documents, neighbours or not, of which a passage was said.
    """
    query, _, passage, _ = near.flat()
    right = relevant_rows(query, passage, pairs, index)
    found = np.unique((query * len(index.doc_ids) + index.doc_of[passage])[said & right])
    precision = float(right[said].mean()) if said.any() else 0.0
    recall = len(found) / len(pairs[0])
    return {
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / (precision + recall) if len(found) else 0.0,
        "said a query": float(said.sum() / len(near)),
        "queries answered": float(len(np.unique(query[said])) / len(near)),
    }


def held_back(rows: CandidateRows, share: float, seed: int = 0) -> tuple[CandidateRows, CandidateRows]:
    """Rows to train on and a random share of them held back: a query has rows on both sides."""
    drawn = np.random.default_rng(seed).random(len(rows)) < share
    return rows.take(np.flatnonzero(~drawn)), rows.take(np.flatnonzero(drawn))


if __name__ == "__main__":
    main()
