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

from haybale.collections.builder import CollectionBuilder
from haybale.collections.collection import Collection
from haybale.collections.lines import need_file, read_jsonl, text_field
from haybale.collections.readers.beir import add_queries_and_qrels
from haybale.errors import FileFormatError


def read_structured(folder: Path | str) -> Collection:
    """Read a folder in the structured layout."""
    folder = Path(folder)
    builder = CollectionBuilder(folder.name)
    add_structured_documents(builder, folder)
    add_queries_and_qrels(builder, folder)
    return builder.build()


def add_structured_documents(builder: CollectionBuilder, folder: Path) -> None:
    """Read ``documents.jsonl`` line by line."""
    path = need_file(folder, "documents.jsonl")
    external: list[tuple[int, str, str]] = []
    for line, record in read_jsonl(path):
        at = (path, line)
        title = text_field(path, line, record, "title", default="")
        document = builder.add_document(text_field(path, line, record, "_id"), title=title, at=at)
        sections: dict[str, int] = {}
        for section in _listed(path, line, record, "sections", dict):
            section_id = text_field(path, line, section, "id")
            heading = text_field(path, line, section, "title", default="")
            sections[section_id] = builder.add_section(document, section_id, heading, section.get("parent"), at=at)
        passages = _listed(path, line, record, "passages", dict)
        for passage in passages:
            if not isinstance(order := passage.get("order"), int):
                message = f"expected a whole number in field 'order' of a passage, found {order!r}"
                raise FileFormatError(path, line, message)
        for passage in sorted(passages, key=lambda passage: passage["order"]):
            section_id, text, passage_id = (text_field(path, line, passage, key) for key in ("section", "text", "id"))
            if section_id not in sections:
                raise FileFormatError(path, line, f"a passage names section {section_id!r}, unknown in its document")
            builder.add_passage(document, text, passage_id, sections[section_id], at=at)
        for passage_id, section_id in _listed(path, line, record, "internal", list):
            builder.add_internal_link(passage_id, section_id, at=at)
        # A document may cite one that comes later in the file.
        external += [(line, source, target) for source, target in _listed(path, line, record, "external", list)]
    for line, source, target in external:
        builder.add_external_link(source, target, at=(path, line))


def _listed(path: Path, line: int, record: dict[str, Any], name: str, kind: type) -> list[Any]:
    """The objects (dict) that a field holds, or the pairs of ids (list), of which there may be none."""
    value = record.get(name, [] if kind is list else None)
    expected = "a list of objects" if kind is dict else "a list of [id, id]"
    if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
        raise FileFormatError(path, line, f"expected {expected} in field {name!r}")
    if kind is list and not all(len(pair) == 2 and all(isinstance(end, str) for end in pair) for pair in value):
        raise FileFormatError(path, line, f"expected {expected} in field {name!r}")
    return value
