"""Small collections in several layouts, plain or gzipped; every file can be replaced."""

from __future__ import annotations

import gzip
import json
from pathlib import Path


def put(path: Path, text: str, zipped: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path = path.with_name(path.name + ".gz") if zipped else path
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    return path


def folder_of(folder: Path, files: dict[str, str], zipped: bool = False) -> Path:
    for name, text in files.items():
        put(folder / name, text, zipped)
    return folder


def gerdalir(folder: Path, zipped: bool = False, **replaced: str) -> Path:
    files = {
        "collection.tsv": "1\tErster Absatz.\n1\tZweiter\tAbsatz.\n2\tAnderer Text.\n1\tNachzügler.\n",
        "queries/queries.train.tsv": "7\tFrage eins\n",
        "queries/queries.dev.tsv": "8\tFrage zwei\n9\tFrage drei\n",
        "qrels/qrels.train.tsv": "7\t1\n",
        "qrels/qrels.dev.tsv": "8\t2\n9\t1\n9\t2\n",
    }
    return folder_of(folder, files | replaced, zipped)


def beir(folder: Path, zipped: bool = False, **replaced: str) -> Path:
    documents = [
        {"_id": "d1", "title": "Title", "text": "First paragraph.\nSecond paragraph."},
        {"_id": "d2", "title": "", "text": "Only paragraph."},
    ]
    queries = [
        {"_id": "q1", "text": "one line\n\nanother line", "own": "d2"},
        {"_id": "q2", "text": "elsewhere", "own": "not in the corpus"},
        {"_id": "q3", "text": "in no split"},
    ]
    files = {
        "corpus.jsonl": "\n".join(map(json.dumps, documents)),
        "queries.jsonl": "\n".join(map(json.dumps, queries)),
        "qrels/dev.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t2\nq2\td1\t0\n",
    }
    return folder_of(folder, files | replaced, zipped)


def structured(folder: Path, zipped: bool = False, **changes: object) -> Path:
    first = {
        "_id": "a",
        "title": "A",
        "sections": [{"id": "a/0", "parent": None, "title": ""}, {"id": "a/1", "parent": "a/0", "title": "Intro"}],
        "passages": [
            {"id": "a/p1", "section": "a/1", "order": 1, "text": "second"},
            {"id": "a/p0", "section": "a/0", "order": 0, "text": "first"},
        ],
        "internal": [["a/p1", "a/0"]],
        "external": [["a/p0", "b"], ["a/1", "b"]],
    } | changes
    second = {
        "_id": "b",
        "title": "B",
        "sections": [{"id": "b/0", "parent": None, "title": ""}],
        "passages": [{"id": "b/p0", "section": "b/0", "order": 0, "text": "other"}],
    }
    files = {
        "documents.jsonl": f"{json.dumps(first)}\n{json.dumps(second)}\n",
        "queries.jsonl": json.dumps({"_id": "q", "text": "what", "own": "a"}),
        "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq\tb\t1\n",
    }
    return folder_of(folder, files, zipped)
