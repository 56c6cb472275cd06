"""The layout of COLIEE task 1, which of the other cases a case cites.

    *.txt            a case a file; its id is the name of the file without ".txt"
    *labels*.json    {"000028.txt": ["000123.txt", …], …}: a query case and the cases relevant to it

Both directly in the folder or in folders in it, such as ``task1_train_files_2021``. Rabelo et al., "Overview and
Discussion of the Competition on Legal Information Extraction/Entailment (COLIEE) 2021", 2022.
"""

from __future__ import annotations

import warnings
from itertools import chain
from pathlib import Path

from haybale.collections.builder import CollectionBuilder
from haybale.collections.coliee_files import case_files, files_in, read_splits
from haybale.collections.collection import Collection
from haybale.collections.lines import read_text
from haybale.collections.paragraphs import Paragraph, Splitter, find_splitter, split_or_whole
from haybale.collections.paragraphs.resplit import passage_ids
from haybale.collections.sink import DocumentSink
from haybale.errors import FileFormatError


def read_coliee(folder: Path | str, splitter: Splitter | None = None, n_dev: int = 0) -> Collection:
    """Read a COLIEE folder. A query is a case of the folder, its own document, with the same paragraphs.

    ``splitter`` is ``numbered`` by default; the id of a paragraph is ``<case>:<label>``. A file of labels is the
    split ``train``, ``dev`` (``val`` too) or ``test`` that its name contains, else the split of its name. The last
    ``n_dev`` queries of train become dev; Althammer et al. 2022 (PARM) took 100.

    Empty cases are left out, with their judgements, and as queries; one warning counts them and names those that are
    a query or relevant. Refused, each with one error: a folder without cases or labels, a case twice, a case that is
    not UTF-8, labels that are not such JSON or name a case that is not there, a query in two files of labels.
    """
    folder = Path(folder)
    cases, splits = case_files(folder), read_splits(folder, n_dev)
    for path, labels in splits.values():
        for case in chain(labels, *labels.values()):
            if case not in cases:
                raise FileFormatError(path, None, f"names case {case!r}, expected a file {case}.txt in {folder}")
    splitter = splitter or find_splitter("numbered")
    builder = CollectionBuilder(folder.name, language="english")
    asked: dict[str, list[str]] = {query: [] for _, labels in splits.values() for query in labels}
    empty: set[str] = set()
    for case, path in cases.items():
        paragraphs = _add_case(builder, case, path, splitter)
        if not paragraphs:
            empty.add(case)
        elif case in asked:
            asked[case] = [paragraph.text for paragraph in paragraphs]
    for split, (_, labels) in splits.items():
        for query in (query for query in labels if query not in empty):
            builder.add_query(query, asked[query], own=query, split=split)
            for case in labels[query]:
                if case not in empty:
                    builder.add_judgement(split, query, case)
    judged = {case for _, labels in splits.values() for case in chain(labels, *labels.values())}
    _warn(folder, len(empty), sorted(empty & judged))
    return builder.build()


def add_coliee_documents(sink: DocumentSink, folder: Path, splitter: Splitter | None = None) -> None:
    """Read the cases one by one, in the order of their ids; labels are not needed."""
    splitter = splitter or find_splitter("numbered")
    added = [bool(_add_case(sink, case, path, splitter)) for case, path in case_files(folder).items()]
    _warn(folder, added.count(False), [])


def is_coliee(folder: Path) -> bool:
    """Whether there is a file of labels."""
    return bool(files_in(folder, "*labels*.json"))


def _add_case(sink: DocumentSink, case: str, path: Path, splitter: Splitter) -> list[Paragraph]:
    """Add a case and return its paragraphs; an empty one is not added."""
    paragraphs = split_or_whole(read_text(path), splitter)
    if paragraphs:
        number = sink.add_document(case)
        for paragraph, passage_id in zip(paragraphs, passage_ids(case, paragraphs), strict=True):
            sink.add_passage(number, paragraph.text, passage_id)
    return paragraphs


def _warn(folder: Path, n_empty: int, named: list[str]) -> None:
    if n_empty:
        also = f"; queries or relevant among them: {', '.join(named)}" if named else ""
        warnings.warn(f"{folder}: {n_empty} empty cases were left out{also}", stacklevel=3)
