"""The name and the type of a file in words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from haybale.engine.original_files import file_name_of

_TYPES = {
    "Word": ".docx .docm .dotx .dotm .doc",
    "Excel": ".xlsx .xlsm .xls",
    "PowerPoint": ".pptx .ppt",
    "OpenDocument": ".odt .ott .fodt .ods",
    "Markdown": ".md .markdown",
    "text": ".txt .text",
    "web page": ".html .htm .xhtml .mht .mhtml .webarchive",
    "mail": ".eml .emlx .msg .mbox .mbx",
    "picture": ".png .jpg .jpeg .tif .tiff",
    "BibTeX": ".bib .bibtex",
}
_TYPE_OF = {suffix: words for words, suffixes in _TYPES.items() for suffix in suffixes.split()}


class FileWords(NamedTuple):
    """The name of a file with its path, and its type in words."""

    name: str
    type: str


def file_words(doc_id: str, metadata: Mapping[str, Any]) -> FileWords | None:
    """Return the name and the type of the file of a document; None if it was not read from a file.

    >>> file_words("leases/a.docx", {"file": "leases/a.docx"}), file_words("a", {"file": "a.pdf"}), file_words("a", {})
    (FileWords(name='leases/a.docx', type='Word'), FileWords(name='a.pdf', type='PDF'), None)
    """
    name = file_name_of(doc_id, metadata)
    suffix = PurePosixPath(name.lower()).suffix
    return FileWords(name, _TYPE_OF.get(suffix, suffix[1:].upper() or "file")) if name else None
