"""What the graph of a structured collection adds: passages in context, the leak, and fusion, on dev and test.

    python benchmarks/bench_graph.py FOLDER [--only {lsa,paper,tfidf,fused}] [--results benchmarks/results]
    python benchmarks/bench_graph.py FOLDER --only token --model FOLDER [--length 64] [--learned 64] [--ranked 100]

Over LSA (256): the content alone, section propagation (its share chosen on dev), linear context, and graph attention
with one network of each kind. Paper: the same networks as the paper has them. Over TF-IDF: the best ranker and the best
fusion, without and with the graph. Fused: LiM over LSA beside that. Token: graph attention over token matrices of a
text model, beside LiM over LSA that re-ranks as few documents; it learns from `--learned` training queries and ranks at
most `--ranked` queries of each split. After every ranker, its results are written to `graph-NAME.json`, from which the
page is made.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from effectiveness import BEST, SEARCHES, Space, parameters, tuned_bm25
from provenance import cell4, commit, machine, measures, options, origin, peak_memory, shown, table

from haybale import Collection, LearnedFusion, Run, evaluate, open_collection, parse
from haybale.context import TokenContext, token_context
from haybale.evaluation import paired_tests
from haybale.rankers import set_values
from haybale.rankers.models.new_queries import unseen_queries

DIM, FIRST, SECTIONS = 256, "knn-doc", "section propagation"
MEASURES = ("MRR@10", "nDCG@10", "Recall@100", "PRES@100")
SHARES = tuple(n / 10 for n in range(1, 10))  # of section propagation
CONTEXT = LINEAR, MIM, MIX, LIM = tuple(f"{name}({FIRST})" for name in ("linear-context", "mim", "mix-im", "lim"))
PAPER = tuple(f"{name}-paper({FIRST})" for name in ("mim", "mix-im", "lim"))
MASKED = {mask: str(parse(f"linear-context({FIRST},mask={mask})")) for mask in ("own", "relevant", "off")}
GRAPH = "linear-context(bm25-doc),linked(knn-queries),linked(bm25-doc)"
WITHOUT = "svr(evidence=[bm25,knn,bm25-doc,knn-doc,parm-rrf,parm-vrrf,knn-queries])"
WITH = f"svr(evidence=[bm25,knn,bm25-doc,knn-doc,parm-rrf,parm-vrrf,knn-queries,{GRAPH}])"
BOTH = f"learned({SEARCHES},knn-queries,{GRAPH},{WITH})"
FUSED = "LiM over LSA and the line before, fused"
COMPARED = (  # ours and theirs
    *((SECTIONS, "content"), (LINEAR, SECTIONS), (LIM, LINEAR), (LIM, MIM), (MIX, MIM), (LIM, MIX)),
    *((WITH, WITHOUT), (BOTH, BEST), (FUSED, BEST)),
)
FEW = 20  # documents that the token part re-ranks
SMALL = f"lim({FIRST},n_documents={FEW})"
TOKENS = TOKEN_LIM, TOKEN_MIM, TOKEN_MIX = tuple(f"token-{name}({FIRST})" for name in ("lim", "mim", "mix-im"))
TOKEN_COMPARED = (
    *((SMALL, FIRST), (TOKEN_LIM, FIRST), (TOKEN_LIM, SMALL), (TOKEN_MIM, SMALL), (TOKEN_MIX, SMALL)),
    *((TOKEN_LIM, TOKEN_MIM), (TOKEN_MIX, TOKEN_MIM), (TOKEN_LIM, TOKEN_MIX)),
)
TITLES = {"content": "`knn`, content alone", WITHOUT: "`svr`", WITH: "`svr` with the graph in its evidence"}
TITLES |= {BEST: "`learned` with `svr`", BOTH: "`learned` with that and the graph", FUSED: FUSED}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collections", nargs="*", help="pydocs, or folders; none: only the page is made")
    parts = ["lsa", "paper", "tfidf", "fused", "token"]
    parser.add_argument("--only", choices=parts, help="measure one part, keep the others; token is never in all")
    parser.add_argument("--model", help="token: the folder of a text model of sentence-transformers")
    parser.add_argument("--length", type=int, default=64, help="token: the most tokens of a text")
    parser.add_argument("--learned", type=int, default=64, help="token: training queries that networks learn from")
    parser.add_argument("--ranked", type=int, default=100, help="token: the most queries of a split that are ranked")
    a = parser.parse_args()
    if (a.only == "token") != bool(a.model):
        parser.error("--only token needs --model, and only that part uses it")
    for name in a.collections:
        if a.model:
            measured_tokens(name, a.results, a.model, a.length, a.learned, a.ranked)
        else:
            measured(name, a.results, a.only)
    write(a.results)


def measured(name: str, results: Path, only: str | None) -> None:
    """Measure one collection, and write what is known after every ranker."""
    collection, start = open_collection(name), time.process_time()
    path = results / f"graph-{collection.name}.json"

    def mean(run: Run) -> float:
        return float(evaluate(run, collection.qrels_frame("dev"), ["nDCG@10"])["nDCG@10"].mean())

    def keep(ranker: str, runs: Mapping[str, Run], facts: Any = None) -> None:
        tables = {s: evaluate(run, collection.qrels_frame(s.partition(" ")[0]), MEASURES) for s, run in runs.items()}
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

    if only != "tfidf":
        dense = Space(collection, f"lsa(n_components={DIM})")
    if only in ("lsa", None):
        keep("content", dense.runs(parse("knn")))
        propagated = {share: parse(f"section-propagation({FIRST},share={share})") for share in SHARES}
        dev = {
            s: ranker._fitted_copy(dense.training).run(dense.batches["dev"], 1000) for s, ranker in propagated.items()
        }
        best = max(dev, key=lambda share: mean(dev[share]))
        keep(SECTIONS, dense.runs(propagated[best]), {"share": best})
    for text in (*MASKED.values(), *CONTEXT[1:]) if only in ("lsa", None) else PAPER if only == "paper" else ():
        ranker, training = parse(text)._fitted_copy(dense.training), dense.training
        runs = dense.runs(ranker)
        if text in MASKED.values():
            runs["train out of fold"] = ranker.run(training.batch, 1000, out_of_fold=True)
        keep(text, runs, ranker.fit_report_)
    if only in ("tfidf", "fused", None):
        sparse, chosen = Space(collection, "tfidf"), parameters(tuned_bm25(collection))
    if only in ("tfidf", None):
        for text in (WITHOUT, WITH, BEST, BOTH):
            ranker = set_values(parse(text), chosen)._fitted_copy(sparse.training)
            keep(text, sparse.runs(ranker), ranker.fit_report_)
    if only in ("fused", None):
        training = sparse.training
        spaces = {"lim": (dense, parse(LIM)), "tfidf": (sparse, set_values(parse(BOTH), chosen))}
        taught = {
            which: ranker._fitted_copy(space.training).run(space.training.batch, 100, out_of_fold=True)
            for which, (space, ranker) in spaces.items()
        }
        new = unseen_queries(training.relevant, training.batch.queries.groups)
        unseen = [query for query, is_new in zip(training.batch.ids, new, strict=True) if is_new]
        fusion = LearnedFusion().fit(taught, collection.qrels_frame("train"), trained=list(taught), unseen=unseen)
        of_space = {which: space.runs(ranker) for which, (space, ranker) in spaces.items()}
        fused = {split: fusion.fuse({which: of[split] for which, of in of_space.items()}) for split in of_space["lim"]}
        weights = fusion.weights_
        keep(FUSED, fused, dict(zip(weights["run"] + " " + weights["feature"], weights["standardised"], strict=True)))


def measured_tokens(name: str, results: Path, model: str, length: int, n_learned: int, n_ranked: int) -> None:
    """Measure graph attention over token matrices, beside LiM over LSA on the same few documents and queries.

    All rankers share the token matrices, which are encoded once.
    """
    collection = open_collection(name)
    path = results / f"graph-{collection.name}.json"
    dense, rng = Space(collection, f"lsa(n_components={DIM})"), np.random.default_rng(0)
    for split, batch in dense.batches.items():
        sample = np.sort(rng.permutation(len(batch))[:n_ranked])
        dense.batches[split] = batch.take(sample)
    shared, encoding = SharedTokens(model, length), {"seconds": 0.0, "texts": 0}
    settings = f"query_length={length},passage_length={length},n_documents={FEW},n_queries={n_learned}"
    given = {text: parse(f"{text[:-1]},model='model',{settings})") for text in TOKENS}
    found: dict[str, Any] = {
        "model": Path(model).name,
        "length": length,
        "n_queries": n_learned,
        "queries": {split: len(batch) for split, batch in dense.batches.items()},
        "encoding": encoding,
        **{key: {} for key in ("values", "facts", "fit", "rank")},
    }
    with shared.used():
        for text, ranker in {FIRST: parse(FIRST), SMALL: parse(SMALL), **given}.items():
            with shared.without_encoding() as fit:
                fitted = ranker._fitted_copy(dense.training)
            with shared.without_encoding() as rank:
                runs = {split: fitted.run(batch, 1000) for split, batch in dense.batches.items()}
            tables = {
                s: evaluate(run, judged(collection, s, dense.batches[s].ids), MEASURES) for s, run in runs.items()
            }
            found["values"][text] = {s: {m: t[m].round(6).tolist() for m in MEASURES} for s, t in tables.items()}
            found["facts"][text] = getattr(fitted, "fit_report_", {})
            found["fit"][text], found["rank"][text] = fit["cpu"], rank["cpu"] / sum(found["queries"].values())
            found["encoding"] = {"seconds": shared.seconds, "texts": shared.n_texts}
            found["peak memory"] = peak_memory()
            command = [name, *("--only", "token", "--model", model, "--length", str(length))]
            command += ["--learned", str(n_learned), "--ranked", str(n_ranked)]
            found["made"] = {"command": shown("bench_graph.py", command), "commit": commit(), "processor": machine()}
            found["made"]["date"] = f"{datetime.now(UTC):%Y-%m-%d}"
            known = json.loads(path.read_text()) if path.exists() else {}
            path.write_text(json.dumps(known | {"token": found}, ensure_ascii=False) + "\n", encoding="utf-8")
            means = {s: round(float(t["nDCG@10"].mean()), 4) for s, t in tables.items()}
            print(text, means, fit, rank, found["encoding"], flush=True)


def judged(collection: Collection, split: str, ids: Any) -> Any:
    """Return the judgements of some queries of a split."""
    qrels = collection.qrels_frame(split)
    return qrels[qrels["query_id"].isin(list(ids))]


class SharedTokens:
    """Token matrices that all rankers of the token part share, and the CPU seconds of encoding passages and titles."""

    def __init__(self, model: str, length: int) -> None:
        self.tokens = token_context.TokenMatrices(model, length, length)
        self.tokens.model.max_seq_length = length  # otherwise whole texts are encoded, then truncated
        self.seconds, self.n_texts = 0.0, 0
        self._encode = self.tokens.model.encode_document
        self.tokens.model.encode_document = self._encode_clocked

    def _encode_clocked(self, texts: list[str], **options: Any) -> Any:
        start = time.process_time()
        found = self._encode(texts, **options)
        self.seconds, self.n_texts = self.seconds + time.process_time() - start, self.n_texts + len(texts)
        return found

    @contextmanager
    def used(self) -> Iterator[None]:
        """Give these matrices to all rankers, without the usual limit of the cache: no text is encoded twice."""
        own, limit = TokenContext.__dict__["_tokens"], token_context._MAX_CACHED_NUMBERS
        TokenContext._tokens, token_context._MAX_CACHED_NUMBERS = self.tokens, 2**31  # type: ignore[assignment, misc]
        try:
            yield
        finally:
            TokenContext._tokens, token_context._MAX_CACHED_NUMBERS = own, limit  # type: ignore[misc]

    @contextmanager
    def without_encoding(self) -> Iterator[dict[str, float]]:
        """Yield what becomes the CPU seconds of a block, without those of encoding passages and titles."""
        found: dict[str, float] = {}
        start, encoded = time.process_time(), self.seconds
        yield found
        found["cpu"] = time.process_time() - start - (self.seconds - encoded)


def write(results: Path) -> None:
    """Write the page of all collections that were measured."""
    lines = [
        "# What the graph adds",
        "",
        "Structured, cited collections: passages ranked by what stands around them and what links them. A query does",
        f"not see the links of its own document, unless a line says so. Vectors over LSA have {DIM} dimensions; what",
        f"is re-ordered are the first 1,000 documents of `{FIRST}` over them. Everything was chosen on dev; test was",
        "ranked once. `mim`, `mix-im` and `lim` have equally many weights, one layer over means of ten relation paths;",
        "`mim-paper`, `mix-im-paper` and `lim-paper` have three layers over the paper's eight edge types, its loss.",
        "What the graph is in evidence and fusion, over TF-IDF:",
        f"`{GRAPH}`.",
    ]
    for path in sorted(results.glob("graph-*.json")):
        collection, known = path.stem.removeprefix("graph-"), json.loads(path.read_text())
        lines += page_of(collection, known) if "values" in known else ["", f"## {collection}"]
        lines += tokens_of(known["token"]) if "token" in known else []
    (results / "graph.md").write_text("\n".join([*lines, ""]), encoding="utf-8")


def tokens_of(found: dict[str, Any]) -> list[str]:
    """Return the lines of the token part of one collection."""
    values, encoding = found["values"], found["encoding"]

    def mean_of(name: str, split: str, measure: str = "nDCG@10") -> float:
        return float(np.mean(values[name][split][measure]))

    ranked = ", ".join(f"{split} {n:,}" for split, n in found["queries"].items())
    lines = [
        "",
        "### Graph attention over tokens",
        "",
        f"`token-lim`, `token-mim` and `token-mix-im` over the token vectors of {found['model']}, at most",
        f"{found['length']} tokens of a query, a passage or a title. They re-rank the first {FEW} documents of",
        f"`{FIRST}` by one layer of attention and MaxSim, read 3 passages of each document, and learn from",
        f"{found['n_queries']:,} training queries (`n_queries={found['n_queries']}`). `{SMALL}` re-ranks the same",
        "documents by one vector of each passage; it learns from all training queries. All rankers rank the same",
        f"queries, sampled from the splits: {ranked}.",
    ]
    for split in found["queries"]:
        rows = [[f"`{name}`", *(mean_of(name, split, measure) for measure in MEASURES)] for name in values]
        lines += table("|".join([split, *MEASURES]), rows, show=cell4)
    compared = []
    for ours, theirs in TOKEN_COMPARED:
        if ours in values and theirs in values:
            cells = [f"`{ours}` / `{theirs}`"]
            for split in found["queries"]:
                a, b = (np.array(values[name][split]["nDCG@10"]) for name in (ours, theirs))
                p = paired_tests(a, b, n_comparisons=len(TOKEN_COMPARED)).p
                cells += [f"{a.mean():.4f} / {b.mean():.4f} ({a.mean() / b.mean() - 1:+.1%})", f"{p:.4f}"]
            compared.append(cells)
    lines += table("compared, nDCG@10|dev|p|test|p", compared)
    costs = [[f"`{name}`", found["fit"][name], 1000 * found["rank"][name]] for name in values]
    lines += table("costs|fit, CPU s|rank, CPU ms a query", costs)
    lines += [
        "",
        f"p: as above, times {len(TOKEN_COMPARED)} comparisons. Costs include the searches of `{FIRST}`, unless an",
        "earlier ranker made them. They leave out the encoding of passages and titles, done once for all rankers:",
        f"{encoding['texts']:,} texts in {encoding['seconds']:,.0f} CPU seconds"
        + (f" ({1000 * encoding['seconds'] / encoding['texts']:.1f} ms a text)." if encoding["texts"] else "."),
    ]
    learned = ", ".join(f"`{name}` {of['λ']:.3f}" for name, of in found["facts"].items() if "λ" in of)
    lines += ["", f"λ, 0.5 before training: {learned}."] if learned else []
    lines += ["", f"- peak memory {found['peak memory'] / 2**30:.1f} GiB; one thread"]
    lines += [f"- command: `{found['made']['command']}` (folders are given by their paths)"]
    return [*lines, f"- {origin(found['made'])}"]


def page_of(collection: str, known: dict[str, Any]) -> list[str]:
    """Return the lines of one collection."""
    values, facts = known["values"], known["facts"]
    wanted = ["content", SECTIONS, *CONTEXT, *PAPER, WITHOUT, WITH, BEST, BOTH, FUSED]
    names, missing = ([n for n in wanted if (n in values) == there] for there in (True, False))
    titles = TITLES | {SECTIONS: f"{SECTIONS}, share {facts.get(SECTIONS, {}).get('share', 'of dev')}"}

    def title(name: str) -> str:
        return titles.get(name, f"`{name}`")

    def mean_of(name: str, split: str, measure: str = "nDCG@10") -> float:
        return float(np.mean(values[name][split][measure]))

    lines = ["", f"## {collection}", ""]
    lines += [f"Queries: {', '.join(f'{split} {n:,}' for split, n in known['queries'].items())}."]
    for split in ("dev", "test"):
        rows = [[title(name), *(mean_of(name, split, measure) for measure in MEASURES)] for name in names]
        lines += table("|".join([split, *MEASURES]), rows, show=cell4)
    compared = []
    for ours, theirs in COMPARED:
        if ours in values and theirs in values:
            cells = [f"{title(ours)} / {title(theirs)}"]
            for split in ("dev", "test"):
                a, b = (np.array(values[name][split]["nDCG@10"]) for name in (ours, theirs))
                found = paired_tests(a, b, n_comparisons=len(COMPARED))
                cells += [f"{a.mean():.4f} / {b.mean():.4f} ({a.mean() / b.mean() - 1:+.1%})", f"{found.p:.4f}"]
            compared.append(cells)
    lines += table("compared, nDCG@10|dev|p|test|p", compared)
    lines += ["", f"p: the larger of the t-test's and the randomisation test's, times {len(COMPARED)} comparisons."]
    if missing:
        lines += ["", f"Not measured here: {', '.join(map(title, missing))}."]
    masks = {mask: name for mask, name in MASKED.items() if name in values}
    if masks:
        lines += [
            "",
            "The leak: linear context with other masks, nDCG@10; the weight is per that of the passage itself.",
        ]
        splits = "train out of fold", "dev", "test"
        leaks = [
            [mask, *(mean_of(n, s) for s in splits), facts[n]["citing documents"] / facts[n]["passage"]]
            for mask, n in masks.items()
        ]
        lines += table("`mask`|train, out of fold|dev|test|weight of citing documents", leaks, show=cell4)
        linear = {k: v for k, v in facts[LINEAR].items() if k not in ("training queries", "loss")}
        shares = ", ".join(f"{k} {v / linear['passage']:.2f}" for k, v in linear.items())
        lines += ["", f"Weights of linear context: {shares}."]
    learned = ", ".join(f"`{name}` {of['λ']:.3f}" for name, of in facts.items() if "λ" in of)
    lines += ["", f"λ learned: {learned}."] if learned else []
    made, memory = known["made"], max(known["peak memory"].values()) / 2**30
    lines += ["", f"- peak memory {memory:.1f} GiB; one thread"]
    lines += [measures("bench_graph.py"), f"- command: `{made['command']}` (a folder is given by its path)"]
    return [*lines, f"- {origin(made)}"]


if __name__ == "__main__":
    main()
