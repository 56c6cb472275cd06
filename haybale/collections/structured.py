"""The structured layout: documents with a section tree, passages in sections, and links.

    documents.jsonl        {"_id", "title",
                            "sections": [{"id", "parent" (null: root), "title"}],
                            "passages": [{"id", "section", "order", "text"}],
                            "internal": [[passage id, section id], …],
                            "external": [[section or passage id, document id], …]}
    queries.jsonl, qrels/  as in BEIR

The tree and the links are kept (``Collection.sections`` and ``Collection.links``) for rankers that use them;
rankers that do not see plain documents of passages.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from haybale.collections.beir import add_queries_and_qrels
from haybale.collections.builder import CollectionBuilder
from haybale.collections.collection import Collection
from haybale.collections.lines import need_file, read_jsonl, text_field
from haybale.collections.sink import DocumentSink
from haybale.errors import FileFormatError


def read_structured(folder: Path | str) -> Collection:
    """Read a folder in the structured layout."""
    folder = Path(folder)
    builder = CollectionBuilder(folder.name)
    add_structured_documents(builder, folder)
    add_queries_and_qrels(builder, folder)
    return builder.build()


def add_structured_documents(sink: DocumentSink, folder: Path) -> None:
    """Read ``documents.jsonl`` line by line."""
    path = need_file(folder, "documents.jsonl")
    external: list[tuple[int, str, str]] = []
    for line, record in read_jsonl(path):
        at = (path, line)
        title = text_field(path, line, record, "title", default="")
        document = sink.add_document(text_field(path, line, record, "_id"), title=title, at=at)
        sections: dict[str, int] = {}
        for section in _objects(path, line, record, "sections"):
            parent = section.get("parent")
            section_id = text_field(path, line, section, "id")
            heading = text_field(path, line, section, "title", default="")
            sections[section_id] = sink.add_section(document, section_id, heading, parent, at=at)
        passages = _objects(path, line, record, "passages")
        for passage in sorted(passages, key=lambda p: _order(path, line, p)):
            section_id = text_field(path, line, passage, "section")
            if section_id not in sections:
                raise FileFormatError(path, line, f"a passage names section {section_id!r}, unknown in its document")
            text, passage_id = (text_field(path, line, passage, key) for key in ("text", "id"))
            sink.add_passage(document, text, passage_id, sections[section_id], at=at)
        for passage_id, section_id in _pairs(path, line, record, "internal"):
            sink.add_internal_link(passage_id, section_id, at=at)
        # A document may cite one that comes later in the file.
        external += [(line, source, target) for source, target in _pairs(path, line, record, "external")]
    for line, source, target in external:
        sink.add_external_link(source, target, at=(path, line))


def _objects(path: Path, line: int, record: dict[str, Any], name: str) -> list[dict[str, Any]]:
    value = record.get(name)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise FileFormatError(path, line, f"expected a list of objects in field {name!r}")
    return value


def _pairs(path: Path, line: int, record: dict[str, Any], name: str) -> list[tuple[str, str]]:
    value = record.get(name, [])
    if not isinstance(value, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and all(isinstance(end, str) for end in pair) for pair in value
    ):
        raise FileFormatError(path, line, f"expected a list of [id, id] in field {name!r}")
    return [(source, target) for source, target in value]


def _order(path: Path, line: int, passage: dict[str, Any]) -> int:
    order = passage.get("order")
    if not isinstance(order, int):
        raise FileFormatError(path, line, f"expected a whole number in field 'order' of a passage, found {order!r}")
    return order
