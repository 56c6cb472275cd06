"""Read GerDaLIR's layout: tab-separated files, plain or ``.gz``.

    collection.tsv                    document id, passage          (one line per passage)
    queries/queries.{split}.tsv       query id, query               (a header is skipped)
    qrels/qrels.{split}.tsv           query id, document id         (an optional third column is the grade)

Wrzalik & Krechel, "GerDaLIR: A German Dataset for Legal Information Retrieval", NLLP 2021. The passages of a document
need not be adjacent. A split without files is omitted.
"""

from __future__ import annotations

from pathlib import Path

from haybale.collections.builder import CollectionBuilder
from haybale.collections.qrels import add_qrels
from haybale.collections.queries import TSV_HEADER
from haybale.collections.reader import FolderReader
from haybale.errors import InputError
from haybale.text_files import find_file, need_file, read_tsv


class GerDaLIR(FolderReader):
    """Reader of folders in GerDaLIR's layout."""

    name = "gerdalir"
    expected = "collection.tsv"
    query_files = ("queries", "qrels")

    def add_documents(self, builder: CollectionBuilder, folder: Path) -> None:
        for _, (doc_id, text) in read_tsv(need_file(folder, self.expected), 2, maxsplit=1):
            builder.add_to(doc_id, text)

    def add_queries(self, builder: CollectionBuilder, folder: Path) -> None:
        splits = [name for name in ("train", "dev", "test") if find_file(folder / "queries", f"queries.{name}.tsv")]
        if not splits:
            raise InputError(f"{folder}: expected queries/queries.{{train,dev,test}}.tsv or .tsv.gz, found none")
        for split in splits:
            path = need_file(folder / "queries", f"queries.{split}.tsv")
            for line, (query_id, text) in read_tsv(path, 2, maxsplit=1, header=TSV_HEADER):
                builder.add_query(query_id, [text], split=split, at=(path, line))
            add_qrels(builder, split, need_file(folder / "qrels", f"qrels.{split}.tsv"))
