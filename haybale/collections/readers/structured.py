"""The structured layout: documents of sections, and passages in them.

    documents.jsonl        {"_id", "title",
                            "sections": [{"id"}],
                            "passages": [{"id", "section", "order", "text"}]}
    queries.jsonl, qrels/  as in BEIR

Other fields, such as titles and parents of sections and links, are not read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from haybale.collections.builder import CollectionBuilder
from haybale.collections.lines import need_file, read_jsonl, text_field
from haybale.errors import FileFormatError


def add_documents(builder: CollectionBuilder, folder: Path) -> None:
    """Read ``documents.jsonl`` line by line."""
    path = need_file(folder, "documents.jsonl")
    for line, record in read_jsonl(path):
        at = (path, line)
        title = text_field(path, line, record, "title", default="")
        document = builder.add_document(text_field(path, line, record, "_id"), title=title, at=at)
        sections = {text_field(path, line, section, "id") for section in _objects(path, line, record, "sections")}
        passages = _objects(path, line, record, "passages")
        for passage in passages:
            if not isinstance(order := passage.get("order"), int):
                message = f"expected a whole number in field 'order' of a passage, found {order!r}"
                raise FileFormatError(path, line, message)
        for passage in sorted(passages, key=lambda passage: passage["order"]):
            section_id, text, passage_id = (text_field(path, line, passage, key) for key in ("section", "text", "id"))
            if section_id not in sections:
                raise FileFormatError(path, line, f"a passage names section {section_id!r}, unknown in its document")
            builder.add_passage(document, text, passage_id, section_id, at=at)


def _objects(path: Path, line: int, record: dict[str, Any], name: str) -> list[dict[str, Any]]:
    value = record.get(name)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise FileFormatError(path, line, f"expected a list of objects in field {name!r}")
    return value
