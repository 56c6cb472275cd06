"""Read datasets of the package ir_datasets by their id: ``beir/scifact/test``, ``msmarco-passage``, ``vaswani``.

A document with the fields ``title`` and ``text`` is read as in BEIR, title first. The text of any other document and of
a query is its ``default_text()``. A dataset with judgements has one split, named by the last part of its id. For a
dataset without judgements, each registered dataset below it (``<id>/…``) with judgements of the same documents is a
split, named by the rest of its id, with ``-`` in place of ``/``. If a pair has several grades, for several aspects for
instance, the highest one is kept.

MacAvaney et al., "Simplified Data Wrangling with ir_datasets", SIGIR 2021. The ids are listed at ir-datasets.com. The
package downloads the datasets.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from haybale.analysis import BY_CODE
from haybale.collections.builder import CollectionBuilder, sorted_splits
from haybale.collections.collection import Collection
from haybale.collections.reader import Reader
from haybale.collections.readers.beir import titled_lines
from haybale.errors import HaybaleError, InputError
from haybale.extras import import_optional

PREFIX = "ir_datasets:"


class IRDatasets(Reader):
    """Reader of datasets of ir_datasets."""

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
    """Convert any error of the package, such as a network error, to an InputError that names the dataset."""
    try:
        yield
    except HaybaleError:
        raise
    except Exception as error:
        why = " ".join(str(error).split()) or type(error).__name__
        message = f"{PREFIX}{dataset_id}: ir_datasets could not read it: {why}; check the id and the network"
        raise InputError(message) from error


def _add_documents(builder: CollectionBuilder, dataset_id: str) -> None:
    dataset = _load(dataset_id)
    builder.language = BY_CODE.get(str(dataset.docs_handler().docs_lang()))
    for document in dataset.docs_iter():
        title, text = getattr(document, "title", None), getattr(document, "text", None)
        if not isinstance(title, str) or not isinstance(text, str):
            title, text = "", document.default_text()
        builder.add_document(document.doc_id, titled_lines(title, text), title=title)


def _add_queries(builder: CollectionBuilder, dataset_id: str) -> None:
    """Add queries and judgements; judgements of unknown documents or queries are skipped, with one warning."""
    splits = _splits(dataset_id, _load(dataset_id))
    texts: dict[str, str] = {}
    for part in splits.values():
        for query in part.queries_iter():
            text = query.default_text()
            if texts.setdefault(query.query_id, text) != text:
                message = (
                    f"{PREFIX}{dataset_id}: query {query.query_id!r} must have one text, found two; "
                    "open one of its splits alone"
                )
                raise InputError(message)
    for query_id, text in texts.items():
        builder.add_query(query_id, text.split("\n"))
    n_unknown = 0
    for split, part in splits.items():
        grades: dict[tuple[str, str], int] = {}
        for judgement in part.qrels_iter():
            pair, grade = (judgement.query_id, judgement.doc_id), int(judgement.relevance)
            grades[pair] = max(grade, grades.get(pair, grade))
        for (query_id, doc_id), grade in grades.items():
            if query_id in texts and builder.document_number(doc_id) is not None:
                builder.add_judgement(split, query_id, doc_id, grade)
            else:
                n_unknown += 1
    if n_unknown:
        message = (
            f"{PREFIX}{dataset_id}: {n_unknown} judgements of unknown documents or queries were skipped; "
            "see the page of the dataset"
        )
        warnings.warn(message, stacklevel=2)


def _load(dataset_id: str) -> Any:
    package = import_optional("ir_datasets", "ir_datasets")
    try:
        dataset = package.load(dataset_id)
    except KeyError:
        near = difflib.get_close_matches(dataset_id, list(package.registry), n=3)
        hint = f" (did you mean {' or '.join(near)}?)" if near else ""
        raise InputError(
            f"ir_datasets has no dataset {dataset_id!r}{hint}; ids look like beir/scifact/test, see ir-datasets.com"
        ) from None
    if not dataset.has_docs():
        raise InputError(f"{PREFIX}{dataset_id}: the dataset has no documents; choose one that has")
    return dataset


def _splits(dataset_id: str, dataset: Any) -> dict[str, Any]:
    """Return ``{split: dataset}`` of the dataset itself or of those below it, all with queries and judgements."""
    datasets = {dataset_id.rpartition("/")[2]: dataset} if dataset.has_qrels() else {}
    registry = import_optional("ir_datasets", "ir_datasets").registry
    for name in [] if datasets else [name for name in registry if name.startswith(f"{dataset_id}/")]:
        part = registry[name]
        # Datasets of one collection have equal document handlers; ir_datasets itself compares them in this way.
        if part.has_qrels() and part.has_docs() and part.docs_handler() == dataset.docs_handler():
            datasets[name.removeprefix(f"{dataset_id}/").replace("/", "-")] = part
    if not datasets:
        raise InputError(f"{PREFIX}{dataset_id}: expected judgements (qrels), found none, also not in its parts")
    with_queries = {split: datasets[split] for split in sorted_splits(datasets) if datasets[split].has_queries()}
    if not with_queries:
        raise InputError(f"{PREFIX}{dataset_id}: the dataset has judgements but no queries; choose one that has both")
    return with_queries
