"""Test the documented properties of the built-in collection on the real docstrings."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from haybale.collections import Collection, read_pydocs
from haybale.collections.collection import take_strings
from haybale.collections.readers.pydocs import sections, see_also


def test_size_and_splits(pydocs: Collection) -> None:
    assert pydocs.n_documents > 4000
    assert pydocs.n_passages > 15_000
    counts = {name: len(part.queries) for name, part in pydocs.splits.items()}
    total = sum(counts.values())
    assert total > 2000
    assert abs(counts["train"] / total - 0.70) < 0.03
    assert abs(counts["dev"] / total - 0.15) < 0.03


def test_known_entries(pydocs: Collection) -> None:
    ids = set(pydocs.doc_ids.to_pylist())
    assert {"numpy.sin", "scipy.linalg.norm", "sklearn.svm.SVR", "pandas.DataFrame.merge", "numpy.ndarray.sort"} <= ids
    answers = {}
    for split, part in pydocs.splits.items():
        answers |= dict(zip(take_strings(pydocs.queries.ids, part.queries), pydocs.relevant_ids(split), strict=True))
    assert set(answers["q:numpy.sin"]) == {"numpy.arcsin", "numpy.sinh", "numpy.cos"}
    assert {"sklearn.svm.NuSVR", "sklearn.svm.LinearSVR"} <= set(answers["q:sklearn.svm.SVR"])


def test_answers_are_in_no_text(pydocs: Collection) -> None:
    """No passage or query contains a See Also section, and no query has its own document as an answer."""
    for text in pydocs.passages.texts.to_pylist() + pydocs.queries.paragraphs.to_pylist():
        assert "See Also\n---" not in text
    own = pydocs.queries.own
    assert (own >= 0).all()
    for part in pydocs.splits.values():
        queries, documents = part.relevant()
        assert (own[queries] != documents).all()


def test_links_do_not_include_the_answers_of_dev_and_test(pydocs: Collection) -> None:
    assert pydocs.links is not None
    assert pydocs.sections is not None
    source = np.searchsorted(pydocs.sections.doc_offsets, pydocs.links.section_to_document[:, 0], side="right") - 1
    links = set(zip(source.tolist(), pydocs.links.section_to_document[:, 1].tolist(), strict=True))
    for name, part in pydocs.splits.items():
        queries, documents = part.relevant()
        pairs = set(zip(pydocs.queries.own[queries].tolist(), documents.tolist(), strict=True))
        assert (pairs <= links) if name == "train" else not (pairs & links)


@pytest.mark.thorough
def test_reading_is_deterministic_in_every_process(pydocs: Collection) -> None:
    """Neither hash randomisation nor the modules that reading imports may change order, splits or text."""
    code = "from haybale.collections import read_pydocs; print(read_pydocs().digest())"
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "1"}).stdout
    assert found.strip() == read_pydocs().digest() == pydocs.digest()


def test_parsing_of_docstrings() -> None:
    docstring = "Norms.\n\nord    norm\n=====  =====\nNone   2-norm\n\nSee Also\n--------\nabs : x\n"
    assert [part.title for part in sections(docstring)] == ["", "See Also"]  # a table is not a heading
    blocks = [
        "NuSVR : Support Vector Machine for regression\n    using other, names: here.",
        "`DataFrame.join`, merge_asof",
        ":meth:`~pandas.Series.map` : Maps.",
        "scipy.linalg.norm(a, axis)",
        "A sentence that is not a name.",
    ]
    assert see_also(blocks) == ["NuSVR", "DataFrame.join", "merge_asof", "pandas.Series.map", "scipy.linalg.norm"]
