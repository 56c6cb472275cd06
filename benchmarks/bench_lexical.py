"""Lexical vector spaces beside BM25: TF-IDF of words and of character n-grams, both, and LSA at several widths.

    python benchmarks/bench_lexical.py pydocs FOLDER … [--widths 256 512 1024 2048] [--wide-grams] --out FILE
    python benchmarks/bench_lexical.py pydocs FOLDER … --svr --out FILE

Document level: a document counts by its best passage (MaxP), a query's own document is left out. Every collection
runs in a process of its own. ``--svr`` compares the ensemble ``svr`` over TF-IDF with the one over LSA instead.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from provenance import peak_memory, provenance, shown
from scipy import sparse

from haybale.analysis import guess_language
from haybale.collections import Collection, open_collection
from haybale.collections.collection import pick
from haybale.embeddings import ConcatEncoder, LSAEncoder, TfidfEncoder
from haybale.evaluation import evaluate
from haybale.evaluation.measures import averages
from haybale.experiments import Settings, compare
from haybale.retrieval import BM25Index, PassageIndex, Run, rank_documents
from haybale.vectors import Matrix, normalized

MEASURES = ("Recall@100", "MRR@10", "nDCG@10")
HITS = 3000  # passages of each query: for MaxP, more than 100 documents of any collection here
WIDTHS = (256, 512, 1024, 2048)
SVR = ("bm25", "knn", "svr", "svr-blend", "rrf(bm25,svr)", "rrf(bm25-doc,svr-blend)")
GAMMAS = ((3.0, 2.5), (2.0, 1.5), (1.0, 1.0))

Row = dict[str, str | float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", help="pydocs, or folders")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--widths", type=int, nargs="*", default=list(WIDTHS), help="of LSA; the largest is computed")
    parser.add_argument("--wide-grams", action="store_true", help="LSA over words and n-grams too")
    parser.add_argument("--svr", action="store_true", help="the ensemble over TF-IDF and over LSA")
    parser.add_argument("--bags", type=int, default=35, help="of the ensemble")
    parser.add_argument("--note", default="", help="a sentence on the circumstances of the run")
    parser.add_argument("--out", type=Path, required=True, help="the Markdown to write")
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)  # of one collection, as JSON
    arguments = parser.parse_args()
    if arguments.rows:
        arguments.rows.write_text(json.dumps(part(arguments.collections[0], arguments)), encoding="utf-8")
        return
    parts = []
    for name in arguments.collections:
        with tempfile.TemporaryDirectory() as folder:
            rows = Path(folder) / "rows.json"
            own = [argument for argument in sys.argv[1:] if argument not in arguments.collections]
            subprocess.run([sys.executable, __file__, name, *own, "--rows", str(rows)], check=True)
            parts.append(json.loads(rows.read_text(encoding="utf-8")))
        arguments.out.write_text(page(parts, arguments), encoding="utf-8")  # what is there survives a later failure


def part(name: str, arguments: argparse.Namespace) -> dict[str, object]:
    """The rows of one collection."""
    collection = open_collection(name)
    print(repr(collection), flush=True)
    rows = []
    for row in (ensembles if arguments.svr else spaces)(collection, arguments):
        print("  ", *(value if isinstance(value, str) else f"{value:.4g}" for value in row.values()), flush=True)
        rows.append(row)
    return {"title": repr(collection), "rows": rows, "peak": peak_memory()}


# vector spaces --------------------------------------------------------------------------------------------


class Judge:
    """Passages and queries of a collection, and what a ranking of them is worth."""

    def __init__(self, collection: Collection, split: str) -> None:
        self.collection, self.split = collection, split
        self.passages = collection.passages.texts.to_pylist()
        self.language = collection.language or guess_language(self.passages[:: max(1, len(self.passages) // 1000)])
        numbers = collection.split(split).queries
        self.queries = collection.queries.texts(numbers)
        self.ids, self.own = pick(collection.queries.ids, numbers), collection.queries.own[numbers]

    def measures(self, run: Run) -> Row:
        return dict(averages(evaluate(run, self.collection.qrels_frame(self.split), MEASURES)))

    def dense_or_sparse(self, name: str, vectors: Matrix, queries: Matrix, seconds: tuple[float, float]) -> Row:
        """One row of the table: kNN over passage vectors."""
        index = PassageIndex.from_collection(self.collection, vectors)
        index.search(queries[:1], min(HITS, len(index)))  # compiles, inverts
        start = time.perf_counter()
        hits = index.search(queries, min(HITS, len(index)), exclude=self.own)
        searched = time.perf_counter() - start
        found = self.measures(rank_documents(index, hits, self.ids))
        return row(name, vectors.shape[1], found, (*seconds, searched), size(vectors))

    def encoder(self, name: str, encoder: TfidfEncoder | ConcatEncoder) -> Row:
        """The same by an encoder, which is fitted if it is not."""
        start = time.perf_counter()
        for member in encoder.encoders if isinstance(encoder, ConcatEncoder) else [encoder]:
            if not hasattr(member, "idf_"):
                member.fit(self.passages)
        fitted = time.perf_counter()
        vectors = encoder.encode(self.passages)
        times = fitted - start, time.perf_counter() - fitted
        return self.dense_or_sparse(name, vectors, encoder.encode(self.queries), times)


def spaces(collection: Collection, arguments: argparse.Namespace) -> Iterator[Row]:
    judge = Judge(collection, arguments.split)
    yield bm25(judge)

    def words(**changes: object) -> TfidfEncoder:
        return TfidfEncoder(language=judge.language, **changes)  # type: ignore[arg-type]

    def grams(least: int, most: int, min_df: int = 3) -> TfidfEncoder:
        return TfidfEncoder(language=judge.language, words=False, char_ngrams=(least, most), min_df=min_df)

    plain, four = words(), grams(4, 4)
    for name, encoder in (
        ("TF-IDF, words", plain),
        ("… raw counts", words(sublinear_tf=False)),
        ("… min_df 1", words(min_df=1)),
        ("… min_df 5", words(min_df=5)),
        ("TF-IDF, character 3-grams", grams(3, 3)),
        ("… 4-grams", four),
        ("… 5-grams", grams(5, 5)),
        ("TF-IDF, words and 4-grams in one row", words(char_ngrams=(4, 4))),
        ("words | 4-grams, weights 1 : 1", ConcatEncoder([plain, four])),
        ("… weights 2 : 1", ConcatEncoder([plain, four], [2, 1])),
    ):
        yield judge.encoder(name, encoder)
    yield from lsa(judge, LSAEncoder(max(arguments.widths), language=judge.language), arguments.widths, "words")
    if arguments.wide_grams:
        encoder = LSAEncoder(max(arguments.widths), language=judge.language, char_ngrams=(4, 4))
        yield from lsa(judge, encoder, arguments.widths, "words and 4-grams")


def bm25(judge: Judge) -> Row:
    start = time.perf_counter()
    index = BM25Index.from_collection(judge.collection, language=judge.language)
    built = time.perf_counter()
    found = index.documents(judge.queries, 1000, exclude=judge.own)
    searched = time.perf_counter() - built
    run = Run.from_numbers(judge.ids, judge.collection.doc_ids, *found)
    return row("BM25 (passages)", 0, judge.measures(run), (built - start, 0.0, searched), 0)


def lsa(judge: Judge, encoder: LSAEncoder, widths: list[int], of: str) -> Iterator[Row]:
    """One wide SVD; a narrower space is its first columns, normalised anew."""
    start = time.perf_counter()
    encoder.fit(judge.passages)
    fitted = time.perf_counter()
    passages, queries = encoder.encode(judge.passages), encoder.encode(judge.queries)
    times = fitted - start, time.perf_counter() - fitted
    for width in sorted(widths):
        if width > encoder.width:
            break
        cut = normalized(passages[:, :width]), normalized(queries[:, :width])
        seconds = times if width == max(widths) else (0.0, 0.0)
        yield judge.dense_or_sparse(f"LSA {width} of {of}", *cut, seconds)


def row(name: str, width: int, found: Row, seconds: tuple[float, float, float], n_bytes: int) -> Row:
    times = dict(zip(("fit s", "encode s", "search s"), seconds, strict=True))
    return {"space": name, "columns": width} | found | times | {"MB": n_bytes / 1e6}


def size(vectors: Matrix) -> int:
    """Bytes of what is held."""
    if sparse.issparse(vectors):
        return int(sum(getattr(vectors, part).nbytes for part in ("data", "indices", "indptr")))
    return int(np.asarray(vectors).nbytes)


# ensembles ------------------------------------------------------------------------------------------------


def ensembles(collection: Collection, arguments: argparse.Namespace) -> Iterator[Row]:
    """The rankers over LSA with the default γ, and over TF-IDF with several: one row a ranker."""
    for encoder, gamma in (("lsa", GAMMAS[0]), *(("tfidf", gamma) for gamma in GAMMAS)):
        first = encoder == "lsa"
        rankers = SVR if first or gamma == GAMMAS[0] else [name for name in SVR if "svr" in name]
        chosen = {"n_bags": arguments.bags, "gamma": gamma}
        outcome = compare(
            collection, Settings(encoder=encoder, split=arguments.split, rankers=rankers, ensemble=chosen)
        )
        for name in rankers:
            if name == "bm25" and not first:
                continue
            learned = "svr" in name
            seconds = {"train s": outcome.seconds["train svr"], "score s": outcome.seconds["score svr"]}
            yield {
                "ranker": f"{name} over {encoder}" if name != "bm25" else name,
                "γ": "/".join(f"{value:g}" for value in gamma) if learned else "",
                **{measure: float(outcome.results.values[name][measure].mean()) for measure in MEASURES},
                **(seconds if name == "svr" else dict.fromkeys(seconds, 0.0)),
            }


# the page -------------------------------------------------------------------------------------------------


def page(parts: list[dict[str, object]], arguments: argparse.Namespace) -> str:
    what = "The ensemble over sparse TF-IDF and over LSA" if arguments.svr else "Lexical vector spaces"
    names = [Path(name).name for name in arguments.collections]
    command = shown("bench_lexical.py", sys.argv[1:])
    lines = [f"# {what}: {', '.join(names)}, {arguments.split}", ""]
    if not arguments.svr:
        lines += [
            "A query is one vector; documents rank by their best passage, the query's own left out. Seconds: of all "
            "passages (fit, encode) and of all queries of the split (search, 3,000 passages each), a concatenation's "
            "members being fitted before; MB are the passages' vectors. `…` is the space above with one thing changed; "
            "n-grams have min_df 3, words 2. LSA's widths are cut from the widest, whose row has the seconds.",
            "",
        ]
    for section in parts:
        rows: list[Row] = section["rows"]  # type: ignore[assignment]
        lines += [f"## {section['title']}", "", table(rows), ""]
        lines += [f"Peak memory {int(section['peak']) / 2**30:.1f} GiB.", ""]  # type: ignore[call-overload]
    lines += [f"- {arguments.note}"] if arguments.note else []
    return "\n".join([*lines, provenance(command, more=("scipy", "bm25s")), ""])


def table(rows: list[Row]) -> str:
    names = list(rows[0])
    best = {name: max(float(row[name]) for row in rows) for name in MEASURES}

    def cell(name: str, value: str | float) -> str:
        if isinstance(value, str):
            return value
        if name in best:
            return f"**{value:.4f}**" if value == best[name] else f"{value:.4f}"
        return "" if value == 0 else f"{value:,.1f}" if name.endswith(" s") or value < 10 else f"{value:,.0f}"

    lines = [
        "| " + " | ".join(names) + " |",
        "|" + "".join(" --- |" if i == 0 else " ---: |" for i in range(len(names))),
    ]
    lines += ["| " + " | ".join(cell(name, value) for name, value in row.items()) + " |" for row in rows]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
