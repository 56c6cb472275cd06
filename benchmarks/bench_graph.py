"""What the graph of a structured collection adds: passages in context, the leak, and fusion, on dev and test.

    python benchmarks/bench_graph.py FOLDER [--only {lsa,tfidf,fused}] [--results benchmarks/results]

Over LSA (256): the content alone, section propagation (its share chosen on dev), linear context, and graph attention
with one network of each kind. Over TF-IDF: the best ranker and the best fusion without and with what the graph knows.
Fused: LiM over LSA beside that. What is known is kept in `graph-NAME.json` after every ranker, for the page.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from effectiveness import BEST, SEARCHES, Space, parameters, tuned_bm25
from provenance import cell4, commit, machine, options, peak_memory, shown, table

from haybale import Collection, LearnedFusion, Ranker, Run, evaluate, open_collection, parse
from haybale.evaluation import paired_tests
from haybale.rankers import set_values
from haybale.rankers.new_queries import unseen_queries

DIM, FIRST = 256, "knn-doc"
MEASURES = ("MRR@10", "nDCG@10", "Recall@100", "PRES@100")
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
CONTEXT = (f"linear-context({FIRST})", f"mim({FIRST})", f"mix-im({FIRST})", f"lim({FIRST})")
MASKED = tuple(f"linear-context({FIRST},mask={mask})" for mask in ("own", "relevant", "off"))
GRAPH = "linear-context(bm25-doc),linked(knn-queries),linked(bm25-doc)"
WITHOUT = "svr(evidence=[bm25,knn,bm25-doc,knn-doc,parm-rrf,parm-vrrf,knn-queries])"
WITH = f"svr(evidence=[bm25,knn,bm25-doc,knn-doc,parm-rrf,parm-vrrf,knn-queries,{GRAPH}])"
BOTH = f"learned({SEARCHES},knn-queries,{GRAPH},{WITH})"
FUSED = "LiM over LSA and the line before, fused"
COMPARED = (  # ours and theirs
    ("section propagation", "content"),
    (CONTEXT[0], "section propagation"),
    (CONTEXT[3], CONTEXT[0]),
    (CONTEXT[3], CONTEXT[1]),
    (CONTEXT[2], CONTEXT[1]),
    (CONTEXT[3], CONTEXT[2]),
    (WITH, WITHOUT),
    (BOTH, BEST),
    (FUSED, BEST),
)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collections", nargs="*", help="pydocs, or folders; none: only the page is made")
    parser.add_argument("--only", choices=["lsa", "tfidf", "fused"], help="one part; what was measured of others stays")
    a = parser.parse_args()
    for name in a.collections:
        measured(name, a.results, a.only)
    write(a.results)


def measured(name: str, results: Path, only: str | None) -> None:
    """Measure one collection, and keep what is known after every ranker."""
    collection, start = open_collection(name), time.process_time()
    path = results / f"graph-{collection.name}.json"

    def keep(ranker: str, runs: Mapping[str, Run], facts: Any = None, train: Run | None = None) -> None:
        asked = dict(runs) if train is None else {**runs, "train out of fold": train}
        tables = {s: evaluate(run, collection.qrels_frame(s.partition(" ")[0]), MEASURES) for s, run in asked.items()}
        empty: dict[str, Any] = {"values": {}, "facts": {}, "seconds": {}}
        known = json.loads(path.read_text()) if path.exists() else empty
        known["made"] = {"command": shown("bench_graph.py", [name]), "commit": commit(), "processor": machine()}
        known["made"]["date"] = f"{datetime.now(UTC):%Y-%m-%d}"
        known["queries"] = {split: len(part.queries) for split, part in collection.splits.items()}
        known["values"][ranker] = {s: {m: table[m].round(6).tolist() for m in MEASURES} for s, table in tables.items()}
        known["facts"][ranker] = facts or {}
        known["seconds"][ranker] = round(time.process_time() - start)
        known.setdefault("peak memory", {})[only or "all"] = peak_memory()
        path.write_text(json.dumps(known, ensure_ascii=False) + "\n", encoding="utf-8")
        print(ranker, {s: round(float(t["nDCG@10"].mean()), 4) for s, t in tables.items()}, flush=True)

    if only in ("lsa", "fused", None):
        dense = Space(collection, "lsa", DIM)
    if only in ("lsa", None):
        keep("content", dense.runs(parse("knn")))
        on_dev = {
            share: mean(collection, propagation(share).fitted(dense.training).run(dense.batches["dev"], 1000))
            for share in SHARES
        }
        best = max(on_dev, key=lambda share: on_dev[share])
        keep("section propagation", dense.runs(propagation(best)), {"share": best})
        for text in (*MASKED, *CONTEXT[1:]):
            ranker = parse(text).fitted(dense.training)
            train = ranker.run_out_of_fold(dense.training.batch, 1000) if text in MASKED else None
            keep(str(parse(text)), dense.runs(ranker), ranker.fit_report_, train)
    if only in ("tfidf", "fused", None):
        sparse, chosen = Space(collection, "tfidf", DIM), parameters(tuned_bm25(collection))
    if only in ("tfidf", None):
        for text in (WITHOUT, WITH, BEST, BOTH):
            ranker = sparse.training.fitted(set_values(parse(text), chosen))
            keep(text, sparse.runs(ranker), ranker.fit_report_)
    if only in ("fused", None):
        training, last = sparse.training, set_values(parse(BOTH), chosen)
        spaces = {"lim": (dense, parse(CONTEXT[3])), "tfidf": (sparse, last)}
        taught = {
            which: ranker.fitted(space.training).run_out_of_fold(space.training.batch, 100)
            for which, (space, ranker) in spaces.items()
        }
        new = unseen_queries(training.relevant, training.batch.queries.groups)
        unseen = [query for query, is_new in zip(training.batch.ids, new, strict=True) if is_new]
        fusion = LearnedFusion().fit(taught, collection.qrels_frame("train"), trained=list(taught), unseen=unseen)
        runs = {which: space.runs(ranker) for which, (space, ranker) in spaces.items()}
        fused = {split: fusion.fuse({which: of[split] for which, of in runs.items()}) for split in runs["lim"]}
        weights = fusion.weights_
        keep(FUSED, fused, dict(zip(weights["run"] + " " + weights["feature"], weights["standardised"], strict=True)))


def propagation(share: float) -> Ranker:
    return parse(f"section-propagation({FIRST},share={share})")


def mean(collection: Collection, run: Run) -> float:
    """nDCG@10 on dev."""
    return float(evaluate(run, collection.qrels_frame("dev"), ["nDCG@10"])["nDCG@10"].mean())


def write(results: Path) -> None:
    """The page, of all collections that were measured."""
    lines = [
        "# What the graph adds",
        "",
        "Structured, cited collections: passages ranked by what stands around them and what links them. A query does",
        f"not see the links of its own document, unless a line says so. Vectors over LSA have {DIM} dimensions; what",
        f"is re-ordered are the first 1,000 documents of `{FIRST}` over them. Everything was chosen on dev; test was",
        "ranked once. `mim`, `mix-im` and `lim` have equally many weights, one layer over means of ten relation paths.",
        "What the graph is in evidence and fusion, over TF-IDF:",
        f"`{GRAPH}`.",
    ]
    for path in sorted(results.glob("graph-*.json")):
        lines += page_of(path.stem.removeprefix("graph-"), json.loads(path.read_text()))
    (results / "graph.md").write_text("\n".join([*lines, ""]), encoding="utf-8")


def page_of(collection: str, known: dict[str, Any]) -> list[str]:
    """The lines of one collection."""
    values, facts = known["values"], known["facts"]
    wanted = ["content", "section propagation", *CONTEXT, WITHOUT, WITH, BEST, BOTH, FUSED]
    names, missing = ([n for n in wanted if (n in values) == there] for there in (True, False))

    def title(name: str) -> str:
        share = facts.get(name, {}).get("share", "of dev")
        known_by = {"content": "`knn`, content alone", "section propagation": f"section propagation, share {share}"}
        known_by |= {WITHOUT: "`svr`", WITH: "`svr` with the graph in its evidence", BEST: "`learned` with `svr`"}
        known_by |= {BOTH: "`learned` with that and the graph", FUSED: FUSED}
        return known_by.get(name, f"`{name}`")

    def mean_of(name: str, split: str, measure: str = "nDCG@10") -> float:
        return float(np.mean(values[name][split][measure]))

    lines = ["", f"## {collection}", ""]
    lines += [f"Queries: {', '.join(f'{split} {n:,}' for split, n in known['queries'].items())}."]
    for split in ("dev", "test"):
        rows = [[title(name), *(mean_of(name, split, measure) for measure in MEASURES)] for name in names]
        lines += table("|".join([split, *MEASURES]), rows, show=cell4)
    rows = []
    for ours, theirs in COMPARED:
        if ours in values and theirs in values:
            cells = [f"{title(ours)} / {title(theirs)}"]
            for split in ("dev", "test"):
                a, b = (np.array(values[name][split]["nDCG@10"]) for name in (ours, theirs))
                found = paired_tests(a, b, n_comparisons=len(COMPARED))
                cells.append(f"{a.mean():.4f} / {b.mean():.4f} ({a.mean() / b.mean() - 1:+.1%})")
                cells.append(f"{found.p:.4f}")
            rows.append(cells)
    lines += table("compared, nDCG@10|dev|p|test|p", rows)
    lines += ["", f"p: the larger of the t-test's and the randomisation test's, times {len(COMPARED)} comparisons."]
    if missing:
        lines += ["", f"Not measured here: {', '.join(map(title, missing))}."]
    masked = {text.rpartition("=")[2][:-1]: str(parse(text)) for text in MASKED}
    rows = [
        [
            mask,
            *(mean_of(name, split) for split in ("train out of fold", "dev", "test")),
            facts[name]["citing documents"] / facts[name]["passage"],
        ]
        for mask, name in masked.items()
        if name in values
    ]
    if rows:
        lines += [
            "",
            "The leak: linear context with other masks, nDCG@10; the weight is per that of the passage itself.",
        ]
        lines += table("`mask`|train, out of fold|dev|test|weight of citing documents", rows, show=cell4)
    if CONTEXT[0] in facts:
        linear = facts[CONTEXT[0]]
        weights = {k: v / linear["passage"] for k, v in linear.items() if k not in ("training queries", "loss")}
        lines += ["", "Weights of linear context: " + ", ".join(f"{k} {v:.2f}" for k, v in weights.items()) + "."]
    shares = {name: of["λ"] for name, of in facts.items() if "λ" in of}
    if shares:
        lines += ["", "λ learned: " + ", ".join(f"`{name}` {value:.3f}" for name, value in shares.items()) + "."]
    made, memory = known["made"], max(known["peak memory"].values()) / 2**30
    lines += ["", f"- peak memory {memory:.1f} GiB; one thread"]
    lines += [f"- command: `{made['command']}` (a folder is given by its path)"]
    return [*lines, f"- commit {made['commit']}, {made['date']}; {made['processor']}"]


if __name__ == "__main__":
    main()
