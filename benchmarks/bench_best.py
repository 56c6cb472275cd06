"""One ranker for every collection: all that learns and all that searches, fused; beside tuned BM25 and its own parts.

    python benchmarks/bench_best.py COLLECTION … [--encoder FOLDER --work FOLDER] [--results benchmarks/results]
    python benchmarks/bench_best.py COLLECTION … --curve

The policy: BM25's parameters by `tune_bm25` on dev, `Learned()` as its defaults are, and, where an encoder is given
that reads the collection's language, searches in its space, which are also evidence of `svr`. Nothing else is chosen.
Every collection writes `best-NAME.json`, of which the page is made: also what other shares of the loss for new queries
give on dev, with the ceiling of who knew which are new, and the policy adapted to test queries of one kind. Without
collections only the page is made. --curve: rankers that learn from few judged queries and from many, on dev;
`curve-NAME.json`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import best_pages
import numpy as np
from best_pages import BM25S, KNNS, LEARNED, MEASURES, RRF, WEIGHTED
from effectiveness import (
    SHARES,
    SPLITS,
    UNSEEN_SHARE,
    Space,
    by_relevant,
    described,
    parameters,
    tuned_bm25,
)
from provenance import made, options, peak_memory, printed_stages, write_json, write_page

from haybale import (
    SVR,
    Engine,
    InSpace,
    Learned,
    Ranker,
    Run,
    SentenceTransformerEncoder,
    evaluate,
    open_collection,
    parse,
)
from haybale.rankers import QueryBatch, Training, set_all, set_values

PARTS = (*BM25S, *KNNS, "parm-rrf", "parm-vrrf", WEIGHTED, "knn-queries", "svr")
COUNTS = (10, 30, 100, 300, 1000)
FEW = 20  # test queries of a kind, for a figure of it
TOLD = (
    "unseen share",
    "new training queries",
    "new training queries, nDCG@10",
    "best ranker that learns no documents, nDCG@10",
)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collections", nargs="*", help="pydocs, or folders; none: only the page is made")
    parser.add_argument("--encoder", help="a folder of sentence-transformers that reads these collections' language")
    parser.add_argument("--work", type=Path, help="for engines of that encoder, which are large")
    parser.add_argument("--length", type=int, default=256, help="tokens at which its texts are cut")
    parser.add_argument("--dtype", default="float32", help="of its products: bfloat16 where the processor has AMX")
    parser.add_argument("--curve", action="store_true", help="rankers by the number of training queries")
    a = parser.parse_args()
    for name in a.collections if a.curve else ():
        found = curve(name)
        write_json(a.results / f"curve-{found['collection']}.json", found, indent=None)
    for name in () if a.curve else a.collections:
        record = measured(name, a.encoder, a.work, a.length, a.dtype)
        write_json(a.results / f"best-{record['collection']['name']}.json", record, indent=None)
    write_page(a.results / "best.md", best_pages.whole(a.results))


def measured(name: str, encoder: str | None, work: Path | None, length: int, dtype: str) -> dict[str, Any]:
    """Measure one collection; the record has the values of every query."""
    start = time.process_time()
    collection = open_collection(name, missing_judgements="skip")
    with printed_stages():
        chosen = parameters(tuned_bm25(collection))
        space = Space(collection, "tfidf")
        rankers = {part: parse(part) for part in PARTS} | {LEARNED: parse("learned")}
        if encoder is not None and work is not None:
            folder = work / collection.name
            neural_encoder = SentenceTransformerEncoder(encoder, dtype=dtype, max_length=length)
            _ = Engine.build(collection, folder, encoder=neural_encoder).passages
            policy = Learned(spaces=[str(folder)])
            fused = policy.nested()
            rankers |= {f"neural {each.ranker}": each for each in fused if isinstance(each, InSpace)}
            rankers |= {"neural svr": next(each for each in fused if isinstance(each, SVR)), "policy": policy}
        values: dict[str, dict[str, Any]] = {split: {} for split in SPLITS}
        facts = {}
        for title, ranker in zip(rankers, set_all(list(rankers.values()), chosen), strict=True):
            for split, run in space.runs(ranker).items():
                found = evaluate(run, collection.qrels_frame(split), MEASURES).reindex(space.batches[split].ids)
                values[split][title] = {m: found[m].round(6).tolist() for m in MEASURES}
            facts[title] = {
                key: value for key, value in ranker._fitted_copy(space.training).fit_report_.items() if key in TOLD
            }
            print(title, round(float(np.nanmean(values["dev"][title]["nDCG@10"])), 4), flush=True)
    if "policy" not in rankers:
        for of in (*values.values(), facts):
            of["policy"] = of[LEARNED]
    groups = {split: {g: m.tolist() for g, m in by_relevant(collection, split).items()} for split in SPLITS}
    [best] = set_all([rankers.get("policy", rankers[LEARNED])], chosen)
    arguments = [name, *(["--encoder", encoder, "--length", str(length), "--dtype", dtype] if encoder else [])]
    return {
        "collection": described(collection),
        "neural": encoder is not None,
        "bm25": chosen,
        "values": values,
        "groups": groups,
        "facts": {key: facts[key] for key in (LEARNED, "policy")},
        "shares": by_share(space, best),
        "adapted": adapted(space, best, groups["test"]),
        "CPU seconds": round(time.process_time() - start),
        "peak memory": peak_memory(),
        "made": made("bench_best.py", arguments),
    }


def by_share(space: Space, best: Ranker) -> dict[str, list[float]]:
    """nDCG@10 of every query of dev, by the share of the loss for new queries that the weights were learned with."""
    batch, found = space.batches["dev"], {}
    for share in SHARES:
        run = set_values(best, {UNSEEN_SHARE: share})._fitted_copy(space.training).run(batch, 100)
        found[f"{share:g}"] = ndcg(batch, run, "dev")
    return found


def adapted(space: Space, best: Ranker, groups: dict[str, list[bool]]) -> dict[str, dict[str, Any]]:
    """Adapt the policy to test queries of one kind, given without judgements: all seen in training, or all new."""
    fitted, found = best._fitted_copy(space.training), {}
    for group, members in {"all": [True] * len(next(iter(groups.values()))), **groups}.items():
        rows = np.flatnonzero(members)
        if len(rows) >= FEW and fitted.new_queries_ is not None:
            batch = space.batches["test"].take(rows)
            ranker = fitted.adapted(batch.queries)
            run = ranker.run(batch, 100)
            told = {"expected": ranker.fit_report_["queries expected to be new"], "share": ranker.unseen_share}
            found[group] = told | {"rows": rows.tolist(), "nDCG@10": ndcg(batch, run, "test")}
    return found


def ndcg(batch: QueryBatch, run: Run, split: str) -> list[float]:
    found = evaluate(run, batch.engine.collection.qrels_frame(split), ["nDCG@10"])["nDCG@10"].reindex(batch.ids)
    return list(found.round(6))


def curve(name: str) -> dict[str, Any]:
    """Return nDCG@10 on dev of rankers that learned from ever more training queries, drawn at random."""
    collection = open_collection(name, missing_judgements="skip")
    space = Space(collection, "tfidf")
    engine, qrels = space.training.batch.engine, collection.qrels_frame("train")
    drawn = np.random.default_rng(0).permutation(collection.split("train").queries)
    dev = space.batches["dev"]

    def value(training: Training, ranker: str) -> float:
        run = parse(ranker)._fitted_copy(training).run(dev, 100)
        return float(evaluate(run, collection.qrels_frame("dev"), ["nDCG@10"])["nDCG@10"].mean())

    plain = {ranker: value(space.training, ranker) for ranker in (*BM25S, *KNNS, "parm-vrrf", RRF)}
    rows = []
    for n in sorted({min(n, len(drawn)) for n in COUNTS}):
        queries = collection.queries.take(np.sort(drawn[:n]))
        of = qrels[qrels["query_id"].isin(queries.ids.to_pylist())]
        training = Training.of(engine, queries, of)
        rows.append({"queries": n, **{ranker: value(training, ranker) for ranker in ("knn-queries", "svr", LEARNED)}})
        print(rows[-1], flush=True)
    origin = made("bench_best.py", [name, "--curve"])
    return {"collection": collection.name, "plain": plain, "rows": rows, "made": origin}


if __name__ == "__main__":
    main()
