"""Split the documents and queries of a collection anew."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from haybale.collections.collection import Collection, Ints, Links, Passages, indptr_from_counts, strings_of
from haybale.collections.splitters import SPLITTERS, Splitter, split_or_whole
from haybale.errors import InputError, UnknownNameError

PARAGRAPHS = (*SPLITTERS, "sections")


def with_paragraphs(collection: Collection, name: str) -> Collection:
    """Return a collection split by the splitter of that name, or by :func:`by_section` for ``"sections"``."""
    if name not in PARAGRAPHS:
        raise UnknownNameError("way to split paragraphs", name, PARAGRAPHS)
    return by_section(collection) if name == "sections" else resplit(collection, SPLITTERS[name])


def resplit(collection: Collection, splitter: Splitter) -> Collection:
    """Return the collection with its documents and queries split into other paragraphs.

    The whole text is split: the passages of a document, or the paragraphs of a query, joined by newlines. The id of a
    passage is ``<document id>:<label>``. A document or query in which the splitter finds no paragraph stays whole.
    Sections and links are dropped.

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
        passages=Passages(strings_of(ids), texts, indptr_from_counts([len(found) for found in split])),
        queries=replace(queries, paragraphs=paragraphs, offsets=indptr_from_counts([len(found) for found in asked])),
        sections=None,
        links=None,
    )


def by_section(collection: Collection) -> Collection:
    """Return the collection with the passages of each section joined by newlines into one, with the section's id.

    A section is the text directly under its heading, without its subsections; the heading is not added. A new passage
    takes the position of the first old one. A passage without a section, the tree of sections, and queries stay as
    they are. Links start at the new passages, each once.

    Raises
    ------
    InputError
        A collection without sections.
    """
    passages, sections = collection.passages, collection.sections
    if sections is None or passages.sections is None:
        raise InputError(f"collection {collection.name!r} has no sections")
    joined: dict[tuple[bool, int], list[int]] = {}  # by section, in the order of first passages; one without is its own
    for number, section in enumerate(passages.sections.tolist()):
        joined.setdefault((section >= 0, section if section >= 0 else number), []).append(number)
    first = np.array([numbers[0] for numbers in joined.values()])
    old_ids, section_ids, texts = passages.ids.to_pylist(), sections.ids.to_pylist(), passages.texts.to_pylist()
    ids = [section_ids[number] if is_section else old_ids[number] for is_section, number in joined]
    _check_unique(ids)
    links = collection.links
    if links is not None:
        new = np.empty(len(passages), dtype=np.int64)
        for number, numbers in enumerate(joined.values()):
            new[numbers] = number
        internal, external = _from(links.internal, new), _from(links.passage_to_document, new)
        links = Links(internal, external, links.section_to_document)
    return replace(
        collection,
        passages=Passages(
            ids=strings_of(ids),
            texts=strings_of("\n".join(texts[number] for number in numbers) for numbers in joined.values()),
            doc_offsets=indptr_from_counts(np.bincount(passages.doc_of[first], minlength=collection.n_documents)),
            sections=passages.sections[first],
        ),
        links=links,
    )


def _from(edges: Ints, new: Ints) -> Ints:
    """Return links from the new passages, duplicates removed."""
    moved = dict.fromkeys((new[source], target) for source, target in edges.tolist())
    return np.array(list(moved), dtype=np.int64).reshape(-1, 2)


def _check_unique(ids: list[str]) -> None:
    """Refuse a passage id that occurs twice, which a colon in document ids or labels may cause."""
    passage_id, times = Counter(ids).most_common(1)[0]
    if times > 1:
        raise InputError(f"duplicate passage id {passage_id!r} among the new paragraphs")
