"""Sections as the paragraphs of a structured collection."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from haybale.collections.collection import Collection, Ints, Links, Passages
from haybale.collections.paragraphs.resplit import check_unique, strings
from haybale.errors import InputError


def by_section(collection: Collection) -> Collection:
    """The collection with the passages of one section joined by newlines, into one passage with the section's id.

    A section is what stands directly under its heading, without its subsections; the heading is not added. The new
    passages stand where the first of their old ones stood; a passage without a section stays as it is. The tree of
    sections stays, and links go out from the new passages, each once. Queries, which have no sections, stay too.

    Errors: a collection without sections.
    """
    passages, sections = collection.passages, collection.sections
    if sections is None or passages.sections is None:
        raise InputError(f"collection {collection.name!r} has no sections")
    new, first = _grouped(passages.sections)
    ids, texts = passages.ids.to_pylist(), passages.texts.to_pylist()
    section_ids = sections.ids.to_pylist()
    joined: list[list[str]] = [[] for _ in first]
    for number, text in zip(new, texts, strict=True):
        joined[number].append(text)
    of_section = passages.sections[first]
    new_ids = [ids[old] if s < 0 else section_ids[s] for old, s in zip(first, of_section, strict=True)]
    check_unique(new_ids)
    links = collection.links
    if links is not None:
        links = Links(
            internal=_from(links.internal, new),
            passage_to_document=_from(links.passage_to_document, new),
            section_to_document=links.section_to_document,
        )
    counts = np.bincount(passages.doc_of[first], minlength=collection.n_documents)
    return replace(
        collection,
        passages=Passages(
            ids=strings(new_ids),
            texts=strings("\n".join(parts) for parts in joined),
            doc_offsets=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            sections=of_section,
        ),
        links=links,
    )


def _grouped(section_of: Ints) -> tuple[Ints, Ints]:
    """``(new number of each passage, old number of each new passage's first)``.

    >>> _grouped(np.array([4, 4, 2, -1, -1, 4]))
    (array([0, 0, 1, 2, 3, 0]), array([0, 2, 3, 4]))
    """
    own = np.where(section_of < 0, -1 - np.arange(len(section_of)), section_of)
    _, first, inverse = np.unique(own, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return place[inverse], first[order]


def _from(edges: Ints, new: Ints) -> Ints:
    """Links from the new passages, in order of their first; a link of two old ones is kept once."""
    moved = np.stack([new[edges[:, 0]], edges[:, 1]], axis=1)
    _, first = np.unique(moved, axis=0, return_index=True)
    return moved[np.sort(first)]
