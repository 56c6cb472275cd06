"""A collection of any size whose words, their frequencies and the lengths of its texts are another's.

Documents are copies of the source's with more passages. A passage is as long as one of the document it is a copy of,
and its words are drawn from that with replacement, some of them from all words of the source. A query is drawn likewise
from the words of a real one, and relevant to it is a copy of each document that is relevant to that. The layout is
GerDaLIR's. What is drawn depends on the sizes and on nothing else.
"""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from haybale import Collection
from haybale.folders import whole_folder

PASSAGES = 23.55  # a document, in the mean
OTHER = 0.2  # of a passage's words, drawn from all words of the source
FIRST = 0.8  # of the judgements are of a document's first copy: so that documents are relevant again and again
SEED, BLOCK = 0, 1000  # documents or queries made at once


def write(source: Collection, out: Path, documents: int, training: int, tested: float) -> dict[str, int]:
    """Write the files to a new folder, whole or not at all, some thousand texts at once; returns counts.

    Copy c is of the document ``order[c % n]`` of the n of the source. ``tested``: queries of dev, and of test, for each
    one to train on.
    """
    order = np.random.default_rng(SEED).permutation(source.n_documents)
    first = np.argsort(order)
    few = max(2, round(tested * training))
    with whole_folder(out) as folder:
        counts = {"documents": documents} | _documents(folder / "collection.tsv.gz", source, order, documents)
        for split, n in (("train", training), ("dev", few), ("test", few)):
            counts[split] = _queries(folder, source, split, n, first, documents)
    return counts


def _documents(path: Path, source: Collection, order: Any, documents: int) -> dict[str, int]:
    words, flat, starts = _tokens(source.passages.texts.to_pylist())
    offsets, counted = source.passages.doc_offsets, {"passages": 0, "words": 0}
    with _zipped(path) as file:
        for begin in range(0, documents, BLOCK):
            rng = np.random.default_rng([SEED, 1, begin])
            copies = np.arange(begin, min(begin + BLOCK, documents))
            copied = order[copies % len(order)]
            # As many as a mixture of Poisson distributions: most have few, some have many.
            n_passages = 1 + rng.poisson(rng.gamma(2.0, (PASSAGES - 1) / 2.0, size=len(copies)))
            document = np.repeat(np.arange(len(copies)), n_passages)
            low, high = offsets[copied][document], offsets[copied + 1][document]
            texts, n_words = _drawn(rng, words, flat, starts, rng.integers(low, high), OTHER)
            file.writelines(f"{copies[d] + 1}\t{text}\n" for d, text in zip(document.tolist(), texts, strict=True))
            counted["passages"] += len(texts)
            counted["words"] += n_words
    return counted


def _queries(folder: Path, source: Collection, split: str, n: int, first: Any, documents: int) -> int:
    """Queries of a split and their judgements; only sources with a relevant document that was copied are drawn from."""
    part = source.split(split)
    rows, relevant = part.relevant_rows()
    there = first[relevant] < documents
    order = np.argsort(rows[there], kind="stable")
    ends = np.searchsorted(rows[there][order], np.arange(len(part.queries) + 1))
    kept = relevant[there][order]
    judged = [kept[low:high] for low, high in pairwise(ends)]
    known = np.array([row for row, found in enumerate(judged) if len(found)])
    words, flat, starts = _tokens(source.queries.texts(part.queries))
    paths = (folder / name / f"{name}.{split}.tsv.gz" for name in ("queries", "qrels"))
    with _zipped(next(paths)) as queries, _zipped(next(paths)) as qrels:
        rng = np.random.default_rng([SEED, 2, *split.encode()])
        drawn_from = known[rng.permutation(n) % len(known)]
        for begin in range(0, n, BLOCK):
            rows = drawn_from[begin : begin + BLOCK]
            for number, text in enumerate(_drawn(rng, words, flat, starts, rows, 0.0)[0], begin):
                queries.write(f"{split}{number}\t{text}\n")
                for document in judged[drawn_from[number]].tolist():
                    copies = np.arange(first[document], documents, len(first))
                    copy = copies[0] if rng.random() < FIRST else rng.choice(copies)
                    qrels.write(f"{split}{number}\t{copy + 1}\n")
    return n


def _zipped(path: Path) -> Any:
    path.parent.mkdir(exist_ok=True)
    return gzip.open(path, "wt", compresslevel=1, encoding="utf-8", newline="\n")


def _tokens(texts: list[str]) -> tuple[Any, Any, Any]:
    """Distinct words, their numbers one text after the other, and where each text begins."""
    known: dict[str, int] = {}
    numbers = [[known.setdefault(word, len(known)) for word in text.split()] for text in texts]
    starts = np.concatenate([[0], np.cumsum([len(each) for each in numbers])])
    flat = np.concatenate([np.array(each, dtype=np.int32) for each in numbers])
    return np.array(list(known), dtype=object), flat, starts


def _drawn(rng: Any, words: Any, flat: Any, starts: Any, texts: Any, other: float) -> tuple[list[str], int]:
    """Texts as long as some are, of words drawn with replacement from these, ``other`` of them from all."""
    start, length = starts[texts], np.diff(starts)[texts]
    row = np.repeat(np.arange(len(texts)), length)
    place = start[row] + (rng.random(len(row)) * length[row]).astype(np.int64)
    if other:
        place = np.where(rng.random(len(row)) < other, rng.integers(len(flat), size=len(row)), place)
    drawn, ends = words[flat[place]].tolist(), np.cumsum(length).tolist()
    return [" ".join(drawn[a:b]) for a, b in pairwise([0, *ends])], len(row)
