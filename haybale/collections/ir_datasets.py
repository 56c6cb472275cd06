"""Collections of the package ir_datasets, by their id: ``beir/scifact/test``, ``msmarco-passage``, ``vaswani``.

MacAvaney et al., "Simplified Data Wrangling with ir_datasets", SIGIR 2021; the ids are listed at ir-datasets.com. The
package downloads what it reads. As in BEIR's layout, a line of text is one paragraph.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterator
from typing import Any

from haybale.collections.builder import CollectionBuilder
from haybale.collections.collection import Collection
from haybale.collections.sink import DocumentSink
from haybale.collections.split_order import in_usual_order
from haybale.errors import InputError
from haybale.extras import require

PREFIX = "ir_datasets:"
_LANGUAGES = {"en": "english", "de": "german"}


def read_ir_datasets(dataset_id: str) -> Collection:
    """Read a dataset of ir_datasets.

    A document with the fields ``title`` and ``text`` is read as in BEIR, title first; others, and queries, by their
    ``default_text()``. If the dataset has judgements, they are one split, named by the last part of its id. If not,
    each registered dataset below it (``<id>/…``) with judgements of the same documents is a split, named by the rest
    of its id with ``-`` for ``/``. Of several grades of one pair, by aspect for instance, the highest holds.
    Judgements of unknown documents or queries are left out, with one warning that counts them.

    Errors: ir_datasets is not installed, an unknown id, a dataset without documents, queries or judgements.
    """
    dataset = _load(dataset_id)
    splits = _splits(dataset_id, dataset)
    builder = CollectionBuilder(dataset_id, language=_LANGUAGES.get(str(dataset.docs_handler().docs_lang())))
    _add_documents(builder, dataset)
    asked: dict[str, str] = {}
    for part in splits.values():
        for query_id, text in _queries(part):
            if asked.setdefault(query_id, text) != text:
                raise InputError(
                    f"{PREFIX}{dataset_id}: query {query_id!r} has two texts; open one of its splits alone"
                )
    for query_id, text in asked.items():
        builder.add_query(query_id, text.split("\n"))
    n_unknown = 0
    for split, part in splits.items():
        for (query_id, doc_id), grade in _grades(part).items():
            if query_id in asked and builder.document_number(doc_id) is not None:
                builder.add_judgement(split, query_id, doc_id, grade)
            else:
                n_unknown += 1
    if n_unknown:
        message = f"{PREFIX}{dataset_id}: {n_unknown} judgements of unknown documents or queries were left out"
        warnings.warn(message, stacklevel=2)
    return builder.build()


def add_ir_datasets_documents(sink: DocumentSink, dataset_id: str) -> None:
    """Read the documents one by one; queries and judgements are not needed."""
    _add_documents(sink, _load(dataset_id))


def _load(dataset_id: str) -> Any:
    """The dataset of that id, which has documents."""
    package = require("ir_datasets", "ir_datasets")
    try:
        dataset = package.load(dataset_id)
    except KeyError:
        near = difflib.get_close_matches(dataset_id, list(package.registry), n=3)
        hint = f"; near it: {', '.join(near)}" if near else ""
        raise InputError(
            f"ir_datasets has no dataset {dataset_id!r}; its ids look like beir/scifact/test, see ir-datasets.com{hint}"
        ) from None
    if not dataset.has_docs():
        raise InputError(f"{PREFIX}{dataset_id}: the dataset has no documents")
    return dataset


def _splits(dataset_id: str, dataset: Any) -> dict[str, Any]:
    """``{split: dataset}``: the dataset itself, or those below it, with queries and judgements."""
    own = {dataset_id.rpartition("/")[2]: dataset} if dataset.has_qrels() else {}
    found = own or in_usual_order(dict(_below(dataset_id, dataset)))
    if not found:
        raise InputError(f"{PREFIX}{dataset_id}: no judgements (qrels), neither of the dataset nor of one below it")
    found = {split: part for split, part in found.items() if part.has_queries()}
    if not found:
        raise InputError(f"{PREFIX}{dataset_id}: the dataset has judgements but no queries")
    return found


def _below(dataset_id: str, dataset: Any) -> Iterator[tuple[str, Any]]:
    registry = require("ir_datasets", "ir_datasets").registry
    for name in [name for name in registry if name.startswith(f"{dataset_id}/")]:
        part = registry[name]
        # As ir_datasets tells which datasets are parts of one collection: they share what reads the documents.
        if part.has_qrels() and part.has_docs() and part.docs_handler() == dataset.docs_handler():
            yield name.removeprefix(f"{dataset_id}/").replace("/", "-"), part


def _add_documents(sink: DocumentSink, dataset: Any) -> None:
    for document in dataset.docs_iter():
        title, text = getattr(document, "title", None), getattr(document, "text", None)
        if not isinstance(title, str) or not isinstance(text, str):
            title, text = "", document.default_text()
        paragraphs = [paragraph for paragraph in text.split("\n") if paragraph.strip()]
        if title:
            paragraphs[:1] = [f"{title}\n{paragraphs[0]}" if paragraphs else title]
        sink.add_document(document.doc_id, paragraphs, title=title)


def _queries(dataset: Any) -> Iterator[tuple[str, str]]:
    for query in dataset.queries_iter():
        yield query.query_id, query.default_text()


def _grades(dataset: Any) -> dict[tuple[str, str], int]:
    grades: dict[tuple[str, str], int] = {}
    for judgement in dataset.qrels_iter():
        pair, grade = (judgement.query_id, judgement.doc_id), int(judgement.relevance)
        grades[pair] = max(grade, grades.get(pair, grade))
    return grades
