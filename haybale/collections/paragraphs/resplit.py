"""Paragraphs of a whole collection: documents and queries split anew, and what each paragraph is called."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pyarrow as pa

from haybale.collections.collection import Collection, Ints, Passages, Strings
from haybale.collections.paragraphs import Paragraph, Splitter, split_or_whole
from haybale.errors import InputError


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
    ids: list[str] = []
    texts: list[str] = []
    counts: list[int] = []
    for doc_id, text in zip(collection.doc_ids.to_pylist(), collection.document_texts(), strict=True):
        found = split_or_whole(text, splitter)
        ids += passage_ids(doc_id, found)
        texts += [paragraph.text for paragraph in found]
        counts.append(len(found))
    check_unique(ids)
    queries = collection.queries
    asked = [split_or_whole(text, splitter) for text in queries.texts(range(len(queries)))]
    return replace(
        collection,
        passages=Passages(ids=strings(ids), texts=strings(texts), doc_offsets=_offsets(counts)),
        queries=replace(
            queries,
            paragraphs=strings(paragraph.text for found in asked for paragraph in found),
            offsets=_offsets(map(len, asked)),
        ),
        sections=None,
        links=None,
    )


def passage_ids(doc_id: str, paragraphs: Iterable[Paragraph]) -> list[str]:
    """``<document id>:<label>`` of each.

    >>> passage_ids("000028", [Paragraph("Federal Court", "I"), Paragraph("The motion …", "1")])
    ['000028:I', '000028:1']
    """
    return [f"{doc_id}:{paragraph.label}" for paragraph in paragraphs]


def labels_of(collection: Collection) -> tuple[list[str], list[str]]:
    """The labels of all query paragraphs, (n_query_paragraphs,), and of all passages, (n_passages,).

    A passage is called what its id says after ``<document id>:``, or its whole id. The paragraphs of a query are
    called like the passages of its own document where they are the same texts, else by their place, from 0.

    >>> from haybale.collections import CollectionBuilder
    >>> builder = CollectionBuilder("case")
    >>> case = builder.add_document("7")
    >>> builder.add_passage(case, "Federal Court", "7:I")
    >>> builder.add_passage(case, "Dismissed.", "7:1")
    >>> _ = builder.add_query("7", ["Federal Court", "Dismissed."], own="7")
    >>> labels_of(builder.build())
    (['I', '1'], ['I', '1'])
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


def check_unique(ids: list[str]) -> None:
    """Refuse passage ids of which one is used twice, as a colon in document ids or labels may cause."""
    seen: set[str] = set()
    for passage_id in ids:
        if passage_id in seen:
            raise InputError(f"duplicate passage id {passage_id!r} among the new paragraphs")
        seen.add(passage_id)


def strings(values: Iterable[str]) -> Strings:
    """Strings as a column of a collection."""
    return pa.chunked_array([pa.array(list(values), type=pa.large_string())])


def _offsets(counts: Iterable[int]) -> Ints:
    return np.array(list(accumulate(counts, initial=0)), dtype=np.int64)
