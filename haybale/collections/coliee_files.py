"""The files of a COLIEE folder: cases and labels, and the split that each file of labels is."""

from __future__ import annotations

import json
import re
from pathlib import Path

from haybale.collections.lines import read_text
from haybale.collections.split_order import in_usual_order
from haybale.errors import FileFormatError, InputError

Labels = dict[str, list[str]]  # query case: relevant cases
Splits = dict[str, tuple[Path, Labels]]
_SPLITS = (("train", "train"), ("dev", "dev"), ("val", "dev"), ("test", "test"))


def files_in(folder: Path, pattern: str) -> list[Path]:
    """Files of that name in the folder and the folders in it, without those that archives and file systems leave."""
    found = sorted([*folder.glob(pattern), *folder.glob(f"*/{pattern}")])
    return [
        path
        for path in found
        if path.is_file() and not path.name.startswith((".", "README")) and path.parent.name != "__MACOSX"
    ]


def case_files(folder: Path) -> dict[str, Path]:
    """``{case: file}``, by id; none, or a case twice, is an error."""
    cases: dict[str, Path] = {}
    for path in files_in(folder, "*.txt"):
        if path.stem in cases:
            raise InputError(f"case {path.stem!r} is there twice: {cases[path.stem]} and {path}")
        cases[path.stem] = path
    if not cases:
        raise InputError(f"{folder}: expected cases, *.txt, in it or in its folders, found none")
    return dict(sorted(cases.items()))


def read_splits(folder: Path, n_dev: int = 0) -> Splits:
    """``{split: (file, labels)}``, train, dev and test first; the last ``n_dev`` queries of train are dev."""
    found: Splits = {}
    query_in: dict[str, Path] = {}
    for path in files_in(folder, "*labels*.json"):
        split = split_name(path.stem)
        if split in found:
            raise InputError(f"{path} and {found[split][0]} are both labels of the split {split!r}; expected one")
        found[split] = path, _labels(path)
        for query in found[split][1]:
            if query in query_in:
                raise FileFormatError(path, None, f"names query {query!r}, which {query_in[query]} has too")
            query_in[query] = path
    if not found:
        raise InputError(f"{folder}: expected labels, *labels*.json, in it or in its folders, found none")
    return in_usual_order(_with_dev(found, n_dev) if n_dev else found)


def split_name(stem: str) -> str:
    """The split that the name of a file of labels says.

    >>> split_name("task1_train_labels_2021"), split_name("val_labels"), split_name("gold_labels")
    ('train', 'dev', 'gold_labels')
    """
    said = (split for word, split in _SPLITS if re.search(rf"(?<![a-z]){word}", stem.lower()))
    return next(said, stem)


def _labels(path: Path) -> Labels:
    try:
        labels = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise FileFormatError(path, error.lineno, f"expected JSON, column {error.colno}: {error.msg}") from error
    if not isinstance(labels, dict):
        raise FileFormatError(path, None, f"expected an object of query cases, found {type(labels).__name__}")
    for query, relevant in labels.items():
        if not isinstance(relevant, list) or not all(isinstance(case, str) for case in relevant):
            raise FileFormatError(path, None, f"expected a list of relevant cases for query {query!r}")
    return {_id(query): [_id(case) for case in relevant] for query, relevant in labels.items()}


def _id(name: str) -> str:
    return name.strip().removesuffix(".txt")


def _with_dev(splits: Splits, n_dev: int) -> Splits:
    path, train = splits.get("train", (Path(), Labels()))
    if "dev" in splits or not 0 < n_dev < len(train):
        have = ", ".join(f"{split} ({len(labels):,})" for split, (_, labels) in in_usual_order(splits).items())
        raise InputError(f"cannot take {n_dev} queries of train as dev; the splits and their queries are {have}")
    queries = list(train)
    kept, moved = ({query: train[query] for query in part} for part in (queries[:-n_dev], queries[-n_dev:]))
    return splits | {"train": (path, kept), "dev": (path, moved)}
