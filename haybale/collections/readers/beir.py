"""Read BEIR's layout: JSON lines and tab-separated judgements, plain or ``.gz``.

    corpus.jsonl           {"_id", "title", "text", "metadata" (optional: an object)}
    queries.jsonl          {"_id", "text", "own" (optional: the document the query was taken from), "date" (optional)}
    qrels/{split}.tsv      query-id, corpus-id, score

Thakur et al., "BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation …", NeurIPS 2021. As an extension of BEIR,
each line of ``text`` is one passage of a document or one paragraph of a query. The title is prepended to the first
passage; without a text it is the only passage. The fields of ``metadata``, and further fields of a document, are its
metadata. Queries without judgements are in no split.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from haybale.collections.builder import CollectionBuilder
from haybale.collections.qrels import add_qrels_folder
from haybale.collections.reader import FolderReader
from haybale.text_files import need_file, read_jsonl, text_field

_FIELDS = ("_id", "doc_id", "title", "text")


class BEIR(FolderReader):
    """Reader of folders in BEIR's layout."""

    name = "beir"
    expected = "corpus.jsonl"
    query_files = ("queries.jsonl", "qrels")

    def add_documents(self, builder: CollectionBuilder, folder: Path) -> None:
        add_beir_file(builder, need_file(folder, self.expected))

    def add_queries(self, builder: CollectionBuilder, folder: Path) -> None:
        path = need_file(folder, "queries.jsonl")
        for line, record in read_jsonl(path):
            query_id, text = (text_field(path, line, record, name) for name in ("_id", "text"))
            own_document = text_field(path, line, record, "own", default="") or None
            builder.add_query(query_id, text.split("\n"), own=own_document, at=(path, line), date=record.get("date"))
        add_qrels_folder(builder, folder)


def add_beir_file(builder: CollectionBuilder, path: Path) -> None:
    """Add the documents of a file such as ``corpus.jsonl``; the field of ids is ``_id`` or ``doc_id``."""
    for line, record in read_jsonl(path):
        title = text_field(path, line, record, "title", default="")
        doc_id = text_field(path, line, record, "doc_id" if "_id" not in record and "doc_id" in record else "_id")
        paragraphs = titled_lines(title, text_field(path, line, record, "text"))
        builder.add_document(doc_id, paragraphs, title=title, at=(path, line), metadata=_metadata(record))


def _metadata(record: dict[str, Any]) -> dict[str, Any]:
    """Return the further fields of a record, and those of its object ``metadata``."""
    further = {name: value for name, value in record.items() if name not in _FIELDS}
    inner = further.pop("metadata", None)
    return further | (inner if isinstance(inner, dict) else {} if inner is None else {"metadata": inner})


def titled_lines(title: str, text: str) -> list[str]:
    """Return the non-blank lines of a text, the first one preceded by the title."""
    paragraphs = [paragraph for paragraph in text.split("\n") if paragraph.strip()]
    if title:
        paragraphs[:1] = [f"{title}\n{paragraphs[0]}" if paragraphs else title]
    return paragraphs
