"""Paragraphs of a whole collection: documents and queries split anew, and what each paragraph is called."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from haybale.collections.collection import Collection, Ints, Links, Passages, offsets_of, strings_of
from haybale.collections.splitters import SPLITTERS, Splitter, find_splitter, split_or_whole
from haybale.errors import InputError, UnknownNameError

PARAGRAPHS = (*SPLITTERS, "sections")


def with_paragraphs(collection: Collection, name: str) -> Collection:
    """:func:`resplit` by the splitter of that name, or :func:`by_section` for ``"sections"``."""
    if name not in PARAGRAPHS:
        raise UnknownNameError("way to split paragraphs", name, PARAGRAPHS)
    return by_section(collection) if name == "sections" else resplit(collection, find_splitter(name))


def resplit(collection: Collection, splitter: Splitter) -> Collection:
    """The collection with its documents and queries split into other paragraphs.

    Split is the whole text: the passages of a document, or the paragraphs of a query, joined by newlines. The id of a
    passage is ``<document id>:<label>``. A document or query in which the splitter finds no paragraph stays whole.
    Titles, splits, judgements and own documents stay; sections and links, which refer to the old passages, do not.

    >>> from haybale.collections import CollectionBuilder, find_splitter
    >>> builder = CollectionBuilder("a law")
    >>> _ = builder.add_document("dogs", ["1. Dogs need a lead.", "2. Cats need none."])
    >>> resplit(builder.build(), find_splitter("numbered")).passages.ids.to_pylist()
    ['dogs:1', 'dogs:2']
    """
    queries, doc_ids = collection.queries, collection.doc_ids.to_pylist()
    split = [split_or_whole(text, splitter) for text in collection.document_texts()]
    asked = [split_or_whole(text, splitter) for text in queries.texts(range(len(queries)))]
    ids = [f"{doc_id}:{part.label}" for doc_id, found in zip(doc_ids, split, strict=True) for part in found]
    _check_unique(ids)
    texts = strings_of(part.text for found in split for part in found)
    paragraphs = strings_of(part.text for found in asked for part in found)
    return replace(
        collection,
        passages=Passages(strings_of(ids), texts, offsets_of([len(found) for found in split])),
        queries=replace(queries, paragraphs=paragraphs, offsets=offsets_of([len(found) for found in asked])),
        sections=None,
        links=None,
    )


def labels_of(collection: Collection) -> tuple[list[str], list[str]]:
    """The labels of all query paragraphs, (n_query_paragraphs,), and of all passages, (n_passages,).

    A passage is called what its id says after ``<document id>:``, or its whole id. The paragraphs of a query are
    called like the passages of its own document where they are the same texts, else by their place, from 0.
    """
    passages, queries = collection.passages, collection.queries
    doc_ids = collection.doc_ids.to_pylist()
    passage_labels = [
        passage_id.removeprefix(f"{doc_ids[document]}:")
        for passage_id, document in zip(passages.ids.to_pylist(), passages.doc_of, strict=True)
    ]
    query_labels: list[str] = []
    for number, own in enumerate(queries.own):
        paragraphs = queries.paragraphs_of(number)
        its = slice(passages.doc_offsets[own], passages.doc_offsets[own + 1]) if own >= 0 else slice(0)
        if passages.texts[its].to_pylist() == paragraphs:
            query_labels += passage_labels[its]
        else:
            query_labels += [str(place) for place in range(len(paragraphs))]
    return query_labels, passage_labels


def by_section(collection: Collection) -> Collection:
    """The collection with the passages of one section joined by newlines, into one passage with the section's id.

    A section is what stands directly under its heading, without its subsections; the heading is not added. The new
    passages stand where the first of their old ones stood; a passage without a section stays as it is. The tree of
    sections stays, and links go out from the new passages, each once. Queries, which have no sections, stay too.

    Raises
    ------
    InputError
        A collection without sections.
    """
    passages, sections = collection.passages, collection.sections
    if sections is None or passages.sections is None:
        raise InputError(f"collection {collection.name!r} has no sections")
    # By section, in the order of their first passages; one without a section is its own.
    owner = np.where(passages.sections < 0, -1 - np.arange(len(passages)), passages.sections)
    _, first, which = np.unique(owner, return_index=True, return_inverse=True)
    new, first = np.argsort(np.argsort(first))[which], np.sort(first)
    joined: list[list[str]] = [[] for _ in first]
    for number, text in zip(new, passages.texts.to_pylist(), strict=True):
        joined[number].append(text)
    ids, section_ids, of_section = passages.ids.to_pylist(), sections.ids.to_pylist(), passages.sections[first]
    new_ids = [ids[old] if s < 0 else section_ids[s] for old, s in zip(first, of_section, strict=True)]
    _check_unique(new_ids)
    links = collection.links
    if links is not None:
        to_section, to_document = _from(links.internal, new), _from(links.passage_to_document, new)
        links = Links(to_section, to_document, links.section_to_document)
    offsets = offsets_of(np.bincount(passages.doc_of[first], minlength=collection.n_documents))
    texts = strings_of("\n".join(parts) for parts in joined)
    return replace(collection, passages=Passages(strings_of(new_ids), texts, offsets, of_section), links=links)


def _from(edges: Ints, new: Ints) -> Ints:
    """Links from the new passages, in order of their first; a link of two old ones is kept once."""
    moved = np.stack([new[edges[:, 0]], edges[:, 1]], axis=1)
    _, first = np.unique(moved, axis=0, return_index=True)
    return moved[np.sort(first)]


def _check_unique(ids: list[str]) -> None:
    """Refuse passage ids of which one is used twice, as a colon in document ids or labels may cause."""
    seen: set[str] = set()
    for passage_id in ids:
        if passage_id in seen:
            raise InputError(f"duplicate passage id {passage_id!r} among the new paragraphs")
        seen.add(passage_id)
