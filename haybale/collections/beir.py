"""BEIR's layout: JSON lines and tab-separated judgements, plain or ``.gz``.

    corpus.jsonl           {"_id", "title", "text"}
    queries.jsonl          {"_id", "text", "own" (optional: the document the query was taken from)}
    qrels/{split}.tsv      query-id, corpus-id, score

Thakur et al., "BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation …", NeurIPS 2021. Beyond BEIR, a line
of ``text`` is one paragraph: one passage of a document, one paragraph of a query. The title stands before the
first passage, and is a passage of its own where there is no text.
"""

from __future__ import annotations

from pathlib import Path

from haybale.collections.builder import CollectionBuilder
from haybale.collections.collection import Collection
from haybale.collections.lines import need_file, read_jsonl, text_field
from haybale.collections.qrels import add_qrels, qrels_files
from haybale.collections.sink import DocumentSink
from haybale.errors import InputError


def read_beir(folder: Path | str) -> Collection:
    """Read a folder in BEIR's layout. Queries that no split judges stay in the collection, in no split."""
    folder = Path(folder)
    builder = CollectionBuilder(folder.name)
    add_beir_documents(builder, folder)
    add_queries_and_qrels(builder, folder)
    return builder.build()


def add_beir_documents(sink: DocumentSink, folder: Path) -> None:
    """Read ``corpus.jsonl`` line by line."""
    add_beir_file(sink, need_file(folder, "corpus.jsonl"))


def add_beir_file(sink: DocumentSink, path: Path) -> None:
    """Read a file such as ``corpus.jsonl``; ids may also stand under ``doc_id``."""
    for line, record in read_jsonl(path):
        title = text_field(path, line, record, "title", default="")
        paragraphs = [p for p in text_field(path, line, record, "text").split("\n") if p.strip()]
        if title:
            paragraphs[:1] = [f"{title}\n{paragraphs[0]}" if paragraphs else title]
        doc_id = text_field(path, line, record, "doc_id" if "_id" not in record and "doc_id" in record else "_id")
        sink.add_document(doc_id, paragraphs, title=title, at=(path, line))


def add_queries_and_qrels(builder: CollectionBuilder, folder: Path) -> None:
    """Read ``queries.jsonl`` and ``qrels/*.tsv``, which the structured layout shares with BEIR."""
    path = need_file(folder, "queries.jsonl")
    for line, record in read_jsonl(path):
        query_id = text_field(path, line, record, "_id")
        own = text_field(path, line, record, "own", default="") or None
        builder.add_query(query_id, text_field(path, line, record, "text").split("\n"), own=own, at=(path, line))
    files = qrels_files(folder)
    if not files:
        raise InputError(f"{folder}: expected qrels/<split>.tsv or .tsv.gz, found none")
    for split, qrels_path in files.items():
        add_qrels(builder, split, qrels_path)
