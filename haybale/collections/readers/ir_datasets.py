"""Read datasets of the package ir_datasets by their id: ``beir/scifact/test``, ``msmarco-passage``, ``vaswani``.

A document with the fields ``title`` and ``text`` is read as in BEIR, title first; others, and queries, by their
``default_text()``. If the dataset has judgements, they are one split, named by the last part of its id. If not, each
registered dataset below it (``<id>/…``) with judgements of the same documents is a split, named by the rest of its id
with ``-`` for ``/``. Of several grades of one pair, by aspect for instance, the highest holds.

MacAvaney et al., "Simplified Data Wrangling with ir_datasets", SIGIR 2021; the ids are listed at ir-datasets.com. The
package downloads what it reads.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from haybale.analysis import BY_CODE
from haybale.collections.builder import CollectionBuilder, in_usual_order
from haybale.collections.collection import Collection
from haybale.collections.reader import Reader
from haybale.collections.readers.beir import titled_lines
from haybale.errors import HaybaleError, InputError
from haybale.extras import import_optional

PREFIX = "ir_datasets:"


class IRDatasets(Reader):
    """Reads datasets of ir_datasets by their ids."""

    name = "ir_datasets"
    expected = f"{PREFIX}ID"

    def recognises(self, source: str) -> bool:
        return source.startswith(PREFIX)

    def read(
        self, source: str, *, queries: bool = True, missing_judgements: str = "skip", warn: bool = True
    ) -> Collection:
        dataset_id = source.removeprefix(PREFIX)
        builder = CollectionBuilder(dataset_id)
        with _errors_named(dataset_id):
            _add_documents(builder, dataset_id)
            if queries:
                _add_queries(builder, dataset_id)
        return builder.build(warn=warn)


@contextmanager
def _errors_named(dataset_id: str) -> Iterator[None]:
    """Turn whatever the package raises, such as errors of the network, into one error that names the dataset."""
    try:
        yield
    except HaybaleError:
        raise
    except Exception as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{PREFIX}{dataset_id}: cannot be read by ir_datasets: {why}") from error


def _add_documents(builder: CollectionBuilder, dataset_id: str) -> None:
    """Add the documents one by one."""
    dataset = _load(dataset_id)
    builder.language = BY_CODE.get(str(dataset.docs_handler().docs_lang()))
    for document in dataset.docs_iter():
        title, text = getattr(document, "title", None), getattr(document, "text", None)
        if not isinstance(title, str) or not isinstance(text, str):
            title, text = "", document.default_text()
        builder.add_document(document.doc_id, titled_lines(title, text), title=title)


def _add_queries(builder: CollectionBuilder, dataset_id: str) -> None:
    """Add queries and judgements; one warning counts the skipped ones, of unknown documents or queries."""
    splits = _splits(dataset_id, _load(dataset_id))
    asked: dict[str, str] = {}
    for part in splits.values():
        for query in part.queries_iter():
            text = query.default_text()
            if asked.setdefault(query.query_id, text) != text:
                about = f"query {query.query_id!r} has two texts; open one of its splits alone"
                raise InputError(f"{PREFIX}{dataset_id}: {about}")
    for query_id, text in asked.items():
        builder.add_query(query_id, text.split("\n"))
    n_unknown = 0
    for split, part in splits.items():
        grades: dict[tuple[str, str], int] = {}
        for judgement in part.qrels_iter():
            pair, grade = (judgement.query_id, judgement.doc_id), int(judgement.relevance)
            grades[pair] = max(grade, grades.get(pair, grade))
        for (query_id, doc_id), grade in grades.items():
            if query_id in asked and builder.document_number(doc_id) is not None:
                builder.add_judgement(split, query_id, doc_id, grade)
            else:
                n_unknown += 1
    if n_unknown:
        message = f"{PREFIX}{dataset_id}: {n_unknown} judgements of unknown documents or queries were left out"
        warnings.warn(message, stacklevel=2)


def _load(dataset_id: str) -> Any:
    """Return the dataset of that id, which has documents."""
    package = import_optional("ir_datasets", "ir_datasets")
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
    """Return ``{split: dataset}``: the dataset itself, or those below it, with queries and judgements."""
    found = {dataset_id.rpartition("/")[2]: dataset} if dataset.has_qrels() else {}
    registry = import_optional("ir_datasets", "ir_datasets").registry
    for name in [] if found else [name for name in registry if name.startswith(f"{dataset_id}/")]:
        part = registry[name]
        # As ir_datasets tells which datasets are parts of one collection: they share what reads the documents.
        if part.has_qrels() and part.has_docs() and part.docs_handler() == dataset.docs_handler():
            found[name.removeprefix(f"{dataset_id}/").replace("/", "-")] = part
    if not found:
        raise InputError(f"{PREFIX}{dataset_id}: no judgements (qrels), neither of the dataset nor of one below it")
    asked = {split: found[split] for split in in_usual_order(found) if found[split].has_queries()}
    if not asked:
        raise InputError(f"{PREFIX}{dataset_id}: the dataset has judgements but no queries")
    return asked
