"""What the graph of a structured collection adds: rankers of passages in context, the leak, and fusion, on dev and test.

    python benchmarks/bench_graph.py pydocs FOLDER … [--results benchmarks/results]

Over LSA (256): the content alone, section propagation (its share chosen on dev), linear context, and graph attention with
one network of each kind. Over TF-IDF: the best fusion without and with what the graph knows; the last line fuses LiM over
LSA with it. Every collection writes `graph-NAME.json` as its parts are done; the page is made from these.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
from effectiveness import BEST, SEARCHES, Space, parameters, tuned_bm25
from provenance import commit, machine, options, peak_memory, shown

from haybale import Collection, LearnedFusion, Run, evaluate, open_collection, parse
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
    parser.add_argument("--only", choices=["lsa", "tfidf"], help="one part; what was measured of the other stays")
    a = parser.parse_args()
    for name in a.collections:
        measured(name, a.results, a.only)
    write(a.results)


def measured(name: str, results: Path, only: str | None) -> None:
    """Measure one collection, and keep what is known after every ranker."""
    collection, start = open_collection(name), time.process_time()
    path = results / f"graph-{collection.name}.json"
    known: dict[str, Any] = (
        json.loads(path.read_text()) if path.exists() else {"values": {}, "facts": {}, "seconds": {}}
    )
    known["made"] = {
        "command": shown("bench_graph.py", [name]),
        "commit": commit(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "processor": machine(),
    }
    known["queries"] = {split: len(part.queries) for split, part in collection.splits.items()}

    def keep(ranker: str, runs: dict[str, Run], train: Run | None = None, facts: Any = None) -> None:
        asked = runs if train is None else {**runs, "train out of fold": train}
        tables = {s: evaluate(run, collection.qrels_frame(s.partition(" ")[0]), MEASURES) for s, run in asked.items()}
        known["values"][ranker] = {s: {m: table[m].round(6).tolist() for m in MEASURES} for s, table in tables.items()}
        known["facts"][ranker] = facts or {}
        known["seconds"][ranker] = round(time.process_time() - start)
        known["peak memory"] = peak_memory()
        path.write_text(json.dumps(known, ensure_ascii=False) + "\n", encoding="utf-8")
        print(ranker, {s: round(float(t["nDCG@10"].mean()), 4) for s, t in tables.items()}, flush=True)

    lim: dict[str, Run] = {}
    if only != "tfidf":
        dense = Space(collection, "lsa", DIM)
        keep("content", dense.runs(parse("knn")))
        found = {share: dense.runs(parse(f"section-propagation({FIRST},share={share})")) for share in SHARES}
        on_dev = {share: float(_mean(collection, runs["dev"], "dev")) for share, runs in found.items()}
        best = max(on_dev, key=lambda share: on_dev[share])
        keep("section propagation", found[best], facts={"share": best})
        del found
        for text in (*MASKED, *CONTEXT[1:]):
            ranker = dense.training.fitted(parse(text))
            train = dense.training.batch.out_of_fold(ranker, 1000) if text in (*MASKED, CONTEXT[3]) else None
            keep(str(parse(text)), dense.runs(ranker), train, ranker.facts)
        lim = dense.runs(parse(CONTEXT[3]))
        lim["train"] = dense.training.batch.out_of_fold(dense.training.fitted(parse(CONTEXT[3])), 100)
        for split, run in lim.items():
            run.to_trec(results / f"graph-{collection.name}-lim-{split}.trec.gz")
    if only != "lsa":
        sparse = Space(collection, "tfidf", DIM)
        chosen = parameters(tuned_bm25(collection))
        lim = {s: Run.from_trec(results / f"graph-{collection.name}-lim-{s}.trec.gz") for s in ("train", "dev", "test")}
        for text in (WITHOUT, WITH, BEST, BOTH):
            ranker = sparse.training.fitted(set_values(parse(text), chosen))
            keep(text, sparse.runs(ranker), None, ranker.facts)
        training = sparse.training
        last = training.fitted(set_values(parse(BOTH), chosen))
        unseen = unseen_queries(training.relevant, training.batch.queries.groups)
        ids = training.batch.ids
        fusion = LearnedFusion().fit(
            {"lim": lim["train"].take(ids), "tfidf": training.batch.out_of_fold(last, 100)},
            collection.qrels_frame("train"),
            trained=["lim", "tfidf"],
            unseen=[query for query, new in zip(ids, unseen, strict=True) if new],
        )
        runs = sparse.runs(last)
        keep(FUSED, {s: fusion.fuse({"lim": lim[s].take(run.query_ids), "tfidf": run}) for s, run in runs.items()})


def _mean(collection: Collection, run: Run, split: str) -> float:
    return float(evaluate(run, collection.qrels_frame(split), ["nDCG@10"])["nDCG@10"].mean())


def write(results: Path) -> None:
    """The page, of all collections that were measured."""
    lines = [
        "# What the graph adds",
        "",
        "Structured, cited collections: passages ranked by what stands around them and what links them. A query does not see",
        f"the links of its own document, unless a line says so. Vectors over LSA have {DIM} dimensions; what is re-ordered are",
        f"the first 1,000 documents of `{FIRST}` over them. Everything was chosen on dev; test was ranked once.",
    ]
    for path in sorted(results.glob("graph-*.json")):
        known = json.loads(path.read_text())
        values, queries = known["values"], known["queries"]
        lines += ["", f"## {path.stem.removeprefix('graph-')}", ""]
        lines += [f"Queries: {', '.join(f'{split} {n:,}' for split, n in queries.items())}."]
        names = [name for name in values if name not in MASKED[1:] and name != MASKED[0]]
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
            f"{known['peak memory'] / 2**30:.1f} GiB",
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
