"""Time the first stages of ranking as collections grow: kNN over TF-IDF, PARM and BM25, beside bm25s and tantivy.

    python benchmarks/bench_first_stages.py FOLDER [FOLDER …] [--queries 200] [--rounds 3] [--before CHECKOUT]

Each FOLDER is one in which bench_large.py has made and indexed a collection (--stages make index), each of another
size. Every size is measured in a process of its own, on one core; bm25s and haybale's BM25 alternate there, as does
tantivy if it is installed (pip install tantivy). CHECKOUT is a working tree of another commit, whose results have to be
equal to the last bit. Writes first-stages.json, where a size replaces what was there of it, and first-stages.md.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from provenance import (
    in_a_process,
    mb,
    options,
    peak_memory,
    provenance,
    read_json,
    run_step,
    shown,
    table,
    write_json,
    write_page,
)
from scipy import sparse

import haybale
from haybale.parallel import limit_threads
from haybale.rankers import QueryBatch
from haybale.retrieval import ParagraphSearch

DEPTH = 1000  # documents or passages found
STAGES = {
    "knn": "kNN, passages",
    "knn-doc": "kNN, documents",
    "parm": "PARM (vrrf)",
    "bm25": "BM25, passages",
    "bm25-doc": "BM25, documents",
}
PEERS = {"passage": "bm25", "document": "bm25-doc"}
Record = dict[str, Any]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("folders", nargs="*", type=Path, help="folders of bench_large.py")
    parser.add_argument("--queries", type=int, default=200, help="of the test split")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", type=Path, help="a working tree of another commit, to compare with")
    parser.add_argument("--no-peers", action="store_true", help="leave out bm25s and tantivy")
    parser.add_argument("--step", help=argparse.SUPPRESS)  # one part, in this process
    a = parser.parse_args()
    if a.step:
        run_step(STEPS, a.step)
        return
    path = a.results / "first-stages.json"
    records: dict[str, Record] = read_json(path, {})
    for folder in a.folders:
        given = {"engine": folder / "engine", "queries": a.queries, "rounds": a.rounds}
        found = in_a_process(__file__, "search", given)
        if a.before:
            found["before"] = of_checkout(a.before, given)
            found["equal"] = found["before"]["digests"] == found["digests"]
        if not a.no_peers:
            peers_found = in_a_process(__file__, "peers", given)
            found["peers"] = {name: each for name, each in peers_found.items() if isinstance(each, dict)}
        found["provenance"] = provenance(shown("bench_first_stages.py", sys.argv[1:]), more=("scipy", "bm25s"))
        records[str(found["passages"])] = found
        write_json(path, records)
    write_page(path.with_suffix(".md"), page(records))


def of_checkout(checkout: Path, given: Record) -> Record:
    """Measure the searches with the package of another working tree."""
    kept = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = f"{checkout}{os.pathsep}{kept}"
    try:
        return in_a_process(__file__, "search", given)
    finally:
        os.environ["PYTHONPATH"] = kept


def search(engine: str, queries: int, rounds: int) -> Record:
    """Return ms of CPU time a query of each stage, one by one and all at once, and digests of what was found."""
    limit_threads(1)
    opened = haybale.Engine.open(engine)
    batch = first_queries(opened, queries)
    m, record = len(batch.ids), {"passages": len(opened.passages), "documents": len(opened.collection.doc_ids)}
    one, many, digests = {}, {}, {}
    for name, (work, _) in stages(opened, batch).items():
        work(slice(0, 2))  # compiles, and reads what is mapped
        digests[name] = digest(work(slice(0, m)))
        many[name] = [1e3 * cpu(lambda work=work: work(slice(0, m))) / m for _ in range(rounds)]
        one[name] = [
            statistics.mean(1e3 * cpu(lambda work=work, i=i: work(slice(i, i + 1))) for i in range(m))
            for _ in range(rounds)
        ]
    postings = {name: count() for name, (_, count) in stages(opened, batch).items()}
    return record | {
        "queries": m,
        "one": {name: statistics.median(each) for name, each in one.items()},
        "many": {name: statistics.median(each) for name, each in many.items()},
        "postings": postings,
        "digests": digests,
        "peak": peak_memory(),
    }


def first_queries(engine: Any, n: int) -> Any:
    chosen = engine.collection.split("test").queries[:n]
    return QueryBatch(engine, engine.collection.queries.take(chosen))


def stages(engine: Any, batch: Any) -> dict[str, tuple[Callable[[slice], Any], Callable[[], float]]]:
    """Return, for each stage, a search for some of the queries, and a function that counts postings a query.

    Vectors and terms were made before.
    """
    vectors, texts = batch.vectors, batch.texts
    found: dict[str, tuple[Callable[[slice], Any], Callable[[], float]]] = {}
    for name, index in (("knn", engine.passages), ("knn-doc", engine.documents)):

        def documents(some: slice, index: Any = index) -> Any:
            return index.documents(vectors[some], DEPTH)

        def count(index: Any = index) -> float:
            return float(index.vectors.getnnz(axis=0)[vectors.indices].sum() / vectors.shape[0])

        found[name] = documents, count
    parm = ParagraphSearch(engine.passages, "vrrf", n_hits=DEPTH, k=DEPTH)

    def ranked(some: slice) -> Any:
        rows = vectors[some]
        return parm.rank([str(i) for i in range(rows.shape[0])], [rows[i] for i in range(rows.shape[0])])

    found["parm"] = ranked, found["knn"][1]
    for unit, name in PEERS.items():
        index = engine.bm25(unit)
        terms = index.analysed(texts)

        def by_terms(some: slice, index: Any = index, terms: Any = terms) -> Any:
            return index.documents(type(terms)(terms.ids[some], terms.vocabulary), DEPTH)

        def counted(index: Any = index, terms: Any = terms) -> float:
            sizes = np.array(index._postings.offsets[1:] - index._postings.offsets[:-1])
            return float(np.mean([sizes[each].sum() for each in terms.ids]))

        found[name] = by_terms, counted
    return found


def cpu(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def digest(found: Any) -> str:
    """Return a digest of ids, numbers and scores."""
    if isinstance(found, tuple):
        parts = [np.ascontiguousarray(part).tobytes() for part in found]
    else:
        parts = [repr([found[str(i)] for i in range(len(found))]).encode()]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def peers(engine: str, queries: int, rounds: int) -> Record:
    """Return ms of CPU time a query of haybale's BM25, bm25s and tantivy, one by one, from the same terms."""
    limit_threads(1)
    opened = haybale.Engine.open(engine)
    texts = first_queries(opened, queries).texts
    record: Record = {}
    for unit in PEERS:
        index = opened.bm25(unit)
        texts = [text for text, ids in zip(texts, index.analysed(texts).ids, strict=True) if ids]
        terms = index.analysed(texts)
        works = {"haybale": ours(index, terms), "bm25s": bm25s_search(index, terms)}
        with tempfile.TemporaryDirectory() as folder:
            other = tantivy_search(index, terms, folder)
            works |= {} if other is None else {"tantivy": other}
            for k in sorted({min(10, len(index)), min(DEPTH, len(index))}):
                found = {name: work(0, k) for name, work in works.items()}
                scores = [np.sort(found[name].scores[0]) for name in ("haybale", "bm25s")]
                if not np.array_equal(*(each[each > 0] for each in scores)):  # bm25s pads with 0
                    raise SystemExit("the scores of bm25s differ")
                taken: dict[str, list[float]] = {name: [] for name in works}
                for _ in range(rounds):
                    for name, work in works.items():
                        each = [1e3 * cpu(lambda work=work, i=i, k=k: work(i, k)) for i in range(len(texts))]
                        taken[name].append(statistics.mean(each))
                record[f"{unit}s, k = {k:,}"] = {name: statistics.median(each) for name, each in taken.items()}
    return record


def ours(index: Any, terms: Any) -> Callable[[int, int], Any]:
    return lambda i, k: index.search(type(terms)(terms.ids[i : i + 1], terms.vocabulary), k)


def bm25s_search(index: Any, terms: Any) -> Callable[[int, int], Any]:
    """Search with bm25s, whose index is that of haybale: the weights are equal to the last bit (bench_bm25.py)."""
    import bm25s

    peer = bm25s.BM25(k1=index.k1, b=index.b, backend="numba")
    parts = {"data": index._weights, "indices": index._postings.texts, "indptr": index._postings.offsets}
    peer.scores = {name: np.array(part) for name, part in parts.items()} | {"num_docs": len(index)}
    peer.vocab_dict = dict(index.vocabulary)
    peer.unique_token_ids_set, peer.nonoccurrence_array = set(peer.vocab_dict.values()), None
    return lambda i, k: peer.retrieve(terms.ids[i : i + 1], k=k, n_threads=1, show_progress=False)


def tantivy_search(index: Any, terms: Any, folder: str) -> Callable[[int, int], Any] | None:
    """Search with tantivy for documents with the same terms; None if it is not installed."""
    try:
        import tantivy
    except ImportError:
        return None
    schema = tantivy.SchemaBuilder().add_text_field("text", tokenizer_name="whitespace", index_option="freq").build()
    peer = tantivy.Index(schema, path=folder)
    writer = peer.writer(heap_size=500_000_000, num_threads=1)
    postings = index._postings
    shape = len(index), len(index.vocabulary)
    rows = sparse.csc_matrix((postings.counts, postings.texts, postings.offsets), shape=shape).tocsr()
    for row in range(len(index)):
        part = slice(rows.indptr[row], rows.indptr[row + 1])
        words = np.repeat(rows.indices[part], rows.data[part]).tolist()
        writer.add_document(tantivy.Document(text=" ".join(map(str, words))))
    writer.commit()
    writer.wait_merging_threads()
    peer.reload()
    searcher = peer.searcher()

    def query(ids: list[int]) -> Any:
        parts = [
            (
                tantivy.Occur.Should,
                tantivy.Query.boost_query(tantivy.Query.term_query(schema, "text", str(term)), times),
            )
            for term, times in Counter(ids).items()
        ]
        return tantivy.Query.boolean_query(parts)

    asked = [query(ids) for ids in terms.ids]
    return lambda i, k: searcher.search(asked[i], limit=k, count=False)


STEPS: dict[str, Callable[..., Record]] = {"search": search, "peers": peers}


def page(records: dict[str, Record]) -> list[str]:
    sizes = [records[size] for size in sorted(records, key=int)]
    last = sizes[-1]
    lines = [
        "# First stages: kNN over TF-IDF, PARM and BM25, as collections grow",
        "",
        "Collections of bench_large.py: words, document frequencies and lengths of gesetze, other sentences. Queries"
        f" are paragraphs of the test split, {last['queries']} of them at the largest size, with"
        f" {last['postings']['knn'] / last['passages']:.2f} postings a passage of the collection there. Searches return"
        f" the {DEPTH:,} best documents, from vectors and terms that were made before; PARM searches {DEPTH:,} passages"
        " for each query and aggregates them. Milliseconds of CPU time a query, one process, one thread: the median of"
        " the rounds; other work used the machine at times.",
    ]
    heads = "|".join(f"{each['passages']:,}" for each in sizes)
    for key, title in (("one", "One query at a time"), ("many", "All queries at once")):
        rows = [
            [name, *(each[key][stage] for each in sizes), *exponents(sizes, key, stage)]
            for stage, name in STAGES.items()
        ]
        lines += ["", f"## {title}", "", "*n* is the number of passages; the last columns are exponents of the time:"]
        lines += ["over all sizes, a least-squares fit, and between the two largest sizes."]
        lines += table(f"stage|{heads}|all|largest two", rows)
    before = [each for each in sizes if "before" in each]
    if before:
        lines += ["", "## Before", ""]
        same = "equal to the last bit" if all(each["equal"] for each in before) else "**not equal**"
        lines += [f"The other commit sums over all passages. What both found is {same}. One at a time / all at once:"]
        rows = [
            [name, *(f"{each['before']['one'][s]:.3g} / {each['before']['many'][s]:.3g}" for each in before)]
            for s, name in STAGES.items()
        ]
        lines += table("stage|" + "|".join(f"{each['passages']:,}" for each in before), rows)
    lines += [
        "",
        "## Postings",
        "",
        "Mean number of postings of a query's terms, repeated terms as often as they occur:",
    ]
    lines += table(
        f"stage|{heads}",
        [[name, *(round(each["postings"][stage]) for each in sizes)] for stage, name in STAGES.items()],
    )
    compared = [each for each in sizes if "peers" in each]
    if compared:
        lines += [
            "",
            "## Beside bm25s and tantivy",
            "",
            "BM25 from the same terms, one query at a time, k passages or whole documents. bm25s has the weights of"
            " haybale and its numba backend; its scores are the same numbers. tantivy stores lengths in a byte, so its"
            " scores are approximations; a repeated term is one term with a boost.",
        ]
        names = sorted({name for each in compared for found in each["peers"].values() for name in found})
        rows = [
            [f"{each['passages']:,} passages", what, *(found.get(name, "") for name in names)]
            for each in compared
            for what, found in each["peers"].items()
        ]
        lines += table("collection|searched|" + "|".join(names), rows, words=2)
    memory = ", ".join(mb(each["peak"]) for each in sizes)
    lines += ["", f"Memory of the processes that searched, with what is mapped of the index, MB: {memory}."]
    lines += ["", last["provenance"]]
    return lines


def exponents(sizes: list[Record], key: str, stage: str) -> list[str]:
    """Return the exponents of time over the number of passages: of all sizes, and of the last two."""
    found = []
    for some in (sizes, sizes[-2:]):
        x, y = (np.log([value(each) for each in some]) for value in (lambda r: r["passages"], lambda r: r[key][stage]))
        found.append(f"{np.polyfit(x, y, 1)[0]:.2f}" if len(some) > 1 else "")
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # a query without a hit is no news here
    main()
