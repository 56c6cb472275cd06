"""Read the layout of COLIEE task 1: find the other cases that a case cites.

    *.txt            a case a file; its id is the name of the file without ".txt"
    *labels*.json    {"000028.txt": ["000123.txt", …], …}: a query case and the cases relevant to it

Both directly in the folder or in folders in it, such as ``task1_train_files_2021``. A case is split into its numbered
paragraphs, ``<case>:<label>``; a query is a case of the folder, its own document, with the same paragraphs. A file of
labels is the split ``train``, ``dev`` (``val`` too) or ``test`` that its name contains, else the split of its name.
Empty cases are left out, with their judgements, and as queries.

Rabelo et al., "Overview and Discussion of the Competition on Legal Information Extraction/Entailment (COLIEE) 2021".
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path

from haybale.collections.builder import CollectionBuilder, in_usual_order
from haybale.collections.reader import FolderReader
from haybale.collections.splitters import Paragraph, split_numbered, split_or_whole
from haybale.errors import FileFormatError, InputError, told_apart
from haybale.text_files import json_object, read_text

Labels = dict[str, list[str]]  # query case: relevant cases
_LABELS = "*labels*.json"
_SPLITS = (("train", "train"), ("dev", "dev"), ("val", "dev"), ("test", "test"))


class COLIEE(FolderReader):
    """Reads the folders of COLIEE task 1."""

    name = "coliee"
    expected = _LABELS

    def recognises(self, source: str) -> bool:
        return bool(_files_in(Path(source), _LABELS))

    def add_documents(self, builder: CollectionBuilder, folder: Path) -> None:
        """Add the cases in the order of their ids; one warning counts those that are empty."""
        builder.language = "english"
        n_empty = 0
        for case, path in _case_files(folder).items():
            paragraphs = _paragraphs(path)
            if not paragraphs:
                n_empty += 1
                continue
            number = builder.add_document(case)
            for paragraph in paragraphs:
                builder.add_passage(number, paragraph.text, f"{case}:{paragraph.label}")
        if n_empty:
            warnings.warn(f"{folder}: {n_empty} empty cases were left out", stacklevel=2)

    def add_queries(self, builder: CollectionBuilder, folder: Path) -> None:
        cases = _case_files(folder)
        for split, (path, labels) in _read_splits(folder).items():
            for case in {**labels, **dict.fromkeys(case for relevant in labels.values() for case in relevant)}:
                if case not in cases:
                    message = f"names case {told_apart(case, cases)}, expected a file {case}.txt in {folder}"
                    raise FileFormatError(path, None, message)
            for query, relevant in labels.items():
                if builder.document_number(query) is None:  # an empty case
                    continue
                builder.add_query(query, [part.text for part in _paragraphs(cases[query])], own=query, split=split)
                for case in relevant:
                    if builder.document_number(case) is not None:
                        builder.add_judgement(split, query, case)


def _paragraphs(path: Path) -> list[Paragraph]:
    return split_or_whole(read_text(path), split_numbered)


def _files_in(folder: Path, pattern: str) -> list[Path]:
    """Return files of that name in the folder and its folders, without those that archives and file systems leave."""
    return [
        path
        for path in sorted([*folder.glob(pattern), *folder.glob(f"*/{pattern}")])
        if path.is_file() and not path.name.startswith((".", "README")) and path.parent.name != "__MACOSX"
    ]


def _case_files(folder: Path) -> dict[str, Path]:
    """Return ``{case: file}``, sorted by id; no case, or a case twice, is an error."""
    cases: dict[str, Path] = {}
    for path in _files_in(folder, "*.txt"):
        if path.stem in cases:
            raise InputError(f"case {path.stem!r} is there twice: {cases[path.stem]} and {path}")
        cases[path.stem] = path
    if not cases:
        raise InputError(f"{folder}: expected cases, *.txt, in it or in its folders, found none")
    return dict(sorted(cases.items()))


def _read_splits(folder: Path) -> dict[str, tuple[Path, Labels]]:
    """Return ``{split: (file, labels)}``."""
    found: dict[str, tuple[Path, Labels]] = {}
    query_in: dict[str, Path] = {}
    for path in _files_in(folder, _LABELS):
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
    return {split: found[split] for split in in_usual_order(found)}


def _labels(path: Path) -> Labels:
    labels = json_object(path, read_text(path))
    for query, relevant in labels.items():
        if not isinstance(relevant, list) or not all(isinstance(case, str) for case in relevant):
            raise FileFormatError(path, None, f"expected a list of relevant cases for query {query!r}")
    return {_id(query): [_id(case) for case in relevant] for query, relevant in labels.items()}


def _id(name: str) -> str:
    return name.strip().removesuffix(".txt")
