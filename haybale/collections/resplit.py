"""Paragraphs of a whole collection: documents and queries split anew."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from haybale.collections.collection import Collection, Passages, offsets_of, strings_of
from haybale.collections.splitters import SPLITTERS, Splitter, split_or_whole
from haybale.errors import InputError, UnknownNameError

PARAGRAPHS = (*SPLITTERS, "sections")


def with_paragraphs(collection: Collection, name: str) -> Collection:
    """:func:`resplit` by the splitter of that name, or :func:`by_section` for ``"sections"``."""
    if name not in PARAGRAPHS:
        raise UnknownNameError("way to split paragraphs", name, PARAGRAPHS)
    return by_section(collection) if name == "sections" else resplit(collection, SPLITTERS[name])


def resplit(collection: Collection, splitter: Splitter) -> Collection:
    """The collection with its documents and queries split into other paragraphs.

    Split is the whole text: the passages of a document, or the paragraphs of a query, joined by newlines. The id of a
    passage is ``<document id>:<label>``. A document or query in which the splitter finds no paragraph stays whole.
    All else stays.

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
    )


def by_section(collection: Collection) -> Collection:
    """The collection with the passages of one section joined by newlines, into one passage with the section's id.

    A section is what stands directly under its heading, without its subsections; the heading is not added. The new
    passages stand where the first of their old ones stood; a passage without a section, and queries, stay as they are.

    Raises
    ------
    InputError
        A collection without sections.
    """
    passages = collection.passages
    if passages.sections is None:
        raise InputError(f"collection {collection.name!r} has no sections")
    ids, texts = passages.ids.to_pylist(), passages.texts.to_pylist()
    joined: dict[tuple[int, bool, str], list[int]] = {}  # by document and section, in the order of first passages
    for number, (document, section) in enumerate(zip(passages.doc_of, passages.sections.to_pylist(), strict=True)):
        joined.setdefault((document, bool(section), section or ids[number]), []).append(number)
    _check_unique([name for *_, name in joined])
    return replace(
        collection,
        passages=Passages(
            ids=strings_of(name for *_, name in joined),
            texts=strings_of("\n".join(texts[number] for number in numbers) for numbers in joined.values()),
            doc_offsets=offsets_of(np.bincount([key[0] for key in joined], minlength=collection.n_documents)),
            sections=strings_of(name if is_section else "" for _, is_section, name in joined),
        ),
    )


def _check_unique(ids: list[str]) -> None:
    """Refuse passage ids of which one is used twice, as a colon in document ids or labels may cause."""
    passage_id, times = Counter(ids).most_common(1)[0]
    if times > 1:
        raise InputError(f"duplicate passage id {passage_id!r} among the new paragraphs")
