"""Write the rankings of two other engines as TREC run files: bm25s over whole documents, and a dense search.

    python benchmarks/other_engine_runs.py COLLECTION … --encoder FOLDER --runs FOLDER [--length 128] [--unit document]

For each collection and split, FOLDER/NAME gets ``bm25s-SPLIT.trec.gz`` and ``dense-SPLIT.trec.gz`` with 100 documents a
query, and ``runs.json`` with seconds and settings. The dense search is ``sentence_transformers.util.semantic_search``
over vectors of a folder of sentence-transformers: one of each passage, where a document has the score of its best
passage, or one of each document. Texts are cut at ``--length`` tokens. Nothing here is haybale's but the reader of the
collection and the writer of the files. The document that a query was taken from is left out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from provenance import made, options, write_json

from haybale import Collection, open_collection
from haybale.analysis import guess_language
from haybale.retrieval import Run

DEPTH = 100  # documents of each query
SEARCHED = 400  # passages of each query that the dense search finds, of which documents are made
PROMPTS = {"multilingual-e5-small": ("query: ", "passage: ")}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collections", nargs="+")
    parser.add_argument("--encoder", type=Path, required=True, help="a folder of sentence-transformers")
    parser.add_argument("--runs", type=Path, required=True, help="the folder of the run files")
    parser.add_argument("--length", type=int, default=128, help="tokens at which texts are cut")
    parser.add_argument("--unit", choices=("passage", "document"), default="passage", help="what has a vector")
    a = parser.parse_args()
    for name in a.collections:
        collection = open_collection(name, missing_judgements="skip")
        folder = a.runs / collection.name
        record = {"encoder": a.encoder.name, "length": a.length, "unit": a.unit}
        record |= {"bm25s": write(collection, folder, "bm25s", lexical(collection))}
        record |= {"dense": write(collection, folder, "dense", dense(collection, a.encoder, a.length, a.unit))}
        write_json(folder / "runs.json", record | {"made": made("other_engine_runs.py", sys.argv[1:])})


def write(collection: Collection, folder: Path, name: str, hits: Iterable[tuple[np.ndarray, np.ndarray]]) -> float:
    """Write a file for each split from the documents and scores of every query; return the seconds that this took."""
    start, split_of = time.perf_counter(), np.full(len(collection.queries), -1)
    for number, part in enumerate(collection.splits.values()):
        split_of[part.queries] = number
    rows, documents, scores = [], [], []
    for row, (found, values) in enumerate(hits):
        kept = found != collection.queries.own[row]
        rows.append(np.full(int(kept.sum()), row))
        documents.append(found[kept])
        scores.append(values[kept])
    ids = collection.queries.ids.to_pylist()
    run = Run.from_numbers(ids, collection.doc_ids, *map(np.concatenate, (rows, documents, scores)), DEPTH)
    folder.mkdir(parents=True, exist_ok=True)
    for number, split in enumerate(collection.splits):
        split_ids = [ids[row] for row in np.flatnonzero(split_of == number)]
        run.take(split_ids).to_trec(folder / f"{name}-{split}.trec.gz", tag=name)
    seconds = time.perf_counter() - start
    print(f"{collection.name}, {name}: {seconds:.0f} s", flush=True)
    return seconds


def document_texts(collection: Collection) -> list[str]:
    texts, offsets = collection.passages.texts.to_pylist(), collection.passages.doc_offsets
    return ["\n".join(texts[start:end]) for start, end in pairwise(offsets.tolist())]


def lexical(collection: Collection) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Search with bm25s over whole documents, with its defaults, a stemmer and its stop words."""
    import bm25s
    import Stemmer

    language = guess_language(collection.passages.texts[:1000].to_pylist())
    tokenize = {"stopwords": language, "stemmer": Stemmer.Stemmer(language), "show_progress": False}
    model = bm25s.BM25()
    model.index(bm25s.tokenize(document_texts(collection), **tokenize), show_progress=False)
    texts = collection.queries.texts(range(len(collection.queries)))
    for start in range(0, len(texts), 256):
        tokens = bm25s.tokenize(texts[start : start + 256], **tokenize, return_ids=False)
        k = min(DEPTH + 1, collection.n_documents)
        documents, scores = model.retrieve(tokens, k=k, show_progress=False)
        for found, values in zip(documents, scores, strict=True):
            yield found[values > 0].astype(np.int64), values[values > 0].astype(np.float64)


def dense(collection: Collection, encoder: Path, length: int, unit: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Search with semantic_search of sentence-transformers."""
    import torch
    from sentence_transformers import SentenceTransformer, util

    torch.set_num_threads(1)
    model = SentenceTransformer(str(encoder), device="cpu", model_kwargs={"dtype": torch.bfloat16})
    model.max_seq_length = length
    of_queries, of_texts = PROMPTS.get(encoder.name, ("", ""))

    def encoded(texts: list[str], prompt: str) -> Any:
        parts = []
        for start in range(0, len(texts), 2048):
            block = [text[: 16 * length] for text in texts[start : start + 2048]]
            parts.append(model.encode(block, prompt=prompt, batch_size=32, convert_to_tensor=True).float())
            print(f"  {start + len(block):,} of {len(texts):,} texts", flush=True)
        return util.normalize_embeddings(torch.cat(parts))

    if unit == "document":
        texts, document_of = document_texts(collection), np.arange(collection.n_documents)
    else:
        texts = collection.passages.texts.to_pylist()
        document_of = np.repeat(np.arange(collection.n_documents), np.diff(collection.passages.doc_offsets))
    vectors = encoded(texts, of_texts)
    queries = encoded(collection.queries.texts(range(len(collection.queries))), of_queries)
    for hits in util.semantic_search(queries, vectors, top_k=SEARCHED, score_function=util.dot_score):
        documents = document_of[[hit["corpus_id"] for hit in hits]]
        firsts = np.sort(np.unique(documents, return_index=True)[1])  # of each document, its best passage
        yield documents[firsts], np.array([hit["score"] for hit in hits])[firsts]


if __name__ == "__main__":
    main()
