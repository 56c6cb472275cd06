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

import pandas as pd
from effectiveness import BEST, SEARCHES, Space, parameters, tuned_bm25
from provenance import commit, machine, options, peak_memory, shown

from haybale import Collection, LearnedFusion, Ranker, Run, evaluate, open_collection, parse
from haybale.ensemble import unseen_queries
from haybale.evaluation import paired_tests
from haybale.rankers import set_values

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
            share: mean(collection, dense.batches["dev"].run(dense.training.fitted(propagation(share)), 1000))
            for share in SHARES
        }
        best = max(on_dev, key=lambda share: on_dev[share])
        keep("section propagation", dense.runs(propagation(best)), {"share": best})
        for text in (*MASKED, *CONTEXT[1:]):
            ranker = dense.training.fitted(parse(text))
            train = dense.training.batch.out_of_fold(ranker, 1000) if text in MASKED else None
            keep(str(parse(text)), dense.runs(ranker), ranker.facts, train)
    if only in ("tfidf", "fused", None):
        sparse, chosen = Space(collection, "tfidf", DIM), parameters(tuned_bm25(collection))
    if only in ("tfidf", None):
        for text in (WITHOUT, WITH, BEST, BOTH):
            ranker = sparse.training.fitted(set_values(parse(text), chosen))
            keep(text, sparse.runs(ranker), ranker.facts)
    if only in ("fused", None):
        training, last = sparse.training, set_values(parse(BOTH), chosen)
        spaces = {"lim": (dense, parse(CONTEXT[3])), "tfidf": (sparse, last)}
        taught = {
            which: space.training.batch.out_of_fold(space.training.fitted(ranker), 100)
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
        "ranked once.",
    ]
    for path in sorted(results.glob("graph-*.json")):
        known = json.loads(path.read_text())
        values, queries = known["values"], known["queries"]
        lines += ["", f"## {path.stem.removeprefix('graph-')}", ""]
        lines += [f"Queries: {', '.join(f'{split} {n:,}' for split, n in queries.items())}."]
        names = [name for name in values if name not in MASKED[1:]]
        for split in ("dev", "test"):
            lines += ["", f"| {split} | {' | '.join(MEASURES)} |", f"| --- |{' ---: |' * len(MEASURES)}"]
            for name in names:
                row = [f"{pd.Series(values[name][split][m]).mean():.4f}" for m in MEASURES]
                lines.append(f"| {_shown(name, known)} | {' | '.join(row)} |")
        pairs = [(ours, theirs) for ours, theirs in COMPARED if ours in values and theirs in values]
        lines += ["", "| compared, nDCG@10 | dev | p | test | p |", "| --- | ---: | ---: | ---: | ---: |"]
        for ours, theirs in pairs:
            cells = []
            for split in ("dev", "test"):
                a, b = (pd.Series(values[name][split]["nDCG@10"]).to_numpy() for name in (ours, theirs))
                found = paired_tests(a, b, n_comparisons=len(pairs))
                p = max(found.p_t, found.p_randomization)
                cells += [f"{a.mean():.4f} / {b.mean():.4f} ({a.mean() / b.mean() - 1:+.1%})", f"{p:.4f}"]
            lines.append(f"| {_shown(ours, known)} / {_shown(theirs, known)} | {' | '.join(cells)} |")
        lines += [
            "",
            f"p: the larger of t-test's and randomisation test's, times {len(pairs)}.",
            "",
            "The leak, nDCG@10:",
            "",
        ]
        lines += ["| `mask` | train, out of fold | dev | weight of citing documents |", "| --- | ---: | ---: | ---: |"]
        for text in MASKED:
            name = str(parse(text))
            if name in values and "train out of fold" in values[name]:
                means = [pd.Series(values[name][s]["nDCG@10"]).mean() for s in ("train out of fold", "dev")]
                weight = known["facts"][name]["citing documents"] / known["facts"][name]["passage"]
                lines.append(f"| {text.rpartition('=')[2][:-1]} | {means[0]:.4f} | {means[1]:.4f} | {weight:.2f} |")
        lines += ["", "Weights are per that of the passage itself."]
        linear = known["facts"].get(CONTEXT[0], {})
        if linear:
            weights = {k: v / linear["passage"] for k, v in linear.items() if k not in ("training queries", "loss")}
            lines += ["", "Linear context: " + ", ".join(f"{k} {v:.2f}" for k, v in weights.items()) + "."]
        shares = {name: facts["λ"] for name, facts in known["facts"].items() if "λ" in facts}
        lines += ["", "λ learned: " + ", ".join(f"`{name}` {value:.3f}" for name, value in shares.items()) + "."]
        made = known["made"]
        lines += [
            "",
            f"- seconds of processor time until each was done: {known['seconds']}; peak memory "
            f"{max(known['peak memory'].values()) / 2**30:.1f} GiB",
        ]
        lines += [f"- command: `{made['command']}` (a folder is given by its path)"]
        lines += [f"- commit {made['commit']}, {made['date']}; {made['processor']}"]
    (results / "graph.md").write_text("\n".join([*lines, ""]), encoding="utf-8")


def _shown(name: str, known: dict[str, Any]) -> str:
    if name == "content":
        return "`knn`: the best passage, content alone"
    if name == "section propagation":
        return f"section propagation, share {known['facts'][name]['share']}"
    if name in (WITH, BOTH, WITHOUT, BEST, FUSED):
        return {WITHOUT: "`svr`", BEST: "`learned` with `svr`", FUSED: FUSED}.get(
            name, "`svr` with the graph in its evidence" if name == WITH else "`learned` with that and the graph"
        )
    return f"`{name}`"


if __name__ == "__main__":
    main()
