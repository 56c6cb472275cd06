"""GerDaLIR's layout: tab-separated files, plain or ``.gz``.

    collection.tsv                    document id, passage          (a line a passage)
    queries/queries.{split}.tsv       query id, query
    qrels/qrels.{split}.tsv           query id, document id         (an optional third column is the grade)

Wrzalik & Krechel, "GerDaLIR: A German Dataset for Legal Information Retrieval", NLLP 2021.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from haybale.collections.builder import CollectionBuilder
from haybale.collections.collection import Collection
from haybale.collections.lines import find_file, need_file, read_tsv
from haybale.collections.qrels import add_qrels
from haybale.errors import InputError

_ROWS = 16_384  # added to the builder at once: no call a passage


def read_gerdalir(folder: Path | str) -> Collection:
    """Read a folder in GerDaLIR's layout; splits without files are left out."""
    folder = Path(folder)
    builder = CollectionBuilder(folder.name)
    add_gerdalir_documents(builder, folder)
    splits = [name for name in ("train", "dev", "test") if find_file(folder / "queries", f"queries.{name}.tsv")]
    if not splits:
        raise InputError(f"{folder}: expected queries/queries.{{train,dev,test}}.tsv or .tsv.gz, found none")
    for split in splits:
        path = need_file(folder / "queries", f"queries.{split}.tsv")
        for line, (query_id, text) in read_tsv(path, 2, maxsplit=1):
            builder.add_query(query_id, [text], split=split, at=(path, line))
        add_qrels(builder, split, need_file(folder / "qrels", f"qrels.{split}.tsv"))
    return builder.build()


def add_gerdalir_documents(builder: CollectionBuilder, folder: Path) -> None:
    """Read ``collection.tsv``; a document's passages need not stand side by side."""
    lines = read_tsv(need_file(folder, "collection.tsv"), 2, maxsplit=1)
    while True:
        doc_ids, texts = [], []
        for _, (doc_id, text) in islice(lines, _ROWS):
            doc_ids.append(doc_id)
            texts.append(text)
        if not doc_ids:
            return
        builder.add_passages(doc_ids, texts)
