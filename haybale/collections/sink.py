"""Where a reader puts the documents it reads: the builder of a collection, or a file that takes them one by one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

At = tuple[Path, int] | None  # file and line


class DocumentSink(Protocol):
    """What readers call, document by document; see :class:`~haybale.collections.CollectionBuilder`."""

    def add_document(self, doc_id: str, passages: Iterable[str] = (), title: str = "", at: At = None) -> int: ...

    def document_number(self, doc_id: str) -> int | None: ...

    def add_passage(
        self, document: int, text: str, passage_id: str | None = None, section: int = -1, at: At = None
    ) -> None: ...

    def add_section(self, document: int, section_id: str, title: str, parent: str | None, at: At = None) -> int: ...

    def add_internal_link(self, passage_id: str, section_id: str, at: At = None) -> None: ...

    def add_external_link(self, source_id: str, doc_id: str, at: At = None) -> None: ...
