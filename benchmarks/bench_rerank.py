"""Re-rankers that read paragraphs together: what they add to the run they re-order, alone and fused; and their speed.

    python benchmarks/bench_rerank.py speed --model FOLDER
    python benchmarks/bench_rerank.py tune COLLECTION --model FOLDER --out FOLDER
    python benchmarks/bench_rerank.py effectiveness COLLECTION --model FOLDER --tuned FOLDER --work FOLDER [--test]

Half of the training queries, drawn at random, are for tuning a cross-encoder (`tune`; `halves` says which), the other
half for what is learned here, so that nothing is learned from queries that a model was tuned on. Pairs are kept in the
work folder.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from provenance import made, split_batch, timed, write_json

from haybale import (
    CrossPairs,
    Engine,
    Ranker,
    evaluate,
    interact,
    open_collection,
    parse,
    train_pair_encoder,
    training_pairs,
)
from haybale.collections import Collection
from haybale.evaluation import paired_tests
from haybale.rankers import Training
from haybale.timing import record_timings

SEARCHES = "bm25(k1=6,b=0.9,k3=0),bm25-doc(k1=18,b=1,k3=2),knn,knn-doc,parm-rrf,parm-vrrf"  # tuned on dev of irled
FIRST = "bm25(k1=6,b=0.9,k3=0)"
MEASURES = ("MRR@10", "nDCG@10", "Recall@100")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    fast = commands.add_parser("speed")
    fast.add_argument("--pairs", type=int, default=512)
    fast.add_argument("--rounds", type=int, default=5)
    fast.add_argument("--device", default="cpu")
    fast.add_argument("--collection", default="pydocs")
    fast.set_defaults(run=speed)
    tuned = commands.add_parser("tune")
    tuned.add_argument("collection")
    tuned.add_argument("--out", type=Path, required=True)
    tuned.add_argument("--queries", type=int, help="of the first half; default: all")
    tuned.add_argument("--rows", type=int, default=1000, help="of training pairs, a positive and a negative each")
    tuned.add_argument("--per-document", type=int, default=4)
    tuned.add_argument("--longest", type=int, help="characters of a text; rows with a longer one are left out")
    tuned.set_defaults(run=tune)
    good = commands.add_parser("effectiveness")
    good.add_argument("collection")
    good.add_argument("--tuned", help="a cross-encoder that was trained on the first half of the training queries")
    good.add_argument("--work", type=Path, required=True)
    good.add_argument("--k", type=int, default=20)
    good.add_argument("--n", type=int, default=8)
    good.add_argument("--n-train", type=int, help="queries that rankers learn from; default: half of all")
    good.add_argument("--m", type=int, default=1)
    good.add_argument("--pairs", type=int, default=4, help="of a document that a cross-encoder reads")
    good.add_argument("--only", action="append", help="rankers by name, beside the first stage and `learned`")
    good.add_argument("--test", action="store_true")
    good.set_defaults(run=effectiveness)
    for command in (fast, tuned, good):
        command.add_argument("--model", required=command is not good, help="a BERT")
        command.add_argument("--max-length", type=int, default=128)
        command.add_argument("--precision", default="bfloat16")
    a = parser.parse_args()
    a.run(a)


def halves(collection: Collection, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the training queries for tuning a cross-encoder, and of those that rankers learn from."""
    order = np.random.default_rng(seed).permutation(collection.split("train").queries)
    return np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])


def tune(a: Any) -> None:
    """A pair encoder of the first half of the training queries: stage 1."""
    before = time.process_time()
    rows = tuning_rows(a)
    made_in = time.process_time()
    how = {"max_length": a.max_length, "precision": a.precision, "device": "cpu"}
    done = train_pair_encoder(a.model, rows, a.out, learning_rate=2e-4, frozen_layers=1, **how)
    record = vars(done) | {"queries": rows["query_id"].nunique(), "CPU-seconds of rows": round(made_in - before)}
    record |= {"CPU-seconds of training": round(time.process_time() - made_in)}
    print(json.dumps(record | {"made": origin("tune", a)}, indent=1))


def tuning_rows(a: Any) -> pd.DataFrame:
    """``anchor``, ``positive``, ``negative``; with ``--longest`` texts of 60 characters to so many, and no others.

    Of long paragraphs a model that reads 128 tokens of a pair sees the beginnings, where what made them match is not.
    """
    collection = open_collection(a.collection)
    tuning = halves(collection)[0]
    if a.queries is not None and a.queries < len(tuning):
        tuning = np.sort(np.random.default_rng(5).permutation(tuning)[: a.queries])
    asked = collection.queries.take(tuning)
    qrels = collection.qrels_frame("train")
    how: dict[str, Any] = {"per_paragraph": 2, "per_document": a.per_document, "negatives": "random"}
    how["n_negatives"] = 1 if a.longest is None else 3
    found = training_pairs(Engine(collection), asked, qrels[qrels["query_id"].isin(asked.ids.to_pylist())], **how)
    rows = found.to_pandas()
    if a.longest is not None:  # the first of three negatives that is not too long either
        several = [f"negative_{i}" for i in (1, 2, 3)]
        texts_of = ["anchor", "positive", *several]
        short = {name: rows[name].str.len().between(60, a.longest).to_numpy() for name in texts_of}
        fits = np.stack([short[name] for name in several], axis=1)
        kept = np.flatnonzero(short["anchor"] & short["positive"] & fits.any(axis=1))
        texts = rows[several].to_numpy()[kept, fits[kept].argmax(axis=1)]
        rows = rows.drop(columns=several).iloc[kept].assign(negative=texts)
    chosen = np.random.default_rng(0).permutation(len(rows))[: a.rows]
    return rows.iloc[np.sort(chosen)]


def speed(a: Any) -> None:
    """Pairs a second of CrossPairs and of sentence-transformers' CrossEncoder.predict, by turns, at equal numbers.

    Pairs are of paragraphs drawn at random, each query paragraph with 16 passages, as in re-ranking.
    """
    from sentence_transformers import CrossEncoder

    collection, rng = open_collection(a.collection), np.random.default_rng(0)
    texts = [collection.passages.texts[int(i)].as_py() for i in rng.choice(collection.n_passages, 16 * 40)]
    paragraphs = collection.queries.paragraphs
    asked = [paragraphs[int(i)].as_py() for i in rng.choice(len(paragraphs), 40)]
    which = np.stack(np.divmod(rng.choice(40 * len(texts), a.pairs, replace=False), len(texts)), axis=1)
    ours = CrossPairs(a.model, read="score", max_length=a.max_length, precision="float32", device=a.device)
    theirs = CrossEncoder(a.model, device=a.device, max_length=a.max_length)
    pairs = [(asked[i], texts[j]) for i, j in which]
    rates: dict[str, list[float]] = {"ours": [], "theirs": []}
    cpu: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(a.rounds + 1):  # the first warms up
        found = {}
        for name, work in (
            ("ours", lambda: ours.encode(asked, texts, which)[:, 0]),
            ("theirs", lambda: theirs.predict(pairs, batch_size=32, show_progress_bar=False)),
        ):
            ours._tokens._made.clear()  # tokens of before are not kept
            before = time.process_time()
            seconds, found[name] = timed(work)
            rates[name].append(len(pairs) / seconds)
            cpu[name].append(len(pairs) / (time.process_time() - before))
        np.testing.assert_allclose(found["ours"], found["theirs"], atol=1e-4)
    record: dict[str, Any] = {"largest difference": float(np.abs(found["ours"] - found["theirs"]).max())}
    for name in rates:
        record[name] = {
            "pairs/s": round(float(np.median(rates[name][1:])), 1),
            "pairs/CPU-s": round(float(np.median(cpu[name][1:])), 1),
        }
    ratios = np.array(cpu["ours"][1:]) / np.array(cpu["theirs"][1:])
    record["ratio of pairs/CPU-s, by round"] = [round(float(each), 2) for each in sorted(ratios)]
    rough = CrossPairs(a.model, read="score", max_length=a.max_length, precision="bfloat16", device=a.device)
    times = []
    for _ in range(3):
        before = time.process_time()
        scores = rough.encode(asked, texts, which)[:, 0]
        times.append(len(pairs) / (time.process_time() - before))
    record["ours, bfloat16"] = {
        "pairs/CPU-s": round(float(np.median(times)), 1),
        "largest difference": float(np.abs(scores - found["ours"]).max()),
    }
    print(json.dumps(record | {"made": origin("speed", a)}, indent=1))


def effectiveness(a: Any) -> None:
    engine = Engine.build(a.collection, a.work / "engine")
    collection = engine.collection
    tuning, learning = halves(collection)
    learning = np.sort(np.random.default_rng(1).permutation(learning)[: a.n_train])
    splits = {"train": learning, "dev": collection.split("dev").queries}
    if a.test:
        splits["test"] = collection.split("test").queries
    first = parse(FIRST).fit(engine)
    record: dict[str, Any] = {"queries": {name: len(numbers) for name, numbers in splits.items()}, "read": {}}
    record["tuned on"] = len(tuning)
    for split, numbers in splits.items() if a.model else ():
        pairs = CrossPairs(a.model, max_length=a.max_length, precision=a.precision, device="cpu")
        asked = collection.queries.take(numbers)
        how = {"k": a.k, "n": a.n, "m": a.m, "select": "best"}
        done = interact(engine, asked, first.rank(asked), pairs, a.work / split, **how)
        record["read"][split] = {"pairs": done.pairs + done.kept, "rate now": done.rates}
        print(split, done, flush=True)
    qrels = collection.qrels_frame("train")
    learned_ids = set(collection.queries.take(learning).ids.to_pylist())
    training = Training.of(engine, collection.queries.take(learning), qrels[qrels["query_id"].isin(learned_ids)])
    batches = {split: split_batch(engine, split) for split in splits if split != "train"}
    read = f"n_documents={a.k},n={a.n},m={a.m},max_length={a.max_length},precision={a.precision},device=cpu"
    stores = ",".join(f"'{folder}'" for folder in (a.work / split for split in splits))
    pli = f"pli({FIRST},model='{a.model}',store=[{stores}],{read})"
    named = {"first": FIRST, "learned": f"learned({SEARCHES})"}
    products = f"pli({FIRST},n_documents={a.k},n={a.n},m={a.m})"
    for name, ranker in ({"pli, products of LSA": products} | ({"pli": pli} if a.model else {})).items():
        named[name] = ranker
        named[f"{name}, no residual"] = ranker[:-1] + ",residual=false)"
        named[f"{name}, no residual, binary"] = ranker[:-1] + ",residual=false,loss=binary)"
        named[f"learned with {name}"] = f"learned({SEARCHES},{ranker})"
    more = f"n_documents={a.k},n_pairs={a.pairs},max_length={a.max_length},device=cpu"
    if a.model:
        named["maxsim"] = f"maxsim({FIRST},model='{a.model}',{more},aggregation=mean)"
        named["learned with maxsim"] = f"learned({SEARCHES},{named['maxsim']})"
    if a.tuned:
        for name, how in (("cross, max", "aggregation=max"), ("cross, mean of 3", "aggregation=mean")):
            named[name] = f"cross-encoder({FIRST},model='{a.tuned}',{more},precision={a.precision},{how})"
        named["learned with cross, mean of 3"] = f"learned({SEARCHES},{named['cross, mean of 3']})"
    if a.only:
        named = {name: text for name, text in named.items() if name in ("first", "learned", *a.only)}
    found: dict[str, Any] = {}
    tables: dict[str, dict[str, Any]] = {split: {} for split in batches}
    for name, text in named.items():
        with record_timings() as stages:
            ranker: Ranker = parse(text)._fitted_copy(training)
            for split, batch in batches.items():
                run = ranker.run(batch, 100)
                tables[split][name] = evaluate(run, collection.qrels_frame(split), MEASURES)
        found[name] = {"ranker": text, "seconds": dict(stages.seconds), "facts": ranker.fit_report_}
        for split in batches:  # learned runs stand beside the one without
            values, base = tables[split][name], tables[split]["learned" if name.startswith("learned ") else "first"]
            test = paired_tests(values["nDCG@10"].to_numpy(), base["nDCG@10"].to_numpy())
            means = {measure: round(float(values[measure].mean()), 4) for measure in MEASURES}
            found[name][split] = means | {"difference": round(test.difference, 4), "p_t": round(test.p_t, 4)}
        print(name, {split: found[name][split] for split in batches}, flush=True)
        path = a.work / ("test.json" if a.test else "dev.json")
        write_json(path, record | {"rankers": found, "made": origin("effectiveness", a)})


def origin(command: str, a: Any) -> dict[str, Any]:
    return made("bench_rerank.py", [command]) | {name: str(value) for name, value in vars(a).items() if name != "run"}


if __name__ == "__main__":
    main()
