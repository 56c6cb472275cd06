"""Test the reader of ir_datasets on tiny local datasets, in a registry of their own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from haybale.collections import open_collection
from haybale.collections.open import read_documents
from haybale.errors import InputError, MissingExtraError

ir_datasets = pytest.importorskip("ir_datasets")

DOCS = "d1\tFirst document.\nd2\tSecond document.\nd3\tThird one.\n"
QUERIES = "q1\tfirst?\nq2\tsecond?\nq3\tnobody asked\n"
QRELS = "q1 0 d1 1\nq2 0 d2 2\nq2 0 d1 0\n"


class Paper(NamedTuple):
    doc_id: str
    text: str
    title: str
    year: int = 2021

    def default_text(self) -> str:
        return f"{self.title} {self.text} {self.year}"


class Papers(ir_datasets.formats.BaseDocs):
    def docs_iter(self):
        yield Paper("p1", "One line.\n \nAnother line.", "Title")
        yield Paper("p2", "", "Only a title")
        yield Paper("p3", "Only text.", "")
        yield Paper("p4", "", "")

    def docs_cls(self):
        return Paper

    def docs_lang(self):
        return "en"


class Qrels(ir_datasets.formats.BaseQrels):
    """Judgements by aspect, which may judge a pair several times."""

    def __init__(self, *judgements: tuple[str, str, int]) -> None:
        self.judgements = judgements

    def qrels_iter(self):
        return (ir_datasets.formats.GenericQrel(*judgement) for judgement in self.judgements)


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    own = ir_datasets.util.Registry()
    monkeypatch.setattr(ir_datasets, "registry", own)
    formats, dataset = ir_datasets.formats, ir_datasets.datasets.base.Dataset

    def local(name: str, text: str):
        (tmp_path / name).write_text(text)
        return ir_datasets.util.LocalDownload(tmp_path / name)

    docs, queries = formats.TsvDocs(local("docs.txt", DOCS)), formats.TsvQueries(local("queries.txt", QUERIES))
    qrels, train = (formats.TrecQrels(local(*file), {}) for file in (("qrels", QRELS), ("train", "q3 0 d3 1\n")))
    own.register("tiny", dataset(docs))
    own.register("tiny/test", dataset(docs, queries, qrels))
    own.register("tiny/train", dataset(docs, queries, train))
    own.register("tiny/dev/small", dataset(docs, queries, Qrels(("q1", "d3", 1))))
    own.register("tiny/unjudged", dataset(docs, queries))
    own.register("tiny/papers", dataset(Papers(), queries, qrels))  # other documents
    own.register("tiny-er", dataset(docs, queries, qrels))  # not below tiny
    own.register("papers", dataset(Papers(), queries, Qrels(("q1", "p1", 0), ("q1", "p1", 2), ("q1", "p1", 1))))
    own.register("holes", dataset(docs, queries, Qrels(("q1", "d1", 1), ("q1", "gone", 1), ("gone", "d1", 1))))
    own.register("no-docs", dataset(queries, qrels))
    own.register("no-queries", dataset(docs, qrels))
    return own


def test_a_dataset_with_judgements_has_one_split(registry) -> None:
    collection = open_collection("ir_datasets:tiny/test")
    assert collection.name == "tiny/test"
    assert collection.passages.ids.to_pylist() == ["d1:0", "d2:0", "d3:0"]
    assert collection.passages.texts.to_pylist() == ["First document.", "Second document.", "Third one."]
    assert collection.queries.ids.to_pylist() == ["q1", "q2", "q3"]
    assert list(collection.splits) == ["test"]
    assert collection.qrels_frame("test").to_numpy().tolist() == [["q1", "d1", 1], ["q2", "d2", 2], ["q2", "d1", 0]]
    assert collection.split("test").queries.tolist() == [0, 1]  # q3 is not judged
    assert collection.language is None


def test_the_parts_of_a_dataset_without_judgements_are_its_splits(registry) -> None:
    collection = open_collection("ir_datasets:tiny")
    assert list(collection.splits) == ["train", "test", "dev-small"]
    assert collection.n_queries == 3
    assert collection.relevant_ids("train") == [["d3"]]
    assert collection.relevant_ids("dev-small") == [["d3"]]
    assert collection.relevant_ids("test") == [["d1"], ["d2"]]


def test_titles_are_read_as_in_beir_and_the_highest_grade_is_kept(registry) -> None:
    collection = open_collection("ir_datasets:papers")
    assert collection.passages.texts.to_pylist() == ["Title\nOne line.", "Another line.", "Only a title", "Only text."]
    assert np.diff(collection.passages.doc_offsets).tolist() == [2, 1, 1, 0]
    assert collection.doc_titles.to_pylist() == ["Title", "Only a title", "", ""]
    assert collection.qrels_frame("papers").to_numpy().tolist() == [["q1", "p1", 2]]
    assert collection.language == "english"
    with pytest.warns(UserWarning, match="ir_datasets:holes: 2 judgements"):
        assert open_collection("ir_datasets:holes").relevant_ids("holes") == [["d1"]]


def test_documents_can_be_read_without_judgements(registry) -> None:
    found = read_documents("ir_datasets:tiny/unjudged")
    assert (found.doc_ids.to_pylist(), found.n_queries) == (["d1", "d2", "d3"], 0)


@pytest.mark.parametrize(
    ("dataset_id", "message"),
    [
        ("tiny/tset", "'tiny/tset'.* tiny/test"),
        ("no-docs", "ir_datasets:no-docs: .*documents"),
        ("no-queries", "ir_datasets:no-queries: .*queries"),
        ("tiny/unjudged", "ir_datasets:tiny/unjudged: .*qrels"),
    ],
)
def test_unknown_and_incomplete_datasets_are_rejected(registry, dataset_id: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_collection(f"ir_datasets:{dataset_id}")


def test_without_the_package_the_error_has_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(MissingExtraError, match=r'pip install "haybale\[ir_datasets\]"'):
        open_collection("ir_datasets:vaswani")


def test_errors_of_the_package_name_the_dataset(registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["ir_datasets"], "load", lambda _: 1 / 0)
    with pytest.raises(InputError, match=r"ir_datasets:vaswani: .*division by zero"):
        open_collection("ir_datasets:vaswani")
