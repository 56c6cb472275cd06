"""The layout of COLIEE task 1, which of the other cases a case cites.

    *.txt            a case a file; its id is the name of the file without ".txt"
    *labels*.json    {"000028.txt": ["000123.txt", …], …}: a query case and the cases relevant to it

Both directly in the folder or in folders in it, such as ``task1_train_files_2021``. Rabelo et al., "Overview and
Discussion of the Competition on Legal Information Extraction/Entailment (COLIEE) 2021", 2022.
"""

from __future__ import annotations

import re
import warnings
from itertools import chain
from pathlib import Path

from haybale.collections.builder import CollectionBuilder, in_usual_order
from haybale.collections.collection import Collection
from haybale.collections.lines import json_object, read_text
from haybale.collections.splitters import Splitter, find_splitter, split_or_whole
from haybale.errors import FileFormatError, InputError

Labels = dict[str, list[str]]  # query case: relevant cases
_SPLITS = (("train", "train"), ("dev", "dev"), ("val", "dev"), ("test", "test"))


def read_coliee(folder: Path | str, splitter: Splitter | None = None, n_dev: int = 0) -> Collection:
    """Read a COLIEE folder. A query is a case of the folder, its own document, with the same paragraphs.

    A file of labels is the split ``train``, ``dev`` (``val`` too) or ``test`` that its name contains, else the split
    of its name. Empty cases are left out, with their judgements, and as queries; one warning counts them and names
    those that are a query or relevant.

    Parameters
    ----------
    folder : path
    splitter : Splitter, default ``numbered``
        The id of a paragraph is ``<case>:<label>``.
    n_dev : int, default 0
        The last queries of train that become dev; Althammer et al. 2022 (PARM) took 100.

    Raises
    ------
    InputError
        A folder without cases or labels, a case twice, a case that is not UTF-8, labels that are not such JSON or
        name a case that is not there, a query in two files of labels.
    """
    folder = Path(folder)
    cases, splits = _case_files(folder), _read_splits(folder, n_dev)
    labelled = set(chain.from_iterable(chain(labels, *labels.values()) for _, labels in splits.values()))
    for path, labels in splits.values():
        for case in chain(labels, *labels.values()):
            if case not in cases:
                raise FileFormatError(path, None, f"names case {case!r}, expected a file {case}.txt in {folder}")
    builder = CollectionBuilder(folder.name, language="english")
    paragraphs = _add_cases(builder, folder, cases, splitter, labelled)
    for split, (_, labels) in splits.items():
        for query in filter(paragraphs.get, labels):
            builder.add_query(query, paragraphs[query], own=query, split=split)
            for case in filter(paragraphs.get, labels[query]):
                builder.add_judgement(split, query, case)
    return builder.build()


def add_coliee_documents(builder: CollectionBuilder, folder: Path) -> None:
    """Read the cases one by one, in the order of their ids; labels are not needed."""
    _add_cases(builder, folder, _case_files(folder), None, set())


def _add_cases(
    builder: CollectionBuilder, folder: Path, cases: dict[str, Path], splitter: Splitter | None, labelled: set[str]
) -> dict[str, list[str]]:
    """Add the cases that are not empty, and warn of those that are; returns the paragraphs of labelled ones."""
    splitter, empty = splitter or find_splitter("numbered"), []
    paragraphs: dict[str, list[str]] = {}
    for case, path in cases.items():
        found = split_or_whole(read_text(path), splitter)
        if case in labelled:
            paragraphs[case] = [paragraph.text for paragraph in found]
        if not found:
            empty.append(case)
            continue
        number = builder.add_document(case)
        for paragraph in found:
            builder.add_passage(number, paragraph.text, f"{case}:{paragraph.label}")
    if empty:
        named = ", ".join(sorted(labelled.intersection(empty)))
        also = f"; queries or relevant among them: {named}" if named else ""
        warnings.warn(f"{folder}: {len(empty)} empty cases were left out{also}", stacklevel=4)
    return paragraphs


def files_in(folder: Path, pattern: str) -> list[Path]:
    """Files of that name in the folder and the folders in it, without those that archives and file systems leave."""
    return [
        path
        for path in sorted([*folder.glob(pattern), *folder.glob(f"*/{pattern}")])
        if path.is_file() and not path.name.startswith((".", "README")) and path.parent.name != "__MACOSX"
    ]


def _case_files(folder: Path) -> dict[str, Path]:
    """``{case: file}``, by id; none, or a case twice, is an error."""
    cases: dict[str, Path] = {}
    for path in files_in(folder, "*.txt"):
        if path.stem in cases:
            raise InputError(f"case {path.stem!r} is there twice: {cases[path.stem]} and {path}")
        cases[path.stem] = path
    if not cases:
        raise InputError(f"{folder}: expected cases, *.txt, in it or in its folders, found none")
    return dict(sorted(cases.items()))


def _read_splits(folder: Path, n_dev: int) -> dict[str, tuple[Path, Labels]]:
    """``{split: (file, labels)}``; the last ``n_dev`` queries of train are dev."""
    found: dict[str, tuple[Path, Labels]] = {}
    query_in: dict[str, Path] = {}
    for path in files_in(folder, "*labels*.json"):
        words = (split for word, split in _SPLITS if re.search(rf"(?<![a-z]){word}", path.stem.lower()))
        split = next(words, path.stem)
        if split in found:
            raise InputError(f"{path} and {found[split][0]} are both labels of the split {split!r}; expected one")
        found[split] = path, _labels(path)
        for query in found[split][1]:
            if query in query_in:
                raise FileFormatError(path, None, f"names query {query!r}, which {query_in[query]} has too")
            query_in[query] = path
    if not found:
        raise InputError(f"{folder}: expected labels, *labels*.json, in it or in its folders, found none")
    if n_dev:
        path, train = found.get("train", (folder, {}))
        if "dev" in found or not 0 < n_dev < len(train):
            have = ", ".join(f"{split} ({len(found[split][1]):,})" for split in in_usual_order(found))
            raise InputError(f"cannot take {n_dev} queries of train as dev; the splits and their queries are {have}")
        queries = list(train.items())
        found |= {"train": (path, dict(queries[:-n_dev])), "dev": (path, dict(queries[-n_dev:]))}
    return {split: found[split] for split in in_usual_order(found)}


def _labels(path: Path) -> Labels:
    labels = json_object(path, read_text(path))
    for query, relevant in labels.items():
        if not isinstance(relevant, list) or not all(isinstance(case, str) for case in relevant):
            raise FileFormatError(path, None, f"expected a list of relevant cases for query {query!r}")
    return {_id(query): [_id(case) for case in relevant] for query, relevant in labels.items()}


def _id(name: str) -> str:
    return name.strip().removesuffix(".txt")
