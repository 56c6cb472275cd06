"""Which queries a ranker gains on: groups of queries by what training has seen of them.

A ranker that remembers training queries can gain by recognising what was cited before. Groups by relevant documents
(all, some or none of them relevant to a training query), and, where a collection tells where its queries come from
(`queries/source.*.tsv`: query id, own document, citing law, citing norm), by citing law and citing norm.
"""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np

from haybale.collections import Collection

Groups = dict[str, np.ndarray]  # name -> (n_queries,) bool


def by_relevant(collection: Collection, split: str, train: str = "train") -> Groups:
    """Queries all, some or none of whose relevant documents were relevant to a training query."""
    known = {doc for ids in collection.relevant_ids(train) for doc in ids}
    relevant = collection.relevant_ids(split)
    share = np.array([np.mean([doc in known for doc in ids]) if ids else np.nan for ids in relevant])
    return {"all seen": share == 1, "some seen": (share > 0) & (share < 1), "none seen": share == 0}


def by_source(folder: Path, query_ids: list[str], split: str, train: str = "train") -> Groups:
    """Queries whose citing law, or citing norm of it, has training queries, and the others; {} without such files."""
    path = folder / "queries" / f"source.{split}.tsv.gz"
    if not path.is_file():
        return {}
    known, here = _sources(folder, train), _sources(folder, split)
    laws, norms = {law for law, _ in known.values()}, set(known.values())
    law = np.array([here[query][0] in laws for query in query_ids])
    norm = np.array([here[query] in norms for query in query_ids])
    return {"citing norm seen": norm, "citing law seen, norm not": law & ~norm, "citing law not seen": ~law}


def _sources(folder: Path, split: str) -> dict[str, tuple[str, str]]:
    """Query id -> (citing law, citing norm)."""
    with gzip.open(folder / "queries" / f"source.{split}.tsv.gz", "rt", encoding="utf-8", newline="") as file:
        return {row[0]: (row[2], row[3]) for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)}
