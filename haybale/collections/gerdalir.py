"""GerDaLIR's layout: tab-separated files, plain or ``.gz``.

    collection.tsv                    document id, passage          (a line a passage)
    queries/queries.{split}.tsv       query id, query
    qrels/qrels.{split}.tsv           query id, document id         (an optional third column is the grade)

Wrzalik & Krechel, "GerDaLIR: A German Dataset for Legal Information Retrieval", NLLP 2021.
"""

from __future__ import annotations

from pathlib import Path

from haybale.collections.builder import CollectionBuilder
from haybale.collections.collection import Collection
from haybale.collections.lines import find_file, need_file, read_tsv
from haybale.collections.qrels import add_qrels
from haybale.collections.sink import DocumentSink
from haybale.collections.tables import Unfit, readers
from haybale.errors import InputError

SPLITS = ("train", "dev", "test")


def read_gerdalir(folder: Path | str) -> Collection:
    """Read a folder in GerDaLIR's layout; splits without files are left out."""
    folder = Path(folder)
    builder = _with_passages(folder)
    splits = [name for name in SPLITS if find_file(folder / "queries", f"queries.{name}.tsv")]
    if not splits:
        raise InputError(f"{folder}: expected queries/queries.{{train,dev,test}}.tsv or .tsv.gz, found none")
    for split in splits:
        path = need_file(folder / "queries", f"queries.{split}.tsv")
        for line, (query_id, text) in read_tsv(path, 2, maxsplit=1):
            builder.add_query(query_id, [text], split=split, at=(path, line))
        add_qrels(builder, split, need_file(folder / "qrels", f"qrels.{split}.tsv"))
    return builder.build()


def _with_passages(folder: Path) -> CollectionBuilder:
    """A builder with the passages of ``collection.tsv``, read as columns or, where that does not do, line by line."""
    for read in readers(need_file(folder, "collection.tsv")):
        builder = CollectionBuilder(folder.name)
        try:
            for doc_ids, texts in read():
                builder.add_passages(doc_ids, texts)
        except Unfit:
            continue
        return builder
    builder = CollectionBuilder(folder.name)
    add_gerdalir_documents(builder, folder)
    return builder


def add_gerdalir_documents(sink: DocumentSink, folder: Path) -> None:
    """Read ``collection.tsv`` line by line; a document's passages need not stand side by side."""
    path = need_file(folder, "collection.tsv")
    for line, (doc_id, text) in read_tsv(path, 2, maxsplit=1):
        document = sink.document_number(doc_id)
        if document is None:
            document = sink.add_document(doc_id, at=(path, line))
        sink.add_passage(document, text, at=(path, line))
