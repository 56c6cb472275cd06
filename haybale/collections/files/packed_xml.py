"""Open the XML files in a packed document, as Word and OpenDocument have them, without entities and up to a size."""

from __future__ import annotations

import io
import posixpath
import zipfile
from collections.abc import Iterator
from typing import Any, NamedTuple

from haybale.collections.files.file_reader import EXTRA, Unreadable
from haybale.extras import import_optional

Element = Any  # an element of lxml, which has no types
MAX_XML_BYTES = 2**28  # of one file after unpacking
_COMPOUND_FILE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # how files of earlier versions, and encrypted ones, begin


class Relation(NamedTuple):
    """A reference from a file of the package to another file, or to an address outside it."""

    kind: str  # the last word of its type, such as "footnotes"
    target: str  # the path in the package
    is_external: bool


class PackedXML:
    """The files in a packed document.

    Raises
    ------
    Unreadable
        If the document is encrypted, or of a format before XML.
    """

    def __init__(self, data: bytes) -> None:
        if data.startswith(_COMPOUND_FILE):
            raise Unreadable(
                "encrypted, or of a format before XML; open it, and save it without a password in the new format"
            )
        self._archive = zipfile.ZipFile(io.BytesIO(data))
        self.names = set(self._archive.namelist())

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        with self._archive.open(name) as file:
            content = file.read(MAX_XML_BYTES + 1)
        if len(content) > MAX_XML_BYTES:
            raise Unreadable(f"{name} unpacks to more than {MAX_XML_BYTES:,} bytes; split the document")
        return content

    def root(self, name: str) -> Element | None:
        """Return the root element of an XML file; None if there is no such file."""
        return parsed(self.read(name)) if name in self.names else None

    def relations(self, name: str) -> dict[str, Relation]:
        """Return the references of a file of the Office Open XML package by their ids; those of the package for ""."""
        folder, base = posixpath.split(name)
        root = self.root(posixpath.join(folder, "_rels", f"{base}.rels"))
        relations = {}
        for element in () if root is None else elements(root):
            target, kind = element.get("Target", ""), element.get("Type", "").rpartition("/")[2]
            is_external = element.get("TargetMode") == "External"
            if not is_external:
                target = posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")
            relations[element.get("Id", "")] = Relation(kind, target, is_external)
        return relations


def parsed(data: bytes) -> Element:
    """Return the root element of XML; entities are not expanded, and nothing is loaded from elsewhere."""
    etree = import_optional("lxml.etree", EXTRA)
    return etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True))


def elements(parent: Element) -> Iterator[Element]:
    """Yield the child elements of an element, without comments and processing instructions."""
    return (child for child in parent if isinstance(child.tag, str))


def name_of(element: Element) -> str:
    """Return the name of an element without its namespace."""
    return str(element.tag).rpartition("}")[2]


def value_of(element: Element, name: str) -> str | None:
    """Return an attribute by its name without namespace, None if the element does not have it."""
    return next((value for key, value in element.items() if key.rpartition("}")[2] == name), None)


def child_of(element: Element | None, *path: str) -> Element | None:
    """Return the first descendant along a path of names; None if there is none."""
    for name in path:
        if element is not None:
            element = next((child for child in elements(element) if name_of(child) == name), None)
    return element
