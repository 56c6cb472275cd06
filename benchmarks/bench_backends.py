"""SentenceTransformerEncoder by PyTorch and OpenVINO: CPU time, and agreement of rankings.

    python benchmarks/bench_backends.py FOLDER MODEL [--texts 512] [--queries 200] [--rounds 3]

MODEL is a folder of sentence-transformers. The ways encode the same passages, drawn at random, one after the other in
every round; each gets one thread, and the CPU seconds of the process are counted, because other work may use the cores.
Queries drawn from the collection's dev split then rank these passages. Writes backends.md.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import numpy as np
import torch
from provenance import options, provenance, shown, table, write_page

from haybale import SentenceTransformerEncoder, open_collection

WAYS = tuple((backend, dtype) for backend in ("torch", "openvino") for dtype in ("float32", "bfloat16"))
DEPTH = 10


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collection")
    parser.add_argument("model")
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--length", type=int, default=256, help="tokens at which texts are cut")
    a = parser.parse_args()
    torch.set_num_threads(1)
    collection = open_collection(a.collection, missing_judgements="skip")
    drawn = np.sort(np.random.default_rng(0).permutation(collection.n_passages)[: a.texts])
    passages = collection.passages.texts.take(drawn).to_pylist()
    asked = collection.split("dev").queries
    queries = collection.queries.texts(np.sort(np.random.default_rng(0).permutation(asked)[: a.queries]))
    loading, encoders = {}, {}
    for way in WAYS:
        start = time.process_time()
        backend, dtype = way
        encoders[way] = SentenceTransformerEncoder(
            a.model, device="cpu", backend=backend, dtype=dtype, max_length=a.length
        )
        loading[way] = time.process_time() - start
    vectors, seconds = encoded(encoders, passages, a.rounds)
    ranked = {way: ranking(encoder, vectors[way], queries) for way, encoder in encoders.items()}
    counts = encoders[WAYS[0]].counts
    lines = [
        "# Backends of sentence-transformers encoders",
        "",
        f"{len(passages):,} passages of {collection.name}, cut at {a.length} tokens, "
        f"{counts['tokens'] / counts['texts']:.0f} tokens a text on average (queries included); medians of {a.rounds} "
        f"alternating rounds, one thread, CPU seconds. Loading includes the export. {len(queries):,} queries rank "
        f"these passages: share of the first {DEPTH} in common with torch float32, share of queries with the "
        "same first one, and the smallest cosine of two vectors of a passage.",
        *table(
            "backend|dtype|texts a CPU s|× torch float32|loading, CPU s|first 10|first|1 - cosine",
            words=2,
            rows=[result(way, seconds, loading, ranked, vectors, len(passages)) for way in WAYS],
        ),
        "",
        provenance(
            shown("bench_backends.py", sys.argv[1:]),
            more=("torch", "transformers", "sentence-transformers", "openvino"),
        ),
    ]
    write_page(a.results / "backends.md", lines)


def encoded(encoders: dict[Any, Any], passages: list[str], rounds: int) -> tuple[dict[Any, Any], dict[Any, float]]:
    """Return the vectors of each way, and the median of its CPU seconds."""
    vectors, seconds = {}, {way: [] for way in encoders}
    for encoder in encoders.values():
        encoder.encode(passages[:16])  # the first batches of a library prepare its kernels
    for _ in range(rounds):
        for way, encoder in encoders.items():
            start = time.process_time()
            vectors[way] = encoder.encode(passages)
            seconds[way].append(time.process_time() - start)
            print(way, round(seconds[way][-1], 2), flush=True)
    return vectors, {way: statistics.median(each) for way, each in seconds.items()}


def ranking(encoder: Any, vectors: Any, queries: list[str]) -> Any:
    """Return the indices (q, 10) of the nearest passages, ties by index."""
    return np.argsort(-(encoder.encode_queries(queries) @ vectors.T), axis=1, kind="stable")[:, :DEPTH]


def result(way: Any, seconds: Any, loading: Any, ranked: Any, vectors: Any, n: int) -> list[Any]:
    """Return a line of the table."""
    base, mine = ranked[WAYS[0]], ranked[way]
    common = np.mean([len(np.intersect1d(*pair)) / base.shape[1] for pair in zip(base, mine, strict=True)])
    cosine = (vectors[way].astype(float) * vectors[WAYS[0]].astype(float)).sum(axis=1).min()
    faster = f"{seconds[WAYS[0]] / seconds[way]:.2f}"
    apart = f"{max(0.0, 1 - cosine):.0e}"
    return [
        *way,
        n / seconds[way],
        faster,
        loading[way],
        f"{common:.2%}",
        f"{np.mean(base[:, 0] == mine[:, 0]):.2%}",
        apart,
    ]


if __name__ == "__main__":
    main()
