"""The feed of a saved search as an Atom document (RFC 4287)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from xml.etree import ElementTree

from haybale.drawing import clean
from haybale.service.saved_searches import Feed

ATOM_TYPE = "application/atom+xml"
_NAMESPACE = "http://www.w3.org/2005/Atom"


def atom_of(
    feed: Feed, identity: str, address: str, search_address: str, document_address: Callable[[str], str]
) -> bytes:
    """Return a feed as an Atom document, in which each text of a document has an entry with an id that stays.

    Parameters
    ----------
    feed : Feed
    identity : str
        Of the engine, so that feeds of two engines have different ids.
    address, search_address : str
        The whole addresses of the feed and of the page of its search.
    document_address : callable
        Returns the whole address of a document's page by its id.
    """
    ElementTree.register_namespace("", _NAMESPACE)
    root = ElementTree.Element(f"{{{_NAMESPACE}}}feed")
    feed_id = uuid.uuid5(uuid.NAMESPACE_URL, f"haybale/{identity}/searches/{feed.search.id}/{feed.user}")
    _text(root, "id", feed_id.urn)
    _text(root, "title", feed.search.name)
    _text(root, "subtitle", "New and changed documents among the hits of a saved search")
    _text(root, "updated", feed.updated)
    _text(_element(root, "author"), "name", "haybale")
    _element(root, "link", rel="self", type=ATOM_TYPE, href=address)
    _element(root, "link", rel="alternate", type="text/html", href=search_address)
    for listed in feed.entries:
        entry = _element(root, "entry")
        _text(entry, "id", uuid.uuid5(feed_id, f"{listed['doc_id']}/{listed['digest']}").urn)
        _text(entry, "title", f"Changed: {listed['title']}" if listed["novelty"] == "changed" else listed["title"])
        _text(entry, "updated", listed["time"])
        _element(entry, "link", rel="alternate", type="text/html", href=document_address(listed["doc_id"]))
        _element(entry, "category", term=listed["novelty"])
        _text(entry, "summary", ": ".join(filter(None, (listed["place"], listed["snippet"]))) or listed["doc_id"])
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document


def _element(parent: ElementTree.Element, name: str, **attributes: str) -> ElementTree.Element:
    return ElementTree.SubElement(parent, f"{{{_NAMESPACE}}}{name}", attributes)


def _text(parent: ElementTree.Element, name: str, text: str) -> None:
    _element(parent, name).text = clean(text)
