"""Read the layout of COLIEE task 1: for a query case, find the other cases that it cites.

    *.txt            one case per file; its id is the file name without ".txt"
    *labels*.json    {"000028.txt": ["000123.txt", …], …}: query cases and their relevant cases

The files are in the folder itself or in its subfolders, such as ``task1_train_files_2021``. A case is split into its
numbered paragraphs, with ids ``<case>:<label>``. Query cases are documents of the collection as well, and each is the
own document of its query. The name of a file of labels determines the split: ``train``, ``dev`` (or ``val``) or
``test``, if the name contains one of these words, and otherwise the name itself. Empty cases are left out, both as
documents and as queries, together with their judgements.

Rabelo et al., "Overview and Discussion of the Competition on Legal Information Extraction/Entailment (COLIEE) 2021".
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path

from haybale.collections.builder import CollectionBuilder, sorted_splits
from haybale.collections.reader import FolderReader
from haybale.collections.splitters import split_numbered, split_or_whole
from haybale.errors import FileFormatError, InputError, told_apart
from haybale.text_files import json_object, read_text

Labels = dict[str, list[str]]  # the relevant cases of each query case
_LABELS = "*labels*.json"
_SPLITS = (("train", "train"), ("dev", "dev"), ("val", "dev"), ("test", "test"))


class COLIEE(FolderReader):
    """Reader of the folders of COLIEE task 1."""

    name = "coliee"
    expected = _LABELS

    def recognises(self, source: str) -> bool:
        return bool(_files_in(Path(source), _LABELS))

    def add_documents(self, builder: CollectionBuilder, folder: Path) -> None:
        builder.language = "english"
        n_empty = 0
        for case, path in _case_files(folder).items():
            paragraphs = split_or_whole(read_text(path), split_numbered)
            if not paragraphs:
                n_empty += 1
                continue
            number = builder.add_document(case)
            for paragraph in paragraphs:
                builder.add_passage(number, paragraph.text, f"{case}:{paragraph.label}")
        if n_empty:
            message = f"{folder}: {n_empty} empty cases were left out, instead of indexed; remove their files"
            warnings.warn(message, stacklevel=2)

    def add_queries(self, builder: CollectionBuilder, folder: Path) -> None:
        cases = _case_files(folder)
        for split, (path, labels) in _read_splits(folder).items():
            for case in {**labels, **dict.fromkeys(case for relevant in labels.values() for case in relevant)}:
                if case not in cases:
                    message = f"case {told_apart(case, cases)} has no file {case}.txt in {folder}; add the file"
                    raise FileFormatError(path, None, message)
            for query, relevant in labels.items():
                if builder.document_number(query) is None:  # an empty case
                    continue
                paragraphs = [part.text for part in split_or_whole(read_text(cases[query]), split_numbered)]
                builder.add_query(query, paragraphs, own=query, split=split)
                for case in relevant:
                    if builder.document_number(case) is not None:
                        builder.add_judgement(split, query, case)


def _files_in(folder: Path, pattern: str) -> list[Path]:
    """Return the matching files in a folder and its subfolders, without READMEs and what archivers leave behind."""
    return [
        path
        for path in sorted([*folder.glob(pattern), *folder.glob(f"*/{pattern}")])
        if path.is_file() and not path.name.startswith((".", "README")) and path.parent.name != "__MACOSX"
    ]


def _case_files(folder: Path) -> dict[str, Path]:
    """Return ``{case: file}``, sorted by id."""
    cases: dict[str, Path] = {}
    for path in _files_in(folder, "*.txt"):
        if path.stem in cases:
            raise InputError(f"case {path.stem!r}: expected one file, found {cases[path.stem]} and {path}")
        cases[path.stem] = path
    if not cases:
        raise InputError(f"{folder}: expected cases, *.txt, in it or in its subfolders, found none")
    return dict(sorted(cases.items()))


def _read_splits(folder: Path) -> dict[str, tuple[Path, Labels]]:
    """Return ``{split: (file, labels)}``."""
    splits: dict[str, tuple[Path, Labels]] = {}
    file_of: dict[str, Path] = {}  # the file that contains each query
    for path in _files_in(folder, _LABELS):
        words = (split for word, split in _SPLITS if re.search(rf"(?<![a-z]){word}", path.stem.lower()))
        split = next(words, path.stem)
        if split in splits:
            raise InputError(f"split {split!r}: expected one file of labels, found {splits[split][0]} and {path}")
        splits[split] = path, _read_labels(path)
        for query in splits[split][1]:
            if query in file_of:
                message = f"query {query!r} must be in one file only, found in {file_of[query]} too"
                raise FileFormatError(path, None, message)
            file_of[query] = path
    if not splits:
        raise InputError(f"{folder}: expected labels, *labels*.json, in it or in its subfolders, found none")
    return {split: splits[split] for split in sorted_splits(splits)}


def _read_labels(path: Path) -> Labels:
    labels = json_object(path, read_text(path))
    for query, relevant in labels.items():
        if not isinstance(relevant, list) or not all(isinstance(case, str) for case in relevant):
            message = f"expected a list of relevant cases for query {query!r}, found {relevant!r:.80}"
            raise FileFormatError(path, None, message)
    return {_id(query): [_id(case) for case in relevant] for query, relevant in labels.items()}


def _id(name: str) -> str:
    return name.strip().removesuffix(".txt")
