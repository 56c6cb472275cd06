"""Test the reader of COLIEE task 1: folders of cases, files of labels and their splits, and invalid folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from haybale.collections import Collection, open_collection
from haybale.errors import InputError

CASES = {
    "000001": "Federal Court\nSummary:\nA visa was refused.\n[1]\nThe officer erred.\n[2]\nCosts.",
    "000002": "Tax Court\n[1] Taxes are due.\n[2] They were paid.",
    "000003": "No numbers here.\n\nOnly blank lines.",
    "000004": "Federal Court\n[1] The officer did not err.",
    "000005": "[1] A fifth case.",
}
TRAIN = {"000001.txt": ["000004.txt"], "000002.txt": ["000003.txt", "000001.txt"], "000003.txt": ["000005.txt"]}


def coliee(
    folder: Path,
    cases: dict[str, str] | None = None,
    labels: dict[str, object] | None = None,
    place: str = "task1_train_files_2021",
) -> Path:
    (folder / place).mkdir(parents=True, exist_ok=True)
    for case, text in (CASES if cases is None else cases).items():
        (folder / place / f"{case}.txt").write_text(text, encoding="utf-8")
    for name, content in ({"task1_train_labels_2021.json": TRAIN} if labels is None else labels).items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


def relevant(collection: Collection, split: str) -> dict[str, list[str]]:
    queries = collection.queries.ids.take(collection.split(split).queries).to_pylist()
    return dict(zip(queries, collection.relevant_ids(split), strict=True))


@pytest.mark.parametrize("place", [".", "task1_train_files_2021"])
def test_cases_become_documents_and_labelled_cases_become_queries(tmp_path: Path, place: str) -> None:
    collection = open_collection(coliee(tmp_path, place=place))
    assert collection.doc_ids.to_pylist() == sorted(CASES)
    assert collection.passages.ids.to_pylist()[:6] == [
        *("000001:I", "000001:S", "000001:1", "000001:2"),
        *("000002:I", "000002:1"),
    ]
    assert collection.queries.paragraphs_of(0) == collection.passages.texts.to_pylist()[:4]
    assert collection.queries.own.tolist() == [0, 1, 2]
    assert relevant(collection, "train") == {"000001": ["000004"], "000002": ["000003", "000001"], "000003": ["000005"]}


def test_cases_and_labels_in_several_folders(tmp_path: Path) -> None:
    cases = list(CASES.items())
    coliee(tmp_path, dict(cases[:3]), {"train_labels.json": {"000002": ["000001"], "000001": []}})
    coliee(tmp_path, dict(cases[3:]), {}, place="task1_test_files_2021")
    (tmp_path / "task1_test_files_2021" / "task1_test_labels_2021.json").write_text('{"000004": ["000005"]}')
    for ignored in ("._000001.txt", "README.txt", "__MACOSX/000001.txt"):
        (tmp_path / ignored).parent.mkdir(exist_ok=True)
        (tmp_path / ignored).write_text("not a case")
    collection = open_collection(tmp_path)
    assert collection.doc_ids.to_pylist() == sorted(CASES)
    assert list(collection.splits) == ["train", "test"]
    assert relevant(collection, "train") == {"000002": ["000001"], "000001": []}
    assert relevant(collection, "test") == {"000004": ["000005"]}


@pytest.mark.parametrize(
    ("name", "split"),
    [("val_labels", "dev"), ("task1_test_labels_2021", "test"), ("latest_eval_labels", "latest_eval_labels")],
)
def test_the_file_name_of_labels_determines_the_split(tmp_path: Path, name: str, split: str) -> None:
    assert list(open_collection(coliee(tmp_path, labels={f"{name}.json": TRAIN})).splits) == [split]


def test_line_ends_and_byte_order_marks_are_removed(tmp_path: Path) -> None:
    folder = coliee(tmp_path)
    (folder / "task1_train_files_2021" / "000004.txt").write_bytes("\ufeff[1]\r\nOne.\r[2]\rTwo.".encode())
    collection = open_collection(folder)
    texts = [collection.passages.texts[int(i)].as_py() for i in collection.passage_numbers(["000004:1", "000004:2"])]
    assert texts == ["One.", "Two."]


def test_empty_cases_are_left_out(tmp_path: Path) -> None:
    folder = coliee(tmp_path, CASES | {"000002": "\n", "000004": "", "000009": " "})
    with pytest.warns(UserWarning, match="3 empty cases"):
        collection = open_collection(folder)
    assert collection.doc_ids.to_pylist() == ["000001", "000003", "000005"]
    assert relevant(collection, "train") == {"000001": [], "000003": ["000005"]}


INVALID_LABELS: dict[str, tuple[dict[str, object], str]] = {
    "an unknown relevant case": ({"train_labels.json": {"000001": ["000077.txt"]}}, r"train_labels\.json: .*'000077'"),
    "two files of a split": (
        {"train_labels.json": TRAIN, "train_labels_2022.json": {}},
        r"'train'.*train_labels\.json and .*train_labels_2022\.json",
    ),
    "a query in two files": (
        {"train_labels.json": TRAIN, "val_labels.json": {"000002": []}},
        r"val_labels\.json: .*'000002'.*train_labels\.json",
    ),
}


@pytest.mark.parametrize(("labels", "message"), INVALID_LABELS.values(), ids=INVALID_LABELS.keys())
def test_invalid_labels_are_rejected(tmp_path: Path, labels: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_collection(coliee(tmp_path, labels=labels))


def test_invalid_folders_and_files_are_rejected(tmp_path: Path) -> None:
    without_labels = open_collection(coliee(tmp_path / "a", labels={}))  # a folder of text files
    assert without_labels.doc_ids.to_pylist()[0].endswith(".txt")
    assert without_labels.n_queries == 0
    with pytest.raises(InputError, match=r"\*labels\*\.json"):
        open_collection(tmp_path / "a", layout="coliee")
    with pytest.raises(InputError, match=r"\*\.txt"):
        open_collection(coliee(tmp_path / "b", cases={}))
    with pytest.raises(InputError, match=r"'000001'.*more.000001\.txt and .*2021.000001\.txt"):
        open_collection(coliee(coliee(tmp_path / "c"), {"000001": "x"}, {}, place="more"))
