"""Split the documents and queries of a collection into other passages."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import replace

import numpy as np

from haybale.collections.collection import Collection, Ints, Links, Passages, indptr_from_counts, strings_of
from haybale.collections.splitters import SPLITTERS, Splitter, split_or_whole
from haybale.errors import InputError, UnknownNameError

PARAGRAPHS = (*SPLITTERS, "sections")


def with_paragraphs(collection: Collection, name: str) -> Collection:
    """Split a collection with a splitter given by name, or with :func:`by_section` for ``"sections"``."""
    if name not in PARAGRAPHS:
        raise UnknownNameError("way to split paragraphs", name, PARAGRAPHS)
    return by_section(collection) if name == "sections" else resplit(collection, SPLITTERS[name])


def resplit(collection: Collection, splitter: Splitter) -> Collection:
    """Split the documents and queries of a collection into other paragraphs.

    The passages of a document, or the paragraphs of a query, are joined by newlines and split again. The id of a new
    passage is ``<document id>:<label>``. If the splitter finds no paragraph, the document or query becomes one passage.
    Sections and links are dropped. A warning is given if no document has more than one new passage, such as with
    ``"blank-lines"`` after a reader that splits at line ends and leaves out blank lines (BEIR's).

    >>> from haybale.collections import CollectionBuilder, find_splitter
    >>> builder = CollectionBuilder("a law")
    >>> _ = builder.add_document("dogs", ["1. Dogs need a lead.", "2. Cats need none."])
    >>> resplit(builder.build(), find_splitter("numbered")).passages.ids.to_pylist()
    ['dogs:1', 'dogs:2']
    """
    queries, doc_ids = collection.queries, collection.doc_ids.to_pylist()
    of_documents = [split_or_whole(text, splitter) for text in collection.document_texts()]
    of_queries = [split_or_whole(text, splitter) for text in queries.texts(range(len(queries)))]
    ids = [f"{doc_id}:{part.label}" for doc_id, parts in zip(doc_ids, of_documents, strict=True) for part in parts]
    _check_unique(ids)
    # "sentences" joins short texts on purpose.
    if len(ids) == len(doc_ids) < collection.n_passages and splitter is not SPLITTERS["sentences"]:
        message = (
            f"no boundary was found in any document of {collection.name!r}, so each is one passage now; choose another "
            "way to split paragraphs, or omit it, since the reader may have split at line ends and left out blank lines"
        )
        warnings.warn(message, stacklevel=2)
    texts = strings_of(part.text for parts in of_documents for part in parts)
    paragraphs = strings_of(part.text for parts in of_queries for part in parts)
    return replace(
        collection,
        passages=Passages(strings_of(ids), texts, indptr_from_counts([len(parts) for parts in of_documents])),
        queries=replace(queries, paragraphs=paragraphs, offsets=indptr_from_counts([len(p) for p in of_queries])),
        sections=None,
        links=None,
    )


def by_section(collection: Collection) -> Collection:
    """Join the passages of each section, by newlines, into one passage with the id of the section.

    A section comprises the text directly under its heading, but neither the heading nor its subsections. A new passage
    takes the position of its first old passage. Passages without a section, the section tree and the queries do not
    change. Links start at the new passages, and repeated links are removed. A collection without sections raises
    :class:`InputError`.
    """
    passages, sections = collection.passages, collection.sections
    if sections is None or passages.sections is None:
        raise InputError(f"collection {collection.name!r} has no sections; choose another way to split paragraphs")
    # The passages to join, by section and in the order of the first one; a passage without a section stays alone.
    joined: dict[tuple[bool, int], list[int]] = {}
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
        links = Links(
            internal=_with_new_sources(links.internal, new),
            passage_to_document=_with_new_sources(links.passage_to_document, new),
            section_to_document=links.section_to_document,
        )
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


def _with_new_sources(edges: Ints, new: Ints) -> Ints:
    """Return links with renumbered sources and without duplicates."""
    renumbered = dict.fromkeys((new[source], target) for source, target in edges.tolist())
    return np.array(list(renumbered), dtype=np.int64).reshape(-1, 2)


def _check_unique(ids: list[str]) -> None:
    """Reject a repeated passage id; a colon in a document id or in a label may cause one."""
    passage_id, times = Counter(ids).most_common(1)[0]
    if times > 1:
        raise InputError(f"passage ids must be unique, found {passage_id!r} for two paragraphs; rename a document")
