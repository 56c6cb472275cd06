"""Read the structured layout: documents with a section tree, passages in sections, and links.

    documents.jsonl        {"_id", "title",
                            "sections": [{"id", "parent" (null: root), "title"}],
                            "passages": [{"id", "section", "order", "text"}],
                            "internal": [[passage id, section id], …],
                            "external": [[section or passage id, document id], …]}
    queries.jsonl, qrels/  as in BEIR

The section tree becomes ``Collection.sections``, and the links become ``Collection.links``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from haybale.collections.builder import CollectionBuilder
from haybale.collections.readers.beir import BEIR
from haybale.errors import FileFormatError
from haybale.text_files import need_file, read_jsonl, text_field


class Structured(BEIR):
    """Reader of folders in the structured layout."""

    name = "structured"
    expected = "documents.jsonl"

    def add_documents(self, builder: CollectionBuilder, folder: Path) -> None:
        path = need_file(folder, self.expected)
        external: list[tuple[int, str, str]] = []
        for line, record in read_jsonl(path):
            at = (path, line)
            title = text_field(path, line, record, "title", default="")
            document = builder.add_document(text_field(path, line, record, "_id"), title=title, at=at)
            sections: dict[str, int] = {}
            for section in _objects(path, line, record, "sections"):
                section_id = text_field(path, line, section, "id")
                heading = text_field(path, line, section, "title", default="")
                parent = None if section.get("parent") is None else text_field(path, line, section, "parent")
                sections[section_id] = builder.add_section(document, section_id, heading, parent, at=at)
            passages = _objects(path, line, record, "passages")
            for passage in passages:
                if not isinstance(order := passage.get("order"), int):
                    message = f"expected a whole number in field 'order' of a passage, found {order!r}"
                    raise FileFormatError(path, line, message)
            for passage in sorted(passages, key=lambda passage: passage["order"]):
                section_id, text, passage_id = (
                    text_field(path, line, passage, key) for key in ("section", "text", "id")
                )
                if section_id not in sections:
                    message = f"passage {passage_id!r} needs a section of its document, found {section_id!r}"
                    raise FileFormatError(path, line, message)
                builder.add_passage(document, text, passage_id, sections[section_id], at=at)
            for passage_id, section_id in _pairs(path, line, record, "internal"):
                builder.add_internal_link(passage_id, section_id, at=at)
            external += [(line, source, target) for source, target in _pairs(path, line, record, "external")]
        for line, source, target in external:  # added last, because a document may cite a later one
            builder.add_external_link(source, target, at=(path, line))


def _objects(path: Path, line: int, record: dict[str, Any], name: str) -> list[dict[str, Any]]:
    value = record.get(name)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise FileFormatError(path, line, f"expected a list of objects in field {name!r}, found {value!r:.80}")
    return value


def _pairs(path: Path, line: int, record: dict[str, Any], name: str) -> list[list[str]]:
    value = record.get(name, [])
    if not isinstance(value, list) or any(
        not isinstance(pair, list) or [type(end) for end in pair] != [str, str] for pair in value
    ):
        raise FileFormatError(path, line, f"expected a list of [id, id] in field {name!r}, found {value!r:.80}")
    return value
