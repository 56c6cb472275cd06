"""Fuse the rankings of two other engines: `Learned` beside each of them, RRF, and the best grid of two weights.

    python benchmarks/bench_other_engines.py COLLECTION … --runs FOLDER [--results benchmarks/results]

FOLDER has the files that other_engine_runs.py wrote: rankings by bm25s and by semantic_search of sentence-transformers
for every split. haybale reads them as `run(FILE)`; it searches nothing. *Grid*: w · a + (1 − w) · b of the scores of
both engines, scaled to 0 to 1 within a query, with the w among 0, .05, … 1 that has the highest nDCG@10 over all the
queries of train and dev, on which the rankers learn, too. Tests are paired, over the queries of the test split,
two-sided, corrected for the comparisons of a ranker with the two; p is the larger one of the t-test and the
randomisation test.

With --times, `Learned` fuses ten runs, and ten runs are the evidence of `SVR`: five variants of each engine's, whose
scores have noise, with 100 and with 1,000 documents a query. The test split is ranked at once and query after query.
Each collection writes `other-engines-NAME.json`, of which the page is made; without collections only the page is made.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from provenance import made, measures, options, origin, read_all, read_json, table, write_json, write_page

from haybale import RRF, SVR, Engine, Learned, Ranker, Run, SimilarQueries, Stored, evaluate, open_collection
from haybale.evaluation import paired_tests
from haybale.retrieval.fusion import pooled

ENGINES = ("bm25s", "dense")
LEARNERS = ("learned", "learned, with knn-queries", "svr")
MEASURES = ("nDCG@10", "MRR@10", "Recall@100")
WEIGHTS = np.linspace(0, 1, 21)
N_SINGLE = 50  # queries that are ranked one after the other
N_VARIANTS = 5  # of each engine's runs
SPLITS = ("train", "dev", "test")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collections", nargs="*", help="pydocs, or folders with training queries")
    parser.add_argument("--runs", type=Path, help="the folder of the run files")
    parser.add_argument("--alone", action="store_true", help="leave out what learns from haybale's index, too")
    parser.add_argument("--times", action="store_true", help="measure times with ten runs, too")
    a = parser.parse_args()
    for name in a.collections:
        record = measured(name, a.runs, a.times, LEARNERS[:1] if a.alone else LEARNERS) | {
            "made": made("bench_other_engines.py", sys.argv[1:])
        }
        write_json(a.results / f"other-engines-{record['collection']}.json", record)
    write_page(a.results / "other-engines.md", page(read_all(a.results, "other-engines")))


def measured(name: str, folder: Path, with_times: bool, titles: tuple[str, ...] = LEARNERS) -> dict[str, Any]:
    """Measure one collection; ``titles`` are those of the rankers that learn."""
    collection = open_collection(name, missing_judgements="skip")
    engine, folder = Engine(collection), folder / collection.name
    files = {engine_name: [folder / f"{engine_name}-{split}.trec.gz" for split in SPLITS] for engine_name in ENGINES}
    stored = [Stored(paths) for paths in files.values()]
    qrels = {split: collection.qrels_frame(split) for split in SPLITS}
    single = {str(ranker): ranker.fit(engine) for ranker in stored}
    runs = dict(zip(ENGINES, (ranker.rank("test") for ranker in single.values()), strict=True))
    runs["rrf"] = RRF(*stored).fit(engine).rank("test")
    pairs = {split: [ranker.rank(split) for ranker in single.values()] for split in SPLITS}
    weight = best_weight(pairs, qrels)
    runs["grid"] = weighted(pairs["test"], weight)
    rows = np.concatenate([collection.splits[split].queries for split in ("train", "dev")])
    judged = collection.queries.take(rows), pd.concat([qrels["train"], qrels["dev"]])
    seconds = {}
    for title, ranker in learners(stored, titles).items():
        cpu = time.process_time()
        ranker.fit(engine, *judged)
        seconds[title] = time.process_time() - cpu
        runs[title] = ranker.rank("test")
    values = {title: evaluate(run, qrels["test"], MEASURES) for title, run in runs.items()}
    better = max(ENGINES, key=lambda title: float(values[title]["nDCG@10"].mean()))
    tests = {title: [compared(values[title], values[baseline]) for baseline in (better, "grid")] for title in titles}
    return {
        "collection": collection.name,
        "queries": {split: len(part.queries) for split, part in collection.splits.items()},
        "documents": collection.n_documents,
        "runs": read_json(folder / "runs.json"),
        "weight": weight,
        "better": better,
        "means": {title: frame.mean().to_dict() for title, frame in values.items()},
        "tests": tests,
        "seconds": seconds,
        "times": times(engine, pairs) if with_times else {},
    }


def learners(stored: list[Stored], titles: tuple[str, ...]) -> dict[str, Ranker]:
    """Return the rankers that learn, by title."""
    rankers = Learned(*stored), Learned(*stored, SimilarQueries()), SVR(stored)
    return {title: ranker for title, ranker in zip(LEARNERS, rankers, strict=True) if title in titles}


def compared(values: pd.DataFrame, baseline: pd.DataFrame) -> dict[str, float]:
    """Return the difference in nDCG@10, and p."""
    comparison = paired_tests(values["nDCG@10"].to_numpy(), baseline["nDCG@10"].to_numpy(), n_comparisons=2)
    return {"difference": comparison.difference, "p": comparison.p}


def scaled(run: Run) -> np.ndarray:
    """Return the scores of a run, scaled to 0 to 1 within each query."""
    rows, _, _, _, scores = run.coded()
    low, high = np.full(len(run), np.inf), np.full(len(run), -np.inf)
    np.minimum.at(low, rows, scores)
    np.maximum.at(high, rows, scores)
    width = high - low
    return np.where(width[rows] > 0, (scores - low[rows]) / np.where(width > 0, width, 1)[rows], 1.0)


def weighted(pair: list[Run], weight: float) -> Run:
    """Return w · a + (1 − w) · b of scaled scores; a document that a run lacks has 0 there."""
    pool = pooled(pair, pair[0].query_ids)
    scores = np.zeros(len(pool))
    for run, listing, factor in zip(pair, pool.listings, (weight, 1 - weight), strict=True):
        scores[listing.place] += factor * scaled(run.take(pair[0].query_ids))
    return Run.from_numbers(pool.query_ids, pool.doc_ids, pool.query, pool.document, scores)


def best_weight(pairs: dict[str, list[Run]], qrels: dict[str, Any]) -> float:
    """Return the weight with the highest nDCG@10 over the queries of train and dev."""

    def total(weight: float) -> float:
        return sum(
            float(evaluate(weighted(pairs[split], weight), qrels[split], ["nDCG@10"])["nDCG@10"].sum())
            for split in ("train", "dev")
        )

    return float(max(WEIGHTS, key=total))


def variants(pairs: dict[str, list[Run]], depth: int) -> list[Stored]:
    """Return ten runs of all splits: those of both engines with noise, and with other documents below."""
    rng, stored = np.random.default_rng(0), []
    for number in range(2 * N_VARIANTS):
        parts = []
        for pair in pairs.values():
            run = pair[number % 2]
            rows, _, documents, doc_ids, _ = run.coded()
            scores = 0.001 * rng.random((len(run), len(doc_ids)))
            scores[rows, documents] += scaled(run) + rng.normal(0, 0.05, len(rows))
            of_run = np.repeat(np.arange(len(run)), len(doc_ids))
            columns = np.tile(np.arange(len(doc_ids)), len(run))
            parts.append(Run.from_numbers(run.query_ids, doc_ids, of_run, columns, scores.ravel(), depth))
        stored.append(Stored(Run.joined(parts), label=f"run {number}"))
    return stored


def times(engine: Engine, pairs: dict[str, list[Run]]) -> dict[str, Any]:
    """Return milliseconds a query of ranking with ten runs, and of the SVR ensemble without evidence."""
    queries = engine.collection.queries.take(engine.collection.split("test").queries)
    found: dict[str, Any] = {}
    for depth in (100, 1000):
        stored = variants(pairs, depth)
        rankers: dict[str, Ranker] = {
            "learned": Learned(*stored),
            "svr": SVR(stored, n_bags=8, n_jobs=1),
            "svr, memory alone": SVR((), candidates=stored, n_bags=8, n_jobs=1),
        }
        for title, unfitted in rankers.items():
            ranker = unfitted.fit(engine)
            ranker.rank(queries.take(np.arange(2)))  # opens and compiles what the first call needs

            def whole(ranker: Ranker = ranker) -> None:
                ranker.rank(queries, depth=100)

            def one_by_one(ranker: Ranker = ranker) -> None:
                for row in range(min(N_SINGLE, len(queries))):
                    ranker.rank(queries.take([row]), depth=100)

            n_single = min(N_SINGLE, len(queries))
            record = {"at once": per_query(whole, len(queries)), "one by one": per_query(one_by_one, n_single)}
            found[f"{title}, {depth:,} documents a run"] = record
            print(title, depth, record, flush=True)
    return found


def per_query(work: Callable[[], Any], n: int, rounds: int = 2) -> dict[str, float]:
    """Return the least CPU milliseconds and milliseconds a query."""
    taken = []
    for _ in range(rounds):
        start, cpu = time.perf_counter(), time.process_time()
        work()
        taken.append((time.process_time() - cpu, time.perf_counter() - start))
    return {
        name: 1000 * min(values) / n for name, values in zip(("cpu", "wall"), zip(*taken, strict=True), strict=True)
    }


def page(records: list[dict[str, Any]]) -> list[str]:
    """Return the lines of the page."""
    rows, tests, timed = [], [], []
    for record in records:
        means = record["means"]
        for title in (*ENGINES, "rrf", "grid", *record["tests"]):
            name = f"grid, w {record['weight']:.2f}" if title == "grid" else title
            first = record["collection"] if title == ENGINES[0] else ""
            rows.append([first, name, *(f"{means[title][measure]:.4f}" for measure in MEASURES)])
        queries = record["queries"]
        counts = [record["collection"], queries["train"] + queries["dev"], queries["test"], record["better"]]
        for number, (title, both) in enumerate(record["tests"].items()):
            cells = [cell for test in both for cell in (f"{test['difference']:+.4f}", f"{test['p']:.4f}")]
            tests.append([*(counts if number == 0 else [""] * 4), title, *cells, record["seconds"][title]])
        for title, both in record["times"].items():
            timed.append([record["collection"], title, *(both[how][what] for how in both for what in ("cpu", "wall"))])
    lines = [
        "# Two other engines' rankings, fused",
        "",
        "bm25s over whole documents and kNN over one dense vector a document (sentence-transformers), each written as",
        "TREC run files with 100 documents a query. haybale reads the files as the ranker `run(FILE)`, and knows",
        "nothing else of the two engines. *Grid* is the best of 21 weighted sums of the two scores. *learned* is",
        "`learned(run(…),run(…))`, which has the two lists alone; *with knn-queries* fuses `knn-queries` beside them,",
        "and *svr* is `svr` with the two lists as its only evidence: both also learn which documents answered similar",
        "queries, over TF-IDF, and gain most where relevant documents recur. The grid and all that learns have the",
        "judgements of train and dev, and defaults. An earlier run, in which *learned* had the judgements of train",
        "alone, had been ranked on test before (irled .4115, obliqa-mp .5789, peps .5521, scifact .7198). The encoder",
        "is all-MiniLM-L6-v2. Texts are cut at 128 tokens, so that the dense rankings of long documents are weak.",
        "gesetze and pydocs were not measured. The machine did other work at the same time, so that CPU time says",
        "more than time.",
        *table("collection | ranking | nDCG@10 | MRR@10 | Recall@100", rows, 2),
        "",
        "The difference in nDCG@10 from the better engine (on test), and from the grid. p: paired, two-sided,",
        "corrected for two comparisons. *Fit* is the CPU seconds of `fit`.",
        *table("collection | judged | test | better engine | ranker | from it | p | from the grid | p | fit", tests, 1),
        "",
        "Milliseconds a query of ranking with ten runs: CPU time and time, the less of two rounds, of the whole",
        f"test split at once, and of {N_SINGLE} queries one after the other. *svr, memory alone* has the same",
        "candidates and no evidence, so that the difference is what the evidence costs.",
        *table("collection | ranker | at once, CPU | at once | one by one, CPU | one by one", timed, 2),
        "",
        measures("bench_other_engines.py"),
    ]
    for record in records:
        runs, command = record["runs"], record["made"]["command"]
        cut = f"{runs['encoder']}, texts cut at {runs['length']} tokens; run files: `{runs['made']['command']}`"
        lines.append(f"- {record['collection']}: `{command}`; {origin(record['made'])}; {cut}")
    return lines


if __name__ == "__main__":
    main()
